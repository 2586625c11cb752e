"""Operators that keep a blocked layout, and how each is emitted in it.

A rule gets the old call and the layouts of its operands; it returns the channel block of the
result and the emitted expression, or None to have the call run on plain tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ..graph.constants import integers
from .layout import PLAIN, LayoutMap, static_shape, unblock

Lowered = tuple[int, relax.Expr] | None
Rule = Callable[[relax.BlockBuilder, relax.Call, LayoutMap], Lowered]


def _unary(builder: relax.BlockBuilder, call: relax.Call, layouts: LayoutMap) -> Lowered:
    """Element by element: the same call on the blocked tensor."""
    block = layouts.block(call.args[0])
    if block == PLAIN or _may_make_infinite(call, block):
        return None
    args = [layouts.get(call.args[0], block), *call.args[1:]]
    return block, builder.emit(relax.Call(call.op, args, call.attrs))


def _binary(builder: relax.BlockBuilder, call: relax.Call, layouts: LayoutMap) -> Lowered:
    """Two tensors of the same (N, C, H, W), or one that broadcasts against the other."""
    out = static_shape(call)
    block = max(layouts.block(arg) for arg in call.args)
    if block == PLAIN or out is None or len(out) != 4 or _may_make_infinite(call, block):
        return None
    args = [_broadcast_operand(arg, out, block, layouts) for arg in call.args]
    if any(arg is None for arg in args):
        return None
    return block, builder.emit(relax.Call(call.op, args, call.attrs))


def _may_make_infinite(call: relax.Call, block: int) -> bool:
    """Whether the call could leave infinities or NaNs in channels that belong to nobody."""
    shape = static_shape(call)
    if shape is None or shape[1] % block == 0:
        return False
    name = call.op.name.removeprefix("relax.")
    return name in _UNBOUNDED and not (name == "divide" and _is_constant(call.args[1]))


def _broadcast_operand(
    arg: relax.Expr, out: tuple[int, ...], block: int, layouts: LayoutMap
) -> relax.Expr | None:
    """The operand as something that broadcasts against (N, C/b, H, W, b)."""
    shape = static_shape(arg)
    if shape is None:
        return None
    if len(shape) == 4 and shape[1] == out[1]:
        if isinstance(arg, tvm.ir.GenericConst):
            return _blocked_constant(arg.value.numpy(), block)
        return layouts.get(arg, block)
    if all(dim == 1 for dim in shape) and len(shape) <= 4:
        return relax.const(arg.value.numpy().reshape(())) if _is_constant(arg) else None
    if _is_constant(arg) and len(shape) <= 4:
        array = arg.value.numpy().reshape((1,) * (4 - len(shape)) + shape)
        if array.shape[1] == out[1]:
            return _blocked_constant(array, block)
        if array.shape[1] == 1:
            return relax.const(array[..., np.newaxis])
    return None


def _is_constant(arg: relax.Expr) -> bool:
    return isinstance(arg, tvm.ir.GenericConst)


def _blocked_constant(array: np.ndarray, block: int) -> tvm.ir.GenericConst:
    n, c, h, w = array.shape
    # The value beyond the last channel is 1: a constant may be a divisor.
    beyond = ((0, 0), (0, -c % block), (0, 0), (0, 0))
    array = np.pad(array, beyond, constant_values=1) if c % block else array
    split = array.reshape(n, -1, block, h, w)
    return relax.const(np.ascontiguousarray(split.transpose(0, 1, 3, 4, 2)))


def _pool(builder: relax.BlockBuilder, call: relax.Call, layouts: LayoutMap) -> Lowered:
    block = layouts.block(call.args[0])
    attrs = call.attrs
    if block == PLAIN or attrs.layout != "NCHW" or attrs.out_layout not in ("", "NCHW"):
        return None
    layout = f"NCHW{block}c"
    make = getattr(relax.op.nn, call.op.name.removeprefix("relax.nn."))
    if "adaptive" in call.op.name:
        size = attrs.output_size
        options: dict[str, Any] = {"output_size": size and [int(s) for s in size]}
    else:
        options = {
            key: [int(v) for v in getattr(attrs, key)]
            for key in ("pool_size", "strides", "padding", "dilation")
        }
        options["ceil_mode"] = bool(attrs.ceil_mode)
        options["count_include_pad"] = bool(attrs.count_include_pad)
    data = layouts.get(call.args[0], block)
    return block, builder.emit(make(data, layout=layout, out_layout=layout, **options))


def _spatial_reduce(builder: relax.BlockBuilder, call: relax.Call, layouts: LayoutMap) -> Lowered:
    """mean/max/min/sum over H and W: (N, C/b, H, W, b) -> (N, C/b, 1, 1, b) is (N, C) in memory."""
    block = layouts.block(call.args[0])
    shape = static_shape(call.args[0])
    axes = call.attrs.axis
    if block == PLAIN or shape is None or axes is None:
        return None
    if sorted(int(axis) % 4 for axis in axes) != [2, 3]:
        return None
    make = getattr(relax.op, call.op.name.removeprefix("relax."))
    data = layouts.get(call.args[0], block)
    reduced = builder.emit(make(data, axis=[2, 3], keepdims=True))
    if call.attrs.keepdims:
        return block, reduced
    if shape[1] % block:
        reduced = builder.emit(unblock(builder, reduced, shape[1]))
    return PLAIN, builder.emit(relax.op.reshape(reduced, shape[:2]))


def _concat(builder: relax.BlockBuilder, call: relax.Call, layouts: LayoutMap) -> Lowered:
    """Along the channels, if one block divides every part; along H, W or N as it is."""
    out = static_shape(call)
    if not isinstance(call.args[0], relax.Tuple) or out is None or len(out) != 4:
        return None
    parts = list(call.args[0].fields)
    axis = int(call.attrs.axis) % 4
    block = max(layouts.block(part) for part in parts)
    channels = [(static_shape(part) or (0, 1))[1] for part in parts]
    while block > PLAIN and any(c % block for c in channels):
        block //= 2
    if block <= 4:
        return None
    blocked = [layouts.get(part, block) for part in parts]
    return block, builder.emit(relax.op.concat(blocked, axis=axis))


def _slice(builder: relax.BlockBuilder, call: relax.Call, layouts: LayoutMap) -> Lowered:
    """Of whole blocks of channels, and of anything along the other axes."""
    block, shape, out = layouts.block(call.args[0]), static_shape(call.args[0]), static_shape(call)
    if block == PLAIN or shape is None or out is None or 0 in out:
        return None
    along, first, *others = (integers(part.fields) for part in call.args[1:])
    if along is None or first is None or any(set(strides or (0,)) != {1} for strides in others[1:]):
        return None
    axes = [axis % 4 for axis in along]
    begins = [max(begin + shape[axis] * (begin < 0), 0) for axis, begin in zip(axes, first)]
    ends = [begin + out[axis] for axis, begin in zip(axes, begins)]
    if 1 in axes:
        at = axes.index(1)
        if begins[at] % block or (ends[at] % block and ends[at] != shape[1]):
            return None
        begins[at], ends[at] = begins[at] // block, -(-ends[at] // block)
    data = layouts.get(call.args[0], block)
    return block, builder.emit(relax.op.strided_slice(data, axes, begins, ends))


def _reshape(builder: relax.BlockBuilder, call: relax.Call, layouts: LayoutMap) -> Lowered:
    """(N, C, 1, 1) to anything: the blocked form lies in memory in the same order."""
    shape = static_shape(call.args[0])
    block = layouts.block(call.args[0])
    if block == PLAIN or shape is None or shape[2:] != (1, 1) or shape[1] % block:
        return None
    data = layouts.get(call.args[0], block)
    return PLAIN, builder.emit(relax.op.reshape(data, static_shape(call)))


_UNARY = (
    "abs ceil clip erf exp floor log negative round rsqrt sigmoid sign sqrt square tanh "
    "nn.gelu nn.gelu_tanh nn.leakyrelu nn.relu nn.relu6 nn.selu nn.silu nn.softplus astype"
)
# These turn finite numbers into infinities or NaNs.
_UNBOUNDED = frozenset(["log", "rsqrt", "sqrt", "exp", "nn.softplus", "divide", "power"])
_BINARY = "add divide maximum minimum multiply power subtract"
_POOL = "nn.max_pool2d nn.avg_pool2d nn.adaptive_avg_pool2d"

RULES: dict[str, Rule] = {
    **{f"relax.{name}": _unary for name in _UNARY.split()},
    **{f"relax.{name}": _binary for name in _BINARY.split()},
    **{f"relax.{name}": _pool for name in _POOL.split()},
    **{f"relax.{name}": _spatial_reduce for name in ("mean", "max", "min", "sum")},
    "relax.concat": _concat,
    "relax.strided_slice": _slice,
    "relax.reshape": _reshape,
}
