"""The fields of a log line that decide which record is used, read without the rest of it.

A log of a million records is opened for the few that a build asks for. Lines as TVM's writer lays
them out are cut up a block at a time, with every part checked in the cheapest way that is sure; any
other line is parsed in full.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from compiler.support.regular_files import open_regular, os_errors_as

from ...errors import RecordError
from ..log_file import BOM, Run, line_layout, runs
from ..log_target import LogTarget, log_target
from ..untrusted_json import mean_seconds, read_json
from .legacy import changes_spelling
from .record import NUMBER, TEXT, RawRecord, SkippedLines, known_entity, parse_line
from .workload import digests_of_bytes, is_normal_text


class Ranked(NamedTuple):
    """Ranking data of a record, and its config as JSON text."""

    line: int
    target: LogTarget
    digest: bytes  # of the workload; see `workload.digest`
    # Mean seconds; infinity for a measurement that failed or says 0 or less, and meaningless where
    # `error_no` is not 0
    cost: float
    error_no: int
    entity: str
    # Place of the config in the space of the TVM that wrote the record; -1 if unknown
    space_index: int = -1


# A line as TVM's writer lays it out: target and task, arguments, index, entity, costs, error
# number.
_LAYOUT = line_layout(
    r'\{"input": \["([^"]*", "[^"]*)", (\[[^{]*\]), \{\}\], '
    r'"config": \{"index": (-?\d{1,18}), "code_hash": null, "entity": (\[[^}]*\])\}, '
    rf'"result": \[\[({NUMBER}(?:, {NUMBER})*)\], (\d{{1,9}}), {NUMBER}, {NUMBER}\], '
    rf'"version": 0\.2, "tvm_version": {TEXT}\}}'
)
_ONE_DIGIT = bytes.maketrans(b"123456789", b"0" * 9)
# Argument lists with zeros for all digits that were found right.
_forms: set[bytes] = set()
_MOST_FORMS = 1 << 14
# Entities as bytes, and as the text that all records with it share.
_entities: dict[bytes, str] = {}
_MOST_ENTITIES = 1 << 16


def rank_log(path: str | os.PathLike, strict: bool = False) -> Iterator[Ranked]:
    """Yield ranking data of a log's records in line order, failed measurements included.

    `strict`: raise at the first bad line instead of warning once at the end. Raises RecordError:
    the file can't be read or no line of it is a record; with `strict` a bad line.
    """
    skipped, count, raw = SkippedLines(Path(path).name), 0, b"\n"
    with (
        os_errors_as(RecordError, f"AutoTVM log {str(path)!r} can't be read"),
        open_regular(path) as file,
    ):
        for run in runs(file, (_LAYOUT,)):
            found = _cut(run) if run.layout >= 0 else None
            if found is not None:
                count += len(run.fields)
                yield from found
                continue
            for number in range(run.line, run.line + len(run.fields)):
                raw = run.text(number - run.line)
                text = _text(raw, number)
                if not text or text.startswith("#"):
                    continue
                record = skipped.parsed(parse_line, text, number, number, strict)
                if record is not None:
                    count += 1
                    yield ranked(record)
    skipped.report(count, raw.endswith((b"\n", b"\r")), "AutoTVM record")


def rank_line(text: str, line: int = 1) -> Ranked:
    """Read and check one line; RecordError says why, without file and line."""
    raw = text.encode(errors="surrogateescape")
    if (match := _LAYOUT.fullmatch(raw)) is not None:
        found = _cut(Run(0, line, raw, (0, len(raw)), 0, [match.groups()]))
        if found is not None:
            return next(found)
    return ranked(parse_line(text, line))


def _cut(run: Run) -> Iterator[Ranked] | None:
    """Ranking data of the lines of a run; None if one of them needs the full parser."""
    heads, args, indices, entities, costs, errors = zip(*run.fields)
    tasks = list(map(_head, heads))
    digests = _digests(tasks, args)
    shared = [_entities.get(entity) or _entity(entity) for entity in entities]
    means = _means(costs)
    if digests is None or None in shared:
        return None
    targets = [task[0] for task in tasks if task]
    numbers = map(int, errors), shared, map(int, indices)
    rows = zip(itertools.count(run.line), targets, digests, means, *numbers)
    return map(_new, itertools.repeat(Ranked), rows)


_new = tuple.__new__  # of a named tuple without the check of how many fields there are


def _means(costs: Sequence[bytes]) -> list[float]:
    try:
        means = list(map(float, costs))
    except ValueError:  # several in a line
        return [mean_seconds(list(map(float, line.split(b", ")))) for line in costs]
    return means if min(means) > 0.0 else [mean_seconds([mean]) for mean in means]


def _entity(text: bytes) -> str | None:
    found = known_entity(text.decode())
    if found is not None:
        if len(_entities) >= _MOST_ENTITIES:
            _entities.clear()
        _entities[text] = found
    return found


def _text(raw: bytes, number: int) -> str:
    """A line without its end; bytes that are not UTF-8 stay recognizable."""
    bare = raw.removeprefix(BOM) if number == 1 else raw
    return bare.decode(errors="surrogateescape").strip()


def ranked(raw: RawRecord) -> Ranked:
    """Ranking data of a parsed line."""
    cost = mean_seconds(raw.costs)
    key = raw.input
    return Ranked(
        raw.line, key.target, key.digest, cost, raw.error_no, raw.entity, raw.space_index
    )  # fmt: skip


def _digests(
    heads: Sequence[tuple[LogTarget, bytes] | None], args: Sequence[bytes]
) -> list[bytes] | None:
    """Digests of workloads from their text, since parsing takes longest; None needs a parser."""
    text = b"\n".join(args)
    forms = text.translate(_ONE_DIGIT).split(b"\n")
    if not _forms.issuperset(forms):
        for form, each in zip(forms, args):
            if form not in _forms and not _is_normal(each):
                return None
    if None in heads:
        return None
    bodies = text.translate(None, b" ").split(b"\n")  # there are none but behind commas
    return digests_of_bytes([head[1] + body[1:] for head, body in zip(heads, bodies) if head])


@functools.lru_cache(maxsize=1 << 10)
def _head(text: bytes) -> tuple[LogTarget, bytes] | None:
    """Target of `target", "task`, and how the normal form of a workload of the task begins."""
    target, _, task = text.partition(b'", "')
    if b"\\" in text or not text.decode().isprintable() or changes_spelling(task.decode()):
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
        parsed = read_json(args.decode())
        if not isinstance(parsed, list) or not parsed:
            return False
        if json.dumps(parsed, separators=(",", ":")) != compact:
            return False  # a string holds what separates elements elsewhere
    except RecordError:
        return False
    if len(_forms) >= _MOST_FORMS:
        _forms.clear()
    _forms.add(args.translate(_ONE_DIGIT))
    return True
