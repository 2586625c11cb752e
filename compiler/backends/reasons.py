"""Reasons why an operator or a subgraph stays out of a back end's subgraphs."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.errors import PartitionError

CHECK = "check"
"""A check of the back end: of an operator, or of a match of a pattern."""
UNSELECTED = "unselected"
"""The strategy passed over the operator without a reason."""
SCOPE = "scope"
"""The operator may be in no subgraph: a condition, a call of a function, a `match_cast`."""
LIMIT = "limit"
"""An option of `compiler.partition.options`, such as `min_ops`."""
REVIEW = "review"
"""The strategy's `accept_subgraph`."""
CYCLE = "cycle"
"""Two regions together would feed themselves."""
NUMBER = "number"
"""The strategy put two regions into different subgraphs."""
PLACEMENT = "placement"
"""Another engine, or the build, was measured to run it faster."""


@dataclass(frozen=True)
class Unsupported:
    """A "no" with its reason, in place of False: `return Unsupported("dilation is 2; 1 works")`.

    It is false, so code that expects a bool works with it; `answer or other` yields `other`.

    Attributes
    ----------
    reason : str
        What is unsupported, for users.
    kind : str
        Who says so: a constant of this module, `CHECK` where a back end does.

    Raises
    ------
    PartitionError
        The reason is not a non-empty str.
    """

    reason: str
    kind: str = CHECK

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str) or not self.reason.strip():
            raise PartitionError(
                f"the reason of Unsupported must be a non-empty str, not {self.reason!r}"
            )

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return self.reason
