"""Operators on packed and transformed weights, created by Relay's layout passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.topi.nn import winograd_util

from ....errors import RelayTypeError
from ...type_infer import infer_type, type_of
from .. import layout_rules
from ..op_def import FUSABLE
from ..registry import operator, unavailable
from ..shapes import dtype, extents, integers
from ..slicing import strided_slice
from ..transform import cast_to, layout_transform, sliding_window
from ..typed_relax import op
from .convolution import conv2d, convolve
from .layouts import (
    PLAIN,
    convert,
    convolution_attributes,
    paddings,
    window_attributes,
    with_signature,
)
from .linear import product
from .padding import pad


def _matrix(values: Any, name: str) -> relax.Expr:
    return relax.const(np.array(values, "float64").astype(name), name)


def _transforms(tile_size: int, size: int) -> tuple[Any, Any, Any]:
    """Winograd A (alpha, tile), B (alpha, alpha), G (alpha, size); TVM's points fit old weights."""
    points = winograd_util._interpolation_points(tile_size + size - 2)
    return winograd_util._cook_toom_convolution(points, tile_size, size)


def _along(data: relax.Expr, axis: int, matrix: relax.Expr) -> relax.Expr:
    """Multiply a matrix with `data` along one axis."""
    ndim = len(extents(data))
    order = [each for each in range(ndim) if each != axis] + [axis]
    rows = op.permute_dims(data, order)
    result = op.matmul(rows, op.permute_dims(matrix, [1, 0]))
    back = [order.index(each) for each in range(ndim)]
    return op.permute_dims(result, back)


def _transformed_weight(weight: relax.Expr, tile_size: int, count: int) -> relax.Expr:
    """Apply G along each of the last `count` axes, and move these axes to the front."""
    size = extents(weight)[-1]
    _, _, kernel_matrix = _transforms(int(tile_size), size)
    matrix = _matrix(kernel_matrix, dtype(weight))
    for axis in range(2, 2 + count):
        if extents(weight)[axis] == size:
            weight = _along(weight, axis, matrix)
    return op.permute_dims(weight, [*range(2, 2 + count), 0, 1])


@operator("nn.contrib_conv2d_winograd_weight_transform", pattern=FUSABLE)
def contrib_conv2d_winograd_weight_transform(weight: relax.Expr, tile_size: int) -> relax.Expr:
    """(O, I, k, k) to (alpha, alpha, O, I), alpha = tile_size + k - 1."""
    return _transformed_weight(weight, tile_size, 2)


@operator("nn.contrib_conv3d_winograd_weight_transform", pattern=FUSABLE)
def contrib_conv3d_winograd_weight_transform(weight: relax.Expr, tile_size: int) -> relax.Expr:
    """(O, I, d, k, k) to (alpha, alpha, alpha, O, I); the depth is only transformed if d = k."""
    depth = extents(weight)[2]
    if depth == extents(weight)[3]:
        return _transformed_weight(weight, tile_size, 3)
    moved = op.permute_dims(weight, [0, 1, 3, 4, 2])
    parts = [
        _transformed_weight(
            op.squeeze(op.strided_slice(moved, [4], [at], [at + 1], [1]), [4]), tile_size, 2
        )
        for at in range(depth)
    ]
    return op.concat([op.expand_dims(part, 2) for part in parts], 2)


def _winograd(
    data: relax.Expr,
    weight: relax.Expr,
    count: int,
    tile_size: int,
    strides: Any,
    padding: Any,
    dilation: Any,
    data_layout: str,
    out_dtype: str,
    **_implied: Any,
) -> relax.Expr:
    """Winograd convolution with a transformed weight (alpha, ..., O, I).

    Tiles of alpha points at distance `tile_size` are transformed by B, multiplied pointwise with
    the weight, and transformed back by A.
    """
    if set(integers(strides, count) + integers(dilation, count)) != {1}:
        raise RelayTypeError("strides and dilation must be 1")
    plain, tile = PLAIN["data"][count], int(tile_size)
    points = extents(weight)[:count]
    alpha = points[-1]
    size = alpha - tile + 1
    if any(point != alpha for point in points):
        raise RelayTypeError(f"argument weight of type {type_of(weight)} is not cubic")
    data = convert(data, data_layout, plain)
    images, channels, *spatial = extents(data)
    edges = paddings(padding, count)
    wanted = [
        extent + before + after - size + 1
        for extent, before, after in zip(spatial, edges[:count], edges[count:])
    ]
    tiles = [-(-extent // tile) for extent in wanted]
    widths = [[0, 0], [0, 0]]
    for extent, before, steps in zip(spatial, edges[:count], tiles):
        widths.append([before, steps * tile + size - 1 - extent - before])
    padded = _padded(data, widths)
    windows = infer_type(sliding_window(padded, 2, [alpha] * count, [tile] * count))
    output_matrix, data_matrix, _ = _transforms(tile, size)
    to_points = _matrix(np.array(data_matrix).T, dtype(data))
    from_points = _matrix(np.array(output_matrix).T, dtype(data))
    for axis in range(count):
        windows = _along(windows, 2 + count + axis, to_points)
    order = [*range(2 + count, 2 + 2 * count), 1, 0, *range(2, 2 + count)]
    spots = images * int(np.prod(tiles))
    rows = op.reshape(op.permute_dims(windows, order), [*points, channels, spots])
    product_ = op.matmul(weight, rows)
    outer = extents(weight)[-2]
    result = op.reshape(product_, [*points, outer, images, *tiles])
    for axis in range(count):
        result = _along(result, axis, from_points)
    # (tile..., O, N, tiles...) -> (N, O, tiles[0], tile[0], ...)
    order = [count + 1, count]
    for axis in range(count):
        order += [count + 2 + axis, axis]
    whole = [steps * tile for steps in tiles]
    joined = op.reshape(op.permute_dims(result, order), [images, outer, *whole])
    cut = infer_type(strided_slice(joined, [0] * count, wanted, None, list(range(2, 2 + count))))
    final = convert(cut, plain, data_layout)
    return cast_to(final, out_dtype) if out_dtype else final


def _padded(data: relax.Expr, widths: Sequence[Sequence[int]]) -> relax.Expr:
    """Pad data, or crop it if fewer tiles are needed."""
    grown = [[max(before, 0), max(after, 0)] for before, after in widths]
    data = infer_type(pad(data, grown, 0.0, "constant"))
    end = [extent + min(after, 0) for extent, (_, after) in zip(extents(data), widths)]
    return infer_type(strided_slice(data, [0] * len(end), end))


def _transformed_convolution(count: int, **options: Any) -> Callable[..., Any]:
    def make(**values: Any) -> relax.Expr:
        return _winograd(count=count, **values)

    return operator(
        f"nn.contrib_conv{count}d_winograd_without_weight_transform",
        2,
        pattern=FUSABLE,
        layout=layout_rules.convolution,
        doc=f"conv{count}d with a weight of contrib_conv{count}d_winograd_weight_transform.",
        **options,
    )(with_signature(make, "data weight tile_size", convolution_attributes(count)))


contrib_conv2d_winograd_without_weight_transform = _transformed_convolution(
    2, ignored=("auto_scheduler_rewritten_layout", "meta_schedule_original_shape")
)
contrib_conv3d_winograd_without_weight_transform = _transformed_convolution(3)

contrib_conv2d_winograd_nnpack_weight_transform = unavailable(
    "nn.contrib_conv2d_winograd_nnpack_weight_transform", "it needs the NNPACK library"
)


@operator("nn.contrib_conv2d_gemm_weight_transform", pattern=FUSABLE)
def contrib_conv2d_gemm_weight_transform(
    weights: relax.Expr, tile_N: int, tile_K: int
) -> relax.Expr:
    """Reshape (kh, kw, I, O) to (K, O), K = kh * kw * I, in transposed tiles (tile_N, tile_K)."""
    height, width, inner, outer = extents(weights)
    rows = height * width * inner
    matrix = op.reshape(weights, [rows, outer])
    extra = [[0, -rows % tile_K], [0, -outer % tile_N]]
    matrix = infer_type(pad(matrix, extra, 0, "constant"))
    rows, columns = extents(matrix)
    tiles = [rows // tile_K, tile_K, columns // tile_N, tile_N]
    return op.permute_dims(op.reshape(matrix, tiles), [2, 0, 3, 1])


@operator(
    "nn.contrib_conv2d_gemm_without_weight_transform",
    2,
    pattern=FUSABLE,
    layout=layout_rules.convolution,
)
def contrib_conv2d_gemm_without_weight_transform(
    data: relax.Expr,
    weight: relax.Expr,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Any = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> relax.Expr:
    """conv2d with a weight from contrib_conv2d_gemm_weight_transform."""
    if channels is None or kernel_size is None:
        raise RelayTypeError("channels and kernel_size must be given")
    across, down, tile_n, tile_k = extents(weight)
    matrix = op.permute_dims(weight, [1, 3, 0, 2])
    matrix = op.reshape(matrix, [down * tile_k, across * tile_n])
    height, width = integers(kernel_size, 2)
    inner = extents(data)[data_layout.index("C")]
    matrix = infer_type(strided_slice(matrix, [0, 0], [height * width * inner, int(channels)]))
    plain = op.reshape(matrix, [height, width, inner, int(channels)])
    return conv2d(
        data, plain, strides, padding, dilation, groups, channels, [height, width], data_layout,
        "HWIO", out_layout, out_dtype,
    )  # fmt: skip


def _packed_kernel_layout(weight: relax.Expr, layout: str) -> str:
    """Layout of a packed weight; an unblocked name with six axes means OIHW[i]i[o]o."""
    shape = extents(weight)
    if len(shape) == 6 and layout == "OIHW":
        return f"OIHW{shape[4]}i{shape[5]}o"
    return layout


def _packed_convolution(name: str) -> Any:
    attributes = {**convolution_attributes(2), "data_layout": "NCHW8c"}

    def convolution(kernel: relax.Expr, **values: Any) -> relax.Expr:
        values["kernel_layout"] = _packed_kernel_layout(kernel, values["kernel_layout"])
        return convolve(weight=kernel, count=2, **values)

    convolution.__name__ = convolution.__qualname__ = name.replace("NCHWc", "nchwc")
    convolution.__doc__ = "A convolution whose data and weight are packed in blocks of channels."
    return operator(
        f"nn.{name}",
        2,
        defaults={"data_layout": "NCHW"},
        prepare=window_attributes(2),
        pattern=FUSABLE,
        layout=layout_rules.convolution,
    )(with_signature(convolution, "data kernel", attributes))


contrib_conv2d_nchwc = _packed_convolution("contrib_conv2d_NCHWc")
contrib_depthwise_conv2d_nchwc = _packed_convolution("contrib_depthwise_conv2d_NCHWc")


@operator("nn.contrib_dense_pack", 2, pattern=FUSABLE, layout=layout_rules.dense_pack)
def contrib_dense_pack(
    data: relax.Expr,
    weight: relax.Expr,
    weight_layout: str = "NC",
    units: int | None = None,
    out_dtype: str = "",
) -> relax.Expr:
    """dense with a packed weight layout such as NC8n."""
    if weight_layout == "NC" and len(extents(weight)) == 3:
        weight_layout = f"NC{extents(weight)[2]}n"
    if weight_layout != "NC":
        weight = layout_transform(weight, weight_layout, "NC")
    return product(data, op.permute_dims(weight, [1, 0]), out_dtype)
