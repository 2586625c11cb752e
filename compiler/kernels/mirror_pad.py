"""Padding that repeats a tensor: its edge, its reflection, or the other end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx, topi

Expr = Any


def repeating_pad(
    data: te.Tensor, before: Sequence[Expr], shape: Sequence[Expr], mode: str
) -> te.Tensor:
    """Repeat a tensor around itself, however wide the padding, as numpy does; zeros if it is empty.

    `before`: padding before the data, by axis of the result, which has `shape`. `mode`: "replicate"
    (the edge), "reflect" (without the edge), "symmetric" (with it) or "circular".
    """
    axes = list(zip(before, data.shape, shape))
    there = [size > 0 for size in data.shape if _number(size) in (None, 0)]

    def element(*at: Expr) -> Expr:
        value = data(*(_place(mode, index, *axis) for index, axis in zip(at, axes)))
        if not there:
            return value
        return tirx.if_then_else(tirx.all(*there), value, tirx.const(0, data.dtype))

    return te.compute(shape, element, name="repeating_pad", tag=topi.tag.INJECTIVE)


def _place(mode: str, index: Expr, low: Expr, size: Expr, padded: Expr) -> Expr:
    """The place in an axis of the data of one of the result."""
    numbers = [number for each in (low, size, padded) if (number := _number(each)) is not None]
    is_known = len(numbers) == 3
    if is_known and numbers[0] == 0 and numbers[1] == numbers[2]:
        return index
    size, zero, one = (tirx.Cast("int64", each) for each in (size, 0, 1))
    at = index - low
    last = size - one
    if mode == "replicate":
        return tirx.min(tirx.max(at, zero), last)
    if mode == "circular":
        return tirx.floormod(at, tirx.max(size, one))
    twice = one if mode == "symmetric" else zero  # whether the edge is in the mirror too
    if is_known and _turns_once(mode, *numbers):
        at = tirx.max(at, -at - twice)
        return tirx.min(at, last * 2 + twice - at)
    period = (last + twice) * 2
    turned = tirx.floormod(at, tirx.max(period, one))
    return tirx.min(turned, last * 2 + twice - turned)


def _turns_once(mode: str, low: int, size: int, padded: int) -> bool:
    """Whether no place of the result is further from the data than the data is long."""
    return max(low, padded - size - low) <= (size if mode == "symmetric" else size - 1)


def _number(extent: Expr) -> int | None:
    return int(extent) if isinstance(extent, (int, tirx.IntImm)) else None
