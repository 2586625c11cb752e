"""Operators that keep a blocked layout, and how each is emitted in it.

A rule gets the old call and the layouts of its operands; it returns the channel block of the
result and the emitted expression, or None to have the call run on plain tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax

from ...ir.constants import constant, integers, static_shape
from ...ir.op_facts import BINARY, POOL, REDUCTION, UNARY, facts_of
from ...ir.rewrite import operator_name
from .layout_cache import PLAIN, LayoutMap, image_axis, image_shape, unblock

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
    """Two tensors of the same shape, or one that broadcasts against the other."""
    out = static_shape(call)
    block = max(layouts.block(arg) for arg in call.args)
    if block == PLAIN or out is None or image_shape(out) is None or _may_make_infinite(call, block):
        return None
    args = [_broadcast_operand(arg, out, block, layouts) for arg in call.args]
    if any(arg is None for arg in args):
        return None
    return block, builder.emit(relax.Call(call.op, args, call.attrs))


def _may_make_infinite(call: relax.Call, block: int) -> bool:
    """Whether the call could leave infinities or NaNs in padding channels."""
    shape = static_shape(call)
    if shape is None or shape[1] % block == 0:
        return False
    name = call.op.name.removeprefix("relax.")
    return facts_of(call).unbounded and not (name == "divide" and _is_constant(call.args[1]))


def _broadcast_operand(
    arg: relax.Expr, out: tuple[int, ...], block: int, layouts: LayoutMap
) -> relax.Expr | None:
    """Reshape the operand to broadcast against the images (N, C/b, H, W, b)."""
    shape, rank = static_shape(arg), len(out)
    if shape is None or len(shape) > rank:
        return None
    if all(dim == 1 for dim in shape):
        return constant(arg.value.numpy().reshape(())) if _is_constant(arg) else None
    whole = (1,) * (rank - len(shape)) + shape
    # Where the batch and the depth are one axis, an operand has both or neither.
    joined = rank < 5 or whole[0] * whole[2] in (1, out[0] * out[2])
    if not joined:
        return None
    if not _is_constant(arg):
        return layouts.get(arg, block) if whole == shape and shape[1] == out[1] else None
    array = arg.value.numpy().reshape(whole)
    if rank == 5:
        array = array.swapaxes(1, 2)
    array = array.reshape(image_shape(whole))
    if array.shape[1] == out[1]:
        return _blocked_constant(array, block)
    return constant(array[..., np.newaxis]) if array.shape[1] == 1 else None


def _is_constant(arg: relax.Expr) -> bool:
    return isinstance(arg, tvm.ir.GenericConst)


def _blocked_constant(array: np.ndarray, block: int) -> tvm.ir.GenericConst:
    n, c, h, w = array.shape
    # Padding channels of the operand are 1: a constant may be a divisor.
    beyond = ((0, 0), (0, -c % block), (0, 0), (0, 0))
    array = np.pad(array, beyond, constant_values=1) if c % block else array
    split = array.reshape(n, -1, block, h, w)
    return constant(np.ascontiguousarray(split.transpose(0, 1, 3, 4, 2)))


def _pool(builder: relax.BlockBuilder, call: relax.Call, layouts: LayoutMap) -> Lowered:
    """Pool windows of images; signals as images of one row, volumes image by image first."""
    block, shape, out = layouts.block(call.args[0]), static_shape(call.args[0]), static_shape(call)
    attrs = call.attrs
    if block == PLAIN or shape is None or out is None:
        return None
    rank = len(shape) - 2
    if attrs.layout != _PLAIN_LAYOUTS[rank] or attrs.out_layout not in ("", attrs.layout):
        return None
    layout = f"NCHW{block}c"
    name = call.op.name.removeprefix("relax.nn.")[:-2]
    data = layouts.get(call.args[0], block)
    if "adaptive" in name:
        if rank == 3:
            whole = out[2:] == (1, 1, 1)
            return (block, _reduce(builder, "mean", shape, data)) if whole else None
        size = list(out[2:]) if rank == 2 else [1, *out[2:]]
        pooled = relax.op.nn.adaptive_avg_pool2d(data, size, layout=layout, out_layout=layout)
        return block, builder.emit(pooled)
    size, strides, padding, dilation = (
        [int(v) for v in getattr(attrs, key)]
        for key in ("pool_size", "strides", "padding", "dilation")
    )
    if rank == 1:
        size, strides, padding, dilation = (
            [1, *size],
            [1, *strides],
            [0, padding[0], 0, padding[1]],
            [1, *dilation],
        )
    if rank == 3:
        images = _pool_depth(builder, call, shape, out, data)
        if images is None:
            return None
        data, size, strides, dilation = images, size[1:], strides[1:], dilation[1:]
        padding = [*padding[1:3], *padding[4:6]]
    pooled = getattr(relax.op.nn, f"{name}2d")(
        data,
        pool_size=size,
        strides=strides,
        padding=padding,
        dilation=dilation,
        ceil_mode=bool(attrs.ceil_mode),
        count_include_pad=bool(attrs.count_include_pad),
        layout=layout,
        out_layout=layout,
    )
    return block, builder.emit(pooled)


def _pool_depth(
    builder: relax.BlockBuilder,
    call: relax.Call,
    shape: tuple[int, ...],
    out: tuple[int, ...],
    data: relax.Expr,
) -> relax.Expr | None:
    """Pool the images of a volume along its depth: max, or average without padding."""
    attrs, is_max = call.attrs, "max" in call.op.name
    taps, stride, front = int(attrs.pool_size[0]), int(attrs.strides[0]), int(attrs.padding[0])
    padded = front or int(attrs.padding[3]) or bool(attrs.ceil_mode)
    if int(attrs.dilation[0]) != 1 or (padded and not is_max):
        return None
    images = np.arange(shape[0])[:, np.newaxis] * shape[2]
    total: relax.Expr | None = None
    for tap in range(taps):
        # Instead of an image in the padding, use one that the window contains anyway.
        inside = np.clip(np.arange(out[2]) * stride + tap - front, 0, shape[2] - 1)
        indices = relax.const((images + inside).ravel().astype("int64"))
        each = builder.emit(relax.op.take(data, indices, 0, "clip"))
        if total is None:
            total = each
        else:
            total = builder.emit((relax.op.maximum if is_max else relax.op.add)(total, each))
    assert total is not None
    if is_max:
        return total
    return builder.emit(relax.op.multiply(total, relax.const(1 / taps, str(call.ty.dtype))))


def _spatial_reduce(builder: relax.BlockBuilder, call: relax.Call, layouts: LayoutMap) -> Lowered:
    """Reduce whole images, (N, C/b, H, W, b) -> (N, C/b, 1, 1, b), which is (N, C) in memory."""
    block = layouts.block(call.args[0])
    shape = static_shape(call.args[0])
    axes = call.attrs.axis
    if block == PLAIN or shape is None or axes is None:
        return None
    if sorted(int(axis) % len(shape) for axis in axes) != list(range(2, len(shape))):
        return None
    name = call.op.name.removeprefix("relax.")
    if len(shape) == 5 and name in ("std", "variance"):
        return None
    reduced = _reduce(builder, name, shape, layouts.get(call.args[0], block))
    if call.attrs.keepdims:
        return block, reduced
    if shape[1] % block:
        reduced = builder.emit(unblock(builder, reduced, (*shape[:2], 1, 1)))
    return PLAIN, builder.emit(relax.op.reshape(reduced, shape[:2]))


def _reduce(
    builder: relax.BlockBuilder, name: str, shape: tuple[int, ...], data: relax.Expr
) -> relax.Expr:
    """(N, C/b, 1, 1, b) from a value of that plain shape; of volumes image by image first."""
    make = getattr(relax.op, name)
    reduced = builder.emit(make(data, axis=[2, 3], keepdims=True))
    if len(shape) < 5 or shape[2] == 1:
        return reduced
    _, chunks, _, _, block = static_shape(data) or ()
    by_image = relax.op.reshape(reduced, (shape[0], shape[2], chunks, 1, 1, block))
    return builder.emit(make(builder.emit(by_image), axis=[1]))


def _concat(builder: relax.BlockBuilder, call: relax.Call, layouts: LayoutMap) -> Lowered:
    """Concatenate channels if one block divides every part; other axes without conversion."""
    out = static_shape(call)
    if not isinstance(call.args[0], relax.Tuple) or out is None or image_shape(out) is None:
        return None
    parts = list(call.args[0].fields)
    axis = image_axis(out, int(call.attrs.axis))
    block = max(layouts.block(part) for part in parts)
    channels = [(static_shape(part) or (0, 1))[1] for part in parts]
    while block > PLAIN and any(c % block for c in channels):
        block //= 2
    if block <= 4 or axis is None:
        return None
    blocked = [layouts.get(part, block) for part in parts]
    return block, builder.emit(relax.op.concat(blocked, axis=axis))


def _slice(builder: relax.BlockBuilder, call: relax.Call, layouts: LayoutMap) -> Lowered:
    """Slice whole blocks of channels, and anything along the other axes."""
    block, shape, out = layouts.block(call.args[0]), static_shape(call.args[0]), static_shape(call)
    if block == PLAIN or shape is None or out is None or 0 in out:
        return None
    along, first, *others = (integers(part.fields) for part in call.args[1:])
    if along is None or first is None or any(set(strides or (0,)) != {1} for strides in others[1:]):
        return None
    cut = [axis % len(shape) for axis in along]
    begins = [max(begin + shape[axis] * (begin < 0), 0) for axis, begin in zip(cut, first)]
    ends = [begin + out[axis] for axis, begin in zip(cut, begins)]
    axes = [image_axis(shape, axis) for axis in cut]
    if None in axes:
        return None
    if 1 in axes:
        at = axes.index(1)
        if begins[at] % block or (ends[at] % block and ends[at] != shape[1]):
            return None
        begins[at], ends[at] = begins[at] // block, -(-ends[at] // block)
    data = layouts.get(call.args[0], block)
    return block, builder.emit(relax.op.strided_slice(data, axes, begins, ends))


def _prelu(builder: relax.BlockBuilder, call: relax.Call, layouts: LayoutMap) -> Lowered:
    """max(x, 0) + slopes * min(x, 0), whose slopes are constants of the channels."""
    data, slopes = call.args
    block, shape = layouts.block(data), static_shape(data)
    if block == PLAIN or shape is None or int(call.attrs.axis) % len(shape) != 1:
        return None
    if not _is_constant(slopes):
        return None
    factor: relax.Expr | None = slopes
    if math.prod(static_shape(slopes) or ()) != 1:
        along = slopes.value.numpy().reshape(-1, *[1] * (len(shape) - 2))
        factor = _broadcast_operand(constant(along), shape, block, layouts)
    if factor is None:
        return None
    x, zero = layouts.get(data, block), relax.const(0, str(call.ty.dtype))
    below = builder.emit(relax.op.multiply(builder.emit(relax.op.minimum(x, zero)), factor))
    return block, builder.emit(relax.op.add(builder.emit(relax.op.maximum(x, zero)), below))


def _pad(builder: relax.BlockBuilder, call: relax.Call, layouts: LayoutMap) -> Lowered:
    """Pad any axes but the channels, in any mode."""
    block, shape = layouts.block(call.args[0]), static_shape(call.args[0])
    if block == PLAIN or shape is None:
        return None
    given = [int(width) for width in call.attrs.pad_width]
    widths = [0] * 10
    for axis, pair in enumerate(zip(given[::2], given[1::2])):
        at = image_axis(shape, axis)
        if any(pair) and (at is None or at == 1):
            return None
        if at is not None and any(pair):
            widths[2 * at : 2 * at + 2] = pair
    data, value = layouts.get(call.args[0], block), float(call.attrs.pad_value)
    return block, builder.emit(relax.op.nn.pad(data, widths, str(call.attrs.pad_mode), value))


def _take(builder: relax.BlockBuilder, call: relax.Call, layouts: LayoutMap) -> Lowered:
    """Take rows, columns or whole images by index."""
    block, indices = layouts.block(call.args[0]), static_shape(call.args[1])
    axis = _along_images(call)
    if block == PLAIN or indices is None or len(indices) != 1 or axis is None:
        return None
    data, at = layouts.get(call.args[0], block), layouts.get(call.args[1], PLAIN)
    return block, builder.emit(relax.op.take(data, at, axis, str(call.attrs.mode)))


def _repeat(builder: relax.BlockBuilder, call: relax.Call, layouts: LayoutMap) -> Lowered:
    """Repeat each row, column or image."""
    block, axis = layouts.block(call.args[0]), _along_images(call)
    if block == PLAIN or axis is None:
        return None
    data = layouts.get(call.args[0], block)
    return block, builder.emit(relax.op.repeat(data, int(call.attrs.repeats), axis))


def _along_images(call: relax.Call) -> int | None:
    """The axis of the images that the call works along; None for the channels and for all."""
    shape = static_shape(call.args[0])
    if shape is None or call.attrs.axis is None:
        return None
    axis = image_axis(shape, int(call.attrs.axis))
    return None if axis == 1 else axis


def _reshape(builder: relax.BlockBuilder, call: relax.Call, layouts: LayoutMap) -> Lowered:
    """Reshape (N, C, 1, 1) to any shape: the blocked form has the same order in memory."""
    shape = static_shape(call.args[0])
    block = layouts.block(call.args[0])
    if block == PLAIN or shape is None or set(shape[2:]) != {1} or shape[1] % block:
        return None
    data = layouts.get(call.args[0], block)
    return PLAIN, builder.emit(relax.op.reshape(data, static_shape(call)))


_PLAIN_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_OF_KIND = {UNARY: _unary, BINARY: _binary, POOL: _pool, REDUCTION: _spatial_reduce}

_RULES: dict[str, Rule] = {
    "concat": _concat,
    "nn.pad": _pad,
    "nn.prelu": _prelu,
    "repeat": _repeat,
    "take": _take,
    "strided_slice": _slice,
    "reshape": _reshape,
}


def layout_rule(expr: relax.Expr) -> Rule | None:
    """The rule of the operator that `expr` calls; None if it needs plain tensors."""
    return _RULES.get(operator_name(expr)) or _OF_KIND.get(facts_of(expr).kind)
