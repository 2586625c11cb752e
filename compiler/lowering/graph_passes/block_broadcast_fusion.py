"""Keep an anchor's small result out of kernels that broadcast it to a larger tensor.

    s = conv2d(mean(x))        (N, C, 1, 1)
    y = multiply(x, s)         (N, C, H, W)

If the multiplication were fused after the convolution, the convolution would be recomputed for each
of its H x W elements. Cheap producers of elements of `s`, such as a bias, may still be fused after
it.

The same applies to adding (seq, C) to a result (batch, seq, C) with dynamic shapes: row-wise
kernels read one row of each operand for each row of the result.
"""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import relax

from ...ir.constants import static_shape
from ...ir.dynamic_shape import symbols_of
from ...primfuncs.fusion_pattern import INJECTIVE, unfusable_calls, with_pattern


def separate_spread_results(mod: tvm.IRModule) -> tvm.IRModule:
    """Keep broadcasts that enlarge an anchor's result from fusing after it."""
    return with_pattern(mod, _spreading_calls, INJECTIVE)


def _spreading_calls(mod: tvm.IRModule, function: relax.Function) -> list[relax.Call]:
    """Element-wise calls that enlarge an anchor's result, or repeat rows of another operand."""

    def behind(binding: relax.VarBinding, _: Any, sizes: list[int | None]) -> int | None:
        own = {*symbols_of(binding.var.ty)}
        if any({*symbols_of(each.ty)} not in (set(), own) for each in binding.value.args[1].fields):
            return None
        size = _elements(binding.var)
        return size if all(each in (None, size) for each in sizes) else None

    return unfusable_calls(mod, function, _elements, behind)


def _elements(value: relax.Expr) -> int:
    """Number of elements of a tensor of static shape; -1 where it is not known."""
    shape = static_shape(value)
    return -1 if shape is None else math.prod(shape)
