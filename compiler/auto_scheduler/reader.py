"""`auto_scheduler.measure_record`: logs read pair by pair."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..records.ansor.record import AnsorRecord
from ..records.auto_scheduler.record import RecordToFile as RecordToFile
from ..records.auto_scheduler.record import load_best_record, parse_line, save_records, scan
from ..records.auto_scheduler.record import load_records as load_records
from ..records.measure_pair import MeasureInput, MeasureResult
from .task import SearchTask
from .task_inputs import get_task_input_buffer

load_best = load_best_record  # TVM 0.7's name


def dump_record_to_string(inp: MeasureInput, res: MeasureResult) -> str:
    """A pair as a line of a log."""
    return str(inp.measured(res).to_line())


def load_record_from_string(record: str) -> tuple[MeasureInput, MeasureResult]:
    """The pair that a line of a log holds."""
    inp, res = parse_line(record)
    return inp, res


def distill_record_file(in_file: str | os.PathLike[str], out_file: str | os.PathLike[str]) -> None:
    """Write to a new log the cheapest record of each workload and target of another."""
    best: dict[tuple[str, str], Any] = {}
    for record in scan(in_file):
        key = record.workload_key, str(next(iter(record)).task.spelled)
        if key not in best or record.cost < best[key].cost:
            best[key] = record
    Path(out_file).write_text("")
    save_records(out_file, (each for each in best.values() if each.error == 0))


def recover_measure_input(inp: MeasureInput, rebuild_state: bool = False) -> MeasureInput:
    """A record's first half with its whole task, whose compute the record or its key tells.

    `rebuild_state`: give the state of one of Ansor's records its loops, as `dag.get_init_state()`
    has them. Raises RecordError: the record does not hold its function, and its key is of no
    registered workload.
    """
    told: Any = inp.task
    record = inp.record
    if isinstance(record, AnsorRecord):
        task = SearchTask(
            workload_key=record.workload_key,
            target=told.target,
            layout_rewrite_option=told.layout_rewrite_option,
            task_inputs={
                name: get_task_input_buffer(record.workload_key, name)
                for name in told.task_input_names
            },
        )
        state = task.compute_dag.loop_state(inp.state) if rebuild_state else inp.state
        return MeasureInput(task, state)
    return MeasureInput(SearchTask(record.unscheduled(), target=told.target), inp.state)


class RecordReader:
    """The records of a log, each as a `MeasureInput` and a `MeasureResult`."""

    def __init__(self, filename: str | os.PathLike[str]) -> None:
        self._path = filename

    def read_lines(
        self, max_lines: int | None = None, skip_lines: int = 0
    ) -> tuple[list[MeasureInput], list[MeasureResult]]:
        """Some of the records, as two lists."""
        end = None if max_lines is None else skip_lines + max_lines
        pairs = list(itertools.islice(self, skip_lines, end))
        return [inp for inp, _ in pairs], [res for _, res in pairs]

    def __iter__(self) -> Iterator[Any]:
        return map(tuple, scan(self._path))
