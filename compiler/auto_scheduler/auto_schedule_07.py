"""`auto_scheduler.auto_schedule` of TVM 0.7: a search and its best schedule in one call."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ..records.auto_scheduler.record import RecordToFile
from ..support.tempdir import TemporaryFolder
from .search.options import TuningOptions
from .task import SearchTask


def create_task(
    func: Any, args: Any, target: Any, target_host: Any = None, hardware_params: Any = None
) -> SearchTask:
    """The task of a registered workload: `SearchTask` with its arguments in another order."""
    return SearchTask(
        func, args, target=target, target_host=target_host, hardware_params=hardware_params
    )


def auto_schedule(
    task: SearchTask, search_policy: Any = None, tuning_options: TuningOptions | None = None
) -> tuple[Any, list[Any]]:
    """Search for schedules of a task, and apply the best one that was measured.

    Returns
    -------
    tvm.s_tir.Schedule, list of the kernel's parameters

    Raises
    ------
    RecordError
        No candidate ran.
    """
    options = tuning_options or TuningOptions()
    with TemporaryFolder("task") as folder:
        log = Path(folder) / "records.json"
        callbacks: list[Any] = [*(options.measure_callbacks or ()), RecordToFile(log)]
        task.tune(dataclasses.replace(options, measure_callbacks=callbacks), search_policy)
        return task.apply_best(log)
