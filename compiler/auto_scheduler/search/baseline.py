"""How fast a task's kernel is without tuning: the time that a record has to beat."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import tvm

from ...autotvm.measure import measure_batch
from ...errors import BatonError
from ...lowering.selection.default_kernel import library_kernels
from ...lowering.selection.extract import alone
from ...records.auto_scheduler.record import Record
from ...records.auto_scheduler.workload import ENTRY
from .candidate import ScheduledModule
from .engine import logged_target

if TYPE_CHECKING:
    from ..task import SearchTask

logger = logging.getLogger("baton.auto_scheduler")


def measure_untuned(task: SearchTask, builder: Any, runner: Any) -> Record | None:
    """Measure the kernel as Baton's schedule library builds it.

    Returns the summed times of the kernels that do the task's work; changes of
    layout at the task's edges are not counted, since a network makes them elsewhere. None if the
    task was not extracted from a model, so that its operators are unknown, or if it does not build.
    """
    if task.origin is None:
        return None
    mod, function, bindings = task.origin
    try:
        kernels = library_kernels(alone(mod, function, bindings), task.target)
    except BatonError as error:
        logger.warning("%s has no schedule to compare with: %s", task.desc, error)
        return None
    candidates = [
        ScheduledModule.of(
            tvm.IRModule({ENTRY: kernel.func.with_attr("global_symbol", ENTRY)}), task.target
        )
        for kernel in kernels
    ]
    results = measure_batch({"builder": builder, "runner": runner}, candidates)
    wrong = next((result for result in results if not result.is_right), None)
    if wrong is not None or not results:
        reason = "no kernel" if wrong is None else wrong.error_msg
        logger.warning("%s can't be measured without tuning: %s", task.desc, reason)
        return None
    repeats = min(len(result.costs) for result in results)
    costs = tuple(
        sum(r.costs[i] * kernel.calls for r, kernel in zip(results, kernels, strict=True))
        for i in range(repeats)
    )
    return Record(task.workload_key, logged_target(task.target), [[], []], costs, untuned=True)
