"""Outcome of measuring one candidate kernel, as measured and as read from a log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class MeasureResult:
    """Outcome of a measurement.

    Attributes
    ----------
    costs : tuple of float
        Seconds of each repeat; `FAILED_COST` if it failed.
    error_no : int
        0 is success; the others are listed in `MeasureErrorNo`.
    all_cost : float
        Seconds that building and running took together.
    timestamp : float
        Unix time of the end of the measurement.
    error_msg : str
        Error text in one line; not kept in logs.
    """

    costs: tuple[float, ...]
    error_no: int
    all_cost: float = 0.0
    timestamp: float = 0.0
    error_msg: str = ""

    def __iter__(self) -> Iterator[Any]:
        """Costs, error number, total seconds and timestamp: AutoTVM's results were such tuples."""
        return iter((self.costs, self.error_no, self.all_cost, self.timestamp))

    def __getitem__(self, index: int) -> Any:
        return tuple(self)[index]

    @property
    def is_right(self) -> bool:
        """Whether it ran without an error."""
        return not self.error_no
