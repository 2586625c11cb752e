"""How an operand of a module's kernel becomes the operand of a replayed one.

A replayed kernel may want a weight in another order of axes, split for its tiles, or transformed
for Winograd's convolution. A packing is a list of such steps, plain enough for JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Packing:
    """Steps that turn an array into another; none leaves it as it is."""

    # ("transpose", axes), ("reshape", shape), or ("matrix", rows, axis): multiply along an axis
    # with a matrix of numbers
    steps: tuple[tuple[Any, ...], ...] = ()

    def then(self, *steps: tuple[Any, ...]) -> Packing:
        """This packing, and then further steps."""
        return Packing((*self.steps, *steps))

    @property
    def needs_values(self) -> bool:
        """Whether it multiplies, which is only done for weights that are known."""
        return any(step[0] == "matrix" for step in self.steps)

    def apply(self, ops: Any, array: Any) -> Any:
        """Carry it out with numpy, or with whatever has numpy's `reshape` and `transpose`."""
        for kind, *operands in self.steps:
            if kind == "transpose":
                array = ops.transpose(array, operands[0])
            elif kind == "reshape":
                array = ops.reshape(array, operands[0])
            else:
                array = _multiply(array, *operands)
        return array

    def to_json(self) -> list[Any]:
        return [list(step) for step in self.steps]

    @staticmethod
    def from_json(rows: Sequence[Any]) -> Packing:
        return Packing(tuple(tuple(row) for row in rows))


def _multiply(array: np.ndarray, rows: Sequence[Sequence[float]], axis: int) -> np.ndarray:
    product = np.tensordot(np.asarray(rows, "float64"), array.astype("float64"), (1, axis))
    return np.moveaxis(product, 0, axis).astype(array.dtype)
