"""Region proposals of Faster R-CNN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ....errors import RelayTypeError
from ...type_infer import infer_type
from ..registry import operator
from ..shapes import extents, number, tuple_fields
from ..te_op import kernel
from ..typed_relax import op
from .select_boxes import select_boxes


def _anchors(scales: Sequence[float], ratios: Sequence[float], stride: int) -> np.ndarray:
    """Anchor corners (anchors, 4) of the first cell, ordered by ratio."""
    center = 0.5 * (stride - 1)
    found = []
    for ratio in ratios:
        base = math.floor(math.sqrt(math.floor(stride * stride / ratio)) + 0.5)
        for scale in scales:
            half = [0.5 * (size * scale - 1) for size in (base, math.floor(base * ratio + 0.5))]
            found.append([center - half[0], center - half[1], center + half[0], center + half[1]])
    return np.array(found, "float32")


def _moved(
    anchors: te.Tensor, deltas: te.Tensor, image: te.Tensor, stride: int, iou_loss: bool
) -> te.Tensor:
    """Corners (batch, boxes, 4) of predicted boxes, clipped; ordered by row, column, anchor."""
    count, width = anchors.shape[0], deltas.shape[3]
    batch, height = deltas.shape[0], deltas.shape[2]

    def value(b: Any, box: Any, corner: Any) -> Any:
        anchor, cell = box % count, box // count
        row, column = cell // width, cell % width

        def along(axis: int) -> Any:
            place = ((column, row)[axis] * stride).astype("float32")
            low, high = (anchors(anchor, axis + end) + place for end in (0, 2))
            first, second = (deltas(b, anchor * 4 + axis + end, row, column) for end in (0, 2))
            if iou_loss:
                return tirx.Select(corner < 2, low + first, high + second)
            size = high - low + 1.0
            center = first * size + low + 0.5 * (size - 1.0)
            half = 0.5 * (te.exp(second) * size - 1.0)
            return tirx.Select(corner < 2, center - half, center + half)

        is_x = corner % 2 == 0
        last = tirx.Select(is_x, image(b, 1), image(b, 0)) - 1.0
        return te.max(te.min(tirx.Select(is_x, along(0), along(1)), last), 0.0)

    return te.compute((batch, height * width * count, 4), value, name="moved_anchors")


def _scored(
    boxes: te.Tensor, scores: te.Tensor, image: te.Tensor, stride: int, min_size: int
) -> list[te.Tensor]:
    """Boxes and scores; small boxes are enlarged. Small or outside boxes have score -1."""
    count, width = scores.shape[1] // 2, scores.shape[3]

    def least(b: Any) -> Any:
        return image(b, 2) * tirx.const(min_size, "float32")

    def is_small(b: Any, box: Any) -> Any:
        sizes = [boxes(b, box, axis + 2) - boxes(b, box, axis) + 1.0 for axis in range(2)]
        return tirx.any(*(size < least(b) for size in sizes))

    def corner(b: Any, box: Any, place: Any) -> Any:
        half = least(b) / 2.0
        more = tirx.Select(place < 2, -half, half)
        return boxes(b, box, place) + tirx.Select(is_small(b, box), more, 0.0)

    def score(b: Any, box: Any) -> Any:
        anchor, cell = box % count, box // count
        row, column = cell // width, cell % width
        rows, columns = ((image(b, axis) / float(stride)).astype("int32") for axis in range(2))
        is_bad = tirx.any(row >= rows, column >= columns, is_small(b, box))
        return tirx.Select(is_bad, -1.0, scores(b, count + anchor, row, column))

    return [
        te.compute(boxes.shape, corner, name="grown_boxes"),
        te.compute(boxes.shape[:2], score, name="box_scores"),
    ]


def _ranked(boxes: te.Tensor, order: te.Tensor, count: int) -> te.Tensor:
    """First boxes of an order, with exclusive end coordinates."""

    def value(b: Any, place: Any, corner: Any) -> Any:
        return boxes(b, order(b, place), corner) + tirx.Select(corner < 2, 0.0, 1.0)

    return te.compute((boxes.shape[0], count, 4), value, name="ranked_boxes")


def _listed(ranked: te.Tensor, chosen: te.Tensor, kept: te.Tensor, count: int) -> te.Tensor:
    """Rows (batch index, corners) of the selected boxes, repeated from the first if too few."""

    def value(row: Any, field: Any) -> Any:
        b = row // count
        place = chosen(b, row % count % te.max(kept(b), 1))
        end = tirx.Select(field < 3, 0.0, 1.0)
        return tirx.if_then_else(
            field == 0, b.astype("float32"), ranked(b, place, te.max(field - 1, 0)) - end
        )

    return te.compute((ranked.shape[0] * count, 5), value, name="proposals")


_moved_kernel = kernel("vision.moved_anchors", _moved)
_scored_kernel = kernel("vision.scored_boxes", _scored)
_ranked_kernel = kernel("vision.ranked_boxes", _ranked)
_listed_kernel = kernel("vision.proposals", _listed)


@operator("vision.proposal", 3, how="TE")
def proposal(
    cls_prob: relax.Expr,
    bbox_pred: relax.Expr,
    im_info: relax.Expr,
    scales: Any,
    ratios: Any,
    feature_stride: int,
    threshold: float,
    rpn_pre_nms_top_n: int,
    rpn_post_nms_top_n: int,
    rpn_min_size: int,
    iou_loss: bool,
) -> relax.Expr:
    """Rows (batch index, corners) of the best Faster R-CNN proposals after NMS."""
    anchors = _anchors([*map(float, scales)], [*map(float, ratios)], int(feature_stride))
    shape, count = [*map(_known, extents(cls_prob))], len(anchors)
    if shape[1] != 2 * count or extents(bbox_pred) != [shape[0], 4 * count, *shape[2:]]:
        raise RelayTypeError(
            f"{count} anchors need cls_prob of {2 * count} channels and bbox_pred of {4 * count}"
        )
    if extents(im_info) != [shape[0], 3]:
        raise RelayTypeError("im_info must be (batch, 3): height, width and scale of each image")
    stride = int(feature_stride)
    moved = _moved_kernel(
        relax.const(anchors), bbox_pred, im_info, stride=stride, iou_loss=bool(iou_loss)
    )
    scored = _scored_kernel(
        infer_type(moved), cls_prob, im_info, stride=stride, min_size=int(rpn_min_size)
    )
    boxes, scores = tuple_fields(scored)
    order = op.argsort(scores, 1, True, "int32")
    total = shape[2] * shape[3] * count
    best = min(int(rpn_pre_nms_top_n), total) if int(rpn_pre_nms_top_n) > 0 else total
    ranked = _ranked_kernel(boxes, order, count=best)
    # Proposal suppresses overlaps above the threshold, the kernel overlaps at or above it.
    limit = float(np.nextafter(np.float32(threshold), np.float32(np.inf)))
    places = np.broadcast_to(np.arange(best, dtype="int32"), (shape[0], best))
    counts = np.full(shape[0], best, "int32")
    chosen = select_boxes(
        ranked,
        relax.const(np.ascontiguousarray(places)),
        relax.const(counts),
        number(limit, "float32"),
        number(int(rpn_post_nms_top_n), "int32"),
        start=0,
        id_index=-1,
        rows_per_batch=1,
    )
    where, kept = tuple_fields(chosen)
    return _listed_kernel(ranked, where, kept, count=int(rpn_post_nms_top_n))


def _known(extent: Any) -> int:
    if not isinstance(extent, int):
        raise RelayTypeError("region proposals need extents that are known")
    return extent
