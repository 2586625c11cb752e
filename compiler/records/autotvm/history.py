"""The best record of every workload in any number of AutoTVM logs, small in memory.

A million records of a million workloads take about 0.6 GiB: a workload is kept as a digest,
a config as the JSON text of its log line. The next best few of a workload are kept as well: the
best may turn out not to fit its template.
"""

from __future__ import annotations

import hashlib
import json
import math
from array import array
from bisect import insort
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from schedules.config import ConfigEntity

from ...support.gc_pause import paused_collection
from ..log_counts import LogCounts
from ..log_target import UNKNOWN_MODEL, log_target
from ..measure_result import MeasureResult
from ..untrusted_json import mean_seconds
from .ranking import Ranked
from .record import MeasureInput
from .workload import digest

_SPARE = 2
# Cost and position of a record that is not the best, its line, log, entity and index
_Spare = tuple[float, int, int, int, str, int]


class BestRecords:
    """Cheapest successful record for each (target keys, model, workload).

    The matching order is that of TVM 0.18's `ApplyHistoryBest`: records of the build target's
    model first, then those that share a key with it, in the order of the build target's keys;
    among several the lowest mean cost wins, and of equal ones the first.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[tuple[str, ...], str], dict[bytes, int]] = {}
        self._costs = array("d")
        self._places = array("Q")  # position of the record among all that were added
        self._lines = array("Q")
        self._logs = array("L")
        self._indices = array("q")
        self._entities: list[str] = []
        self._spares: dict[int, list[_Spare]] = {}  # by slot, the best first
        self._log_names: list[str] = []
        self.counts = LogCounts()
        self._added = 0

    def __len__(self) -> int:
        return len(self._entities)

    def add_log(self, name: str, records: Iterable[Ranked]) -> None:
        """Add the records of the log `name`; failed ones are passed over."""
        log, last, counts, run = self._log(name), None, self.counts.of_log(name), 0
        slot_of: Callable[[bytes, int], int] = _no_group
        costs, entities, new = self._costs, self._entities, len(self._entities)
        with paused_collection():  # and as little as can be for each of a million records
            for line, target, workload, cost, error_no, entity, index in records:
                if error_no or cost == math.inf:
                    counts[None] += 1
                    continue
                run += 1
                self._added += 1
                if target is not last:  # logs name few targets, and in long runs
                    if last is not None:
                        counts[last] += run - 1
                        run = 1
                    last = target
                    slot_of = self._groups.setdefault((target.keys, target.model), {}).setdefault
                slot = slot_of(workload, new)
                if slot == new:
                    new += 1
                    costs.append(cost)
                    self._places.append(self._added)
                    self._lines.append(line)
                    self._logs.append(log)
                    self._indices.append(index)
                    entities.append(entity)
                    continue
                spare = (cost, self._added, line, log, entity, index)
                if cost < costs[slot]:
                    spare = self._row(slot)
                    costs[slot], self._places[slot] = cost, self._added
                    self._lines[slot], self._logs[slot], entities[slot] = line, log, entity
                    self._indices[slot] = index
                spares = self._spares.setdefault(slot, [])
                if len(spares) < _SPARE or spare < spares[-1]:
                    insort(spares, spare)
                    del spares[_SPARE:]
        if last is not None:
            counts[last] += run

    def add_pair(self, inp: MeasureInput, result: MeasureResult) -> None:
        """Add one record that is already decoded."""
        cost = mean_seconds(result.costs, result.error_no)
        name, line = _source_of(inp.config, self._added + 1)
        entity = json.dumps(inp.config.to_entity())
        target = log_target(inp.target)
        index = inp.config.index if inp.index < 0 else inp.index
        workload = digest(inp.task.workload)
        self.add_log(name, [Ranked(line, target, workload, cost, 0, entity, index)])

    def _row(self, slot: int) -> _Spare:
        return (
            self._costs[slot], self._places[slot], self._lines[slot], self._logs[slot],
            self._entities[slot], self._indices[slot],
        )  # fmt: skip

    def _log(self, name: str) -> int:
        if not self._log_names or self._log_names[-1] != name:
            self._log_names.append(name)
        return len(self._log_names) - 1

    def content_digest(self) -> str:
        """Hash of all that is found here, and of where it comes from."""
        digest_ = hashlib.sha256(repr(self._log_names).encode())
        for column in (self._costs, self._places, self._lines, self._logs):
            digest_.update(column.tobytes())
        digest_.update(repr(list(self._spares.items())).encode())
        for entity in self._entities:
            digest_.update(entity.encode() + b"\0")
        for group, slots in self._groups.items():
            digest_.update(repr((group, len(slots))).encode())
            for workload, slot in slots.items():
                digest_.update(workload + slot.to_bytes(8, "little"))
        return digest_.hexdigest()

    def best_of_model(self, model: str, workload: bytes) -> list[ConfigEntity]:
        """Records tuned for the device `model`, the best first; "unknown" has none."""
        if model == UNKNOWN_MODEL:
            return []
        return self._best(workload, [g for (_, m), g in self._groups.items() if m == model])

    def best_of_key(self, key: str, workload: bytes) -> list[ConfigEntity]:
        """Records of any target that has `key` among its keys, the best first."""
        return self._best(workload, [g for (keys, _), g in self._groups.items() if key in keys])

    def _best(self, workload: bytes, groups: list[dict[bytes, int]]) -> list[ConfigEntity]:
        slots = [group[workload] for group in groups if workload in group]
        spares = [spare for slot in slots for spare in self._spares.get(slot, ())]
        return list(map(self._config, sorted([*map(self._row, slots), *spares])))

    def _config(self, row: _Spare) -> ConfigEntity:
        cost, _, line, log, entity, index = row
        source = f"topi:{self._log_names[log]}:{line}"
        config = ConfigEntity.from_entity(json.loads(entity), source, False, cost)
        return replace(config, index=index)


def _source_of(config: Any, position: int) -> tuple[str, int]:
    """Log and line of a config that was read from a file; else its place among the records."""
    kind, _, place = config.source.partition(":")
    name, _, line = place.rpartition(":")
    if kind == "topi" and name not in ("", "<line>") and line.isdigit():
        return name, int(line)
    return "<records>", position


def _no_group(workload: bytes, slot: int) -> int:
    """Stands for the group of records while there is none yet."""
    raise AssertionError(f"record {slot} has no target")
