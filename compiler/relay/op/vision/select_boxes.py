"""Greedy non-maximum suppression: loop over boxes in score order."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ....errors import RelayTypeError
from ....ir.op_facts import index_rules
from ..te_op import kernel

LANES = 16
"""Number of selected boxes that a box is compared with at once (SIMD)."""


def _as_vector(scalar: te.Tensor) -> te.Tensor:
    return te.compute((1,), lambda _: scalar(), name="limit")


def _sides(boxes: Any, batch: Any, box: Any, start: int) -> list[Any]:
    """Low and high coordinates of a box given by any two opposite corners."""
    ends = [
        (boxes[batch, box, start + axis], boxes[batch, box, start + axis + 2]) for axis in (0, 1)
    ]
    return [function(*pair) for function in (tirx.min, tirx.max) for pair in ends]


def _area(sides: list[Any]) -> Any:
    return (sides[2] - sides[0]) * (sides[3] - sides[1])


def _overlap(first: list[Any], second: list[Any], dtype: Any) -> Any:
    """Intersection over union of boxes in the form of `_sides`."""
    zero = tirx.const(0.0, dtype)
    spans = [
        tirx.max(
            tirx.min(first[axis + 2], second[axis + 2]) - tirx.max(first[axis], second[axis]), zero
        )
        for axis in (0, 1)
    ]
    both = spans[0] * spans[1]
    union = _area(first) + _area(second) - both
    return tirx.Select(union <= zero, zero, both / union)


def _select(
    boxes: te.Tensor,
    order: te.Tensor,
    counts: te.Tensor,
    iou_threshold: te.Tensor,
    limit: te.Tensor,
    start: int,
    id_index: int,
    rows_per_batch: int,
) -> list[te.Tensor]:
    """Greedy suppression of each row of `order`: selected positions in `order`, and their number.

    The first counts[row] boxes of a row are visited in order. A box is selected unless its IoU
    with a selected box, of the same class if there is an `id_index`, is at least `iou_threshold`.
    At most `limit` boxes are selected, all if it is negative. Coordinates and classes of selected
    boxes are stored contiguously, so that a box is compared with `LANES` of them at once.
    """
    rows, size = order.shape
    dtype = str(boxes.dtype)
    read, extent = max(start + 4, id_index + 1), boxes.shape[2]
    if not isinstance(extent, tirx.IntImm) or int(extent) < read:
        raise RelayTypeError(
            f"boxes need at least {read} elements each; their last axis has {extent}"
        )
    columns = 4 if id_index < 0 else 5

    def build(ins: Any, outs: Any) -> Any:
        with IRBuilder() as builder:
            box, rank, count_of, iou, most = (T.buffer_proxy(each) for each in ins)
            chosen, chosen_count = (T.buffer_proxy(each) for each in outs)
            with T.parallel(0, rows) as row:
                batch = tirx.floordiv(row, rows_per_batch)
                length = tirx.floordiv(size + LANES - 1, LANES) * LANES
                stayed = T.buffer_proxy(T.alloc_buffer((columns, length), dtype, scope="global"))
                hits = T.buffer_proxy(T.alloc_buffer((LANES,), "int32", scope="local"))
                number = T.buffer_proxy(T.alloc_buffer((3,), "int64", scope="local"))
                kept, at, stays = (_Cell(number, index) for index in range(3))
                kept.set(0)
                with T.serial(0, size) as place:
                    chosen[row, place] = T.int32(-1)
                with T.serial(0, tirx.Cast("int64", count_of[row])) as place:
                    open_ = tirx.any(most[0] < 0, kept.value < tirx.Cast("int64", most[0]))
                    with T.If(open_), T.Then():
                        own = rank[row, place]
                        sides = _sides(box, batch, own, start)
                        stays.set(1)
                        at.set(0)
                        with T.While(tirx.all(stays.value == 1, at.value < kept.value)):
                            with T.vectorized(0, LANES) as lane:
                                other = at.value + tirx.Cast("int64", lane)
                                theirs = [stayed[side, other] for side in range(4)]
                                close = _overlap(theirs, sides, dtype) >= iou[0]
                                close = tirx.And(close, other < kept.value)
                                if id_index >= 0:
                                    same = stayed[4, other] == box[batch, own, id_index]
                                    close = tirx.And(close, same)
                                hits[lane] = tirx.Select(close, T.int32(1), T.int32(0))
                            with T.serial(0, LANES) as lane, T.If(hits[lane] == 1), T.Then():
                                stays.set(0)
                            at.set(at.value + LANES)
                        with T.If(stays.value == 1), T.Then():
                            for side, value in enumerate(sides):
                                stayed[side, kept.value] = value
                            if id_index >= 0:
                                stayed[4, kept.value] = box[batch, own, id_index]
                            chosen[row, kept.value] = tirx.Cast("int32", place)
                            kept.set(kept.value + 1)
                chosen_count[row] = tirx.Cast("int32", kept.value)
            return builder.get()

    return te.extern(
        [(rows, size), (rows,)],
        [boxes, order, counts, _as_vector(iou_threshold), _as_vector(limit)],
        build,
        dtype=["int32", "int32"],
        name="select_boxes",
    )


class _Cell:
    """Mutable scalar of the loop."""

    def __init__(self, buffer: Any, index: int):
        self.buffer, self.index = buffer, index

    @property
    def value(self) -> Any:
        return self.buffer[self.index]

    def set(self, value: Any) -> None:
        self.buffer[self.index] = (
            tirx.Cast("int64", value) if hasattr(value, "ty") else T.int64(value)
        )


select_boxes = kernel(
    "vision.select_boxes",
    _select,
    indices=index_rules.box_counts(2, of=1),
    indices_of="vision.non_max_suppression",
)
