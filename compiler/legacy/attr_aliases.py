"""Scalars and constants among Relax's expressions, as up to TVM 0.20."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from .patches import Patches


class _OfScalars(type):
    """A scalar among Relax's expressions is a scalar expression itself today."""

    def __call__(cls, value: Any, span: Any = None) -> Any:
        if tvm.ir.is_prim_expr(value):
            return value
        return tvm.tirx.const(value, "float64" if isinstance(value, float) else "int64")

    def __instancecheck__(cls, instance: Any) -> bool:
        return bool(tvm.ir.is_prim_expr(instance))


class PrimValue(metaclass=_OfScalars):
    """What wrapped scalar expressions for Relax, up to TVM 0.20."""


_new_const = relax.const


def _const(value: Any, dtype: Any = None) -> Any:
    """A constant; its dtype may be told by a tensor's type."""
    return _new_const(value, dtype.dtype if isinstance(dtype, relax.TensorType) else dtype)


def patch(patches: Patches) -> None:
    """Let constants take types; rows "name" of `modules.txt` have the other names."""
    for owner in (relax, relax.expr):
        patches.set(owner, "const", _const)
