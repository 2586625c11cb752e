"""Keeps an anchor's small result out of kernels that spread it over a larger tensor.

    s = conv2d(mean(x))        (N, C, 1, 1)
    y = multiply(x, s)         (N, C, H, W)

Fused behind the convolution, the multiplication would have the convolution computed again for
each of its H x W elements. What makes an element of `s` cheaply, as a bias does, may still be
fused behind it.
"""

from __future__ import annotations

import tvm
from tvm import relax, tirx

from ...op_pattern import (
    BROADCAST,
    INJECTIVE,
    OUT_ELEMENTWISE_FUSABLE,
    callee,
    op_pattern,
    with_pattern,
)


def separate_spread_results(mod: tvm.IRModule) -> tvm.IRModule:
    """Give broadcasts that enlarge an anchor's result a pattern that is not fused behind it.

    Parameters
    ----------
    mod : tvm.IRModule
        Calls of TIR functions that have their operator patterns. It is not changed.
    """
    return with_pattern(mod, _spreading_calls, INJECTIVE)


def _spreading_calls(mod: tvm.IRModule, function: relax.Function) -> list[relax.Call]:
    """Element-by-element calls whose result is larger than an anchor's that they read."""
    found: list[relax.Call] = []
    sizes: dict[relax.Var, int | None] = {}  # of an anchor's results, and what its epilogue made
    for binding in (each for block in function.body.blocks for each in block.bindings):
        kernel = callee(mod, binding.value)
        if kernel is None:
            continue
        pattern = op_pattern(kernel)
        size = _elements(binding.var)
        read = [sizes[each] for each in binding.value.args[1].fields if each in sizes]
        if pattern <= BROADCAST and any(each != size for each in read):
            found.append(binding.value)
        elif pattern == OUT_ELEMENTWISE_FUSABLE or (pattern <= BROADCAST and read):
            sizes[binding.var] = size
    return found


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
