"""Resize and Upsample: one axis after the other, as weighted sums of gathered slices.

Each output position along an axis is a sum of a few input positions, its taps. Positions and
weights depend on the shapes and attributes only, so that they are computed here.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from compiler.ir.constants import constant, static_shape

from ..node import Node
from ..shape_expr import is_symbolic
from . import dynamic_resize as resize_at_run_time
from .dynamic_resize import NUMPY, coordinate, cubic, nearest_mode, rounded

MAX_GATHERED_TAPS = 4
"""With more taps an axis is resized by a matmul."""


@dataclass
class Axis:
    """Resampling of one axis."""

    axis: int
    indices: np.ndarray  # inputs of each output position: (count, new extent)
    weights: np.ndarray  # of these inputs: (count, new extent)
    outside: np.ndarray  # (new extent,): positions that get the extrapolation value


def resize(node: Node) -> relax.Expr:
    """Nearest, linear or cubic interpolation with every option of Resize."""
    if resize_at_run_time.is_computed(node, range(1, 4)) or _has_symbolic_sizes(node):
        return resize_at_run_time.resize(node)
    shape = node.extents(0)
    axes = [axis % len(shape) for axis in node.attr("axes", tuple(range(len(shape))))]
    first = 1 if node.opset < 11 else 2
    scales = _optional(node, first, "the scales")
    sizes = _optional(node, 3, "the sizes") if first == 2 else None
    roi = _optional(node, 1, "the region of interest") if first == 2 else None
    rest = _without_symbols(node, shape, axes, scales)
    if rest is None:
        return resize_at_run_time.resize(node)
    axes, scales = rest
    extents, factors = _extents(node, [shape[axis] for axis in axes], scales, sizes)
    plan = []
    for i, axis in enumerate(axes):
        region = (0.0, 1.0) if roi is None else (float(roi[i]), float(roi[i + len(axes)]))
        if extents[i] == shape[axis] and factors[i] == 1.0 and region == (0.0, 1.0):
            continue
        plan.append(_plan(node, axis, shape[axis], extents[i], factors[i], region))
    return _apply(node, plan)


def _has_symbolic_sizes(node: Node) -> bool:
    """Whether sizes are given, and they or the operand's extents are over the model's symbols."""
    sizes = node.extents_in(3) if node.opset >= 11 else None
    if sizes is None or sizes.size == 0:
        return False
    return is_symbolic(sizes) or static_shape(node[0]) is None


def _without_symbols(
    node: Node, shape: list[Any], axes: list[int], scales: np.ndarray | None
) -> tuple[list[int], np.ndarray | None] | None:
    """Axes and scales without those of open extents, by repeating the input along such axes.

    Then the input is replaced. None if interpolation is needed along an open axis.
    """
    symbolic = [i for i, axis in enumerate(axes) if not isinstance(shape[axis], int)]
    if not symbolic:
        return axes, scales
    if scales is None or node.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    repeats = {}
    for i in symbolic:
        factor = float(scales[i])
        if factor == 1.0:
            continue
        probe = _plan(node, axes[i], 8, math.floor(8 * factor), factor, (0.0, 1.0))
        repeated = np.arange(8).repeat(math.floor(factor))[None]
        is_local = resize_at_run_time.coordinate_mode(node) != "align_corners"
        if not is_local or not np.array_equal(probe.indices, repeated):
            return None
        repeats[axes[i]] = math.floor(factor)
    for axis, count in repeats.items():
        node.inputs[0] = node.emit(relax.op.repeat(node[0], count, axis))
    rest = [i for i in range(len(axes)) if i not in symbolic]
    return [axes[i] for i in rest], scales[rest]


def upsample(node: Node) -> relax.Expr:
    """Upsample is Resize with asymmetric coordinates and rounding down."""
    if resize_at_run_time.is_computed(node, range(1, 2)) or (
        node.opset >= 9 and static_shape(node[0]) is None
    ):
        return resize_at_run_time.resize(node)
    shape = node.shape(0)
    scales = node.attrs.get("scales")
    if scales is None:
        scales = node.value(1, "the scales").ravel()
    plan = []
    for axis, scale in enumerate(scales):
        extent = math.floor(shape[axis] * float(scale))
        if extent != shape[axis]:
            plan.append(_plan(node, axis, shape[axis], extent, float(scale), (0.0, 1.0)))
    return _apply(node, plan)


def _optional(node: Node, index: int, what: str) -> np.ndarray | None:
    if node.get(index) is None:
        return None
    values = node.value(index, what).ravel()
    return values if values.size else None


def _extents(
    node: Node, shape: list[int], scales: np.ndarray | None, sizes: np.ndarray | None
) -> tuple[list[int], list[float]]:
    """New extents and scale factors of the axes that are resized."""
    if scales is not None:
        factors = [float(scale) for scale in scales]
        return [math.floor(old * f) for old, f in zip(shape, factors)], factors
    if sizes is None:
        raise node.unsupported("neither scales nor sizes are given")
    for size, old in zip(sizes, shape):
        if size and not old:
            raise node.unsupported(f"an axis of extent 0 can't be resized to {size}")
    factors = [int(size) / old if old else 1.0 for size, old in zip(sizes, shape)]
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return [int(size) for size in sizes], factors
    factor = min(factors) if policy == "not_larger" else max(factors)
    return [math.floor(old * factor + 0.5) for old in shape], [factor] * len(shape)


def _plan(
    node: Node, axis: int, old: int, new: int, factor: float, region: tuple[float, float]
) -> Axis:
    mode = resize_at_run_time.coordinate_mode(node)
    places = np.arange(new, dtype="float64")
    at = coordinate(NUMPY, places, float(old), float(new), factor, region, mode)
    outside = np.zeros(new, bool)
    if mode == "tf_crop_and_resize":
        outside = (at < 0) | (at > old - 1)
    indices, weights = _taps(node, at, factor)
    if node.attr("exclude_outside", 0):
        weights = np.where((indices < 0) | (indices >= old), 0, weights)
        weights = weights / weights.sum(0)
    return Axis(axis, np.clip(indices, 0, old - 1), weights, outside)


def _taps(node: Node, at: np.ndarray, factor: float) -> tuple[np.ndarray, np.ndarray]:
    """Positions, which may lie outside, and weights of the taps: both (taps, new extent)."""
    mode = node.attr("mode", "nearest")
    if mode == "nearest":
        index = rounded(NUMPY, at, nearest_mode(node), factor)
        return index.astype("int64")[None], np.ones((1, at.size))
    stretch = min(factor, 1.0) if node.attr("antialias", 0) else 1.0
    reach = 2 if mode == "cubic" else 1
    start = math.floor(-reach / stretch) + 1
    offsets = np.arange(start, 2 - start)[:, None]
    base = np.ceil(at) - 1
    distance = (offsets - (at - base)) * stretch
    if mode == "cubic":
        weights = cubic(NUMPY, distance, node.attr("cubic_coeff_a", -0.75))
    else:
        weights = np.clip(1 - np.abs(distance), 0, 1)
    return (base + offsets).astype("int64"), weights / weights.sum(0)


def _apply(node: Node, plan: list[Axis]) -> relax.Expr:
    data, dtype = node[0], node.dtype(0)
    exact = all(len(entry.indices) == 1 for entry in plan)
    if not exact and not dtype.startswith("float"):
        data = node.emit(relax.op.astype(data, "float32"))
    for entry in plan:
        data = node.emit(_along(node, data, entry))
    outside = [entry for entry in plan if entry.outside.any()]
    for entry in outside:
        mask = entry.outside.reshape([-1 if i == entry.axis else 1 for i in range(data.ty.ndim)])
        value = relax.const(node.attr("extrapolation_value", 0.0), str(data.ty.dtype))
        data = node.emit(relax.op.where(constant(mask), value, data))
    return data if str(data.ty.dtype) == dtype else relax.op.astype(data, dtype)


def _along(node: Node, data: relax.Expr, entry: Axis) -> relax.Expr:
    """`data` resized along one axis."""
    rank, dtype = data.ty.ndim, str(data.ty.dtype)
    old = int(data.ty.shape[entry.axis])
    if len(entry.indices) == 1:
        (index,) = entry.indices
        repeats = len(index) // old
        if repeats and np.array_equal(index, np.arange(old).repeat(repeats)):
            return relax.op.repeat(data, repeats, entry.axis)
        return relax.op.take(data, constant(index), entry.axis, mode="clip")
    if len(entry.indices) > MAX_GATHERED_TAPS:
        matrix = np.zeros((old, entry.indices.shape[1]))
        for index, weight in zip(entry.indices, entry.weights):
            np.add.at(matrix, (index, np.arange(len(index))), weight)
        swap = list(range(rank))
        swap[entry.axis], swap[-1] = swap[-1], swap[entry.axis]
        product = relax.op.matmul(relax.op.permute_dims(data, swap), constant(matrix.astype(dtype)))
        return relax.op.permute_dims(product, swap)
    along = [1] * rank
    along[entry.axis] = -1
    taps = list(zip(entry.indices, entry.weights))
    terms = []
    for index, weight in [tap for tap in taps if tap[1].any()] or taps[:1]:
        factor = constant(weight.astype(dtype).reshape(along))
        taken = relax.op.take(data, constant(index), entry.axis, mode="clip")
        terms.append(relax.op.multiply(taken, factor))
    return functools.reduce(relax.op.add, terms)


CONVERTERS = {"Resize": resize, "Upsample": upsample}
