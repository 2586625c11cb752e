"""Resize with run-time scales, sizes or region: one kernel per axis computes places and taps."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from tvm import relax, te, tirx

from compiler.ir.dynamic_shape import as_extent, simplified
from compiler.kernels.scalars import by_place
from compiler.relay.op.shapes import same_extent
from compiler.relay.op.te_op import kernel

from ..node import Node, constant_value
from .dynamic_operands import INT, as_int64, extents_of

FLOAT = "float64"
# Larger terms of a fraction say no more than a new symbolic dimension does.
_LARGEST_TERM = 64
_MODES = ("nearest", "linear", "cubic")
_COORDINATES = (
    *("align_corners", "asymmetric", "half_pixel", "half_pixel_symmetric"),
    *("pytorch_half_pixel", "tf_crop_and_resize"),
)


def _number(value: float) -> Any:
    return tirx.const(value, FLOAT)


def _factors(data: te.Tensor, given: te.Tensor, axes: list[int], policy: str) -> te.Tensor:
    """Scale factors of the axes, from scales or from sizes, which are integers."""
    sizes = [tirx.Cast(FLOAT, data.shape[axis]) for axis in axes]
    values = [tirx.Cast(FLOAT, given(i)) for i in range(len(axes))]
    if str(given.dtype).startswith("int"):
        values = [value / size for value, size in zip(values, sizes)]
        if policy != "stretch":
            choose = tirx.min if policy == "not_larger" else tirx.max
            values = [functools.reduce(choose, values)] * len(axes)

    return by_place(values, "factors", FLOAT)


def _extents(
    data: te.Tensor, given: te.Tensor, factors: te.Tensor, axes: list[int], policy: str
) -> te.Tensor:
    whole = str(given.dtype).startswith("int")

    def extent(place: int, axis: int) -> Any:
        grown = tirx.Cast(FLOAT, data.shape[axis]) * factors(place)
        if whole and policy == "stretch":
            return given(place).astype(INT)
        return tirx.Cast(INT, tirx.floor(grown + _number(0.5) if whole else grown))

    return by_place([tirx.max(extent(*each), tirx.const(0, INT)) for each in enumerate(axes)])


class Arithmetic(NamedTuple):
    """Functions of numbers, in numpy while importing or in TIR."""

    number: Callable[[float], Any]
    select: Callable[[Any, Any, Any], Any]
    floor: Callable[[Any], Any]
    ceil: Callable[[Any], Any]
    abs: Callable[[Any], Any]


NUMPY = Arithmetic(float, np.where, np.floor, np.ceil, np.abs)
TIR = Arithmetic(_number, tirx.Select, tirx.floor, tirx.ceil, tirx.abs)


def coordinate(
    arithmetic: Arithmetic, place: Any, old: Any, new: Any, factor: Any, region: Any, mode: str
) -> Any:
    """Where a place of the result lies on the operand's axis; extents are floats."""
    number, select = arithmetic.number, arithmetic.select
    width, one, half = factor * old, number(1.0), number(0.5)
    single = width == one
    if mode == "asymmetric":
        return place / factor
    if mode == "align_corners":
        inner = place * (old - one) / select(single, one, width - one)
        return select(single, number(0.0), inner)
    if mode == "tf_crop_and_resize":
        span = (region[1] - region[0]) * (old - one)
        inner = place * span / select(single, one, width - one)
        return region[0] * (old - one) + select(single, span / number(2.0), inner)
    centers = (place + half) / factor - half
    if mode == "pytorch_half_pixel":
        return select(single, -half, centers)
    if mode == "half_pixel_symmetric":
        return old / number(2.0) * (one - new / width) + centers
    return centers


def rounded(arithmetic: Arithmetic, at: Any, rounding: str, factor: Any) -> Any:
    """The nearest index to a coordinate, by a `nearest_mode`."""
    floor, ceil, half = arithmetic.floor, arithmetic.ceil, arithmetic.number(0.5)
    if rounding == "of_opset_10":
        return arithmetic.select(factor < arithmetic.number(1.0), ceil(at), floor(at))
    return {
        "round_prefer_floor": lambda: ceil(at - half),
        "round_prefer_ceil": lambda: floor(at + half),
        "floor": lambda: floor(at),
        "ceil": lambda: ceil(at),
    }[rounding]()


def cubic(arithmetic: Arithmetic, distance: Any, a: float) -> Any:
    """Keys' cubic convolution kernel."""
    number, select, x = arithmetic.number, arithmetic.select, arithmetic.abs(distance)
    near = ((number(a + 2) * x - number(a + 3)) * x) * x + number(1.0)
    far = ((number(a) * x - number(5 * a)) * x + number(8 * a)) * x - number(4 * a)
    return select(x <= number(1.0), near, select(x < number(2.0), far, number(0.0)))


def _coordinate(place: Any, old: Any, new: Any, factor: Any, region: Any, mode: str) -> Any:
    place, old, new = (tirx.Cast(FLOAT, each) for each in (place, old, new))
    return coordinate(TIR, place, old, new, factor, region, mode)


def _resize_axis(
    data: te.Tensor,
    factors: te.Tensor,
    roi: te.Tensor,
    shape: list[Any],
    place: int,
    axis: int,
    mode: str,
    coordinates: str,
    rounding: str,
    cubic_a: float,
    exclude_outside: bool,
    extrapolation: float,
) -> te.Tensor:
    """`data` with an extent of `shape` along one axis."""
    old, count = data.shape[axis], int(factors.shape[0])
    last = tirx.Cast(INT, old) - 1
    dtype = str(data.dtype)

    def value(*at: Any) -> Any:
        factor = factors(place)
        region = [tirx.Cast(FLOAT, roi(place + side * count)) for side in (0, 1)]
        x = _coordinate(at[axis], old, shape[axis], factor, region, coordinates)

        def read(index: Any) -> Any:
            inside = tirx.min(tirx.max(index, tirx.const(0, INT)), last)
            return data(*at[:axis], inside, *at[axis + 1 :])

        if mode == "nearest":
            result = read(tirx.Cast(INT, rounded(TIR, x, rounding, factor)))
        else:
            base = tirx.ceil(x) - _number(1.0)
            terms, weights = [], []
            for offset in (0, 1) if mode == "linear" else (-1, 0, 1, 2):
                distance = _number(float(offset)) - (x - base)
                index = tirx.Cast(INT, base) + offset
                if mode == "linear":
                    weight = tirx.max(_number(1.0) - tirx.abs(distance), _number(0.0))
                else:
                    weight = cubic(TIR, distance, cubic_a)
                if exclude_outside:
                    outside = tirx.Or(index < 0, index > last)
                    weight = tirx.Select(outside, _number(0.0), weight)
                weights.append(weight)
                terms.append((index, weight))
            total = functools.reduce(operator.add, weights)
            parts = [read(index) * tirx.Cast(dtype, w / total) for index, w in terms]
            result = functools.reduce(operator.add, parts)
        if coordinates != "tf_crop_and_resize":
            return result
        out = tirx.Or(x < _number(0.0), x > tirx.Cast(FLOAT, last))
        return tirx.Select(out, tirx.const(extrapolation, dtype), result)

    return te.compute(shape, value, name="resize")


def _smoothed_axis(
    data: te.Tensor,
    factors: te.Tensor,
    roi: te.Tensor,
    shape: list[Any],
    place: int,
    axis: int,
    mode: str,
    coordinates: str,
    cubic_a: float,
    exclude_outside: bool,
    extrapolation: float,
) -> te.Tensor:
    """Resample with antialiasing: downsampling widens the kernel by the scale."""
    old, count, dtype = data.shape[axis], int(factors.shape[0]), str(data.dtype)
    last = tirx.Cast(INT, old) - 1
    stretch = tirx.min(factors(place), _number(1.0))
    reach = _number(2.0 if mode == "cubic" else 1.0)
    first = tirx.Cast(INT, tirx.floor(-reach / stretch)) + 1
    region = [tirx.Cast(FLOAT, roi(place + side * count)) for side in (0, 1)]

    def coordinate(at: Any) -> Any:
        return _coordinate(at, old, shape[axis], factors(place), region, coordinates)

    def tap(at: Any, number: Any) -> tuple[Any, Any]:
        x = coordinate(at)
        base = tirx.ceil(x) - _number(1.0)
        distance = tirx.abs(tirx.Cast(FLOAT, first + number) - (x - base)) * stretch
        weight = tirx.max(_number(1.0) - distance, _number(0.0))
        if mode == "cubic":
            weight = cubic(TIR, distance, cubic_a)
        index = tirx.Cast(INT, base) + first + number
        if exclude_outside:
            weight = tirx.Select(tirx.Or(index < 0, index > last), _number(0.0), weight)
        return tirx.min(tirx.max(index, tirx.const(0, INT)), last), weight

    def taps() -> Any:
        return te.reduce_axis((tirx.const(0, INT), 2 - 2 * first), "tap")

    number, again = taps(), taps()
    totals = te.compute(
        (shape[axis],), lambda at: te.sum(tap(at, number.var)[1], axis=number), name="weights"
    )

    def value(*at: Any) -> Any:
        index, weight = tap(at[axis], again.var)
        share = tirx.Cast(dtype, weight / totals(at[axis]))
        return te.sum(data(*at[:axis], index, *at[axis + 1 :]) * share, axis=again)

    smoothed = te.compute(shape, value, name="smoothed")
    if coordinates != "tf_crop_and_resize":
        return smoothed

    def limited(*at: Any) -> Any:
        x = coordinate(at[axis])
        out = tirx.Or(x < _number(0.0), x > tirx.Cast(FLOAT, last))
        return tirx.Select(out, tirx.const(extrapolation, dtype), smoothed(*at))

    return te.compute(shape, limited, name="resize")


_factors_kernel = kernel("resize_factors", _factors)
_smoothed_kernel = kernel("antialiased_at_run_time", _smoothed_axis)
_extents_kernel = kernel("resize_extents", _extents)
_resize_kernel = kernel("resize_at_run_time", _resize_axis)


def is_computed(node: Node, operands: range) -> bool:
    """Whether an operand is known only at run time."""
    return any(
        node.get(index) is not None
        and constant_value(node[index]) is None
        and node.extents_in(index) is None
        for index in operands
    )


def _has_old_defaults(node: Node) -> bool:
    """Whether a node is Upsample, or Resize as opset 10 had it, without options of its own."""
    return node.opset < 11 or node.proto.op_type == "Upsample"


def coordinate_mode(node: Node) -> str:
    """How places of the result are places of the operand, `coordinate_transformation_mode`."""
    default = "asymmetric" if _has_old_defaults(node) else "half_pixel"
    mode = node.attr("coordinate_transformation_mode", default)
    if mode not in _COORDINATES:
        raise node.unsupported(f"the coordinate transformation {mode!r} is not supported")
    return str(mode)


def nearest_mode(node: Node) -> str:
    """The attribute `nearest_mode`; opset 10 does not say, onnxruntime has "of_opset_10"."""
    default = "of_opset_10" if _has_old_defaults(node) else "round_prefer_floor"
    return str(node.attr("nearest_mode", default))


def _scaled_extent(extent: Any, node: Node, scales: int, place: int) -> Any:
    """An extent times a constant scale, if floats compute that exactly; else None."""
    known = constant_value(node.get(scales))
    ratio = None if known is None else Fraction(float(known.ravel()[place]))
    if ratio is None or max(ratio.as_integer_ratio()) > _LARGEST_TERM or ratio < 0:
        return None
    return simplified(as_extent(extent) * ratio.numerator // ratio.denominator)


def resize(node: Node) -> relax.Expr:
    """Resize with what is computed while the model runs."""
    shape = node.extents(0)
    if any(same_extent(extent, 0) for extent in shape):
        raise node.unsupported("an empty tensor with scales or sizes (inputs 2, 3) at run time")
    axes = [axis % len(shape) for axis in node.attr("axes", tuple(range(len(shape))))]
    first = 1 if node.opset < 11 else 2
    sizes = node.get(3) if first == 2 else None
    given = as_int64(node, sizes) if sizes is not None else node[first]
    if node.get(1) is None or first == 1 or node.shape(1) in ((), (0,)):
        roi: relax.Expr = relax.const([0.0] * len(axes) + [1.0] * len(axes), "float32")
    else:
        roi = node[1]
    if given.ty.ndim != 1 or given.ty.shape is None or node.attr("mode", "nearest") not in _MODES:
        raise node.unsupported("the form of the scales or sizes, or the mode, is not known")
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    factors = node.emit(_factors_kernel(node[0], given, axes=axes, policy=policy))
    known = node.extents_in(3) if sizes is not None and policy == "stretch" else None
    if known is not None:
        extents = known.tolist()
    else:
        computed = _extents_kernel(node[0], given, factors, axes=axes, policy=policy)
        scaled = [_scaled_extent(shape[axis], node, first, i) for i, axis in enumerate(axes)]
        extents = extents_of(node, computed, len(axes), scaled if sizes is None else None)
    crops = coordinate_mode(node) == "tf_crop_and_resize"
    data, dtype, mode = node[0], node.dtype(0), node.attr("mode", "nearest")
    if mode != "nearest" and not dtype.startswith("float"):
        data = node.emit(relax.op.astype(data, "float32"))
    for place, (axis, extent) in enumerate(zip(axes, extents)):
        if known is not None and same_extent(extent, shape[axis]) and not crops:
            continue
        shape = [*shape[:axis], extent, *shape[axis + 1 :]]
        options: dict[str, Any] = {
            "place": place,
            "axis": axis,
            "mode": mode,
            "coordinates": coordinate_mode(node),
            "cubic_a": float(node.attr("cubic_coeff_a", -0.75)),
            "exclude_outside": bool(node.attr("exclude_outside", 0)),
            "extrapolation": float(node.attr("extrapolation_value", 0.0)),
        }
        operands = (data, factors, roi, relax.ShapeExpr(shape))
        if node.attr("antialias", 0) and mode != "nearest":
            call = _smoothed_kernel(*operands, **options)
        else:
            call = _resize_kernel(*operands, **options, rounding=nearest_mode(node))
        data = node.emit(call)
    return data if str(data.ty.dtype) == dtype else relax.op.astype(data, dtype)
