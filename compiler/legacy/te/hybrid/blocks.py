"""Statements written down one after the other, in blocks, and the names that they define."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from ..sequences import sequence


class Scalar:
    """A variable that is written more than once: an array of one element."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer


class Blocks:
    """The statements of a function, and the values of its names at the current statement.

    `names`: names end with the block that defines them.
    """

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self._open: list[tuple[list[Any], dict[str, Any]]] = [([], {})]
        self._loops = [0]

    def emit(self, statement: Any) -> None:
        """Add a statement."""
        self._open[-1][0].append(statement)

    def open(self, is_loop: bool) -> None:
        """Begin a block: the body of a loop, or of a condition."""
        if is_loop:
            self._loops.append(len(self._open))
        self._open.append(([], dict(self.names)))

    def close(self) -> Any:
        """End a block; its statements as one."""
        statements, before = self._open.pop()
        if self._loops[-1] == len(self._open):
            self._loops.pop()
        self.names = before
        return sequence(statements)

    def declare(self, name: str, scalar: Scalar) -> None:
        """A variable of the loop around: it outlasts conditions in which it is first written."""
        level = self._loops[-1]
        self._open[level][0].insert(0, tirx.AllocBuffer(scalar.buffer))
        for _, before in self._open[level + 1 :]:
            before[name] = scalar
        self.names[name] = scalar

    def get(self) -> Any:
        """All statements as one."""
        return sequence(self._open[0][0])
