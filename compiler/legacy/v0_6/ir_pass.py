"""`tvm.ir_pass`: functions of statements and expressions."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi

from .. import stmt_functor
from ..removed_modules import Absent

IRTransform = stmt_functor.ir_transform
PostOrderVisit = stmt_functor.post_order_visit
Substitute = stmt_functor.substitute


def Equal(lhs: Any, rhs: Any) -> bool:
    """Whether two statements or expressions are the same but for names."""
    return bool(tvm_ffi.structural_equal(lhs, rhs))


def Simplify(node: Any) -> Any:
    """An expression, or a statement, made simpler."""
    if tvm.ir.is_prim_expr(node):
        return tvm.sym.Analyzer().simplify(node)
    function = tvm.tirx.PrimFunc([], node)
    module = tvm.tirx.transform.StmtSimplify()(tvm.IRModule({"main": function}))
    return module["main"].body


CanonicalSimplify = Simplify


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module 'tvm.ir_pass' has no attribute {name!r}")
    return Absent(
        f"tvm.ir_pass.{name}", "tvm.tir.transform has today's passes, and tvm.lower runs them"
    )
