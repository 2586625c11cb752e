"""Keeps an anchor's small result out of kernels that spread it over a larger tensor.

    s = conv2d(mean(x))        (N, C, 1, 1)
    y = multiply(x, s)         (N, C, H, W)

Fused behind the convolution, the multiplication would have the convolution computed again for
each of its H x W elements. What makes an element of `s` cheaply, as a bias does, may still be
fused behind it.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

_PATTERN = "op_pattern"
# relax.op.OpPatternKind
_BROADCAST, _INJECTIVE, _OUT_ELEMENTWISE_FUSABLE = 1, 2, 4


def separate_spread_results(mod: tvm.IRModule) -> tvm.IRModule:
    """Give broadcasts that enlarge an anchor's result a pattern that is not fused behind it.

    Parameters
    ----------
    mod : tvm.IRModule
        Calls of TIR functions that have their operator patterns. It is not changed.
    """
    return with_pattern(mod, _spreading_calls, _INJECTIVE)


def with_pattern(
    mod: tvm.IRModule,
    find: Callable[[tvm.IRModule, relax.Function], list[relax.Call]],
    pattern: int,
) -> tvm.IRModule:
    """Have the calls that `find` names call copies of their kernels with another pattern."""
    for gvar, function in mod.functions_items():
        if isinstance(function, relax.Function) and (calls := find(mod, function)):
            separator = _Separator(mod, calls, pattern)
            separator.builder_.update_func(gvar, separator.visit_expr(function))
            mod = separator.builder_.get()
    return mod


def _spreading_calls(mod: tvm.IRModule, function: relax.Function) -> list[relax.Call]:
    """Element-by-element calls whose result is larger than an anchor's that they read."""
    found: list[relax.Call] = []
    sizes: dict[relax.Var, int | None] = {}  # of an anchor's results, and what its epilogue made
    for binding in (each for block in function.body.blocks for each in block.bindings):
        kernel = callee(mod, binding.value)
        if kernel is None:
            continue
        pattern = int(kernel.attrs.get(_PATTERN, _INJECTIVE))
        size = _elements(binding.var)
        read = [sizes[each] for each in binding.value.args[1].fields if each in sizes]
        if pattern <= _BROADCAST and any(each != size for each in read):
            found.append(binding.value)
        elif pattern == _OUT_ELEMENTWISE_FUSABLE or (pattern <= _BROADCAST and read):
            sizes[binding.var] = size
    return found


@mutator
class _Separator(PyExprMutator):
    """Has some calls call a copy of their kernel with another pattern."""

    def __init__(self, mod: tvm.IRModule, calls: list[relax.Call], pattern: int) -> None:
        super().__init__(mod)
        self._mod = mod
        self._calls = calls
        self._pattern = pattern
        self._copies: dict[str, relax.GlobalVar] = {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if not any(call.same_as(each) for each in self._calls):
            return super().visit_call_(call)
        name = call.args[0].name_hint
        if name not in self._copies:
            kernel = self._mod[name].with_attr(_PATTERN, self._pattern)
            self._copies[name] = self.builder_.add_func(kernel, name)
        args = [self._copies[name], *(self.visit_expr(arg) for arg in call.args[1:])]
        return relax.Call(call.op, args, call.attrs, call.ty_args)


def callee(mod: tvm.IRModule, value: relax.Expr) -> tirx.PrimFunc | None:
    """The TIR function that a `call_tir` calls."""
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return None
    if value.op.name != "relax.call_tir":
        return None
    kernel = mod[value.args[0]]
    return kernel if isinstance(kernel, tirx.PrimFunc) else None


def _elements(value: relax.Expr) -> int | None:
    """Number of elements of a tensor of static shape."""
    ty = value.ty
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return None
    total = 1
    for dim in ty.shape.values:
        if not isinstance(dim, tirx.IntImm):
            return None
        total *= int(dim)
    return total
