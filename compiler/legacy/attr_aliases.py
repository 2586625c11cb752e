"""Names of `tvm.ir`, `tvm.runtime`, `tvm.te` and `tvm.relax` that are others today."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from ..relay.op.affine_type import TensorAffineType, TupleAffineType
from . import tir
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


_OF_RELAY = (
    *("Constructor", "GlobalTypeVar", "IncompleteType", "TensorType", "TypeCall", "TypeData"),
    *("TypeKind", "TypeVar"),
)


def _lazily(name: str) -> Any:
    """Relay's types, and what makes its data, which `tvm.ir` shared with it."""
    from .. import relay

    if name == "RelayRefType":
        return relay.RefType
    if name in _OF_RELAY:
        return getattr(relay, name)
    raise AttributeError(f"module 'tvm.ir' has no attribute {name!r}")


_new_const = relax.const


def _const(value: Any, dtype: Any = None) -> Any:
    """A constant; its dtype may be told by a tensor's type."""
    return _new_const(value, dtype.dtype if isinstance(dtype, relax.TensorType) else dtype)


def patch(patches: Patches) -> None:
    """Add them."""
    patches.set(tvm.ir, "__getattr__", _lazily)
    for name in ("BaseExpr", "RelayExpr"):
        for owner in (tvm.ir, tvm.ir.expr):
            patches.add(owner, name, tvm.ir.Expr)
    for name, value in {
        "ObjectGeneric": tvm.runtime.ObjectConvertible,
        "PackedFunc": tvm_ffi.Function,
        "String": str,
        "cl": tvm.opencl,
        "convert_to_object": tvm.runtime.convert,
        "gpu": tvm.cuda,
        "mtl": tvm.metal,
    }.items():
        patches.add(tvm.runtime, name, value)
    for function in (tir.add, tir.multiply, tir.subtract):
        patches.add(tvm.te, function.__name__, function)
    for owner in (relax, relax.expr):
        patches.set(owner, "const", _const)
    patches.add(relax, "vm", relax.vm_build)
    for owner in (relax, relax.expr):
        patches.add(owner, "PrimValue", PrimValue)
        patches.add(owner, "StringImm", tvm.ir.StringImm)
    patches.add(relax, "StructInfo", tvm.ir.Type)
    for affine in (TensorAffineType, TupleAffineType):
        patches.add(tvm.ir, affine.__name__, affine)
    patches.add(relax, "PrimStructInfo", tvm.ir.PrimType)
    patches.add(relax, "Executable", tvm.runtime.Executable)
