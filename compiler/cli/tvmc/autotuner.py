"""`tvmc tune`: records of either tuner for a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler import auto_scheduler, autotvm
from compiler.auto_scheduler.search.callbacks import LogEstimatedLatency, PrintTableInfo

from . import TVMCException
from . import target as targets
from .model import TVMCModel
from .tasks import filter_tasks, gen_task_list
from .transform import OPTIONS, apply_graph_transforms

TUNERS = (
    *("ga", "gridsearch", "random", "droplet", "xgb"),
    *(
        f"xgb_{loss}{feature}".rstrip("_")
        for loss in ("", "rank_", "rank_binary_")
        for feature in ("", "knob", "itervar", "curve")
        if loss or feature
    ),
)


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
    tasks_filter: str = "all",
    desired_layout: str | None = None,
    desired_layout_ops: Sequence[str] | None = None,
    mixed_precision: bool = False,
    mixed_precision_ops: Sequence[str] | None = None,
    mixed_precision_calculation_type: str | None = None,
    mixed_precision_acc_type: str | None = None,
) -> str:
    """Tune the kernels of a model.

    `tuning_records`: the log, appended to; by default a file that lives as long as the model.
    `prior_records`: a log to learn from. `hostname`, `port`, `rpc_key`: of a tracker and its
    devices; without a host, this machine. `trials`: of the whole model. `log_estimated_latency`:
    also write auto_scheduler's estimates to "total_latency.tsv". `tasks_filter`: which tasks, as
    `filter_tasks` takes it; with "list" they are printed and not tuned. Returns the log's path.
    """
    given = locals()
    transforms = {name: given[name] for name in OPTIONS}
    chosen, _ = targets.target_from_cli(target, additional_target_options, target_host)
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
    weights: list[int] = []
    if enable_autoscheduler:
        tasks, weights = autoscheduler_get_tuning_tasks(
            tvmc_model.mod, tvmc_model.params, chosen, transforms, hardware_params,
            include_simple_tasks,
        )  # fmt: skip
    else:
        tasks = autotvm_get_tuning_tasks(tvmc_model.mod, tvmc_model.params, chosen, transforms)
    places, wants_list = filter_tasks(range(len(tasks)), tasks_filter)
    if wants_list:
        print(gen_task_list(tasks, enable_autoscheduler))
        return log
    tasks = [tasks[place] for place in places]
    if enable_autoscheduler:
        options = auto_scheduler.TuningOptions(
            num_measure_trials=trials,
            early_stopping=early_stopping,
            runner=runner,
            measure_callbacks=[auto_scheduler.RecordToFile(log)],
        )
        weights = [weights[place] for place in places]
        schedule_tasks(tasks, weights, options, prior_records, log_estimated_latency)
    else:
        option = autotvm.measure_option(autotvm.LocalBuilder(), runner)
        tune_tasks(tasks, log, option, tuner, trials, early_stopping, prior_records)
    return log


def autotvm_get_tuning_tasks(
    mod: Any, params: Any, target: Any, transform_args: Mapping[str, Any] | None = None
) -> list[Any]:
    """AutoTVM's tasks of a module, once it has the layout and precision that are asked for."""
    return autotvm.task.extract_from_program(
        apply_graph_transforms(mod, transform_args), params, target
    )


def autoscheduler_get_tuning_tasks(
    mod: Any,
    params: Any,
    target: Any,
    transform_args: Mapping[str, Any] | None = None,
    hardware_params: Any = None,
    include_simple_tasks: bool = False,
) -> tuple[list[Any], list[int]]:
    """auto_scheduler's tasks of such a module, and how often each is computed."""
    return auto_scheduler.extract_tasks(
        apply_graph_transforms(mod, transform_args), params, target, None, hardware_params,
        include_simple_tasks,
    )  # fmt: skip


def schedule_tasks(
    tasks: Sequence[Any],
    task_weights: Sequence[float],
    tuning_options: Any,
    prior_records: str | None = None,
    log_estimated_latency: bool = False,
) -> None:
    """Search schedules for auto_scheduler's tasks."""
    callbacks: list[Any] = [PrintTableInfo()]
    if log_estimated_latency:
        callbacks.append(LogEstimatedLatency("total_latency.tsv"))
    auto_scheduler.TaskScheduler(
        list(tasks), list(task_weights), load_log_file=prior_records, callbacks=callbacks
    ).tune(tuning_options)


def tune_tasks(
    tasks: Sequence[Any],
    log_file: str,
    measure_option: Mapping[str, Any],
    tuner: str,
    trials: int,
    early_stopping: int | None = None,
    tuning_records: str | None = None,
) -> None:
    """Tune each of AutoTVM's tasks for its share of the trials.

    `tuning_records`: a log to learn from.
    Raises TVMCException: there is no such tuner.
    """
    from compiler.autotvm.tuner import make_tuner

    if tuner not in TUNERS:
        raise TVMCException(f"invalid tuner: {tuner}; there are {', '.join(TUNERS)}")
    for number, task in enumerate(tasks, 1):
        chosen = make_tuner(tuner, task)
        if tuning_records and Path(tuning_records).exists():
            chosen.load_history(autotvm.record.load_from_file(tuning_records))
        count = min(max(1, trials // len(tasks)), len(task.config_space))
        chosen.tune(
            count,
            dict(measure_option),
            early_stopping,
            callbacks=[
                autotvm.callback.progress_bar(count, prefix=f"[Task {number:2}/{len(tasks):2}]"),
                autotvm.callback.log_to_file(log_file),
            ],
        )
