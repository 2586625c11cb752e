"""Reductions, softmax, and what runs along one axis."""

from __future__ import annotations

from collections.abc import Callable

from ..draft import Draft
from ..known import names
from .shape import operand_or_attribute


def reduction(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op))
    rank = len(d.shape_of(x))
    since = 13 if op == "ReduceSum" else 18
    axes = None if d.chance(0.25) else d.axes(rank)
    if axes == []:
        axes = None
    noop = d.one_of([None, 0, 1]) if d.opset >= since else None
    if noop and axes is None and d.chance(0.3) and d.opset >= since:
        axes = []
    operands, attributes = operand_or_attribute(d, since, "axes", axes)
    keep = d.one_of([None, 0, 1])
    d.add(op, [x, *operands], keepdims=keep, noop_with_empty_axes=noop, **attributes)


def arg(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op), lambda s: len(s) > 0, lambda: d.shape(1, 4))
    rank = len(d.shape_of(x))
    axis = d.axis(rank) if d.opset >= 11 else d.integer(0, rank - 1)
    last = d.one_of([None, 0, 1]) if d.opset >= 12 else None
    keep = d.one_of([None, 0, 1])
    d.add(op, [x], axis=d.one_of([None, axis]), keepdims=keep, select_last_index=last)


def softmax(d: Draft, op: str) -> None:
    allowed = d.allowed(op)
    if op == "Hardmax" and d.opset < 13:
        # Only the reference evaluator has other dtypes, and it does not flatten.
        allowed = ("float32",)
    x = d.tensor(allowed, lambda s: len(s) > 1, lambda: d.shape(2, 4))
    rank = len(d.shape_of(x))
    axis = d.axis(rank) if d.opset >= 11 else d.integer(0, rank - 1)
    d.add(op, [x], axis=d.one_of([None, axis, axis]))


def cumulative(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op), lambda s: len(s) > 0, lambda: d.shape(1, 4))
    axis = d.fixed(d.axis(len(d.shape_of(x))), d.one_of(["int64", "int32"]), 0.95)
    d.add(op, [x, axis], exclusive=d.one_of([None, 0, 1]), reverse=d.one_of([None, 0, 1]))


def lp_normalization(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op), lambda s: len(s) > 0, lambda: d.shape(1, 4))
    d.add(op, [x], axis=d.one_of([None, d.axis(len(d.shape_of(x)))]), p=d.one_of([None, 1, 2]))


REDUCTIONS = names(
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
    "ReduceSum ReduceSumSquare"
)

MAKERS: dict[str, Callable[[Draft, str], None]] = {
    **dict.fromkeys(REDUCTIONS, reduction),
    **dict.fromkeys(("ArgMax", "ArgMin"), arg),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax"), softmax),
    "CumSum": cumulative,
    "LpNormalization": lp_normalization,
}
