"""AutoTVM tuning records: reading every JSON form that TVM wrote, writing version 0.2.

Format (TVM 0.7 to 0.19): one JSON object per line, `#` starts a comment line,

    {"input": [target, task, args, {}],
     "config": {"index": int, "code_hash": null, "entity": [[knob, kind, value], ...]},
     "result": [[seconds, ...], error number, seconds in all, Unix time],
     "version": 0.2, "tvm_version": "0.18.0"}

Lines that are not records are skipped and named in one warning for each file, or raise with
`strict=True`. Pickled records are rejected: unpickling an untrusted file runs its code.
"""

from __future__ import annotations

import functools
import io
import json
import logging
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from compiler.support.regular_files import open_regular, os_errors_as
from schedules.config import ConfigEntity, OtherOptionEntity, ReorderEntity, SplitEntity

from ...errors import RecordError
from ..log_target import LogTarget, log_target
from ..measure_result import MeasureResult
from ..untrusted_json import as_record_errors, mean_seconds, read_json
from .legacy import current_spelling
from .version_0_1 import translate_version_0_1
from .workload import digest_of_json, normalize, to_tuple

logger = logging.getLogger("baton.autotvm")

LOG_VERSION = 0.2
TVM_VERSION = "0.18.0"  # the last release whose readers define the format that `encode` writes

PathLike = str | os.PathLike


@dataclass(frozen=True)
class LoggedTask:
    """Task of a record: template name and arguments."""

    name: str
    args: tuple

    @property
    def workload(self) -> tuple:
        """The key that dispatch contexts look up: (name, *args)."""
        return (self.name, *self.args)


@dataclass(frozen=True)
class MeasureInput:
    """Input of a measurement: target, task and config.

    Attributes
    ----------
    target : LogTarget
        Also a `tvm.target.Target` when the record is made here and not read.
    task : LoggedTask
    config : ConfigEntity
        Its source is "topi:<log>:<line>" when it was read from a file.
    index : int
        Index of the config in the space of the TVM that wrote the record; -1 if unknown.
    """

    target: Any
    task: LoggedTask
    config: ConfigEntity
    index: int = -1

    def __iter__(self) -> Iterator[Any]:
        """Target, task and config: TVM's inputs were tuples of these."""
        return iter((self.target, self.task, self.config))

    def __getitem__(self, place: int) -> Any:
        return tuple(self)[place]


class InputKey(NamedTuple):
    """The `input` field of a line, ready for matching."""

    target: LogTarget
    task: str
    args: str  # JSON text
    digest: bytes


class RawRecord(NamedTuple):
    """A checked line whose config is still JSON text."""

    line: int
    input: InputKey
    costs: tuple[float, ...]
    error_no: int
    all_cost: float
    timestamp: float
    space_index: int
    entity: str


# A line as TVM's writer lays it out. Anything else that is valid takes the way through json.loads,
# which costs about three times as much. Numbers are finite and fit 64 bits.
_INTEGER = r"-?\d{1,18}"
NUMBER = rf"{_INTEGER}(?:\.\d+)?(?:[eE][-+]?\d{{1,2}})?"
TEXT = r'"[^"\\\x00-\x1f]*"'
"""A JSON string without escapes."""
_KNOB = (
    rf'\[{TEXT}, (?:"(?:sp|re)", \[{_INTEGER}(?:, {_INTEGER})*\]'
    rf'|"an", \[{TEXT}(?:, {TEXT})*\]'
    rf'|"ot", (?:true|false|null|{NUMBER}|{TEXT}))\]'
)
_ENTITY = re.compile(rf"\[(?:{_KNOB}(?:, {_KNOB})*)?\]")
_INDEX, _CODE_HASH = '{"index": ', ', "code_hash": null, "entity": '
_INDEX_VALUE = re.compile(_INTEGER)
_MOST_KNOWN = 1 << 16
RESULT = re.compile(
    rf"\[\[({NUMBER}(?:, {NUMBER})*)\], (\d{{1,9}}), ({NUMBER}), ({NUMBER})\], "
    rf'"version": 0\.2, "tvm_version": {TEXT}}}'
)
_INPUT = '{"input": '
_PICKLED = re.compile(r"[^{\t]*(?:\t[^\t]+){3}(?:\t[^\t]+\t[^\t]+)?")


@as_record_errors
def parse_line(text: str, line: int = 1) -> RawRecord:
    """Read and check one line; RecordError says why, without file and line."""
    text = text.strip()
    head, _, rest = text.partition(', "config": ')
    config, _, result = rest.rpartition(', "result": ')
    matched = RESULT.fullmatch(result)
    index, _, entity = config[len(_INDEX) : -1].partition(_CODE_HASH)
    if (
        matched
        and head.startswith(_INPUT)
        and config.startswith(_INDEX)
        and config.endswith("]}")
        and _INDEX_VALUE.fullmatch(index)
        and text.isascii()
        and known_entity(entity)
    ):
        costs, error_no, all_cost, timestamp = matched.groups()
        return RawRecord(
            line, _input_key(head[len(_INPUT) :]), _costs(costs), int(error_no),
            float(all_cost), float(timestamp), int(index), entity,
        )  # fmt: skip
    return _parse_any_layout(text, line)


# Texts of entities that were found right: most occur many times, and are kept once.
_entities: dict[str, str] = {}


def known_entity(text: str) -> str | None:
    """The text itself if it is an entity list as TVM's writer lays it out; equal ones are one."""
    found = _entities.get(text)
    if found is None and _ENTITY.fullmatch(text) is not None:
        if len(_entities) >= _MOST_KNOWN:
            _entities.clear()
        found = _entities[text] = text
    return found


def _costs(text: str) -> tuple[float, ...]:
    if ", " in text:
        return _checked_costs(tuple(float(cost) for cost in text.split(", ")))
    return _checked_costs((float(text),))


def _parse_any_layout(text: str, line: int) -> RawRecord:
    if _PICKLED.fullmatch(text):
        raise RecordError("pickled record, refused because unpickling runs the file's code")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RecordError("not UTF-8 text") from None
    row = read_json(text)
    if not isinstance(row, dict):
        raise RecordError("not a JSON object")
    if row.get("v") == 0.1:
        row = translate_version_0_1(row)
    key = _input_key(json.dumps(row["input"]))
    costs, error_no, all_cost, timestamp = row["result"]
    entity, index = row["config"]["entity"], row["config"].get("index", -1)
    index = -1 if index is None else int(index)
    if not -1 <= index < 1 << 62:
        raise RecordError("the index is outside of every search space: -1 to 2**62")
    _check_knobs(ConfigEntity.from_entity(entity))
    if not math.isfinite(all_cost) or not math.isfinite(timestamp):
        raise RecordError(f"the times {all_cost} and {timestamp} are not seconds")
    return RawRecord(
        line, key, _checked_costs(tuple(costs)), int(error_no), float(all_cost),
        float(timestamp), index, json.dumps(entity),
    )  # fmt: skip


def _check_knobs(config: ConfigEntity) -> None:
    """Refuse values that no template can use; the layout above has none."""
    for name, knob in config.items():
        if isinstance(knob, (SplitEntity, ReorderEntity)):
            numbers = knob.size if isinstance(knob, SplitEntity) else knob.perm
            right = all(isinstance(each, int) and abs(each) < 1 << 62 for each in numbers)
        elif isinstance(knob, OtherOptionEntity):
            right = not isinstance(knob.val, (int, float)) or abs(knob.val) < 1e300
        else:
            right = all(isinstance(each, str) for each in knob.anns)
        if not right:
            raise RecordError(f"knob {name!r} has a value that is not of its kind")


def _checked_costs(costs: tuple) -> tuple[float, ...]:
    if not costs or not all(isinstance(c, (int, float)) and math.isfinite(c) for c in costs):
        raise RecordError(f"costs {list(costs)} are not seconds")
    return tuple(map(float, costs))


@functools.lru_cache(maxsize=1 << 13)  # most logs measure a workload many times
def _input_key(text: str) -> InputKey:
    try:
        target, task, args, _ = read_json(text)
        if not isinstance(task, str) or not isinstance(args, list):
            raise TypeError("task name or arguments of a wrong type")
        task, args = current_spelling(task, args)
        digest = digest_of_json([task, *args])
        return InputKey(log_target(target), task, json.dumps(args), digest)
    except RecordError:
        raise
    except (ValueError, TypeError, IndexError) as error:
        raise RecordError(f"input is not [target, task, arguments, {{}}] ({error})") from error


Parsed = TypeVar("Parsed")


@dataclass
class SkippedLines:
    """Lines of one file that are not records, by reason."""

    name: str
    lines: dict[str, list[int]] = field(default_factory=dict)

    def add(self, line: int, reason: str) -> None:
        self.lines.setdefault(reason, []).append(line)

    def parsed(
        self, parse: Callable[..., Parsed], text: str, line: int, place: Any, strict: bool
    ) -> Parsed | None:
        """`parse(text, place)`; None, and noted, if it is none; RecordError if `strict`."""
        try:
            return parse(text, place)
        except RecordError as error:
            if strict:
                raise RecordError(f"{self.name}:{line}: {error}") from error
            self.add(line, str(error))
            return None

    def __len__(self) -> int:
        return sum(map(len, self.lines.values()))

    def report(self, records: int, ends: bool, what: str) -> None:
        """Warn of the lines, once the whole file is read, with its `records` of kind `what`.

        `ends`: whether its last line has an end; a killed writer leaves one without. Raises
        RecordError: there are no records, and more than one line that was cut off.
        """
        if not self:
            return
        if not records and (len(self) > 1 or ends):
            raise RecordError(f"{self.name} has no {what}. {self}")
        logger.warning("%s", self)

    def __str__(self) -> str:
        parts = []
        for reason, lines in self.lines.items():
            shown = ", ".join(map(str, lines[:10]))
            more = f" and {len(lines) - 10} more" if len(lines) > 10 else ""
            parts.append(f"line {shown}{more}: {reason}")
        return f"{self.name}: skipped {len(self)} line(s) that are not records. " + "; ".join(parts)


def read_lines(path: PathLike, what: str = "tuning log") -> Iterator[str]:
    """Lines with any line end, without a byte order mark; RecordError if the file can't be read."""
    with (
        os_errors_as(RecordError, f"{what} {str(path)!r} can't be read"),
        io.TextIOWrapper(open_regular(path), "utf-8-sig", "surrogateescape") as file,
    ):
        yield from file


def scan(
    lines: Iterable[str],
    name: str,
    strict: bool,
    parse: Callable[[str, int], Parsed],
    what: str = "AutoTVM record",
    n_lines: int | None = None,
) -> Iterator[Parsed]:
    """Records of a log, failed measurements included, in the order of the lines.

    `lines`: a text file or its lines. `name`: the log's, for messages. `n_lines`: maximum number of
    records. `parse`: raises RecordError for a bad line. One warning at the end names those;
    `strict` raises at the first, as does a file without any record.
    """
    skipped, count, text = SkippedLines(name), 0, "\n"
    for number, text in enumerate(lines, 1):
        bare = text.strip()
        if not bare or bare.startswith("#"):
            continue
        if count == n_lines:
            break
        record = skipped.parsed(parse, bare, number, number, strict)
        if record is not None:
            count += 1
            yield record
    skipped.report(count, text.endswith("\n"), what)


def load_from_file(
    path: PathLike, strict: bool = False
) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """Read the records of a log one by one.

    Raises
    ------
    RecordError
        The file can't be read, holds no record, or, with `strict`, has a bad line.
    """
    name = Path(path).name
    yield from scan(read_lines(path, "AutoTVM log"), name, strict, _measured_in(name))


def load_from_buffer(
    file: Iterable[str], strict: bool = False
) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """Read the records of an open text file, as `load_from_file` does."""
    yield from scan(file, "<buffer>", strict, _measured_in("<buffer>"))


def _measured_in(name: str) -> Callable[[str, int], tuple[MeasureInput, MeasureResult]]:
    """A parser of the lines of one log."""
    return lambda text, line: _measured(parse_line(text, line), f"topi:{name}:{line}")


def decode(row: str, protocol: str = "json") -> tuple[MeasureInput, MeasureResult]:
    """Read one line of a log.

    Raises
    ------
    RecordError
        The line is not a record, or `protocol` is not "json".
    """
    _check_protocol(protocol)
    return _measured(parse_line(row), "topi:<line>:1")


def encode(inp: MeasureInput, result: MeasureResult, protocol: str = "json") -> str:
    """Write one record as a version 0.2 line, without the newline.

    Raises
    ------
    RecordError
        `protocol` is not "json".
    """
    _check_protocol(protocol)
    index = inp.config.index if inp.index < 0 else inp.index
    row = {
        "input": [str(log_target(inp.target)), inp.task.name, normalize(inp.task.args), {}],
        "config": {"index": index, "code_hash": None, "entity": inp.config.to_entity()},
        "result": [list(result.costs), result.error_no, result.all_cost, result.timestamp],
        "version": LOG_VERSION,
        "tvm_version": TVM_VERSION,
    }
    return json.dumps(row)


def _check_protocol(protocol: str) -> None:
    if protocol != "json":
        raise RecordError(f"record protocol {protocol!r}: only 'json' is read and written")


@as_record_errors
def _measured(raw: RawRecord, source: str) -> tuple[MeasureInput, MeasureResult]:
    cost = mean_seconds(raw.costs)
    config = replace(
        ConfigEntity.from_entity(json.loads(raw.entity), source, False, cost), index=raw.space_index
    )
    task = LoggedTask(raw.input.task, to_tuple(normalize(json.loads(raw.input.args))))
    result = MeasureResult(raw.costs, raw.error_no, raw.all_cost, raw.timestamp)
    return MeasureInput(raw.input.target, task, config, raw.space_index), result
