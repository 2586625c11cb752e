"""Ansor's tuning records: one JSON object per line, as TVM 0.7 to 0.19 wrote them.

    {"i": [["[\"<md5 or function name>\", <shapes or arguments>...]", target, hardware, host,
            layout option, input names], [[], [step, ...]]],
     "r": [[seconds, ...], error number, seconds in all, Unix time], "v": "v0.6"}

Versions differ in how many items the task has: 2 (v0.2), 3 (v0.3), 3 or 4 (v0.4, with a host),
5 (v0.5) and 6 (v0.6). What a version does not say has the value it had by default then.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import RecordError
from ..autotvm.record import NUMBER
from ..log_file import line_layout
from ..log_target import LogTarget, log_target
from ..measure_pair import Pair
from ..untrusted_json import as_record_errors, check_characters, mean_seconds
from .steps import Step, parse_steps

# Position is the number in the record.
LAYOUT_OPTIONS = ("NO_REWRITE", "INSERT_TRANSFORM_STAGE", "REWRITE_FOR_PRE_TRANSFORMED")
_LONGEST_KEY = 1 << 16
_HARDWARE_PARAMS = 8
_KEYS = {"i", "r", "v"}
_DEEPEST = 16
_LARGEST = 2**63 - 1

# A line as Ansor's writer lays it out: key, target, costs and error number. The steps are not
# looked at. What escapes the key and the target hold is for the reader of the fields to see.
LAYOUT = line_layout(
    r'\{"i": \[\["(\[(?:[^"]*\\")*[^"]*\])", "([^"]+)"[,\]].*'
    rf'"r": \[\[({NUMBER}(?:, {NUMBER})*)\], (\d{{1,9}}), {NUMBER}, {NUMBER}\], "v": "[^"\\]*"\}}'
)


@dataclass(frozen=True)
class WorkloadKey:
    """A decoded key."""

    name: str  # MD5 of the compute DAG's text, or a registered function's name
    # The rest of the key, nested lists flattened: for a DAG the extents of all its operands
    args: tuple[Any, ...]

    @property
    def is_hash(self) -> bool:
        return len(self.name) == 32 and all(c in "0123456789abcdef" for c in self.name)


@dataclass(frozen=True)
class AnsorRecord(Pair):
    """One measured state of one task."""

    workload_key: str  # as the log has it
    target_text: str
    step_rows: list[Any]  # the steps as JSON
    costs: tuple[float, ...]  # seconds of each repeat
    error: int = 0  # TVM's `MeasureErrorNo`; 0 is success
    all_cost: float = 0.0
    timestamp: float = 0.0
    hardware: tuple[int, ...] = ()  # empty in the oldest records
    host_text: str = ""
    layout_option: int = 0  # position in `LAYOUT_OPTIONS`
    input_names: tuple[str, ...] = ()
    version: str = "v0.6"
    source: str = "auto_scheduler:<record>:1"  # "auto_scheduler:<log>:<line>" when read from a file
    steps: tuple[Step, ...] = field(default=(), repr=False)

    @property
    def cost(self) -> float:
        """Mean seconds per run, which is what Ansor compared; infinity for a failure."""
        return mean_seconds(self.costs, self.error)

    @property
    def key(self) -> WorkloadKey:
        return decode_key(self.workload_key)

    @property
    def log_target(self) -> LogTarget:
        return log_target(self.target_text)

    def to_line(self) -> str:
        """The record as a v0.6 line, without the newline."""
        task = [
            self.workload_key, self.target_text, list(self.hardware), self.host_text,
            self.layout_option, list(self.input_names),
        ]  # fmt: skip
        result = [list(self.costs), self.error, self.all_cost, int(self.timestamp)]
        return json.dumps({"i": [task, [[], self.step_rows]], "r": result, "v": "v0.6"})


@functools.lru_cache(maxsize=1 << 13)
def decode_key(text: str) -> WorkloadKey:
    """Read a workload key: a JSON list, or any text, which then is a name without arguments.

    Raises RecordError: the key is absurdly long or nested, or has halves of characters.
    """
    if len(text) > _LONGEST_KEY:
        raise RecordError(f"a workload key of {len(text)} characters")
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        row = None
    if "\\" in text:
        check_characters([text, row])
    if not isinstance(row, list) or not row or not isinstance(row[0], str):
        return WorkloadKey(text, ())
    if any(isinstance(each, int) and abs(each) > _LARGEST for each in flat(row[1:])):
        raise RecordError("a workload key with an extent beyond 64 bits")
    return WorkloadKey(row[0], tuple(flat(row[1:])))


def flat(items: Sequence[Any], depth: int = 0) -> list[Any]:
    """The leaves of nested lists."""
    if depth > _DEEPEST:
        raise RecordError("a workload key that is nested too deeply")
    leaves: list[Any] = []
    for item in items:
        leaves += flat(item, depth + 1) if isinstance(item, list) else [item]
    return leaves


def distance(wanted: WorkloadKey, recorded: WorkloadKey) -> float:
    """Ratio of the wanted work to the recorded one; infinity where extents are no multiples."""
    if wanted.name != recorded.name or len(wanted.args) != len(recorded.args):
        return math.inf
    factor = 1.0
    for want, have in zip(wanted.args, recorded.args):
        if isinstance(want, int) and isinstance(have, int):
            if want == have:
                continue
            if min(want, have) <= 0 or want % have:
                return math.inf
            factor *= want / have
        elif want != have:
            return math.inf
    return factor


def looks_like(row: Any) -> bool:
    """Whether a decoded line is Ansor's; AutoTVM's of version 0.1 have the same fields."""
    return isinstance(row, dict) and "i" in row and "r" in row and row.get("v") != 0.1


@as_record_errors
def read(row: Any, source: str) -> AnsorRecord:
    """Check a decoded line. Raises RecordError: a field is missing, or is not what it should be."""
    unknown = set(row) - _KEYS
    if unknown:
        raise RecordError(f"has the unknown field {sorted(unknown)[0][:20]!r}")
    task, state = row["i"]
    costs, error, all_cost, timestamp = row["r"]
    if not 2 <= len(task) <= 6:
        raise RecordError(f"its task has {len(task)} items, where Ansor wrote 2 to 6")
    key, target = task[:2]
    given: list[Any] = list(task)[2:]
    absent: list[Any] = [(), "", 0, ()]
    hardware, host, option, names = given + absent[len(given) :]
    stages, rows = state
    if stages:
        raise RecordError("its state has stages, where Ansor wrote steps alone")
    if not isinstance(key, str) or not isinstance(target, str) or not isinstance(host, str):
        raise TypeError("key, target or host is not text")
    if len(hardware) not in (0, _HARDWARE_PARAMS):
        raise ValueError(f"{len(hardware)} hardware parameters, not {_HARDWARE_PARAMS}")
    if option not in range(len(LAYOUT_OPTIONS)):
        raise ValueError(f"layout rewrite option {option!r}")
    times = (*costs, all_cost, timestamp)
    if not costs or not all(isinstance(c, (int, float)) and math.isfinite(c) for c in times):
        raise ValueError("costs are not seconds")
    decode_key(key)
    log_target(target)
    return AnsorRecord(
        key, target, list(rows), tuple(map(float, costs)), int(error), float(all_cost),
        float(timestamp), tuple(map(int, hardware)), host, int(option), tuple(map(str, names)),
        str(row.get("v", "")), source, parse_steps(rows),
    )  # fmt: skip
