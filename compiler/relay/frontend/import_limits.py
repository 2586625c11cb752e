"""Budgets of an import: a small model file may describe more work than any machine can do."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from compiler.errors import ImportLimitError

MAX_TENSOR_BYTES = 1 << 47
"""Size of a process's address space on x86-64: no machine can hold a larger tensor."""


@dataclass(frozen=True)
class ImportLimits:
    """Limits of an import, which raises `ImportLimitError` beyond them.

    Attributes
    ----------
    nodes : int
        Converted nodes, after loops are unrolled and functions are expanded.
    folded_bytes : int
        Bytes of the constants that the import computes, or repeats in unrolled loops and in
        expanded functions.
    seconds : float, optional
        Time to convert the nodes; unlimited by default.
    """

    nodes: int = 250_000
    folded_bytes: int = 1 << 30
    seconds: float | None = None


@dataclass
class Budget:
    """The cost of one import so far, compared with its limits."""

    limits: ImportLimits
    nodes: int = 0
    folded_bytes: int = 0
    started: float = field(default_factory=time.monotonic)

    def add_node(self, where: str) -> None:
        """Count a node; ImportLimitError beyond the limits of nodes or seconds."""
        self.nodes += 1
        if self.nodes > self.limits.nodes:
            raise ImportLimitError(
                f"the model has more than {self.limits.nodes} nodes after loops are unrolled and "
                f"functions are expanded, at {where}; raise ImportLimits.nodes to import it"
            )
        seconds = self.limits.seconds
        if seconds is not None and time.monotonic() - self.started > seconds:
            raise ImportLimitError(
                f"the import takes more than {seconds} s, at {where}; raise ImportLimits.seconds"
            )

    def add_bytes(self, size: int, where: str) -> None:
        """Count the bytes of a constant; ImportLimitError beyond the limit."""
        self.folded_bytes += size
        if self.folded_bytes > self.limits.folded_bytes:
            raise ImportLimitError(
                f"constant folding makes more than {self.limits.folded_bytes} bytes, at {where}; "
                "raise ImportLimits.folded_bytes to import the model"
            )
