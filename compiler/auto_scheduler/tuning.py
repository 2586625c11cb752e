"""Tuning one task with TVM's MetaSchedule and logging what it measures.

Candidates are built and run in processes of their own, so a script that tunes needs the usual
`if __name__ == "__main__":` guard. Needs the packages of the extra `tune`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from ..errors import RecordError
from ..target.config import config_of_object
from .record import PathLike, Record, RecordToFile, load_best_record
from .task import SearchTask, with_attributes
from .workload import canonical

# TVM's MeasureErrorNo
COMPILE_HOST, RUNTIME_DEVICE, BUILD_TIMEOUT, RUN_TIMEOUT = 2, 4, 6, 7


def tune_task(
    task: SearchTask,
    num_trials: int,
    log_path: PathLike,
    seed: int | None = None,
    cost_model: str = "xgb",
    strategy: str = "evolutionary",
    timeout: float = 30.0,
) -> Record | None:
    """Measure schedules of a task on this machine and append each to a log.

    Parameters
    ----------
    task : SearchTask
        For a target of this machine.
    num_trials : int
        Schedules to measure.
    log_path : path
    seed : int, optional
        For the same sequence of samples again.
    cost_model : str
        "xgb", "mlp" or "random": who guesses which sample to measure.
    strategy : str
        "evolutionary", "replay-trace" (random samples) or "replay-func".
    timeout : float
        Seconds for one build, and for one run.

    Returns
    -------
    Record or None
        The best of the task in the log.

    Raises
    ------
    RecordError
        A package that tuning needs is not installed, or the log can't be written.
    """
    _check_installed("cloudpickle", "psutil", *(["xgboost"] if cost_model == "xgb" else []))
    target = _with_num_cores(task.target)
    context = ms.TuneContext(
        mod=canonical(task.func),
        target=target,
        space_generator="post-order-apply",
        search_strategy=strategy,
        task_name=task.desc,
        rand_state=-1 if seed is None else seed,
        num_threads=1,
    )
    with tempfile.TemporaryDirectory() as work_dir:
        ms.tune_tasks(
            tasks=[context.clone()],
            task_weights=[1.0],
            work_dir=work_dir,
            max_trials_global=num_trials,
            num_trials_per_iter=min(num_trials, 64),
            builder=ms.builder.LocalBuilder(
                max_workers=1, timeout_sec=timeout, f_build=_worker_build()
            ),
            runner=ms.runner.LocalRunner(
                timeout_sec=timeout,
                evaluator_config=ms.runner.EvaluatorConfig(
                    number=3, repeat=1, min_repeat_ms=50, enable_cpu_cache_flush=False
                ),
            ),
            database="memory",
            cost_model=cost_model,
            measure_callbacks=[*ms.measure_callback.MeasureCallback.create("default"),
                               _Logger(task, RecordToFile(log_path))],
        )  # fmt: skip
    return load_best_record(log_path, task.workload_key)


@derived_object
class _Logger(ms.measure_callback.PyMeasureCallback):
    """Writes every measured candidate to a log; the first one with its unscheduled function."""

    def __init__(self, task: SearchTask, log: RecordToFile) -> None:
        super().__init__()
        self.task = task
        self.target = config_of_object(task.target)
        self.target.pop("host", None)  # tuned kernels run on the device alone
        self.log = log
        self.tir: str | None = str(tvm.ir.save_json(canonical(task.func)))

    def apply(
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: Sequence[Any],
        builder_results: Sequence[Any],
        runner_results: Sequence[Any],
    ) -> None:
        for candidate, built, run in zip(
            measure_candidates, builder_results, runner_results, strict=True
        ):
            trace = json.loads(json.dumps(candidate.sch.trace.as_json(), default=_plain_number))
            costs = tuple(float(seconds) for seconds in run.run_secs or ())
            error = 0
            if built.error_msg is not None:
                error = BUILD_TIMEOUT if "imeout" in built.error_msg else COMPILE_HOST
            elif run.error_msg is not None:
                error = RUN_TIMEOUT if "imeout" in run.error_msg else RUNTIME_DEVICE
            record = Record(
                self.task.workload_key, self.target, trace,
                costs, error, time.time(), self.tir,
            )  # fmt: skip
            self.log([record])
            self.tir = None


def _worker_build() -> Callable[..., Any]:
    """What a worker process builds a candidate with.

    MetaSchedule's own function first imports all of TVM's tensor intrinsics, which takes longer
    than most builds; a candidate that uses one has it in its body already. The function is
    local so that it is sent to the worker by value: the worker need not find this package.
    """

    def build(mod: Any, target: Target, params: Any) -> Any:
        from tvm.driver import build as tvm_build
        from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

        return tvm_build(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod), target)

    return build


def _plain_number(number: Any) -> Any:
    """Value of a TVM integer or float inside a trace."""
    return number.value


def _with_num_cores(target: Target) -> Target:
    """MetaSchedule sizes parallel loops by `num-cores`, which a CPU target need not have."""
    if target.kind.name != "llvm" or "num-cores" in target.attrs:
        return target
    return with_attributes(target, {"num-cores": os.cpu_count() or 1})


def _check_installed(*packages: str) -> None:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise RecordError(
            f"tuning needs {', '.join(missing)}; install them with: pip install 'baton-tvm[tune]'"
        )
