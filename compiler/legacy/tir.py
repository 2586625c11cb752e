"""`tvm.tir`: what `tvm.tirx`, `tvm.s_tir` and `tvm.sym` hold together today."""

from __future__ import annotations

import importlib
import typing

import tvm
from tvm import s_tir, sym, tirx

from .patches import Patches

# Submodules are found below tvm.tirx, as `tvm.tir.expr`.
__path__ = tirx.__path__

_RENAMED = {
    "BijectiveLayout": "SBijectiveLayout",
    "Block": "SBlock",
    "BlockRealize": "SBlockRealize",
    "BlockScope": "SBlockScope",
    "Layout": "SLayout",
    "bijective_layout": "sbijective_layout",
    "layout": "slayout",
}


class _OfScalars(type):
    def __instancecheck__(cls, instance: typing.Any) -> bool:
        return tvm.ir.is_prim_expr(instance)


class PrimExpr(metaclass=_OfScalars):
    """What scalar expressions were instances of."""


def __getattr__(name: str) -> typing.Any:
    if name in ("ir_builder", "stmt_functor"):
        return importlib.import_module(f"compiler.legacy.{name}")
    if name == "Any":  # an extent; today's module has typing's
        from ..relay.ty import Any as extent

        return extent
    for module in (tirx, s_tir, sym, tvm.ir):
        found = getattr(module, _RENAMED.get(name, name), None)
        if found is not None:
            return found
    raise AttributeError(
        f"tvm.tir.{name} is neither in tvm.tirx nor in tvm.s_tir, which took tvm.tir's place"
    )


def call_intrin(dtype: typing.Any, func_name: typing.Any, *args: typing.Any) -> typing.Any:
    """A call of an intrinsic by its name, also by that of 0.18 ("tir.tvm_mma_sync")."""
    if isinstance(func_name, str) and func_name.startswith("tir."):
        func_name = f"tirx.{func_name[4:]}"
    return tirx.call_intrin(dtype, func_name, *args)


def patch(patches: Patches) -> None:
    """Names of expressions' arithmetic that moved to the top level.

    An extent is int64, as the extents of Relax's shapes are.
    """
    for owner in (tvm.ir, tvm.tirx):
        patches.add(owner, "PrimExpr", PrimExpr)
    patches.add(tvm.te, "size_var", lambda name, dtype="int64": tirx.Var(name, dtype))
