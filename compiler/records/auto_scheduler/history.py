"""The best records of every workload in any number of auto_scheduler logs, small in memory.

A record of a log is kept as the place of its line, and read when a kernel wants it. The cheapest
few of each workload are kept: the first may turn out not to replay.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import RecordError
from ...support.gc_pause import paused_collection
from ..ansor.record import AnsorRecord, WorkloadKey, decode_key
from ..ansor.record import distance as ansor_distance
from ..log_counts import LogCounts
from ..log_target import UNKNOWN_MODEL, LogTarget, log_target
from .log_index import IndexedLines, LogFile
from .record import AnyRecord, Record, matched_target
from .workload import distance

logger = logging.getLogger("baton.auto_scheduler")

# Kept of each workload; of Baton's, that many traces and that many templates.
_SPARE = 3
_NONE = -1
_BRACKETS = b'[]" '
_Key = tuple[int, int | None]  # hashes of one of Ansor's keys and of its operands' extents
_Place = tuple[int, int, int, int]  # number of the log; line, and its bytes
_HASH_DIGITS = 32
_DAG_KEY = re.compile(r'\["[0-9a-f]{32}"')


@dataclass
class _Group:
    """Slots of the records of one device."""

    # Workload key to the first of its slots, for records of Baton's that hold a trace
    own: dict[str, int] = field(default_factory=dict)
    # The same of those that name a template, which serves no other shapes
    templates: dict[str, int] = field(default_factory=dict)
    # Hash of a workload key to the first of its slots
    ansor: dict[int, int] = field(default_factory=dict)
    # Hash of the operands' extents to the first slot of a workload with such operands
    of_dims: dict[int, int] = field(default_factory=dict)


class BestRecords:
    """Cheapest successful records by target, and by workload.

    The matching order is Ansor's: records of the build target's model first, then those that
    share a key with it, in the order of the build target's keys; among several the lowest mean
    cost wins, and of equal ones the first.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[tuple[str, ...], str], _Group] = {}
        self._logs: list[LogFile] = []
        self._given: dict[int, AnyRecord] = {}  # records that no log holds, by slot
        self._costs = array("d")
        self._order = array("q")  # place among all that were added
        self._log_of = array("l")
        self._lines = array("q")
        self._offsets = array("q")
        self._lengths = array("q")
        self._next = array("q")  # slot of another record of the same workload
        self._next_of_dims = array("q")  # slot of another workload with the same extents
        self._added = 0
        self.counts = LogCounts()

    @property
    def has_ansor(self) -> bool:
        """Whether there is any record of Ansor's."""
        return any(group.ansor for group in self._groups.values())

    def content_digest(self) -> str | None:
        """Hash of all that may be found here; None for records that no log's line holds."""
        if self._given:
            return None
        texts = "".join(log.digest for log in self._logs)
        return hashlib.blake2b(f"{texts} {self._added}".encode()).hexdigest()

    # --- adding ----------------------------------------------------------------------------

    def add(self, record: AnyRecord) -> None:
        """Keep a successful record if it is among the best; RecordError for an unknown target."""
        counts = self.counts.of_log(record.source.split(":", 1)[-1].rpartition(":")[0])
        if not math.isfinite(record.cost):
            counts[None] += 1
            return
        self._added += 1
        target = matched_target(record)
        counts[target] += 1
        group = self._group(target)
        place = (_NONE, 0, 0, 0)
        if isinstance(record, AnsorRecord):
            slot = self._put_ansor(group, _hashes([record.workload_key])[0], record.cost, place)
        else:
            key = record.workload_key, record.template is not None
            slot = self._put_own(group, key, record.cost, place)
        if slot is not None:
            self._given[slot] = record

    def add_log(self, log: LogFile, n_lines: int | None = None) -> int:
        """Add the records of a log; those whose target is not understood are named in warnings.

        Returns how many it has. Raises RecordError: the log can't be read or has no record.
        """
        position, count, foreign = len(self._logs), 0, dict[str, int]()
        groups: dict[str, _Group] = {}
        counted: Counter[str] = Counter()
        self._logs.append(log)
        with paused_collection():
            for seen in log.indexed(n_lines):
                count += len(seen.keys)
                start = seen.places[0]
                put, keys = self._putter(seen)
                rows = zip(seen.places[1:], keys, seen.targets, seen.costs)
                for line, (end, key, target, cost) in enumerate(rows, seen.line):
                    offset, start = start, end
                    if cost == math.inf:
                        continue
                    group = groups.get(target)
                    if group is None:
                        try:
                            group = groups[target] = self._group(log_target(target))
                        except RecordError as error:
                            foreign[str(error)] = foreign.get(str(error), 0) + 1
                            continue
                    self._added += 1
                    counted[target] += 1
                    put(group, key, cost, (position, line, offset, end - offset))
        counts = self.counts.of_log(log.name)
        for text, times in counted.items():
            counts[log_target(text)] += times
        counts[None] += count - counted.total()
        for reason, times in foreign.items():
            logger.warning("%s: %d record(s) are not used: %s", log.name, times, reason)
        return count

    def _putter(self, seen: IndexedLines) -> tuple[Callable[..., int | None], Sequence[Any]]:
        """Assign records to slots by their keys."""
        if seen.is_ansor:
            return self._put_ansor, _hashes(seen.keys)
        return self._put_own, list(zip(seen.keys, seen.templates))

    def _group(self, target: LogTarget) -> _Group:
        return self._groups.setdefault((target.keys, target.model), _Group())

    def _put_own(
        self, group: _Group, key: tuple[str, bool], cost: float, place: _Place
    ) -> int | None:
        workload, is_template = key
        return self._put(group.templates if is_template else group.own, workload, cost, place)

    def _put_ansor(self, group: _Group, key: _Key, cost: float, place: _Place) -> int | None:
        workload, dims = key
        is_new = workload not in group.ansor
        slot = self._put(group.ansor, workload, cost, place)
        if is_new and slot is not None and dims is not None:
            other = group.of_dims.get(dims)
            if other is not None:
                self._next_of_dims[slot] = other
            group.of_dims[dims] = slot
        return slot

    def _put(self, first_slots: dict[Any, int], key: Any, cost: float, place: _Place) -> int | None:
        """Where a record goes; None if it is not among the best of its workload."""
        first = first_slots.setdefault(key, len(self._costs))
        if first == len(self._costs):
            return self._new_slot(cost, place)
        held, worst, slot = 0, first, first
        while slot != _NONE:
            held += 1
            if (self._costs[slot], self._order[slot]) > (self._costs[worst], self._order[worst]):
                worst = slot
            slot = self._next[slot]
        if held == _SPARE:
            return self._replace(worst, cost, place) if cost < self._costs[worst] else None
        slot = self._new_slot(cost, place)
        self._next[slot], self._next[first] = self._next[first], slot
        return slot

    def _new_slot(self, cost: float, place: _Place) -> int:
        log, line, offset, length = place
        self._costs.append(cost)
        self._order.append(self._added)
        self._log_of.append(log)
        self._lines.append(line)
        self._offsets.append(offset)
        self._lengths.append(length)
        self._next.append(_NONE)
        self._next_of_dims.append(_NONE)
        return len(self._costs) - 1

    def _replace(self, slot: int, cost: float, place: _Place) -> int:
        self._given.pop(slot, None)
        self._costs[slot], self._order[slot] = cost, self._added
        self._log_of[slot], self._lines[slot], self._offsets[slot], self._lengths[slot] = place
        return slot

    # --- finding ---------------------------------------------------------------------------

    def find(
        self, target: LogTarget, workload_key: str, include_compatible: bool
    ) -> Iterator[Record]:
        """Baton's own records for a workload, the best first."""
        for groups in self._places(target):
            found = [
                (1.0, slot)
                for group in groups
                for slots in (group.own, group.templates)
                for slot in self._same_workload(slots.get(workload_key, _NONE))
            ]
            if not found and include_compatible:
                family = workload_key.partition(".")[0] + "."
                found = [
                    (factor, slot)
                    for group in groups
                    for key, first in group.own.items()
                    if key.startswith(family)
                    and math.isfinite(factor := distance(workload_key, key))
                    for slot in self._same_workload(first)
                ]
            yield from self._read_all(found)

    def find_ansor(
        self, target: LogTarget, key: WorkloadKey, include_compatible: bool
    ) -> Iterator[AnsorRecord]:
        """Records of a task of Ansor's, the best first."""
        place = _place_of(key)
        for groups in self._places(target):
            found = [
                (1.0, slot)
                for group in groups
                if place in group.ansor
                for slot in self._same_workload(group.ansor[place])
            ]
            if not found and include_compatible:
                found = [pair for group in groups for pair in self._compatible(group, key)]
            yield from self._read_all(found)

    def of_shapes(self, target: LogTarget, dims: tuple[int, ...]) -> Iterator[AnsorRecord]:
        """Ansor's records of any DAG with operands of these extents, the best first."""
        wanted = _hash_of_dims(dims)
        for groups in self._places(target):
            found = []
            for group in groups:
                first = group.of_dims.get(wanted, _NONE)
                while first != _NONE:
                    found += [(1.0, slot) for slot in self._same_workload(first)]
                    first = self._next_of_dims[first]
            yield from self._read_all(found)

    def has_shapes(self, target: LogTarget, dims: tuple[int, ...]) -> bool:
        """Whether Ansor tuned any DAG with operands of these extents."""
        wanted = _hash_of_dims(dims)
        return any(wanted in g.of_dims for groups in self._places(target) for g in groups)

    def _places(self, target: LogTarget) -> Iterator[list[_Group]]:
        """The groups of the target's model, then those of each of its keys."""
        if target.model != UNKNOWN_MODEL:
            yield [group for (_, model), group in self._groups.items() if model == target.model]
        for key in target.keys:
            yield [group for (keys, _), group in self._groups.items() if key in keys]

    def _same_workload(self, slot: int) -> Iterator[int]:
        while slot != _NONE:
            yield slot
            slot = self._next[slot]

    def _compatible(self, group: _Group, key: WorkloadKey) -> Iterator[tuple[float, int]]:
        """Slots of smaller shapes, and how many times their work the wanted one is."""
        for first in group.ansor.values():
            try:
                record = self._read(first)
            except RecordError:
                continue  # said when the record itself is wanted
            factor = ansor_distance(key, decode_key(record.workload_key))
            if math.isfinite(factor):
                yield from ((factor, slot) for slot in self._same_workload(first))

    def _ranked(self, found: Iterable[tuple[float, int]]) -> list[tuple[float, int]]:
        """Factor and slot, the cheapest first, and of equal ones the first that was added."""
        return sorted(found, key=lambda pair: (
            self._costs[pair[1]] * pair[0], self._order[pair[1]]
        ))  # fmt: skip

    def _read(self, slot: int) -> AnyRecord:
        given = self._given.get(slot)
        if given is not None:
            return given
        log = self._logs[self._log_of[slot]]
        return log.read(self._lines[slot], self._offsets[slot], self._lengths[slot])

    def _read_all(self, found: Iterable[tuple[float, int]]) -> Iterator[Any]:
        """Records, the best first; what turns out to be damaged is named and passed over."""
        for _, slot in self._ranked(found):
            try:
                record = self._read(slot)
            except RecordError as error:
                logger.warning("%s; the record is passed over", error)
                continue
            yield record


def _hashes(keys: Sequence[str]) -> Sequence[_Key]:
    """Hashes of Ansor's keys and, of those that name a DAG, of the extents of its operands.

    Nested and flat lists of extents are the same. A DAG's key is cut up without a parser.
    """
    if all(map(_DAG_KEY.match, keys)):
        bare = (
            "\n".join(keys).encode(errors="surrogatepass").translate(None, _BRACKETS).split(b"\n")
        )
        if len(bare) == len(keys):
            return list(zip(map(hash, bare), [hash(each[_HASH_DIGITS:]) for each in bare]))
    if len(keys) > 1:
        return [_hashes([key])[0] for key in keys]
    return [(hash(decode_key(keys[0])), None)]


def _place_of(key: WorkloadKey) -> int:
    return hash(key.name.encode() + _dims_text(key.args)) if key.is_hash else hash(key)


def _hash_of_dims(dims: tuple[int, ...]) -> int:
    return hash(_dims_text(dims))


def _dims_text(dims: tuple[int, ...]) -> bytes:
    """As `_hashes` cuts them out: a comma before each."""
    return "".join(f",{dim}" for dim in dims).encode()
