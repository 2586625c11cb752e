"""`tvm.autotvm.graph_tuner`, as scripts that tune a network for x86 call it.

TVM's graph tuner weighed layout conversions against kernel times. `relay.build` does so itself, so
these tuners take the fastest record of each workload.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import Any

from ..errors import RecordError
from ..records.autotvm.record import encode, load_from_file
from ..support.atomic_file import replacing
from .best_records import best_records

_logger = logging.getLogger("baton.legacy")


class DPTuner:
    """Chooses a record for each workload.

    `records`: a log, or (input, result) pairs. The other arguments of TVM's tuner are accepted and
    not used: a log names the workload and the target of each record.
    """

    def __init__(
        self,
        graph: Any,
        input_shapes: Any,
        records: str | os.PathLike[str] | Iterable[Any],
        target_ops: Any,
        target: Any,
        **_options: Any,
    ) -> None:
        is_log = isinstance(records, (str, os.PathLike))
        self._records: Any = load_from_file(records) if is_log else records  # type: ignore[arg-type]
        self._optimal: list[Any] | None = None

    def benchmark_layout_transform(self, *_args: Any, **_options: Any) -> None:
        """Log that conversions are not timed."""
        _logger.warning("graph tuner: relay.build weighs layout conversions; none is timed here")

    def run(self, **_options: Any) -> None:
        """Choose the records. Raises RecordError: the log can't be read or holds no success."""
        self._optimal = best_records(self._records) or None
        if self._optimal is None:
            raise RecordError("graph tuner: no recorded trial succeeded; tune the tasks first")

    def get_optimal_records(self) -> list[Any]:
        """The chosen (input, result) pairs. Raises RecordError: `run` was not called."""
        if self._optimal is None:
            raise RecordError("graph tuner: call run() before asking for its records")
        return self._optimal

    def write_opt_sch2record_file(
        self, record_file: str | os.PathLike[str] = "graph_opt_schedule.log"
    ) -> None:
        """Write the chosen records, for `apply_graph_best`."""
        lines = [encode(*pair) + "\n" for pair in self.get_optimal_records()]
        with replacing(record_file) as file:
            file.write("".join(lines).encode())


class PBQPTuner(DPTuner):
    """Same as `DPTuner`."""


BaseGraphTuner = DPTuner
