"""Region-of-interest pooling."""

from __future__ import annotations

import functools
from typing import Any

from tvm import relax, te, tirx, topi

from ....ir.op_facts import index_rules
from ...type_infer import infer_type
from .. import layout_rules
from ..nn.layouts import convert
from ..op_def import FUSABLE
from ..registry import operator
from ..shapes import integers
from ..te_op import kernel

_roi_align = kernel("vision.roi_align", topi.vision.roi_align, indices=index_rules.region_batches)


@operator("vision.roi_align", 2, how="TOPI", pattern=FUSABLE, layout=layout_rules.regions)
def roi_align(
    data: relax.Expr,
    rois: relax.Expr,
    pooled_size: Any,
    spatial_scale: float,
    sample_ratio: int = -1,
    layout: str = "NCHW",
    mode: str = "avg",
) -> relax.Expr:
    """Pool regions (batch, corners) to one size with bilinear sampling."""
    return _roi_align(
        data,
        rois,
        pooled_size=integers(pooled_size, 2),
        spatial_scale=float(spatial_scale),
        sample_ratio=int(sample_ratio),
        layout=layout,
        mode=mode,
    )


def _roi_pool_compute(
    data: te.Tensor, rois: te.Tensor, pooled_size: list[int], spatial_scale: float
) -> te.Tensor:
    """Maximum of each cell of a region, 0 if empty; borders are integers to avoid rounding."""
    _, channels, *size = data.shape
    name = rois.dtype
    row = te.reduce_axis((0, size[0]), "row")
    column = te.reduce_axis((0, size[1]), "column")

    def corner(roi: Any, index: int) -> Any:
        scaled = rois(roi, index) * tirx.const(spatial_scale, name) + tirx.const(0.5, name)
        return tirx.Cast("int32", tirx.floor(scaled))

    def border(roi: Any, cell: Any, axis: int) -> tuple[Any, Any]:
        start, end = corner(roi, 2 - axis), corner(roi, 4 - axis)
        span, count = tirx.max(end - start + 1, 1), pooled_size[axis]
        cell, last = tirx.Cast("int32", cell), tirx.Cast("int32", size[axis])
        first = start + tirx.floordiv(cell * span, count)
        stop = start + tirx.floordiv((cell + 1) * span + count - 1, count)
        return tuple(tirx.min(tirx.max(each, 0), last) for each in (first, stop))

    def element(roi: Any, channel: Any, i: Any, j: Any) -> Any:
        top, bottom = border(roi, i, 0)
        left, right = border(roi, j, 1)
        inside = tirx.all(top <= row, row < bottom, left <= column, column < right)
        batch = tirx.Cast("int32", rois(roi, 0))
        lowest = tirx.min_value(data.dtype)
        return tirx.if_then_else(inside, data(batch, channel, row, column), lowest)

    shape = (rois.shape[0], channels, *pooled_size)
    largest = te.compute(shape, lambda *at: te.max(element(*at), axis=[row, column]), "largest")

    def result(roi: Any, channel: Any, i: Any, j: Any) -> Any:
        top, bottom = border(roi, i, 0)
        left, right = border(roi, j, 1)
        empty = tirx.any(bottom <= top, right <= left)
        zero = tirx.const(0.0, data.dtype)
        return tirx.if_then_else(empty, zero, largest(roi, channel, i, j))

    return te.compute(shape, result, "roi_pool")


_roi_pool = kernel("vision.roi_pool", _roi_pool_compute, indices=index_rules.region_batches)


@operator("vision.roi_pool", 2, how="TE", pattern=FUSABLE, layout=layout_rules.regions)
def roi_pool(
    data: relax.Expr, rois: relax.Expr, pooled_size: Any, spatial_scale: float, layout: str = "NCHW"
) -> relax.Expr:
    """Max-pool regions (batch, corners) to one size."""
    result = _roi_pool(
        convert(data, layout, "NCHW"),
        rois,
        pooled_size=integers(pooled_size, 2),
        spatial_scale=float(spatial_scale),
    )
    return convert(infer_type(result), "NCHW", layout)


def _roi_align_max_compute(
    data: te.Tensor,
    rois: te.Tensor,
    pooled_size: list[int],
    spatial_scale: float,
    sample_ratio: int,
    aligned: bool,
) -> te.Tensor:
    """Maximum of element times bilinear weight over a cell's samples; 0 if none or outside."""
    _, channels, *size = data.shape
    name = rois.dtype

    def number(value: Any) -> Any:
        return tirx.Cast(name, value)

    def cells(roi: Any, axis: int) -> tuple[Any, Any, Any]:
        """Start of a region, extent of its cells, and number of samples per cell."""
        scale = tirx.const(spatial_scale, name)
        start, end = (rois(roi, corner - axis) * scale for corner in (2, 4))
        span = end - start if aligned else tirx.max(end - start, tirx.const(1.0, name))
        extent = span / tirx.const(pooled_size[axis], name)
        samples = tirx.const(sample_ratio, "int32")
        if sample_ratio <= 0:
            samples = tirx.max(tirx.Cast("int32", tirx.ceil(extent)), 0)
        return start, extent, samples

    def neighbors(roi: Any, axis: int, cell: Any, sample: Any) -> tuple[Any, list[Any]]:
        """Whether a sample is in the image, and its two neighbors with weights along an axis."""
        start, extent, samples = cells(roi, axis)
        half, zero, one = (tirx.const(value, name) for value in (0.5, 0.0, 1.0))
        at = start + number(cell) * extent + (number(sample) + half) * extent / number(samples)
        inside = tirx.all(at >= -one, at <= number(size[axis]))
        last = tirx.Cast("int32", size[axis] - 1)
        at = tirx.max(tirx.min(at, number(last)), zero)
        low = tirx.min(tirx.Cast("int32", at), last)
        part = at - number(low)
        return inside, [(low, one - part), (tirx.min(low + 1, last), part)]

    def element(roi: Any, channel: Any, i: Any, j: Any) -> Any:
        _, _, count_i = cells(roi, 0)
        _, _, count_j = cells(roi, 1)
        row = te.reduce_axis((0, count_i), "row")
        column = te.reduce_axis((0, count_j), "column")
        inside_i, rows = neighbors(roi, 0, i, row)
        inside_j, columns = neighbors(roi, 1, j, column)
        batch = tirx.Cast("int32", rois(roi, 0))
        products = [
            (weight_y * weight_x).astype(data.dtype) * data(batch, channel, y, x)
            for y, weight_y in rows
            for x, weight_x in columns
        ]
        largest = functools.reduce(tirx.max, products)
        zero = tirx.const(0.0, data.dtype)
        value = tirx.if_then_else(tirx.all(inside_i, inside_j), largest, zero)
        return te.max(value, axis=[row, column])

    shape = (rois.shape[0], channels, *pooled_size)
    largest = te.compute(shape, element, "largest")

    def result(roi: Any, channel: Any, i: Any, j: Any) -> Any:
        none = tirx.any(*(cells(roi, axis)[2] == 0 for axis in (0, 1)))
        return tirx.if_then_else(none, tirx.const(0.0, data.dtype), largest(roi, channel, i, j))

    return te.compute(shape, result, "roi_align_max")


roi_align_max = kernel(
    "vision.roi_align_max", _roi_align_max_compute, indices=index_rules.region_batches
)
