"""Gathering, scattering, sorting, and what depends on values."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..draft import Draft, Operand
from ..evaluate import EvaluationError


def _indexed(d: Draft, op: str, index: int = 0) -> tuple[str, int]:
    """A tensor with axes, and one of them."""
    x = d.tensor(d.allowed(op, index), lambda s: len(s) > 0, lambda: d.shape(1, 4))
    return x, d.integer(0, len(d.shape_of(x)) - 1)


def _low(d: Draft, extent: int) -> int:
    """Smallest index: operators take negative ones from operator set 11 on."""
    return -extent if d.opset >= 11 and d.chance(0.5) else 0


def _index_dtype(d: Draft) -> str:
    return str(d.one_of(["int64", "int64", "int32"]))


def gather(d: Draft, op: str) -> None:
    x, axis = _indexed(d, op)
    shape = d.shape_of(x)
    wanted = d.shape(0, 2)
    if op == "GatherElements":
        wanted = tuple(d.integer(1, max(extent, 1)) for extent in shape)
        wanted = tuple(
            d.integer(0, 5) if i == axis else min(n, shape[i]) for i, n in enumerate(wanted)
        )
    extent = shape[axis]
    indices = d.index(_low(d, extent), extent - 1, wanted, _index_dtype(d))
    d.add(op, [x, indices], axis=axis)


def gather_nd(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op), lambda s: len(s) > 0, lambda: d.shape(1, 4))
    shape = d.shape_of(x)
    batch = d.integer(0, len(shape) - 1) if d.opset >= 12 and d.chance(0.4) else 0
    depth = d.integer(1, len(shape) - batch)
    rows = (*shape[:batch], *d.shape(1, 2))
    columns = _columns(d, shape[batch : batch + depth], rows)
    bounds = shape[batch : batch + depth]
    operand = Operand("index", -max(bounds), max(max(bounds) - 1, 0))
    indices = d.place(columns, operand, 0.4)
    d.add(op, [x, indices], batch_dims=batch if d.opset >= 12 else None)


def _columns(d: Draft, bounds: tuple[int, ...], rows: tuple[int, ...]) -> np.ndarray:
    """Index vectors, each element within its own bound."""
    if 0 in bounds:
        rows = (*rows[:-1], 0)
    parts = [d.rng.integers(_low(d, n), max(n, 1), rows) for n in bounds]
    return np.stack(parts, -1).astype("int64")


def scatter_elements(d: Draft, op: str) -> None:
    x, axis = _indexed(d, op)
    shape = d.shape_of(x)
    if 0 in shape:
        raise EvaluationError("an empty tensor")
    wanted = tuple(d.integer(1, n) for n in shape)
    reductions = [None, "none"]
    if d.opset >= 16:
        reductions += ["add", "mul"]
    if d.opset >= 18:
        reductions += ["max", "min"]
    reduction = d.one_of(reductions) if op == "ScatterElements" and d.opset >= 16 else None
    # Of equal indices any update may stay: they are drawn only where a reduction joins them.
    order = np.argsort(d.rng.random((*wanted[:axis], shape[axis], *wanted[axis + 1 :])), axis=axis)
    indices = np.take(order, np.arange(wanted[axis]), axis)
    if reduction not in (None, "none"):
        indices = d.rng.integers(0, shape[axis], wanted)
    if d.opset >= 11 and d.chance(0.4):
        indices = np.where(d.rng.random(wanted) < 0.5, indices, indices - shape[axis])
    dtype = _index_dtype(d)
    operand = Operand("index", -shape[axis] if d.opset >= 11 else 0, shape[axis] - 1)
    place = d.place(indices.astype(dtype), operand, 0.4)
    d.add(op, [x, place, d.like(x, wanted)], axis=axis, reduction=reduction)


def scatter_nd(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op), lambda s: len(s) > 0, lambda: d.shape(1, 4))
    shape = d.shape_of(x)
    if 0 in shape:
        raise EvaluationError("an empty tensor")
    depth = d.integer(1, len(shape))
    bounds = shape[:depth]
    total = math.prod(bounds)
    count = d.integer(1, min(total, 6))
    flat = d.rng.permutation(total)[:count]
    reduction = None
    if d.opset >= 16:
        extra = ["max", "min"] if d.opset >= 18 else []
        reduction = d.one_of([None, "none", "add", "mul", *extra])
        if reduction not in (None, "none"):
            flat = d.rng.integers(0, total, count)
    columns = np.stack(np.unravel_index(flat, bounds), -1).astype("int64")
    if d.chance(0.3):
        columns = np.where(d.rng.random(columns.shape) < 0.5, columns, columns - np.array(bounds))
    operand = Operand("index", -max(bounds), max(bounds) - 1)
    updates = d.like(x, (count, *shape[depth:]))
    d.add(op, [x, d.place(columns, operand, 0.4), updates], reduction=reduction)


def one_hot(d: Draft, op: str) -> None:
    depth = d.integer(1, 6)
    dtype = d.dtype(("int64", "int32", "float32"))
    shape = d.shape(0, 3)
    indices = d.place(
        d.rng.integers(-depth if d.chance(0.5) else 0, depth, shape).astype(dtype),
        Operand("fixed"),
        0.3,
    )
    values = d.new(d.dtype(d.allowed(op, 2)), (2,))
    axis = d.one_of([None, d.axis(len(shape), 1)])
    d.add(op, [indices, d.fixed(depth, constant=1.0), values], axis=axis)


def top_k(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op), lambda s: len(s) > 0, lambda: d.shape(1, 4))
    shape = d.shape_of(x)
    axis = d.axis(len(shape)) if d.opset >= 11 else d.integer(0, len(shape) - 1)
    k = d.integer(min(1, shape[axis]), shape[axis])
    if d.opset < 10:
        d.add(op, [x], 2, axis=axis, k=k)
        return
    largest = d.one_of([None, 0, 1]) if d.opset >= 11 else None
    d.add(op, [x, d.fixed([k], constant=1.0)], 2, axis=axis, largest=largest)


def reverse_sequence(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op), lambda s: len(s) >= 2, lambda: d.shape(2, 4))
    shape = d.shape_of(x)
    time = d.integer(0, 1)
    lengths = d.index(0, shape[time], (shape[1 - time],))
    d.add(op, [x, lengths], time_axis=time, batch_axis=1 - time)


def compress(d: Draft, op: str) -> None:
    x, axis = _indexed(d, op)
    flat = d.chance(0.3)
    extent = math.prod(d.shape_of(x)) if flat else d.shape_of(x)[axis]
    condition = d.new("bool", (d.integer(min(1, extent), extent),))
    d.add(op, [x, condition], axis=None if flat else axis)


def non_zero(d: Draft, op: str) -> None:
    d.add(op, [d.tensor(d.allowed(op), lambda s: len(s) > 0, lambda: d.shape(1, 3))])


def unique(d: Draft, op: str) -> None:
    x, axis = _indexed(d, op)
    wanted = [True, *(d.chance(0.5) for _ in range(3))]
    d.add(op, [x], wanted, axis=d.one_of([None, None, axis]), sorted=d.one_of([None, 1, 0]))


MAKERS: dict[str, Callable[[Draft, str], None]] = {
    "Compress": compress,
    "Gather": gather,
    "GatherElements": gather,
    "GatherND": gather_nd,
    "NonZero": non_zero,
    "OneHot": one_hot,
    "ReverseSequence": reverse_sequence,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "TopK": top_k,
    "Unique": unique,
}
