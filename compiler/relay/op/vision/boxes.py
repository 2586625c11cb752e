"""SSD anchors and box decoding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from ....errors import RelayTypeError
from ...type_infer import infer_type
from ..op_def import INJECTIVE
from ..registry import operator
from ..shapes import dtype, extents, tuple_fields
from ..te_op import kernel
from ..transform import cast_to
from ..typed_relax import op


@operator("vision.multibox_prior")
def multibox_prior(
    data: relax.Expr,
    sizes: Any = (1.0,),
    ratios: Any = (1.0,),
    steps: Any = (-1.0, -1.0),
    offsets: Any = (0.5, 0.5),
    clip: bool = False,
) -> relax.Expr:
    """Anchor boxes for every cell of a feature map; depends only on its shape.

    For each cell: one box per size, then one box of the first size per further ratio.
    """
    height, width = extents(data)[2:]
    if not isinstance(height, int) or not isinstance(width, int):
        raise RelayTypeError("the height and width of data must be known")
    sizes, ratios = ([float(v) for v in values] for values in (sizes, ratios))
    step_h, step_w = (
        1.0 / extent if float(step) <= 0 else float(step)
        for step, extent in zip(steps, (height, width))
    )
    halves = [(size * height / width / 2, size / 2) for size in sizes]
    for ratio in ratios[1:]:
        root = math.sqrt(ratio)
        halves.append((sizes[0] * height / width * root / 2, sizes[0] / root / 2))
    rows = (np.arange(height) + float(offsets[0])) * step_h
    columns = (np.arange(width) + float(offsets[1])) * step_w
    centers = np.stack(np.broadcast_arrays(columns[None, :], rows[:, None]), -1)
    half = np.array(halves)
    low, high = centers[:, :, None] - half, centers[:, :, None] + half
    boxes = np.concatenate([low, high], -1).reshape(1, -1, 4)
    if clip:
        boxes = np.clip(boxes, 0, 1)
    return relax.const(boxes.astype(dtype(data)), dtype(data))


def _decode(
    loc: te.Tensor, anchor: te.Tensor, batch: Any, index: Any, variances: list[float], clip: bool
) -> list[Any]:
    """Decode corners of a box from its offsets and its anchor."""
    name = loc.dtype
    left, top, right, bottom = (anchor(0, index, side) for side in range(4))
    half, two = tirx.const(0.5, name), tirx.const(2.0, name)
    width, height = right - left, bottom - top
    center = (left + right) * half, (top + bottom) * half
    offsets = [loc(batch, index * 4 + side) for side in range(4)]
    factors = [tirx.const(value, name) for value in variances]
    x = offsets[0] * factors[0] * width + center[0]
    y = offsets[1] * factors[1] * height + center[1]
    half_width = tirx.exp(offsets[2] * factors[2]) * width / two
    half_height = tirx.exp(offsets[3] * factors[3]) * height / two
    corners = [x - half_width, y - half_height, x + half_width, y + half_height]
    if not clip:
        return corners
    zero, one = tirx.const(0.0, name), tirx.const(1.0, name)
    return [tirx.max(zero, tirx.min(one, corner)) for corner in corners]


def _best_class(cls_prob: te.Tensor, threshold: float, keep_background: bool) -> list[te.Tensor]:
    """Best class and its score for each anchor, and 0 for valid or 1 for background."""
    skip = 0 if keep_background else 1
    batch, classes, anchors = cls_prob.shape
    candidates = te.compute(
        (batch, classes - skip, anchors), lambda b, c, a: cls_prob(b, c + skip, a), "candidates"
    )
    best = topi.argmax(candidates, axis=1)
    score = topi.max(candidates, axis=1)
    limit = tirx.const(threshold, cls_prob.dtype)
    invalid = te.compute(
        (batch, anchors),
        lambda b, a: tirx.if_then_else(
            tirx.any(score(b, a) < limit, score(b, a) <= tirx.const(-1.0, cls_prob.dtype)),
            tirx.const(1, "int32"),
            tirx.const(0, "int32"),
        ),
        "invalid",
    )
    return [best, score, invalid]


def _boxes(
    best: te.Tensor,
    score: te.Tensor,
    order: te.Tensor,
    count: te.Tensor,
    loc_pred: te.Tensor,
    anchor: te.Tensor,
    clip: bool,
    variances: list[float],
) -> te.Tensor:
    """Rows (class, score, corners) of the valid anchors, then rows of -1."""
    name = loc_pred.dtype

    def value(batch: Any, row: Any, column: Any) -> Any:
        at = order(batch, row)
        fields = [best(batch, at).astype(name), score(batch, at)]
        fields += _decode(loc_pred, anchor, batch, at, variances, clip)
        result = fields[-1]
        for index in reversed(range(5)):
            result = tirx.if_then_else(column == index, fields[index], result)
        return tirx.if_then_else(row < count(batch), result, tirx.const(-1.0, name))

    return te.compute((*order.shape, 6), value, name="boxes")


_best_class_kernel = kernel("vision.best_class", _best_class)
_boxes_kernel = kernel("vision.decoded_boxes", _boxes)


@operator("vision.multibox_transform_loc", 3, wraps=True, how="TE")
def multibox_transform_loc(
    cls_prob: relax.Expr,
    loc_pred: relax.Expr,
    anchor: relax.Expr,
    clip: bool = True,
    threshold: float = 0.01,
    variances: Any = (0.1, 0.1, 0.2, 0.2),
    keep_background: bool = False,
) -> relax.Expr:
    """Rows (class, score, corners) of anchors above the threshold, and their number."""
    found = _best_class_kernel(
        cls_prob, threshold=float(threshold), keep_background=bool(keep_background)
    )
    best, score, invalid = tuple_fields(found)
    order = op.argsort(invalid, 1, False, "int32")
    background = op.sum(invalid, [1])
    anchors = relax.const(int(extents(invalid)[1]), "int32")
    count = op.subtract(anchors, background)
    boxes = _boxes_kernel(
        best, score, order, count, loc_pred, anchor, clip=bool(clip),
        variances=[float(value) for value in variances],
    )  # fmt: skip
    return relax.Tuple([infer_type(boxes), cast_to(count, "int32")])


_yolo_reorg = kernel("vision.yolo_reorg", lambda data, stride: topi.cpp.vision.reorg(data, stride))


@operator("vision.yolo_reorg", how="TOPI", pattern=INJECTIVE)
def yolo_reorg(data: relax.Expr, stride: int = 1) -> relax.Expr:
    """Move spatial blocks to channels in the order of Darknet's reorg layer."""
    return _yolo_reorg(data, stride=int(stride))
