"""Make float max and min return NaN if an operand is NaN.

TIR's `max(a, b)` is the C expression `a > b ? a : b`: b if either operand is NaN, as with the
instruction `maxps`. The simplifier moves constants to the right, so a clipped NaN became the
constant. After all simplifications, this pass emits forms that keep a NaN:

    max(x, 0)     ->  max(0, x)                             still one instruction
    max(x, y)     ->  bits of max(x, y) | bits of max(y, x)
    x != y        ->  not x == y

Both orders give the same number, unless an operand is NaN: then one of them is the NaN, and stays
one whatever bits are added. That takes three instructions; a comparison, a maximum and a selection
would become four. The last line is there because for TVM a NaN is not unequal to anything.

On a GPU, `max` of the device's library drops NaNs in either operand, so that a comparison and a
selection are emitted instead.
"""

from __future__ import annotations

import math
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

Expr = Any

_EXTREMES = (tirx.Max, tirx.Min)


def propagate_nan(on_device: bool = False) -> tvm.transform.Pass:
    """The pass, after the last one that simplifies; on a GPU it assumes no operand order."""

    @tvm.tirx.transform.prim_func_pass(opt_level=0, name="PropagateNaN")
    def propagate(func: tirx.PrimFunc, _: tvm.IRModule, __: Any) -> tirx.PrimFunc:
        if on_device:
            return func.with_body(tvm_ffi.structural_map(func.body, (_EXTREMES, _on_device)))
        rules = [(_EXTREMES, _exact), (tirx.NE, _unequal)]
        return func.with_body(tvm_ffi.structural_map(func.body, rules))

    return propagate


def _exact(node: Expr) -> Expr:
    """The operands in such an order that a NaN stays, or in both."""
    if not _is_float(node):
        return node
    extreme, first, second = type(node), node.a, node.b
    if _is_number(second):
        return extreme(second, first)
    if _is_number(first):
        return node

    def both(x: Expr, y: Expr) -> Expr:
        dtype = str(node.ty.dtype)
        bits = dtype.replace("bfloat", "int").replace("float", "int")
        either = (tirx.reinterpret(bits, each) for each in (extreme(x, y), extreme(y, x)))
        return tirx.reinterpret(dtype, tirx.bitwise_or(*either))

    return _named(first, lambda x: _named(second, lambda y: both(x, y)))


def _unequal(node: tirx.NE) -> Expr:
    return tirx.Not(tirx.EQ(node.a, node.b)) if _is_float(node.a) else node


def _on_device(node: Expr) -> Expr:
    """Emit a comparison and a selection, for a GPU."""
    if not _is_float(node):
        return node
    compare = (lambda a, b: a > b) if isinstance(node, tirx.Max) else (lambda a, b: a < b)
    first, second = (node.b, node.a) if _is_number(node.b) else (node.a, node.b)

    def select(x: Expr, y: Expr) -> Expr:
        picked = tirx.Select(compare(x, y), x, y)
        return picked if _is_number(x) else tirx.Select(tirx.NE(x, x), x, picked)

    return _named(first, lambda x: _named(second, lambda y: select(x, y)))


def _named(value: Expr, body: Any) -> Expr:
    """`body` of the value, which is computed once; loads and numbers need no name for that."""
    if isinstance(value, (tirx.Var, tirx.FloatImm, tirx.Broadcast)):
        return body(value)
    var = tirx.Var("operand", value.ty)
    return tirx.Let(var, value, body(var))


def _is_float(value: Expr) -> bool:
    return str(value.ty.dtype).startswith(("float", "bfloat"))


def _is_number(value: Expr) -> bool:
    """Whether a value is known not to be NaN: a constant, or made of an integer."""
    if isinstance(value, tirx.Broadcast):
        return _is_number(value.value)
    if isinstance(value, tirx.FloatImm):
        return not math.isnan(value.value)
    if isinstance(value, tirx.Cast):
        return not _is_float(value.value)
    return False
