"""The fields of a log line that decide which record is used, read without the rest of it.

A log of a million records is opened for the few that a build asks for. Lines as TVM's writer lays
them out are cut up here, with every part checked in the cheapest way that is sure; any other line
is parsed in full.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..errors import RecordError
from ..measure.log_file import BOM, read_blocks
from .legacy import changes_spelling
from .log_target import LogTarget, log_target
from .record import NUMBER, RawRecord, SkippedLines, known_entity, parse_line
from .workload import digest_of_bytes, is_normal_text


class Ranked(NamedTuple):
    """What decides whether a record is used, and its config as JSON text.

    Attributes
    ----------
    digest : bytes
        Of the workload; see `workload.digest`.
    cost : float
        Mean seconds; meaningless where `error_no` is not 0.
    """

    line: int
    target: LogTarget
    digest: bytes
    cost: float
    error_no: int
    entity: str


# The parts of a line as TVM's writer lays it out.
_START = b'{"input": ["'
_CONFIG = b', {}], "config": {"index": '
_ENTITY = b', "code_hash": null, "entity": '
_RESULT = b'}, "result": [['
_TAIL = re.compile(
    rf'({NUMBER})\], (\d+), {NUMBER}, {NUMBER}\], "version": 0\.2, '
    rf'"tvm_version": "[^"\\\n\x80-\xff]*"\}}\r?\n?'.encode()
)
_ONE_DIGIT = bytes.maketrans(b"123456789", b"0" * 9)
# Argument lists with zeros for all digits that were found right.
_forms: set[bytes] = set()
_MOST_FORMS = 1 << 14
# Most logs measure a workload many times.
_keys: dict[bytes, tuple[LogTarget, bytes]] = {}
_MOST_KEYS = 1 << 13
# Entities as bytes, and as the text that all records with it share; None for a wrong one.
_entities: dict[bytes, str | None] = {}
_MOST_ENTITIES = 1 << 16


def rank_log(path: str | os.PathLike, strict: bool = False) -> Iterator[Ranked]:
    """What ranks the records of a log, failed measurements included, in the order of the lines.

    Parameters
    ----------
    strict : bool
        Raise at the first bad line instead of warning once at the end.

    Raises
    ------
    RecordError
        The file can't be read or no line of it is a record; with `strict` a bad line.
    """
    name = Path(path).name
    skipped, count, number, raw = SkippedLines(name), 0, 0, b"\n"
    try:
        with open(path, "rb") as file:
            for block in read_blocks(file):
                at, end = 0, len(block)
                while at < end:
                    behind = block.find(b"\n", at) + 1 or end
                    found = _cut(block, at, behind, number + 1)
                    if found is not None:
                        number += 1
                        count += 1
                        at = behind
                        yield found
                        continue
                    for raw in block[at:behind].splitlines(keepends=True):
                        number += 1
                        text = _text(raw, number)
                        if not text or text.startswith("#"):
                            continue
                        record = skipped.parsed(parse_line, text, number, number, strict)
                        if record is not None:
                            count += 1
                            yield ranked(record)
                    at = behind
                ends = block.endswith(b"\n")
    except OSError as error:
        raise RecordError(f"AutoTVM log {str(path)!r} can't be read: {error.strerror}") from error
    skipped.report(count, number == 0 or ends, "AutoTVM record")


def rank_line(text: str, line: int = 1) -> Ranked:
    """Read and check one line.

    Raises
    ------
    RecordError
        The line is no record; the message says why, without file and line.
    """
    raw = text.encode(errors="surrogateescape")
    return _cut(raw, 0, len(raw), line) or ranked(parse_line(text, line))


def _cut(block: bytes, at: int, behind: int, line: int) -> Ranked | None:
    """What ranks the line between two places; None where a parser must look."""
    if not block.startswith(_START, at):
        return None
    config_at = block.find(_CONFIG, at, behind)
    entity_at = block.find(_ENTITY, config_at, behind)
    result_at = block.find(_RESULT, entity_at, behind)
    if config_at < 0 or entity_at < 0 or result_at < 0:
        return None
    tail = _TAIL.fullmatch(block, result_at + len(_RESULT), behind)
    text = block[at + len(_START) : config_at]
    key = _keys.get(text) or _key(text)
    entity = block[entity_at + len(_ENTITY) : result_at]
    shared = _entities.get(entity) or _entity(entity)
    index = block[config_at + len(_CONFIG) : entity_at]
    if tail is None or key is None or shared is None:
        return None
    if not index.isdigit() and not index[1:].isdigit():
        return None
    cost, error_no = tail.groups()
    return _new(Ranked, (line, key[0], key[1], float(cost), int(error_no), shared))


_new = tuple.__new__  # of a named tuple without the check of how many fields there are


def _entity(text: bytes) -> str | None:
    if len(_entities) >= _MOST_ENTITIES:
        _entities.clear()
    found = _entities[text] = known_entity(text.decode()) if text.isascii() else None
    return found


def _text(raw: bytes, number: int) -> str:
    """A line without its end; bytes that are no UTF-8 stay recognisable."""
    bare = raw.removeprefix(BOM) if number == 1 else raw
    return bare.decode(errors="surrogateescape").strip()


def ranked(raw: RawRecord) -> Ranked:
    """The same of a line that is parsed already."""
    cost = sum(raw.costs) / len(raw.costs)
    return Ranked(raw.line, raw.input.target, raw.input.digest, cost, raw.error_no, raw.entity)


def _key(text: bytes) -> tuple[LogTarget, bytes] | None:
    """Target and digest of `target", "task", [arguments]`; None where a parser must look.

    The digest is made from the text itself: reading and writing a list takes longest of all.
    """
    end = text.find(b'", [')
    head = _head(text[:end]) if end > 0 else None
    args = text[end + 3 :]
    if head is None or not (args.translate(_ONE_DIGIT) in _forms or _is_normal(args)):
        return None
    found = head[0], digest_of_bytes(head[1] + args[1:].replace(b", ", b","))
    if len(_keys) < _MOST_KEYS:
        _keys[text] = found
    return found


@functools.lru_cache(maxsize=1 << 10)
def _head(text: bytes) -> tuple[LogTarget, bytes] | None:
    """Target of `target", "task`, and how the normal form of a workload of the task begins."""
    target, separator, task = text.partition(b'", "')
    odd = not text.isascii() or any(mark in target + task for mark in b'"\\\n')
    if odd or not separator or changes_spelling(task.decode()):
        return None
    try:
        return log_target(target.decode()), b'["' + task + b'",'
    except RecordError:
        return None


def _is_normal(args: bytes) -> bool:
    """Whether the text is a JSON list in the normal form, with ", " between elements only."""
    if not args.isascii() or b"\\" in args or b"\n" in args:
        return False
    compact = args.decode().replace(", ", ",")
    if " " in compact or "\t" in compact or not is_normal_text(compact):
        return False
    try:
        parsed = json.loads(args)
        if not isinstance(parsed, list) or not parsed:
            return False
        if json.dumps(parsed, separators=(",", ":")) != compact:
            return False  # a string holds what separates elements elsewhere
    except ValueError:
        return False
    if len(_forms) >= _MOST_FORMS:
        _forms.clear()
    _forms.add(args.translate(_ONE_DIGIT))
    return True
