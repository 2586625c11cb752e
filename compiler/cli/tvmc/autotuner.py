"""`tvmc tune`: records of either tuner for a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler import auto_scheduler, autotvm
from compiler.auto_scheduler.search.callbacks import LogEstimatedLatency, PrintTableInfo

from . import target as targets
from .model import TVMCModel
from .transform import apply_graph_transforms

TUNERS = ("ga", "gridsearch", "random", "xgb", "xgb_knob", "xgb_curve", "xgb_itervar")


def tune_model(
    tvmc_model: TVMCModel,
    target: str,
    tuning_records: str | None = None,
    prior_records: str | None = None,
    enable_autoscheduler: bool = False,
    rpc_key: str | None = None,
    hostname: str | None = None,
    port: int | str | None = 9090,
    trials: int = 10000,
    target_host: str | None = None,
    tuner: str = "xgb",
    min_repeat_ms: int | None = None,
    early_stopping: int | None = None,
    timeout: int = 10,
    repeat: int = 1,
    number: int = 10,
    parallel: int = 4,
    hardware_params: Any = None,
    include_simple_tasks: bool = False,
    log_estimated_latency: bool = False,
    additional_target_options: Mapping[str, Mapping[str, Any]] | None = None,
    desired_layout: str | None = None,
    desired_layout_ops: Sequence[str] | None = None,
    mixed_precision: bool = False,
    mixed_precision_calculation_type: str | None = None,
) -> str:
    """Tune the kernels of a model.

    Parameters
    ----------
    tuning_records : str, optional
        The log, appended to; by default a file that lives as long as the model.
    prior_records : str, optional
        A log to learn from.
    hostname, port, rpc_key
        Of a tracker and its devices; without a host, this machine.
    trials : int
        Of the whole model.
    log_estimated_latency : bool
        Keep auto_scheduler's estimates in "total_latency.tsv", beside the table that it prints.

    Returns
    -------
    The log's path.

    Raises
    ------
    BatonError
        Of the step that failed.
    """
    chosen, _ = targets.target_from_cli(target, additional_target_options, target_host)
    mod = apply_graph_transforms(
        tvmc_model.mod,
        {
            "desired_layout": desired_layout,
            "desired_layout_ops": desired_layout_ops,
            "mixed_precision": mixed_precision,
            "mixed_precision_calculation_type": mixed_precision_calculation_type,
        },
    )
    log = tuning_records or tvmc_model.default_tuning_records_path()
    measured = {
        "number": number,
        "repeat": repeat,
        "timeout": timeout,
        "min_repeat_ms": 0 if min_repeat_ms is None else min_repeat_ms,
    }
    tuners: Any = auto_scheduler if enable_autoscheduler else autotvm
    runner = tuners.LocalRunner(**measured)
    if hostname is not None:
        runner = tuners.RPCRunner(
            rpc_key, hostname, int(port or 0), n_parallel=parallel, **measured
        )
    if enable_autoscheduler:
        tasks, weights = auto_scheduler.extract_tasks(
            mod, tvmc_model.params, chosen, None, hardware_params, include_simple_tasks
        )
        callbacks: list[Any] = [PrintTableInfo()]
        if log_estimated_latency:
            callbacks.append(LogEstimatedLatency("total_latency.tsv"))
        scheduler = auto_scheduler.TaskScheduler(
            tasks, weights, load_log_file=prior_records, callbacks=callbacks
        )
        scheduler.tune(
            auto_scheduler.TuningOptions(
                num_measure_trials=trials,
                early_stopping=early_stopping,
                runner=runner,
                measure_callbacks=[auto_scheduler.RecordToFile(log)],
            )
        )
        return log
    tasks = autotvm.task.extract_from_program(mod, tvmc_model.params, chosen)
    tune_tasks(tasks, log, runner, trials, early_stopping, tuner, prior_records)
    return log


def tune_tasks(
    tasks: Sequence[Any],
    log: str,
    runner: Any,
    trials: int,
    early_stopping: int | None = None,
    tuner: str = "xgb",
    prior_records: str | None = None,
) -> None:
    """Tune each task for its share of the trials."""
    from compiler.autotvm.tuner import make_tuner

    option = autotvm.measure_option(autotvm.LocalBuilder(), runner)
    for number, task in enumerate(tasks, 1):
        chosen = make_tuner(tuner, task)
        if prior_records and Path(prior_records).exists():
            chosen.load_history(autotvm.record.load_from_file(prior_records))
        count = min(max(1, trials // len(tasks)), len(task.config_space))
        chosen.tune(
            count,
            option,
            early_stopping,
            callbacks=[
                autotvm.callback.progress_bar(count, prefix=f"[Task {number:2}/{len(tasks):2}]"),
                autotvm.callback.log_to_file(log),
            ],
        )
