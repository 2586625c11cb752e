"""Operators that move, cut and repeat, and those that make tensors from shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from .. import values
from ..draft import FLOATS, Draft, Shape
from ..evaluate import EvaluationError


def operand_or_attribute(
    d: Draft, since: int, name: str, value: list[int] | None
) -> tuple[list[str], dict[str, Any]]:
    """What is an attribute before operator set `since` and an operand from it on."""
    if value is None:
        return [], {}
    if d.opset < since:
        return [], {name: value}
    return [d.fixed(value)], {}


def reshape(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op))
    shape = d.shape_of(x)
    target = _factors(d, math.prod(shape))
    attributes: dict[str, Any] = {}
    if math.prod(shape) == 0:
        if d.opset < 14:
            target = [0] * len(shape)
        else:
            attributes["allowzero"] = 1
            target = list(d.rng.permutation(shape))
    else:
        if target and d.chance(0.4):
            target[d.integer(0, len(target) - 1)] = -1
        for axis in range(min(len(shape), len(target))):
            if target[axis] == shape[axis] and d.chance(0.3):
                target[axis] = 0
    d.add(op, [x, d.fixed(target)], **attributes)


def _factors(d: Draft, size: int) -> list[int]:
    """Extents whose product is `size`."""
    extents: list[int] = []
    while size > 1 and len(extents) < 4:
        divisors = [n for n in range(1, size + 1) if size % n == 0]
        extents.append(int(d.one_of(divisors)))
        size //= extents[-1]
    return [*extents, size] if size != 1 or d.chance(0.3) else extents


def flatten(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op))
    rank = len(d.shape_of(x))
    d.add(op, [x], axis=d.integer(-rank if d.opset >= 11 else 0, rank))


def squeeze(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op), lambda s: 1 in s, lambda: (*d.shape(0, 2), 1, *d.shape(0, 1)))
    shape = d.shape_of(x)
    ones = [axis for axis, extent in enumerate(shape) if extent == 1]
    axes: list[int] | None = [a for a in ones if d.chance(0.7)] or ones[:1]
    if d.chance(0.2):
        axes = None
    operands, attributes = operand_or_attribute(d, 13, "axes", axes)
    d.add(op, [x, *operands], **attributes)


def unsqueeze(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op))
    rank = len(d.shape_of(x))
    count = d.integer(1, 2)
    axes = [int(a) for a in d.rng.permutation(rank + count)[:count]]
    if d.opset >= 11:
        axes = [a - rank - count if d.chance(0.3) else a for a in axes]
    else:
        axes.sort()
    operands, attributes = operand_or_attribute(d, 13, "axes", axes)
    d.add(op, [x, *operands], **attributes)


def transpose(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op))
    rank = len(d.shape_of(x))
    perm = None if d.chance(0.2) else [int(a) for a in d.rng.permutation(rank)]
    d.add(op, [x], perm=perm)


def concat(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op), lambda s: len(s) > 0, lambda: d.shape(1, 4))
    shape = d.shape_of(x)
    axis = d.integer(0, len(shape) - 1)
    parts = [x]
    for _ in range(d.integer(0, 3)):
        extents = (*shape[:axis], d.extent(8), *shape[axis + 1 :])
        parts.append(
            d.tensor(
                [d.dtype_of(x)],
                lambda s: (
                    len(s) == len(shape)
                    and all(m == n for i, (m, n) in enumerate(zip(s, shape)) if i != axis)
                ),
                lambda: extents,  # noqa: B023
                0.5,
            )
        )
    d.add(op, [parts[i] for i in d.rng.permutation(len(parts))], axis=signed(d, axis, len(shape)))


def signed(d: Draft, axis: int, rank: int, since: int = 11) -> int:
    """An axis, at times counted from the end."""
    return axis - rank if d.opset >= since and d.chance(0.3) else axis


def split(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op), lambda s: len(s) > 0, lambda: d.shape(1, 4))
    shape = d.shape_of(x)
    axis = d.integer(0, len(shape) - 1)
    parts = d.integer(1, 4)
    where = signed(d, axis, len(shape))
    if d.chance(0.5):
        cuts = sorted(d.rng.integers(0, shape[axis] + 1, parts - 1).tolist())
        extents = np.diff([0, *cuts, shape[axis]]).tolist()
        operands, attributes = operand_or_attribute(d, 13, "split", extents)
        d.add(op, [x, *operands], parts, axis=where, **attributes)
        return
    if d.opset < 18 and shape[axis] % parts:
        parts = 1
    d.add(op, [x], parts, axis=where, num_outputs=parts if d.opset >= 18 else None)


def slices(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op), lambda s: len(s) > 0, lambda: d.shape(1, 4))
    shape = d.shape_of(x)
    axes = d.axes(len(shape))
    starts, ends, steps = [], [], []
    for axis in axes:
        extent = shape[axis]
        step = int(d.one_of([1, 1, 1, 2, 3, -1, -2])) if d.opset >= 10 else 1
        start, end = d.integer(-extent - 1, extent + 1), d.integer(-extent - 1, extent + 1)
        if d.chance(0.2):
            end = 2**31 - 1 if step > 0 else -(2**31) + 1
        starts.append(start)
        ends.append(end)
        steps.append(step)
    if d.opset < 10:
        d.add(op, [x], starts=starts, ends=ends, axes=axes)
        return
    dtype, constant = d.one_of(["int64", "int32"]), d.one_of([1.0, 1.0, 0.0])
    operands = [d.fixed(v, dtype, constant) for v in (starts, ends, axes)]
    if d.chance(0.6) or any(step != 1 for step in steps):
        operands.append(d.fixed(steps, dtype, constant))
    d.add(op, [x, *operands])


def pad(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op))
    shape = d.shape_of(x)
    modes = ["constant", "constant", "edge", "reflect"] + (["wrap"] if d.opset >= 19 else [])
    mode = d.one_of(modes)
    axes = list(range(len(shape)))
    if d.opset >= 18 and d.chance(0.3):
        axes = d.axes(len(shape))
    low = -1 if d.chance(0.15) else 0
    widths = [d.integer(low, 3) for _ in range(2 * len(axes))]
    if mode == "reflect":
        widths = [min(w, max(shape[axes[i % len(axes)]] - 1, 0)) for i, w in enumerate(widths)]
    if mode in ("edge", "wrap"):
        widths = [w if shape[axes[i % len(axes)]] else 0 for i, w in enumerate(widths)]
    if d.opset < 11:
        value = None if mode != "constant" or d.chance(0.4) else 1.5
        d.add(op, [x], pads=widths, mode=mode, value=value)
        return
    operands = [x, d.fixed(widths, constant=0.9)]
    if mode == "constant" and d.chance(0.5):
        operands.append(d.fixed(d.integer(0, 3), d.dtype_of(x), 0.8))
    if axes != list(range(len(shape))):
        operands += [""] * (3 - len(operands))
        operands.append(d.fixed(axes, constant=1.0))
    d.add(op, operands, mode=mode)


def tile(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op))
    repeats = [d.one_of([1, 1, 2, 3, 0 if d.chance(0.1) else 1]) for _ in d.shape_of(x)]
    d.add(op, [x, d.fixed(repeats)])


def expand(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op))
    shape = [d.extent(5) if n == 1 and d.chance(0.6) else n for n in d.shape_of(x)]
    wanted = [1 if d.chance(0.2) else n for n in shape]
    if d.chance(0.3):
        wanted = [d.extent(3), *wanted]
    d.add(op, [x, d.fixed(wanted, constant=0.7)])


def depth_to_space(d: Draft, op: str) -> None:
    block = d.integer(1, 3)
    n, c, h, w = d.integer(1, 2), d.integer(1, 3), d.integer(1, 3), d.integer(1, 3)
    if op == "DepthToSpace":
        x = d.new(d.dtype(d.allowed(op)), (n, c * block * block, h, w))
        mode = d.one_of([None, "DCR", "CRD"]) if d.opset >= 11 else None
        d.add(op, [x], blocksize=block, mode=mode)
    else:
        x = d.new(d.dtype(d.allowed(op)), (n, c, h * block, w * block))
        d.add(op, [x], blocksize=block)


def extents(d: Draft, op: str) -> None:
    x = d.tensor()
    bounds = {}
    if op == "Shape" and d.opset >= 15:
        rank = len(d.shape_of(x))
        bounds = {"start": d.one_of([None, 0, 1, -1]), "end": d.one_of([None, rank, -1, rank + 2])}
    d.add(op, [x], **bounds)


def trilu(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op), lambda s: len(s) >= 2, lambda: d.shape(2, 4))
    k = [d.fixed(d.integer(-4, 4))] if d.chance(0.6) else []
    d.add(op, [x, *k], upper=d.one_of([None, 0, 1]))


def eye_like(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op), lambda s: len(s) == 2, lambda: d.shape(2, 2))
    to = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(d.dtype(d.allowed(op))))
    d.add(op, [x], dtype=d.one_of([None, to]), k=d.one_of([None, -1, 0, 2]))


def ranges(d: Draft, op: str) -> None:
    dtype = d.dtype(d.allowed(op))
    start, delta = d.integer(-3, 5), int(d.one_of([1, 2, 3, -1, -2]))
    limit = start + delta * d.integer(-1, 8) + (d.integer(0, 1))
    constant = d.one_of([1.0, 1.0, 0.0])
    d.add(op, [d.fixed(v, dtype, constant) for v in (start, limit, delta)])


def constant_of_shape(d: Draft, op: str) -> None:
    value = values.plain(d.rng, d.dtype(), (1,))
    given = None if d.chance(0.2) else onnx.numpy_helper.from_array(value)
    d.add(op, [d.fixed(list(d.shape()), constant=1.0)], value=given)


def center_crop_pad(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op), lambda s: len(s) > 0, lambda: d.shape(1, 4))
    axes = d.axes(len(d.shape_of(x)))
    whole = d.chance(0.4)
    count = len(d.shape_of(x)) if whole else len(axes)
    target = d.fixed([d.integer(1, 6) for _ in range(count)], constant=1.0)
    d.add(op, [x, target], axes=None if whole else axes)


def affine_grid(d: Draft, op: str) -> None:
    n = d.integer(1, 2)
    space: Shape = tuple(d.integer(1, 4) for _ in range(d.one_of([2, 2, 3])))
    theta = d.new(d.dtype(("float32", "float64")), (n, len(space), len(space) + 1))
    size = d.fixed([n, d.integer(1, 3), *space], constant=1.0)
    d.add(op, [theta, size], align_corners=d.one_of([None, 0, 1]))


def window(d: Draft, op: str) -> None:
    to = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(d.dtype(FLOATS)))
    size = d.fixed(d.integer(1, 12), constant=1.0)
    d.add(op, [size], periodic=d.one_of([None, 0, 1]), output_datatype=d.one_of([None, to]))


def checked(maker: Callable[[Draft, str], None]) -> Callable[[Draft, str], None]:
    """A maker whose random attributes may not fit: then the operator is not drawn."""

    def make(d: Draft, op: str) -> None:
        try:
            maker(d, op)
        except (ValueError, IndexError) as error:
            raise EvaluationError(str(error)) from error

    return make


_ALL: dict[str, Callable[[Draft, str], None]] = {
    "AffineGrid": affine_grid,
    "BlackmanWindow": window,
    "CenterCropPad": center_crop_pad,
    "Concat": concat,
    "ConstantOfShape": constant_of_shape,
    "DepthToSpace": depth_to_space,
    "Expand": expand,
    "EyeLike": eye_like,
    "Flatten": flatten,
    "HammingWindow": window,
    "HannWindow": window,
    "Pad": pad,
    "Range": ranges,
    "Reshape": reshape,
    "Shape": extents,
    "Size": extents,
    "Slice": slices,
    "SpaceToDepth": depth_to_space,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": trilu,
    "Unsqueeze": unsqueeze,
}
MAKERS = {name: checked(maker) for name, maker in _ALL.items()}
