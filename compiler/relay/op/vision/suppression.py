"""Non-maximum suppression."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ....errors import RelayTypeError
from ..registry import operator
from ..shapes import dtype, extents, number, tuple_fields
from ..te_op import kernel
from ..transform import cast_to
from ..typed_relax import op
from .select_boxes import select_boxes


def _scalar(value: Any, name: str) -> relax.Expr:
    if not isinstance(value, relax.Expr):
        return number(value, name)
    value = cast_to(value, name)
    return op.reshape(value, []) if extents(value) else value


def _discarded(data: te.Tensor, threshold: te.Tensor, id_index: int, score_index: int) -> Any:
    """0 for valid rows and 1 for others."""

    def value(batch: Any, row: Any) -> Any:
        counts = [data(batch, row, score_index) > threshold()]
        if id_index >= 0:
            counts.append(data(batch, row, id_index) >= tirx.const(0, data.dtype))
        return tirx.if_then_else(tirx.all(*counts), tirx.const(0, "int32"), tirx.const(1, "int32"))

    return te.compute(data.shape[:2], value, name="discarded")


def _compacted(data: te.Tensor, order: te.Tensor, count: te.Tensor) -> list[te.Tensor]:
    """First count[batch] rows of an order, then rows of -1, and their original indices."""
    rows = te.compute(
        data.shape,
        lambda b, r, c: tirx.if_then_else(
            r < count(b), data(b, order(b, r), c), tirx.const(-1.0, data.dtype)
        ),
        name="valid_rows",
    )
    places = te.compute(
        data.shape[:2],
        lambda b, r: tirx.if_then_else(r < count(b), order(b, r), tirx.const(-1, "int32")),
        name="valid_places",
    )
    return [rows, places]


_discarded_kernel = kernel("vision.discarded", _discarded)
_compacted_kernel = kernel("vision.compacted", _compacted)


@operator("vision.get_valid_counts", 2, wraps=True, ignored=("score_threshold",), how="TE")
def get_valid_counts(
    data: relax.Expr, score_threshold: Any, id_index: int = 0, score_index: int = 1
) -> relax.Expr:
    """Number of rows with a score above the threshold, these rows first, and their indices."""
    threshold = _scalar(score_threshold, dtype(data))
    discarded = _discarded_kernel(
        data, threshold, id_index=int(id_index), score_index=int(score_index)
    )
    order = op.argsort(discarded, 1, False, "int32")
    kept = cast_to(op.equal(discarded, number(0, "int32")), "int32")
    count = op.sum(kept, [1])
    rows = _compacted_kernel(data, order, count)
    return relax.Tuple([count, *tuple_fields(rows)])


def _scores_of(data: te.Tensor, counts: te.Tensor, score_index: int) -> te.Tensor:
    """Scores of the first counts[batch] rows; others get the dtype's minimum."""
    return te.compute(
        data.shape[:2],
        lambda b, r: tirx.if_then_else(
            r < counts(b), data(b, r, score_index), tirx.min_value(data.dtype)
        ),
        name="scores",
    )


_scores_kernel = kernel("vision.scores_of", _scores_of)


def _kept_places(
    chosen: te.Tensor, order: te.Tensor, counts: te.Tensor, indices: te.Tensor
) -> te.Tensor:
    """Indices of the selected boxes, then -1."""
    return te.compute(
        chosen.shape,
        lambda b, r: tirx.if_then_else(
            r < counts(b),
            indices(b, order(b, tirx.max(chosen(b, r), tirx.const(0, "int32")))),
            tirx.const(-1, "int32"),
        ),
        name="kept_indices",
    )


def _kept_rows(
    data: te.Tensor,
    chosen: te.Tensor,
    order: te.Tensor,
    kept: te.Tensor,
    looked_at: te.Tensor,
    to_top: bool,
) -> te.Tensor:
    """Sorted boxes with -1 for suppressed ones, or the selected boxes first."""
    minus = tirx.const(-1.0, data.dtype)
    first = lambda place: tirx.max(place, tirx.const(0, "int32"))  # noqa: E731
    if to_top:
        return te.compute(
            data.shape,
            lambda b, r, c: tirx.if_then_else(
                r < kept(b), data(b, order(b, first(chosen(b, r))), c), minus
            ),
            name="kept_rows",
        )
    other = te.reduce_axis((0, chosen.shape[1]), "other")
    hit = te.compute(
        chosen.shape,
        lambda b, r: te.max(
            tirx.Select(chosen(b, other) == r.astype("int32"), 1, 0).astype("int32"), axis=other
        ),
        name="is_kept",
    )
    return te.compute(
        data.shape,
        lambda b, r, c: tirx.if_then_else(
            tirx.all(hit(b, r) == 1, r < looked_at(b)), data(b, order(b, r), c), minus
        ),
        name="rows",
    )


_kept_places_kernel = kernel("vision.kept_places", _kept_places)
_kept_rows_kernel = kernel("vision.kept_rows", _kept_rows)


@operator(
    "vision.non_max_suppression",
    5,
    wraps=lambda values: 2 if values["return_indices"] else 0,
    how="TE",
)
def non_max_suppression(
    data: relax.Expr,
    valid_count: relax.Expr,
    indices: relax.Expr,
    max_output_size: Any = -1,
    iou_threshold: Any = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
) -> relax.Expr:
    """Non-maximum suppression of boxes (class, score, corners).

    Returns the selected indices and their number, or all rows with suppressed rows set to -1.
    """
    scores = _scores_kernel(data, valid_count, score_index=int(score_index))
    order = op.argsort(scores, 1, True, "int32")
    counts = valid_count
    if int(top_k) > 0:
        counts = op.minimum(counts, number(int(top_k), "int32"))
    chosen = select_boxes(
        data,
        order,
        counts,
        _scalar(iou_threshold, dtype(data)),
        _scalar(max_output_size, "int32"),
        start=int(coord_start),
        id_index=-1 if force_suppress else int(id_index),
        rows_per_batch=1,
    )
    places, kept = tuple_fields(chosen)
    if return_indices:
        where = _kept_places_kernel(places, order, kept, indices)
        return relax.Tuple([where, op.expand_dims(kept, 1)])
    return _kept_rows_kernel(data, places, order, kept, counts, to_top=bool(invalid_to_bottom))


def by_class(
    boxes: relax.Expr, scores: relax.Expr, limit: Any, iou_threshold: Any, score_threshold: Any
) -> tuple[relax.Expr, relax.Expr, relax.Expr, relax.Expr]:
    """Suppress by class: scores, order, positions, counts; a row per batch element and class."""
    batch, classes, size = extents(scores)
    flat = op.reshape(scores, [batch * classes, size])
    order = op.argsort(flat, 1, True, "int32")
    ranked = op.gather_elements(flat, order, 1)
    above = op.greater(ranked, _scalar(score_threshold, dtype(scores)))
    counts = op.sum(cast_to(above, "int32"), [1])
    chosen = select_boxes(
        boxes,
        order,
        counts,
        _scalar(iou_threshold, dtype(boxes)),
        _scalar(limit, "int32"),
        start=0,
        id_index=-1,
        rows_per_batch=classes,
    )
    places, kept = tuple_fields(chosen)
    return ranked, order, places, kept


def _listed(
    ranked: te.Tensor,
    order: te.Tensor,
    places: te.Tensor,
    kept: te.Tensor,
    room: list[Any],
    classes: int,
    with_scores: bool,
) -> Any:
    """Selected boxes by class, padded with 0: (batch, class, box), or (class, box) and score."""
    rows = order.shape[0]
    group = classes if with_scores else rows
    columns = 2 if with_scores else 3
    lists = tirx.floordiv(rows, group)

    def build(ins: Any, outs: Any) -> Any:
        with IRBuilder() as builder:
            score, box, chosen, count = (T.buffer_proxy(each) for each in ins)
            listed, *scores = (T.buffer_proxy(each) for each in outs)
            with T.serial(0, lists) as part:
                used = T.buffer_proxy(T.alloc_buffer((1,), "int64", scope="local"))
                used[0] = T.int64(0)
                with T.serial(0, group) as member:
                    row = part * group + member
                    with T.serial(0, tirx.Cast("int64", count[row])) as place:
                        fields = [tirx.floormod(row, classes), box[row, chosen[row, place]]]
                        if not with_scores:
                            fields.insert(0, tirx.floordiv(row, classes))
                        for column, field in enumerate(fields):
                            listed[part, used[0] + place, column] = tirx.Cast("int64", field)
                        if with_scores:
                            scores[0][part, used[0] + place] = score[row, chosen[row, place]]
                    used[0] = used[0] + tirx.Cast("int64", count[row])
                with T.serial(0, room[0] - used[0]) as rest:
                    for column in range(columns):
                        listed[part, used[0] + rest, column] = T.int64(0)
                    if with_scores:
                        scores[0][part, used[0] + rest] = tirx.const(0.0, ranked.dtype)
            return builder.get()

    shapes = [(lists, room[0], columns), (lists, room[0])][: 1 + with_scores]
    return te.extern(
        shapes,
        [ranked, order, places, kept],
        build,
        dtype=["int64", ranked.dtype][: 1 + with_scores],
        name="listed_boxes",
    )


listed = kernel("vision.listed_boxes", _listed)


@operator("vision.all_class_non_max_suppression", 5, wraps=True, how="TE")
def all_class_non_max_suppression(
    boxes: relax.Expr,
    scores: relax.Expr,
    max_output_boxes_per_class: Any = -1,
    iou_threshold: Any = -1.0,
    score_threshold: Any = -1.0,
    output_format: str = "onnx",
) -> relax.Expr:
    """Non-maximum suppression of each class separately.

    Format "onnx" returns rows (batch, class, box) and their number. "tensorflow" returns, for each
    batch element, rows (class, box), scores and the number of rows.
    """
    if output_format not in ("onnx", "tensorflow"):
        raise RelayTypeError(f"output_format must be onnx or tensorflow, not {output_format!r}")
    batch, classes, _ = extents(scores)
    ranked, order, places, kept = by_class(
        boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold
    )
    wide = cast_to(kept, "int64")
    by_batch = output_format == "tensorflow"
    size = extents(order)[1]
    room = relax.ShapeExpr([(classes if by_batch else batch * classes) * size])
    rows = listed(ranked, order, places, kept, room, classes=classes, with_scores=by_batch)
    if not by_batch:
        totals = op.sum(wide, [0], True)
        return relax.Tuple([op.squeeze(rows, [0]), totals])
    totals = op.sum(op.reshape(wide, [batch, classes]), [1])
    return relax.Tuple([*tuple_fields(rows), totals])


def _candidates(ranked: te.Tensor, places: te.Tensor, kept: te.Tensor, classes: int) -> te.Tensor:
    """Scores of the selected boxes of all classes in one row per batch element, padded with -1."""
    rows, size = ranked.shape
    return te.compute(
        (tirx.floordiv(rows, classes), classes * size),
        lambda b, at: tirx.if_then_else(
            tirx.floormod(at, size) < kept(b * classes + tirx.floordiv(at, size)),
            ranked(
                b * classes + tirx.floordiv(at, size),
                tirx.max(
                    places(b * classes + tirx.floordiv(at, size), tirx.floormod(at, size)),
                    tirx.const(0, "int32"),
                ),
            ),
            tirx.const(-1.0, ranked.dtype),
        ),
        name="candidates",
    )


def _best_boxes(
    boxes: te.Tensor,
    candidates: te.Tensor,
    best: te.Tensor,
    order: te.Tensor,
    places: te.Tensor,
    totals: te.Tensor,
    classes: int,
    count: int,
) -> list[te.Tensor]:
    """Boxes, classes and scores of the best candidates of each batch element, padded with zeros."""
    size = order.shape[1]
    batch, name = boxes.shape[0], boxes.dtype

    def at(b: Any, row: Any) -> Any:
        return best(b, tirx.min(row, best.shape[1] - 1))

    def if_any(b: Any, row: Any, value: Any) -> Any:
        return tirx.if_then_else(row < totals(b), value, tirx.const(0, name))

    def box(b: Any, row: Any, side: Any) -> Any:
        own = b * classes + tirx.floordiv(at(b, row), size)
        place = tirx.max(places(own, tirx.floormod(at(b, row), size)), tirx.const(0, "int32"))
        return if_any(b, row, boxes(b, order(own, place), side))

    return [
        te.compute((batch, count, 4), box, name="best_boxes"),
        te.compute(
            (batch, count),
            lambda b, row: if_any(b, row, tirx.floordiv(at(b, row), size).astype(name)),
            name="best_classes",
        ),
        te.compute(
            (batch, count),
            lambda b, row: if_any(b, row, candidates(b, at(b, row))),
            name="best_scores",
        ),
    ]


_candidates_kernel = kernel("vision.candidates", _candidates)
_best_boxes_kernel = kernel("vision.best_boxes", _best_boxes)


@operator("vision.regular_non_max_suppression", 2, wraps=True, how="TE")
def regular_non_max_suppression(
    boxes: relax.Expr,
    scores: relax.Expr,
    max_detections_per_class: int,
    max_detections: int,
    num_classes: int,
    iou_threshold: float,
    score_threshold: float,
) -> relax.Expr:
    """Suppress each class separately, then select the best of all classes, as in TFLite.

    Scores are (batch, boxes, classes); leading classes beyond `num_classes` are background. Returns
    boxes, classes, scores and the number of valid rows.
    """
    batch, _, given = extents(scores)
    count = int(max_detections)
    classes = int(num_classes)
    if given != classes:
        scores = op.strided_slice(scores, [2], [given - classes], [given], [1])
    classes_first = op.permute_dims(scores, [0, 2, 1])
    ranked, order, places, kept = by_class(
        boxes,
        classes_first,
        int(max_detections_per_class),
        float(iou_threshold),
        float(score_threshold),
    )
    candidates = _candidates_kernel(ranked, places, kept, classes=classes)
    best = op.argsort(candidates, 1, True, "int32")
    table = op.reshape(kept, [batch, classes])
    totals = op.minimum(op.sum(table, [1]), number(count, "int32"))
    found = _best_boxes_kernel(
        boxes, candidates, best, order, places, totals, classes=classes, count=count
    )
    return relax.Tuple([*tuple_fields(found), totals])
