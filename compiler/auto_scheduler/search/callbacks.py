"""Progress callbacks of a `TaskScheduler`."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...records.measure_pair import MeasureInput, MeasureResult
    from .scheduler import TaskScheduler


class TaskSchedulerCallback:
    """Base of callbacks; both methods do nothing."""

    def pre_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        """Called before the first round."""

    def post_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        """Called after each round of a task."""


class PrintTableInfo(TaskSchedulerCallback):
    """Prints every task's best time, its speed and its trials."""

    def pre_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        self.post_tune(task_scheduler, task_id)

    def post_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        rule = "-" * 113
        print(
            f"|  ID  | {'Task Description':^61} | Latency (ms) | Speed (GFLOPS) | Trials |\n{rule}"
        )
        for index, task in enumerate(task_scheduler.tasks):
            cost = task_scheduler.best_costs[index]
            latency = f"{1e3 * cost:.3f}" if math.isfinite(cost) else "-"
            speed = task.gflops(cost)
            trials = task_scheduler.task_cts[index]
            print(
                f"| {index:>4} | {task.desc[:61]:>61} | {latency:>12} | {speed:>14} | {trials:>6} |"
            )
        total = task_scheduler.cur_score
        shown = f"{1e3 * total:.3f}" if math.isfinite(total) else "-"
        print(
            f"{rule}\nEstimated total latency: {shown} ms\tTrials: {task_scheduler.ct}\t"
            f"Used time : {time.time() - task_scheduler.start_time:.0f} s"
        )


class LogEstimatedLatency(TaskSchedulerCallback):
    """Writes time used, estimated latency and trials after each round; deletes an old log."""

    def __init__(self, log_file: str | os.PathLike) -> None:
        self.log_file = Path(log_file)
        self.log_file.unlink(missing_ok=True)

    def post_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        total = task_scheduler.cur_score
        latency = f"{1e3 * total:.3f}" if math.isfinite(total) else "N/A"
        used = time.time() - task_scheduler.start_time
        with self.log_file.open("a", encoding="utf-8") as log:
            log.write(
                f"ElapsedTime(s)\t{used:.0f}\tEstimatedLatency(ms)\t{latency}\t"
                f"Trials\t{task_scheduler.ct}\n"
            )


class PythonBasedMeasureCallback:
    """Base of user-defined callbacks, called with the measured inputs and results.

    class Printer(auto_scheduler.measure.PythonBasedMeasureCallback):
        def callback(self, policy, inputs, results):
            print([result.costs for result in results])
    """

    def __call__(self, records: Sequence[Any], policy: Any = None) -> None:
        pairs = [tuple(record) for record in records]
        self.callback(policy, [inp for inp, _ in pairs], [result for _, result in pairs])

    def callback(
        self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        """Called with each batch that was measured. `policy`: the search of their task."""
        raise NotImplementedError
