"""Boxes: non-maximum suppression, and regions of interest."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from compiler.ir.constants import constant
from compiler.relay.op.shapes import same_extent
from compiler.relay.op.te_op import kernel
from compiler.relay.op.vision.regions import roi_align_max
from compiler.relay.op.vision.suppression import by_class, listed

from ..node import Node, constant_value, dtype_of
from . import dynamic_operands


def non_max_suppression(node: Node) -> relax.Expr:
    """Rows (batch, class, box) of the boxes that stay, best first; limits may be run-time values.

    Without `max_output_boxes_per_class` no box stays; without `score_threshold` every score counts.
    """
    boxes, scores = node[0], node[1]
    if not same_extent(node.extents(0)[-1], 4):
        raise node.unsupported("the last axis of the boxes must have 4 elements")
    if node.attr("center_point_box", 0):
        center, size = (relax.op.strided_slice(boxes, [2], [i], [i + 2]) for i in (0, 2))
        half = node.emit(relax.op.multiply(size, relax.const(0.5, node.dtype(0))))
        corners = [relax.op.subtract(center, half), relax.op.add(center, half)]
        boxes = node.emit(relax.op.concat(corners, 2))
    limit = relax.op.clip(_scalar(node, 2, 0, "int64"), 0, np.iinfo("int32").max)
    ranked, order, places, kept = by_class(
        boxes,
        scores,
        node.emit(relax.op.astype(limit, "int32")),
        _above(node, _scalar(node, 3, 0.0, node.dtype(0))),
        _scalar(node, 4, -math.inf, node.dtype(1)),
    )
    total = relax.op.sum(node.emit(relax.op.astype(kept, "int64")), [0], True)
    (count,) = dynamic_operands.extents_of(node, total, 1)
    classes = node.extents(1)[1]
    room = relax.ShapeExpr([count])
    rows = listed(ranked, order, places, kept, room, classes=classes, with_scores=False)
    return relax.op.squeeze(node.emit(rows), [0])


def _scalar(node: Node, index: int, default: float, dtype: str) -> relax.Expr:
    """Operand `index` as a scalar of that dtype; `default` only where it is left out."""
    if node.get(index) is None:
        return relax.const(default, dtype)
    value = node[index]
    if dtype_of(value) != dtype:
        value = relax.op.astype(value, dtype)
    return node.emit(relax.op.reshape(value, []))


def _above(node: Node, threshold: relax.Expr) -> relax.Expr:
    """The next number above a threshold: ONNX suppresses larger overlaps, Relay equal ones."""
    known, dtype = constant_value(threshold), dtype_of(threshold)
    if known is not None:
        return constant(np.nextafter(known, np.array(math.inf, known.dtype)))
    step = float(np.finfo(dtype).eps)
    tiny = relax.const(float(np.finfo(dtype).tiny), dtype)
    grown = relax.op.multiply(threshold, relax.const(1.0 + step, dtype))
    return node.emit(relax.op.maximum(grown, tiny))


def roi_align(node: Node) -> relax.Expr:
    """Regions pooled to one size, from samples between the elements.

    In the mode "max" a cell has the largest product of an element and its weight in a sample, as
    the reference evaluator, the node tests and onnxruntime have it. That of float16 is computed in
    float32.
    """
    modes = ("output_half_pixel", "half_pixel")
    mode = node.attr("coordinate_transformation_mode", modes[node.opset >= 16])
    if mode not in modes or node.attr("mode", "avg") not in ("avg", "max"):
        raise node.unsupported("the mode or the coordinate_transformation_mode is not known")
    dtype = node.dtype(0)
    kind = "float32" if dtype == "float16" else dtype
    image, boxes = (
        node[i] if kind == dtype else node.emit(relax.op.astype(node[i], kind)) for i in (0, 1)
    )
    corners = relax.op.multiply(boxes, relax.const(node.attr("spatial_scale", 1.0), kind))
    if mode == "half_pixel":
        corners = relax.op.subtract(corners, relax.const(0.5, kind))
    images = relax.op.expand_dims(relax.op.astype(node[2], kind), 1)
    regions = node.emit(relax.op.concat([images, corners], 1))
    make = relax.op.vision.roi_align if node.attr("mode", "avg") == "avg" else roi_align_max
    result = make(
        image,
        regions,
        pooled_size=[node.attr("output_height", 1), node.attr("output_width", 1)],
        spatial_scale=1.0,
        sample_ratio=node.attr("sampling_ratio", 0),
        aligned=mode == "half_pixel",
    )
    return result if kind == dtype else relax.op.astype(node.emit(result), dtype)


def grid_sample(node: Node) -> relax.Expr | None:
    """TVM's converter, of an image and a grid of one dtype of at least 32 bits; the result has the
    image's."""
    dtypes = [node.dtype(index) for index in (0, 1)]
    if not all(dtype.startswith("float") for dtype in dtypes):
        raise node.unsupported("samples between integers are not supported")
    wide = "float64" if "float64" in dtypes else "float32"
    if dtypes == [wide, wide]:
        return None
    operands = [node.emit(relax.op.astype(node[index], wide)) for index in (0, 1)]
    mode = node.attr("mode", "linear").removeprefix("bi")
    return relax.op.astype(
        node.call(
            "GridSample",
            *operands,
            mode=mode,
            padding_mode=node.attr("padding_mode"),
            align_corners=node.attr("align_corners"),
        ),
        dtypes[0],
    )


def _place(index: Any, size: Any, one: Any, aligned: bool) -> Any:
    """Where an element of an axis is that reaches from -1 to 1; all of one floating type."""
    if aligned:
        return index * (one + one) / (size - one) - one
    return (index * (one + one) + one) / size - one


def _axis_places(extents: list[Any], dtype: str, aligned: bool) -> te.Tensor:
    """Where the elements of an axis are, of an extent that only running tells."""
    size, one = tirx.Cast(dtype, extents[0]), tirx.const(1, dtype)
    return te.compute(
        tuple(extents),
        lambda at: _place(tirx.Cast(dtype, at), size, one, aligned),
        name="axis_places",
    )


def _affine_grid(theta: te.Tensor, places: list[te.Tensor]) -> te.Tensor:
    """Grid places moved by theta (n, rank, rank + 1), as tensors: TVM takes x * known 0 for 0."""
    rank = len(places)

    def moved(n: Any, *rest: Any) -> Any:
        *at, row = rest
        result = theta(n, row, rank)
        for axis in range(rank):
            result = result + theta(n, row, rank - 1 - axis) * places[axis](at[axis])
        return result

    extents = [each.shape[0] for each in places]
    return te.compute((theta.shape[0], *extents, rank), moved, name="affine_grid")


_axis_places_kernel = kernel("axis_places", _axis_places)
_affine_grid_kernel = kernel("affine_grid", _affine_grid)


def affine_grid(node: Node) -> relax.Expr:
    """The grid of a size that may be known only at run time."""
    aligned = bool(node.attr("align_corners", 0))
    known = constant_value(node[1])
    count = int(node.shape(1)[0])
    if known is None:
        sizes = relax.op.strided_slice(dynamic_operands.as_int64(node, node[1]), [0], [2], [count])
        extents = dynamic_operands.extents_of(node, sizes, count - 2)
    else:
        extents = [int(extent) for extent in known[2:]]
        if aligned and min(extents, default=2) < 2:
            raise node.unsupported(f"aligned corners of a grid of {extents} places")
    dtype = node.dtype(0)

    def places(extent: Any) -> relax.Expr:
        if isinstance(extent, int):
            index, size, one = np.arange(extent, dtype=dtype), *np.array([extent, 1], dtype)
            return constant(_place(index, size, one, aligned))
        shape = relax.ShapeExpr([extent])
        return node.emit(_axis_places_kernel(shape, dtype=dtype, aligned=aligned))

    return _affine_grid_kernel(node[0], relax.Tuple([places(each) for each in extents]))


CONVERTERS = {
    "AffineGrid": affine_grid,
    "GridSample": grid_sample,
    **dict.fromkeys(("AllClassNMS", "NonMaxSuppression"), non_max_suppression),
    "RoiAlign": roi_align,
}
