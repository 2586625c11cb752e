"""The best records of every workload in any number of auto_scheduler logs.

A record is kept as the line of its log, and read when a kernel wants it. Of Ansor's records the
cheapest few of each workload are kept: the first may turn out not to replay.
"""

from __future__ import annotations

import bisect
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..autotvm.log_target import UNKNOWN_MODEL, LogTarget, log_target
from ..errors import RecordError
from .ansor.record import AnsorRecord, WorkloadKey, decode_key
from .ansor.record import distance as ansor_distance
from .record import AnyRecord, Glance, Record, matched_target
from .workload import distance

logger = logging.getLogger("baton.auto_scheduler")

# Kept of each of Ansor's workloads.
_SPARE = 3


@dataclass(frozen=True)
class Entry:
    """A record, or the line that holds it, with its cost in seconds."""

    cost: float
    record: AnyRecord | Glance

    def read(self) -> AnyRecord:
        """The record.

        Raises
        ------
        RecordError
            Its line is damaged; names file and line.
        """
        return self.record.read() if isinstance(self.record, Glance) else self.record


class BestRecords:
    """Cheapest successful records by target, and by workload.

    The matching order is Ansor's: records of the build target's model first, then those that
    share a key with it, in the order of the build target's keys; among several the lowest mean
    cost wins, and of equal ones the first.
    """

    def __init__(self) -> None:
        # ("model" or "key", its name) -> family of workloads -> workload key -> best record
        self._own: dict[tuple[str, str], dict[str, dict[str, Entry]]] = {}
        # ... -> name in the key -> arguments in the key -> best records
        self._ansor: dict[tuple[str, str], dict[str, dict[tuple, list[Entry]]]] = {}
        # The same entries by the arguments, for DAG keys alone.
        self._by_shape: dict[tuple[str, str], dict[tuple, list[list[Entry]]]] = {}

    @property
    def has_ansor(self) -> bool:
        """Whether there is any record of Ansor's."""
        return bool(self._ansor)

    def add(self, found: AnyRecord | Glance) -> None:
        """Keep a record if it is among the best; failed ones are passed over.

        Raises
        ------
        RecordError
            Its target is not understood.
        """
        if not math.isfinite(found.cost):
            return
        is_ansor = found.is_ansor if isinstance(found, Glance) else isinstance(found, AnsorRecord)
        target = log_target(found.target) if isinstance(found, Glance) else matched_target(found)
        places = [("key", key) for key in target.keys]
        if target.model != UNKNOWN_MODEL:
            places.append(("model", target.model))
        for place in places:
            if is_ansor:
                self._add_ansor(place, decode_key(found.workload_key), found)
            else:
                self._add_own(place, found)

    def _add_own(self, place: tuple[str, str], found: AnyRecord | Glance) -> None:
        family = self._own.setdefault(place, {}).setdefault(_family(found.workload_key), {})
        held = family.get(found.workload_key)
        if held is None or found.cost < held.cost:
            family[found.workload_key] = Entry(found.cost, found)

    def _add_ansor(
        self, place: tuple[str, str], key: WorkloadKey, found: AnyRecord | Glance
    ) -> None:
        of_name = self._ansor.setdefault(place, {}).setdefault(key.name, {})
        entries = of_name.setdefault(key.args, [])
        if not entries and key.is_hash:
            self._by_shape.setdefault(place, {}).setdefault(key.args, []).append(entries)
        if len(entries) == _SPARE and found.cost >= entries[-1].cost:
            return
        bisect.insort(entries, Entry(found.cost, found), key=lambda entry: entry.cost)
        del entries[_SPARE:]

    def find(self, target: LogTarget, workload_key: str, include_compatible: bool) -> Record | None:
        """Best record of Baton's own for a workload."""
        for place in _places(target):
            family = self._own.get(place, {}).get(_family(workload_key), {})
            entry = family.get(workload_key)
            if entry is None and include_compatible:
                entry = min(
                    (
                        Entry(held.cost * factor, held.record)
                        for key, held in family.items()
                        if math.isfinite(factor := distance(workload_key, key))
                    ),
                    key=lambda each: each.cost,
                    default=None,
                )
            if entry is not None:
                record = entry.read()
                assert isinstance(record, Record)
                return record
        return None

    def find_ansor(
        self, target: LogTarget, key: WorkloadKey, include_compatible: bool
    ) -> Iterator[AnsorRecord]:
        """Records of a task of Ansor's, the best first."""
        for place in _places(target):
            of_name = self._ansor.get(place, {}).get(key.name, {})
            entries = of_name.get(key.args, [])
            if not entries and include_compatible:
                entries = sorted(
                    (
                        Entry(held.cost * factor, held.record)
                        for args, several in of_name.items()
                        if math.isfinite(factor := ansor_distance(key, WorkloadKey(key.name, args)))
                        for held in several
                    ),
                    key=lambda each: each.cost,
                )
            yield from _read_all(entries)

    def of_shapes(self, target: LogTarget, dims: tuple[int, ...]) -> Iterator[AnsorRecord]:
        """Ansor's records of any DAG with operands of these extents, the best first."""
        for place in _places(target):
            several = self._by_shape.get(place, {}).get(dims, [])
            entries = [entry for entries in several for entry in entries]
            yield from _read_all(sorted(entries, key=lambda each: each.cost))

    def has_shapes(self, target: LogTarget, dims: tuple[int, ...]) -> bool:
        """Whether Ansor tuned any DAG with operands of these extents."""
        return any(dims in self._by_shape.get(place, {}) for place in _places(target))


def _read_all(entries: list[Entry]) -> Iterator[AnsorRecord]:
    for entry in entries:
        try:
            record = entry.read()
        except RecordError as error:
            logger.warning("%s; the record is passed over", error)
            continue
        assert isinstance(record, AnsorRecord)
        yield record


def _places(target: LogTarget) -> list[tuple[str, str]]:
    return [("model", target.model), *(("key", key) for key in target.keys)]


def _family(workload_key: str) -> str:
    return workload_key.partition(".")[0]
