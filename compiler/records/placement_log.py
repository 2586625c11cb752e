"""Logs of measured placements, one JSON object a line, and the context that replays them.

    {"v": 1, "workload": "5f0c...", "placement": [[12, "onnxruntime"], [40, "baton"]],
     "versions": {"onnxruntime": "1.32.0"}, "seconds": [0.0021, 0.0020], "error": ""}

`placement` lists stretches of operators, in the order of the graph: their number, and the engine
that runs them. Lines that are damaged or of another version are skipped, with one warning.
"""

from __future__ import annotations

import json
import logging
import math
import os
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice

from compiler.support.regular_files import os_errors_as

from ..errors import RecordError
from ..support.regular_files import open_regular
from ..support.scoped_context import NestedContext
from .log_file import append_lines
from .untrusted_json import as_record_errors, read_json

logger = logging.getLogger("baton.partition")

_VERSION = 1
_LONGEST_LINE = 1 << 20
_MOST_LINES = 1_000_000

Stretches = tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class PlacementRecord:
    """Measurement of one placement of a module; the fields are those of a line of a log."""

    workload: str  # hash of the module, of how it is compiled, and of the number of threads
    placement: Stretches
    versions: Mapping[str, str] = field(default_factory=dict)  # of the engines' packages
    seconds: tuple[float, ...] = ()  # of one inference, the median of each measurement
    error: str = ""  # why there are no seconds

    @property
    def median(self) -> float:
        """Median seconds; infinity for a placement that failed."""
        return statistics.median(self.seconds) if self.seconds and not self.error else math.inf

    @property
    def name(self) -> str:
        """The engines, "baton + onnxruntime"."""
        return " + ".join(dict.fromkeys(name for _, name in self.placement))

    def __str__(self) -> str:
        return f"{self.name} {self.error or f'{self.median * 1e3:.3f} ms'}"


@as_record_errors
def read_line(line: bytes) -> PlacementRecord:
    """Read a line of a log. Raises RecordError: it is damaged or of another version."""
    row = read_json(line.decode())
    if row["v"] != _VERSION:
        raise RecordError(f"version {row['v']!r:.80} of the format; this Baton reads {_VERSION}")
    placement = tuple((int(count), str(name)) for count, name in row["placement"])
    if not placement or any(count < 1 for count, _ in placement):
        raise RecordError(f"placement {row['placement']!r:.80} has no operators")
    seconds, error = tuple(map(float, row["seconds"])), str(row["error"])
    if not all(0 < each < math.inf for each in seconds) or bool(seconds) == bool(error):
        raise RecordError(f"seconds {row['seconds']!r:.80} and error {error!r:.80} contradict")
    versions = {str(name): str(version) for name, version in row["versions"].items()}
    return PlacementRecord(str(row["workload"]), placement, versions, seconds, error)


class PlacementLog(NestedContext, kind="placement dispatch"):
    """A context in which `partition(..., placement="fastest")` replays and extends a log.

        with PlacementLog("placements.log"):
            mod = partition(mod, ["onnxruntime", "openvino"], params, placement="fastest")

    The second time nothing is measured, and engines that did not win need not be installed.
    Raises RecordError: the log can't be read.

    Parameters
    ----------
    path : str or path-like
        The log; it is made when the first record comes.
    """

    def __init__(self, path: str | os.PathLike[str] = "") -> None:
        self.path = path
        self.records: list[PlacementRecord] = []
        skipped: list[str] = []
        if not path or not os.path.lexists(path):
            return
        with (
            os_errors_as(RecordError, f"log {str(path)!r} can't be read"),
            open_regular(path) as file,
        ):
            for line in islice(iter(lambda: file.readline(_LONGEST_LINE), b""), _MOST_LINES):
                try:
                    self.records.append(read_line(line))
                except RecordError as error:
                    skipped.append(str(error))
        if skipped:
            logger.warning("%s: %d lines are skipped: %s", path, len(skipped), skipped[0])

    def add(self, records: Iterable[PlacementRecord]) -> None:
        """Append records; without a path nothing is kept. Raises RecordError: can't be written."""
        if self.path:
            found = list(records)
            self.records += found
            append_lines(self.path, [json.dumps({"v": _VERSION, **asdict(each)}) for each in found])


PlacementLog.bottom = PlacementLog()
