"""auto_scheduler tuning records: reading, writing and replaying them.

Format: one JSON object per line, self-contained,

    {"v": 1, "kind": "auto_scheduler", "workload": {"key": "...", "tir": "..."},
     "target": {"kind": "llvm", ...}, "costs": [seconds, ...], "error": 0, "timestamp": 1.7e9,
     "trace": [[instruction, ...], [decision, ...]]}

`workload.key` is `workload.workload_key` of the unscheduled function; `workload.tir`, which may be
missing, is that function as `tvm.ir.save_json` writes it; `trace` is the `as_json` of a `tvm.s_tir`
Trace on the canonical function. Beside an empty trace, `"untuned": true` marks the times of the
schedule that the kernel has without records, and `"template": {"task": name, "args": [...],
"entity": [[knob, kind, value], ...]}` is a config of a template of the schedule library. `error` is
0, or a number of TVM's `MeasureErrorNo`. Lines are appended by a single write each, so that several
processes may share a log. The same file may hold records of TVM's old auto_scheduler, Ansor ({"i":
..., "r": ...}); they are read as `ansor.record.AnsorRecord`.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import RecordError
from ...tvm_workarounds.validate_json import check_document, check_no_code
from ..ansor import record as ansor
from ..autotvm.record import read_lines
from ..autotvm.record import scan as scan_lines
from ..log_file import append_lines
from ..log_target import LogTarget, log_target
from ..measure_pair import MeasureInput, MeasureResult, Pair
from ..untrusted_json import as_record_errors, mean_seconds, read_json
from .template import Template
from .trace_check import check_loops, check_trace
from .workload import ENTRY, canonical, distance, workload_key

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

__all__ = [
    "Record", "RecordToFile", "best_record", "load_best_record", "load_records", "replay",
    "save_records", "scan", "workload_key",
]  # fmt: skip

logger = logging.getLogger("baton.auto_scheduler")

VERSION = 1
KIND = "auto_scheduler"
PathLike = str | os.PathLike


@dataclass(frozen=True)
class Record(Pair):
    """One measured schedule of one workload."""

    workload_key: str
    target: dict[str, Any]  # what `tvm.target.Target` exports; matched by keys and model alone
    trace: list[Any]  # [instructions, decisions] of the trace on `workload.canonical(func)`
    costs: tuple[float, ...]  # seconds per run; empty when the measurement failed
    error: int = 0  # 0, or a number of TVM's `MeasureErrorNo`
    timestamp: float = field(default_factory=time.time)  # Unix time
    tir: str | None = None  # the unscheduled function
    source: str = "auto_scheduler:<record>:1"  # "auto_scheduler:<log>:<line>" when read from a file
    # These are the times of the schedule that a build without records gives the kernel; where
    # nothing faster was found, it keeps that. The trace is empty.
    untuned: bool = False
    # What schedules the kernel instead of the trace, which is empty
    template: Template | None = None

    @property
    def has_trace(self) -> bool:
        """Whether it holds a schedule of the plain compute."""
        return not self.untuned and self.template is None

    @property
    def cost(self) -> float:
        """Mean seconds per run; infinity when the measurement failed."""
        return mean_seconds(self.costs, self.error)

    def unscheduled(self) -> PrimFunc:
        """The tuned function; RecordError if the record lacks it or holds something else."""
        import tvm

        if self.tir is None:
            raise RecordError(f"{self.source}: the record does not hold its unscheduled function")
        try:
            document = json.loads(self.tir)
            check_document(document)
            check_no_code(document, kernels=True)
            func = tvm.ir.load_json(self.tir)
            matches = isinstance(func, tvm.tirx.PrimFunc) and (
                workload_key(func) == self.workload_key
            )
        except Exception as error:  # TVM's reader raises what it likes on foreign JSON
            raise RecordError(f"{self.source}: workload.tir can't be read: {error}") from error
        if not matches:
            raise RecordError(f"{self.source}: workload.tir is not the workload of the key")
        return func

    def schedule_of(self, mod: Any, target: Any) -> Any:
        """The trace applied to a module; RecordError, or TVM's error, if that is not allowed."""
        from tvm.s_tir import Schedule
        from tvm.s_tir.schedule import Trace

        check_trace(self.trace)
        with target:
            schedule = Schedule(mod, error_render_level="fast")
            Trace.apply_json_to_schedule(self.trace, schedule)
        for _, function in schedule.mod.functions_items():
            check_loops(function.body)
        return schedule

    def with_tir(self, func: PrimFunc) -> Record:
        """The record with its unscheduled function."""
        import tvm

        return replace(self, tir=str(tvm.ir.save_json(func)))

    def to_line(self) -> str:
        """The record as a line of a log, without the newline."""
        workload = {"key": self.workload_key} | ({"tir": self.tir} if self.tir else {})
        row = {
            "v": VERSION, "kind": KIND, "workload": workload, "target": self.target,
            "costs": list(self.costs), "error": self.error, "timestamp": self.timestamp,
            **({"untuned": True} if self.untuned else {}),
            **({} if self.template is None else {"template": self.template.to_json()}),
            "trace": self.trace,
        }  # fmt: skip
        return json.dumps(row, separators=(",", ":"))


AnyRecord = Record | ansor.AnsorRecord


@as_record_errors
def parse_line(text: str, source: str = "auto_scheduler:<line>:1") -> AnyRecord:
    """Read and check one line; RecordError says why, without file and line."""
    row = read_json(text)
    if not isinstance(row, dict):
        raise RecordError("not a JSON object")
    if ansor.looks_like(row):
        return ansor.read(row, source)
    if row.get("kind") != KIND:
        raise RecordError('not an auto_scheduler record (no "kind": "auto_scheduler")')
    if row.get("v") != VERSION:
        raise RecordError(f"version {row.get('v')!r}; this reader knows version {VERSION}")
    instructions, decisions = row["trace"]
    costs, error = tuple(float(cost) for cost in row["costs"]), int(row["error"])
    if not isinstance(instructions, list) or not isinstance(decisions, list):
        raise TypeError("trace is not two lists")
    if not all(map(math.isfinite, (*costs, row["timestamp"]))) or not (costs or error):
        raise ValueError("costs are not seconds")
    log_target(row["target"])
    tir, template = row["workload"].get("tir"), row.get("template")
    return Record(
        str(row["workload"]["key"]), dict(row["target"]), row["trace"], costs, error,
        float(row["timestamp"]), tir if tir is None else str(tir), source,
        row.get("untuned") is True,
        None if template is None else Template.from_json(template),
    )  # fmt: skip


def scan(path: PathLike, strict: bool = False, n_lines: int | None = None) -> Iterator[AnyRecord]:
    """Records of a log, failed measurements included, in the order of the lines.

    `strict`: raise at the first bad line instead of warning once at the end. `n_lines`: stop after
    this many records. Raises RecordError: the file can't be read or no line of it is a record; with
    `strict` a bad line.
    """
    name = Path(path).name

    def parse(text: str, number: int) -> AnyRecord:
        return parse_line(text, f"auto_scheduler:{name}:{number}")

    lines = read_lines(path, "auto_scheduler log")
    return scan_lines(lines, name, strict, parse, "auto_scheduler record", n_lines)


def load_records(filename: PathLike, strict: bool = False) -> list[AnyRecord]:
    """All records of a log, failed measurements included."""
    return list(scan(filename, strict))


def best_record(
    filename: PathLike,
    workload_key: str | None = None,
    target: Any = None,
    include_compatible: bool = False,
    tuned: bool = False,
) -> AnyRecord | None:
    """Cheapest successful record of a log; of equal ones the first; None if there is none.

    `workload_key`, `target`: only records of this workload, and of this kind of target.
    `include_compatible`: also records of smaller shapes that divide those of the workload. `tuned`:
    only records that hold a schedule of the plain compute: no times of the untuned one, no
    templates.
    """
    kind = None if target is None else log_target(target).kind
    best, best_cost = None, math.inf
    for record in scan(filename):
        if kind is not None and matched_target(record).kind != kind:
            continue
        if tuned and isinstance(record, Record) and not record.has_trace:
            continue
        factor = 1.0
        if workload_key is not None and record.workload_key != workload_key:
            factor = _distance(workload_key, record)
            if factor != 1.0 and not include_compatible:
                factor = math.inf
        if record.cost * factor < best_cost:
            best, best_cost = record, record.cost * factor
    return best


def _distance(wanted: str, record: AnyRecord) -> float:
    if isinstance(record, ansor.AnsorRecord):
        return ansor.distance(ansor.decode_key(wanted), record.key)
    return distance(wanted, record.workload_key)


def load_best_record(
    filename: PathLike,
    workload_key: str | None = None,
    target: Any = None,
    include_compatible: bool = False,
    tuned: bool = False,
) -> AnyRecord | tuple[None, None]:
    """As `best_record`, but (None, None) if there is none: the result unpacks as in TVM."""
    return best_record(filename, workload_key, target, include_compatible, tuned) or (None, None)


def save_records(
    filename: PathLike,
    inputs: Iterable[AnyRecord | MeasureInput],
    results: Iterable[MeasureResult] | None = None,
) -> None:
    """Append records to a log, each by one write; the log and its folder are made if missing.

    Parameters
    ----------
    inputs : iterable of records, or of MeasureInput
    results : iterable of MeasureResult, optional
        The times of each input, as `load_records` gives them with it.

    Raises
    ------
    RecordError
        The file can't be written.
    """
    records: Iterable[Any] = inputs
    if results is not None:
        pairs: Any = zip(inputs, results, strict=True)
        records = (inp.measured(result) for inp, result in pairs)
    append_lines(filename, (record.to_line() for record in records))


class RecordToFile:
    """Appends records to a log as they are measured.

    Parameters
    ----------
    filename : str or path
        Made with its folder when the first record comes.
    """

    def __init__(self, filename: PathLike) -> None:
        self.path = Path(filename)

    def __call__(self, records: Iterable[AnyRecord]) -> None:
        save_records(self.path, records)


def replay(record: Record, func: PrimFunc, target: Any = None) -> PrimFunc:
    """Schedule an unscheduled TIR function as a record says.

    The steps are TensorIR schedule primitives of an allow-list, each of which keeps what the
    function computes or raises, so that no record gives wrong numbers or runs code.

    `func`: same workload as the record's, or a compatible one. `target`: active while the trace is
    applied. Returns the scheduled function, with the attributes and the operands of `func`. Raises
    RecordError: the trace can't be applied to this function; names record and reason.
    """
    import tvm

    plain = canonical(func)
    try:
        target = target if target is not None else tvm.target.Target(record.target)
        schedule = record.schedule_of(tvm.IRModule({ENTRY: plain}), target)
    except Exception as error:  # a hand-edited trace fails in many of TVM's ways
        reason = str(error).strip().splitlines()[-1:] or [type(error).__name__]
        raise RecordError(f"{record.source}: the record can't be replayed: {reason[0]}") from error
    scheduled = schedule.mod[ENTRY]
    if _operands(scheduled) != _operands(plain):
        raise RecordError(f"{record.source}: the record changes the operands of the function")
    for name, _ in scheduled.attrs.items():
        scheduled = scheduled.without_attr(name)
    return scheduled.with_attrs(dict(func.attrs.items()))


def _operands(func: PrimFunc) -> list[tuple[list[str], str]]:
    """Shape and data type of each operand, comparable."""
    return [([str(dim) for dim in param.shape], str(param.dtype)) for param in func.params]


def matched_target(record: AnyRecord) -> LogTarget:
    """Keys and model under which a record is found."""
    return log_target(
        record.target_text if isinstance(record, ansor.AnsorRecord) else record.target
    )
