"""Computes that TOPI had and TVM has no more, most of them by Relay's operators."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import tvm
from tvm import te, tirx

from ...errors import InputError
from .. import ir_builder
from ..patches import Patches
from .computed import compute


def patch(patches: Patches, topi: Any) -> None:
    """Add them to `tvm.topi`, `nn` and `vision`."""
    patches.set(topi, "unique", _of_relay("unique"))
    for name in ("multibox_transform_loc", "proposal"):
        patches.add(topi.vision, name, _of_relay(f"vision.{name}"))
    patches.add(topi, "argwhere", argwhere)
    patches.add(topi.nn, "pool", pool)
    patches.set(topi.nn, "depthwise_conv2d_NCHWc", depthwise_conv2d_NCHWc)
    parts: Any = (
        (topi.nn, (sparse_add, sparse_conv2d, sparse_transpose)),
        (topi.vision, (multibox_detection, multibox_prior, reorg)),
    )
    for owner, functions in parts:
        for function in functions:
            patches.add(owner, function.__name__, function)


def _of_relay(name: str) -> Any:
    """One of Relay's operators, of the same arguments: "unique", "vision.proposal"."""
    family, _, last = name.rpartition(".")

    def restored(*args: Any, **kwargs: Any) -> Any:
        from ...relay import op

        operator = getattr(getattr(op, family) if family else op, last)
        made = compute(operator, *args, **kwargs)
        return made if isinstance(made, te.Tensor) else list(made)

    restored.__name__, restored.__doc__ = last, f"See `relay.{name}`."
    return restored


def argwhere(output_shape: te.Tensor, condition: te.Tensor) -> te.Tensor:
    """The places of the elements that are not zero, in order, on a CPU.

    `output_shape`: (rows, axes): as many rows as there are such elements. Only its shape counts.
    `condition`: at least one axis. Returns int32 of the shape of `output_shape`; further rows stay
    as they are.
    """
    extents = list(condition.shape)
    if not extents or len(output_shape.shape) != 2:
        raise InputError(
            f"argwhere: a condition of shape {extents} and places of shape "
            f"{list(output_shape.shape)}, which are (rows, axes)"
        )

    def body(ins: Any, outs: Any) -> Any:
        builder = ir_builder.create()
        values, places = builder.buffer_ptr(ins[0]), builder.buffer_ptr(outs[0])
        row = builder.allocate("int32", (1,), name="row", scope="local")
        row[0] = 0
        with contextlib.ExitStack() as loops:
            at = [
                loops.enter_context(builder.for_range(0, extent, name=f"i{axis}"))
                for axis, extent in enumerate(extents)
            ]
            counts = values[tuple(at)] != tirx.const(0, values.dtype)
            with builder.if_scope(tirx.all(counts, row[0] < outs[0].shape[0])):
                for axis, index in enumerate(at):
                    places[row[0], axis] = index.astype("int32")
                row[0] = row[0] + 1
        return builder.get()

    return te.extern(output_shape.shape, [condition], body, name="argwhere", dtype="int32")


def pool(
    data: te.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCHW",
    count_include_pad: bool = True,
) -> te.Tensor:
    """`pool2d` without dilation, as TVM 0.7 and older had it."""
    return tvm.topi.nn.pool2d(
        data, kernel, stride, (1, 1), padding, pool_type, ceil_mode, layout, count_include_pad
    )


def depthwise_conv2d_NCHWc(
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    layout: str,
    out_layout: str,
    out_dtype: str | None = None,
) -> te.Tensor:
    """Depthwise convolution of blocked channels.

    `data`: (batch, blocks, height, width, block). `kernel`: (out_blocks, 1, height, width, 1,
    out_block), a multiple of the data's channels. `layout`, `out_layout`: as the shapes say.
    """
    from tvm.topi.nn.utils import get_pad_tuple

    batch, blocks, height, width, block = data.shape
    out_blocks, _, rows, columns, _, out_block = (int(extent) for extent in kernel.shape)
    steps, gaps = (
        (each, each) if isinstance(each, int) else tuple(each) for each in (stride, dilation)
    )
    reach = [(size - 1) * gap + 1 for size, gap in zip((rows, columns), gaps)]
    top, left, bottom, right = get_pad_tuple(padding, reach)
    padded = tvm.topi.nn.pad(data, [0, 0, top, left, 0], [0, 0, bottom, right, 0], name="padded")
    high = (height + top + bottom - reach[0]) // steps[0] + 1
    wide = (width + left + right - reach[1]) // steps[1] + 1
    multiple = out_blocks * out_block // (int(blocks) * int(block))
    dtype = out_dtype or str(data.dtype)
    row, column = te.reduce_axis((0, rows), "kh"), te.reduce_axis((0, columns), "kw")

    def element(n: Any, out: Any, y: Any, x: Any, inner: Any) -> Any:
        channel = tirx.floordiv(out * out_block + inner, multiple)
        place = (y * steps[0] + row * gaps[0], x * steps[1] + column * gaps[1])
        value = padded(n, tirx.floordiv(channel, block), *place, tirx.floormod(channel, block))
        weight = kernel(out, 0, row, column, 0, inner)
        return te.sum(value.astype(dtype) * weight.astype(dtype), axis=[row, column])

    shape = (batch, out_blocks, high, wide, out_block)
    return te.compute(shape, element, name="DepthwiseConv2d", tag="depthwise_conv2d_NCHWc")


def sparse_add(
    dense_data: Any, sparse_data: Any, sparse_indices: Any, sparse_indptr: Any
) -> te.Tensor:
    """See `relay.nn.sparse_add`."""
    from ...relay.op import nn

    return compute(nn.sparse_add, dense_data, (sparse_data, sparse_indices, sparse_indptr))


def sparse_transpose(sparse_data: Any, sparse_indices: Any, sparse_indptr: Any) -> list[Any]:
    """See `relay.nn.sparse_transpose`."""
    from ...relay.op import nn

    return list(compute(nn.sparse_transpose, (sparse_data, sparse_indices, sparse_indptr)))


def sparse_conv2d(
    dense_data: Any,
    sparse_data: Any,
    sparse_indices: Any,
    sparse_indptr: Any,
    layout: str = "NHWC",
    kernel_size: Any = 1,
) -> te.Tensor:
    """See `relay.nn.sparse_conv2d`; blocks of one column may have two dimensions."""
    from ...relay.op import nn

    if len(sparse_data.shape) == 2:
        sparse_data = tvm.topi.expand_dims(sparse_data, 2)
    sizes = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
    parts = (sparse_data, sparse_indices, sparse_indptr)
    return compute(nn.sparse_conv2d, dense_data, *parts, layout=layout, kernel_size=sizes)


def reorg(data: Any, stride: int) -> te.Tensor:
    """Blocks of space moved to channels in the order of Darknet's reorg layer."""
    return tvm.topi.cpp.vision.reorg(data, stride)


def multibox_prior(
    data: te.Tensor,
    sizes: Sequence[float] = (1,),
    ratios: Sequence[float] = (1,),
    steps: Sequence[float] = (-1, -1),
    offsets: Sequence[float] = (0.5, 0.5),
    clip: bool = False,
) -> te.Tensor:
    """See `relay.vision.multibox_prior`."""
    height, width = (int(extent) for extent in data.shape[2:])
    shapes = [(size * height / width / 2, size / 2) for size in map(float, sizes)]
    for ratio in map(float, list(ratios)[1:]):
        root = math.sqrt(ratio)
        shapes.append((sizes[0] * height / width * root / 2, sizes[0] / root / 2))
    step = [1.0 / n if float(s) <= 0 else float(s) for s, n in zip(steps, (height, width))]

    def number(value: Any) -> Any:
        return tirx.const(float(value), data.dtype)

    def corner(_batch: Any, box: Any, which: Any) -> Any:
        cell, kind = tirx.floordiv(box, len(shapes)), tirx.floormod(box, len(shapes))
        row, column = tirx.floordiv(cell, width), tirx.floormod(cell, width)
        is_x = tirx.floormod(which, 2) == 0
        centers = [
            (place.astype(data.dtype) + number(offset)) * number(size)
            for place, offset, size in zip((row, column), offsets, step)
        ]
        half: Any = number(0)
        for index, (wide, high) in enumerate(shapes):
            own = tirx.Select(is_x, number(wide), number(high))
            half = tirx.Select(kind == index, own, half)
        center = tirx.Select(is_x, centers[1], centers[0])
        return center + tirx.Select(which < 2, -half, half)

    boxes = te.compute((1, height * width * len(shapes), 4), corner, name="multibox_prior")
    return tvm.topi.clip(boxes, 0, 1) if clip else boxes


def multibox_detection(
    cls_prob: Any,
    loc_pred: Any,
    anchor: Any,
    clip: bool = True,
    threshold: float = 0.01,
    nms_threshold: float = 0.5,
    force_suppress: bool = False,
    variances: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    nms_topk: int = -1,
) -> te.Tensor:
    """Boxes of `multibox_transform_loc` that no better one covers."""
    from ...relay.op import vision

    def detected(probabilities: Any, locations: Any, anchors: Any) -> Any:
        boxes, counts = vision.multibox_transform_loc(
            probabilities, locations, anchors, clip, threshold, variances
        )
        return vision.non_max_suppression(
            boxes,
            counts,
            counts,
            iou_threshold=nms_threshold,
            force_suppress=force_suppress,
            top_k=nms_topk,
            return_indices=False,
        )

    return compute(detected, cls_prob, loc_pred, anchor)
