"""`auto_scheduler.measure_record`: logs read pair by pair."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

from ..records.auto_scheduler.record import (
    RecordToFile,
    load_best_record,
    load_records,
    save_records,
    scan,
)
from ..records.pair import MeasureInput, MeasureResult

__all__ = [
    "RecordReader",
    "RecordToFile",
    "load_best",
    "load_best_record",
    "load_records",
    "save_records",
]

load_best = load_best_record  # TVM 0.7's name


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
