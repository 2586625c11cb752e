"""How many records logs hold, by target: what a build reports of its logs."""

from __future__ import annotations

from collections import Counter

from .log_target import UNKNOWN_MODEL, LogTarget


class LogCounts:
    """Records of each log by their target; None for failed ones and targets that are unknown."""

    def __init__(self) -> None:
        self._by_log: dict[str, Counter[LogTarget | None]] = {}

    def of_log(self, name: str) -> Counter[LogTarget | None]:
        """The counts of one log, to add to."""
        return self._by_log.setdefault(name, Counter())

    def matching(self, target: LogTarget) -> list[tuple[str, int, int]]:
        """(log, all records, records whose target's model or a key is that of `target`) each."""
        return [
            (name, counts.total(), sum(n for other, n in counts.items() if _match(other, target)))
            for name, counts in self._by_log.items()
        ]


def _match(other: LogTarget | None, target: LogTarget) -> bool:
    if other is None:
        return False
    is_model = other.model == target.model != UNKNOWN_MODEL
    return is_model or not set(other.keys).isdisjoint(target.keys)
