"""The fields of a log line that decide which record is used, read without the rest of it.

A log of a million records is opened for the few that a build asks for. Lines as TVM's writer lays
them out are cut up here, with every part checked in the cheapest way that is sure; any other line
is parsed in full.
"""

from __future__ import annotations

import functools
import json
from typing import NamedTuple

from ..errors import RecordError
from .legacy import changes_spelling
from .log_target import LogTarget, log_target
from .record import RESULT, RawRecord, known_entity, parse_line
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


_START = '{"input": ["'
_CONFIG = ', {}], "config": {"index": '
_ENTITY = ', "code_hash": null, "entity": '
_RESULT = '}, "result": '
_DIGITS = b"0123456789"
# Argument lists without their digits that were found right; one for each form of a workload.
_forms: set[bytes] = set()
_MOST_FORMS = 1 << 12
# Most logs measure a workload many times.
_keys: dict[str, tuple[LogTarget, bytes]] = {}
_MOST_KEYS = 1 << 13


def rank_line(text: str, line: int = 1) -> Ranked:
    """Read and check one line.

    Raises
    ------
    RecordError
        The line is no record; the message says why, without file and line.
    """
    config_at, result_at = text.find(_CONFIG), text.rfind(_RESULT)
    entity_at = text.find(_ENTITY, config_at)
    matched = RESULT.fullmatch(text, result_at + len(_RESULT))
    if matched and 0 < config_at < entity_at < result_at and text.startswith(_START):
        index = text[config_at + len(_CONFIG) : entity_at]
        entity = known_entity(text[entity_at + len(_ENTITY) : result_at])
        if entity and text.isascii() and (index.isdigit() or index[1:].isdigit()):
            key = _key(text[len(_START) : config_at])
            costs = matched[1]
            if key is not None and ", " not in costs:
                return Ranked(line, *key, float(costs), int(matched[2]), entity)
    return ranked(parse_line(text, line))


def ranked(raw: RawRecord) -> Ranked:
    """The same of a line that is parsed already."""
    cost = sum(raw.costs) / len(raw.costs)
    return Ranked(raw.line, raw.input.target, raw.input.digest, cost, raw.error_no, raw.entity)


def _key(text: str) -> tuple[LogTarget, bytes] | None:
    """Target and digest of `target", "task", [arguments]`; None where a parser must look.

    The digest is made from the text itself: reading and writing a list takes longest of all.
    """
    known = _keys.get(text)
    if known is not None:
        return known
    end = text.find('", [')
    head = _head(text[:end])
    args = text[end + 3 :].encode()
    if end < 0 or head is None or not _is_normal(args):
        return None
    target, start = head
    found = target, digest_of_bytes(start + args[1:].replace(b", ", b","))
    if len(_keys) < _MOST_KEYS:
        _keys[text] = found
    return found


@functools.lru_cache(maxsize=1 << 10)
def _head(text: str) -> tuple[LogTarget, bytes] | None:
    """Target of `target", "task`, and how the normal form of a workload of the task begins."""
    target, separator, task = text.partition('", "')
    if not separator or "\\" in text or '"' in target or '"' in task or changes_spelling(task):
        return None
    try:
        return log_target(target), f'["{task}",'.encode()
    except RecordError:
        return None


def _is_normal(args: bytes) -> bool:
    """Whether the text is a JSON list in the normal form, with ", " between elements only."""
    if b"-" in args or b"[," in args or b", ," in args or b", ]" in args or b"\\" in args:
        return False  # what a form can't tell apart
    form = args.translate(None, _DIGITS)
    if form in _forms:
        return True
    compact = args.decode().replace(", ", ",")
    if b"e" in form or " " in compact or "\t" in compact or not is_normal_text(compact):
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
    _forms.add(form)
    return True
