"""Constant folding of small integers during parsing, for loop counters and indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from ...ir.constants import array_of, static_shape
from ..expr import const

_LARGEST = 64
_NUMPYS = (
    "add subtract multiply maximum minimum equal not_equal less less_equal greater greater_equal "
    "logical_and logical_or logical_not floor_divide negative"
)
_FOLDED = {"floor_mod": np.mod, **{name: getattr(np, name) for name in _NUMPYS.split()}}


def fold(name: str, operands: Sequence[relax.Expr], attributes: dict[str, Any]) -> Any:
    """Fold a call on small integer constants; None if it cannot be folded."""
    if name == "shape_of":
        return _shape(operands[0], attributes) if len(operands) == 1 else None
    found = [array_of(operand) for operand in operands]
    arrays = [array for array in found if array is not None]
    if not arrays or len(arrays) != len(found):
        return None
    if any(array.dtype.kind not in "iub" or array.size > _LARGEST for array in arrays):
        return None
    if name == "cast" and np.dtype(attributes["dtype"]).kind in "iub":
        return _constant(arrays[0].astype(attributes["dtype"]))
    if name == "take" and len(arrays) == 2 and attributes.get("axis") in (None, 0):
        return _constant(np.take(arrays[0], arrays[1], axis=0, mode="clip"))
    function = _FOLDED.get(name)
    if function is None or attributes or len({array.dtype for array in arrays}) != 1:
        return None
    if name.startswith("floor_") and not arrays[1].all():
        return None
    with np.errstate(over="ignore"):
        return _constant(function(*arrays))


def _shape(operand: relax.Expr, attributes: dict[str, Any]) -> Any:
    shape = static_shape(operand)
    return None if shape is None else _constant(np.array(shape, attributes.get("dtype") or "int32"))


def _constant(array: Any) -> Any:
    return const(np.asarray(array), str(np.asarray(array).dtype))
