"""Fourier transforms as matmuls with cosines and sines; small kernels compute run-time lengths."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from tvm import relax, te, tirx

from compiler.ir.constants import constant, static_shape
from compiler.ir.op_facts import nonzero_rejected
from compiler.kernels.scalars import by_place
from compiler.relay.op.te_op import kernel

from ..node import Node, constant_value
from .control_flow import extent_tensor
from .dynamic_operands import as_int64, extents_of, that_fit

INT = "int64"


def dft(node: Node) -> relax.Expr:
    """The discrete transform along one axis, or its inverse, of real or complex numbers."""
    extents = node.extents(0)
    inverse, onesided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    _check_parts(node, extents[-1], inverse, onesided)
    length, axis = node.get(1), node.attr("axis", 1)
    if node.opset >= 20:
        axis = -2 if node.get(2) is None else node[2]
    axis = constant(np.array(axis, INT)) if isinstance(axis, int) else axis
    place, points = _number(axis), _number(length)
    if static_shape(node[0]) and place is not None and (length is None or points is not None):
        place = node.axis_of(place, len(extents))
        return transform(node, node[0], place, points, inverse, onesided)
    given = [_scalar(node, each) for each in (axis, length) if each is not None]
    options = {"inverse": inverse, "onesided": onesided}
    plan = _plan_transform_kernel(node[0], *given, **options)
    sizes = relax.ShapeExpr(_planned(node, plan, len(extents) + 1))
    return _transform_kernel(node[0], sizes, **options)


def _number(value: relax.Expr | None) -> int | None:
    """The integer that a constant holds; None for any other operand, or none."""
    array = constant_value(value)
    return None if array is None else int(array.reshape(-1)[0])


def _planned(node: Node, plan: relax.Expr, count: int) -> list[tirx.Var]:
    """Numbers that a kernel computes, as symbols; behind them it says by 1 that they are wrong."""
    plan = node.emit(plan)
    sizes, misfits = (
        node.emit(relax.op.strided_slice(plan, [0], [begin], [end]))
        for begin, end in ((0, count), (count, count + 1))
    )
    return extents_of(node, _sizes_kernel(sizes, misfits), count)


def _scalar(node: Node, value: relax.Expr) -> relax.Expr:
    return node.emit(relax.op.reshape(as_int64(node, value), ()))


def _check_parts(node: Node, parts: int, inverse: bool, onesided: bool) -> None:
    if parts not in (1, 2) or (onesided and not inverse and parts != 1):
        raise node.unsupported(f"a transform of {parts} parts of numbers, onesided={onesided}")


def _plan_transform(
    data: te.Tensor, axis: te.Tensor, *length: te.Tensor, inverse: bool, onesided: bool
) -> te.Tensor:
    """Axis, points, extents but for the last one; behind them 1 if the data has no such axis."""
    *shape, _ = data.shape
    rank = len(shape) + 1
    place = tirx.Select(axis() < 0, axis() + rank, axis())
    own = _chosen(shape, place)
    points = 2 * (own - 1) if onesided and inverse else own
    if length:
        points = length[0]()
    count = _half(points) if onesided and not inverse else points
    wrong = tirx.any(place < 0, place >= rank - 1, points < 1)
    extents = [
        tirx.Select(place == each, count, tirx.Cast(INT, size)) for each, size in enumerate(shape)
    ]
    return by_place([place, points, *extents, tirx.Cast(INT, wrong)])


def _chosen(values: list[Any], place: Any) -> Any:
    """The value at a place that only running tells; 0 where there is none."""
    result: Any = tirx.const(0, INT)
    for each, value in enumerate(values):
        result = tirx.Select(place == each, tirx.Cast(INT, value), result)
    return result


def _half(points: Any) -> Any:
    return tirx.floordiv(points, tirx.const(2, INT)) + 1


def _transform(data: te.Tensor, sizes: list[Any], inverse: bool, onesided: bool) -> te.Tensor:
    """The transform along `sizes[0]`, of `sizes[1]` points; the result has the extents `sizes[2:]`.

    Where the axis has more elements than points, it is cut; missing ones are 0. Sums are float64.
    """
    axis, points, *extents = sizes
    *shape, parts = data.shape
    wide = functools.partial(tirx.Cast, "float64")
    is_half = onesided and inverse
    given = tirx.min(_chosen(shape, axis), _half(points) if is_half else points)

    def table(function: Any, name: str) -> te.Tensor:
        return te.compute((points,), lambda i: function(wide(i) * (2 * np.pi / wide(points))), name)

    cosines, sines = table(te.cos, "cosines"), table(te.sin, "sines")
    along = te.reduce_axis((0, given), "k")
    one, two = (tirx.const(each, "float64") for each in (1, 2))

    def value(*at: Any) -> Any:
        *outer, part = at
        turn = tirx.floormod(along.var * _chosen(outer, axis), points)
        real, imaginary = cosines(turn), sines(turn) if inverse else -sines(turn)
        source = [
            tirx.Select(axis == i, along.var, tirx.Cast(INT, each)) for i, each in enumerate(outer)
        ]
        term = wide(data(*source, 0)) * tirx.Select(part == 0, real, imaginary)
        if int(parts) == 2:
            term += wide(data(*source, 1)) * tirx.Select(part == 0, -imaginary, real)
        if is_half:  # the half that is left out is that of the conjugates
            once = tirx.any(along.var == 0, 2 * along.var == points)
            term *= tirx.Select(once, one, two)
        return te.sum(term, axis=along)

    sums = te.compute((*extents, 1 if is_half else 2), value, name="sums")
    number = wide(points) if inverse else one
    return te.compute(
        sums.shape, lambda *at: tirx.Cast(data.dtype, sums(*at) / number), name="transform"
    )


_sizes_kernel = kernel(
    "signal_sizes_that_fit",
    that_fit,
    forbidden=nonzero_rejected(
        "signals: an axis, a length, a step or a rate known at run time does not fit the signal"
    ),
)
_plan_transform_kernel = kernel("plan_transform", _plan_transform)
_transform_kernel = kernel("transform_at_run_time", _transform)


def transform(
    node: Node, data: relax.Expr, axis: int, length: int | None, inverse: bool, onesided: bool
) -> relax.Expr:
    """The transform of `data`, whose last axis has real and imaginary parts, or real ones alone.

    `axis` is not negative and not the last; it is cut to `length`, or filled up by zeros.
    `onesided` gives the first half of the result, of real numbers; of the inverse, real numbers of
    the first half.
    """
    *shape, parts = (int(extent) for extent in node.emit(data).ty.shape.values)
    dtype = str(node.emit(data).ty.dtype)
    if onesided and inverse:
        points = length or 2 * (shape[axis] - 1)
        given = min(points // 2 + 1, shape[axis])
    else:
        points = length or shape[axis]
        given = min(points, shape[axis])
    matrix = _matrix(points, given, inverse, onesided)[..., :parts, :]  # given, parts, results
    results = matrix.shape[-1] // (1 if onesided and inverse else 2)
    order = [i for i in range(len(shape)) if i != axis]
    rows = relax.op.permute_dims(
        relax.op.strided_slice(data, [axis], [0], [given]), [*order, axis, len(shape)]
    )
    outer = [shape[i] for i in order]
    flat = relax.op.reshape(rows, (int(np.prod(outer, dtype="int64")), given * parts))
    product = relax.op.matmul(flat, constant(matrix.reshape(given * parts, -1).astype(dtype)))
    result = relax.op.reshape(node.emit(product), (*outer, results, -1))
    back = [*range(len(outer))]
    back.insert(axis, len(outer))
    return node.emit(relax.op.permute_dims(result, [*back, len(shape)]))


def _matrix(points: int, given: int, inverse: bool, onesided: bool) -> np.ndarray:
    """Transform matrix (input, input parts, output parts) in float64."""
    taken = np.arange(given)[:, None]
    count = points // 2 + 1 if onesided and not inverse else points
    angles = 2 * np.pi * (taken * np.arange(count)[None] % points) / points
    sign = 1 if inverse else -1
    cosines, sines = np.cos(angles), sign * np.sin(angles)
    if inverse:
        cosines, sines = cosines / points, sines / points
    if inverse and onesided:
        # the half that is left out is that of the conjugates
        twice = np.where((taken == 0) | (2 * taken == points), 1, 2)
        return np.stack([twice * cosines, -twice * sines], 1)
    real = np.stack([cosines, sines], -1)
    imaginary = np.stack([-sines, cosines], -1)
    return np.stack([real, imaginary], 1).reshape(given, 2, 2 * count)


def stft(node: Node) -> relax.Expr:
    batch, samples, *others = node.extents(0)
    data = node[0] if others else node.emit(relax.op.expand_dims(node[0], -1))
    parts = others[0] if others else 1
    onesided = bool(node.attr("onesided", 1)) and parts == 1
    _check_parts(node, parts, inverse=False, onesided=onesided)
    window, length = node.get(2), node.get(3)
    if length is None:
        length = extent_tensor(node, samples if window is None else node.extents(2)[0])
    step, size = _number(node[1]), _number(length)
    if static_shape(data) is None or step is None or size is None:
        plan = _plan_frames_kernel(data, *(_scalar(node, each) for each in (node[1], length)))
        frames, points, pace = _planned(node, plan, 3)
        windows = [] if window is None else [node.emit(relax.op.reshape(window, (points,)))]
        cut = node.emit(_frames_kernel(data, relax.ShapeExpr([frames, points, pace]), *windows))
        count = _half(points) if onesided else points
        sizes = relax.ShapeExpr([tirx.const(2, INT), points, batch, frames, count])
        return _transform_kernel(cut, sizes, inverse=False, onesided=onesided)
    frames = (samples - size) // step + 1 if step > 0 else 0
    if size < 1 or frames < 1:
        raise node.unsupported(f"frames of {size}, each {step} further, of {samples}")
    places = np.arange(frames)[:, None] * step + np.arange(size)[None]
    rows = relax.op.take(data, constant(places.reshape(-1).astype("int64")), 1, mode="fast")
    cut = relax.op.reshape(rows, (batch, frames, size, parts))
    if window is not None:
        cut = relax.op.multiply(cut, relax.op.reshape(window, (size, 1)))
    return transform(node, node.emit(cut), 2, None, inverse=False, onesided=onesided)


def _plan_frames(data: te.Tensor, step: te.Tensor, length: te.Tensor) -> te.Tensor:
    """How many frames a signal has, their length and step; 1 behind them where it has none."""
    samples, one = tirx.Cast(INT, data.shape[1]), tirx.const(1, INT)
    frames = tirx.floordiv(samples - length(), tirx.max(step(), one)) + one
    wrong = tirx.any(step() < 1, length() < 1, length() > samples)
    return by_place([frames, length(), step(), tirx.Cast(INT, wrong)])


def _frames(data: te.Tensor, sizes: list[Any], *window: te.Tensor) -> te.Tensor:
    """So many frames of such a length, each a step further, times a window."""
    frames, length, step = sizes

    def value(entry: Any, frame: Any, place: Any, part: Any) -> Any:
        sample = data(entry, frame * step + place, part)
        return sample * window[0](place) if window else sample

    return te.compute((data.shape[0], frames, length, data.shape[2]), value, name="frames")


_plan_frames_kernel = kernel("plan_frames", _plan_frames)
_frames_kernel = kernel("frames_at_run_time", _frames)


def mel_weight_matrix(node: Node) -> relax.Expr:
    """Filters as triangles that are equally wide in mel; constant ones are evaluated before."""
    dtype = helper.tensor_dtype_to_np_dtype(node.attr("output_datatype", TensorProto.FLOAT)).name
    bins, length, rate = (_scalar(node, node[index]) for index in range(3))
    edges = [
        node.emit(relax.op.reshape(relax.op.astype(node[index], "float64"), ())) for index in (3, 4)
    ]
    extents = _planned(node, _plan_mel_kernel(bins, length, rate), 3)
    return _mel_kernel(*edges, relax.ShapeExpr(extents), dtype=dtype)


def _plan_mel(bins: te.Tensor, length: te.Tensor, rate: te.Tensor) -> te.Tensor:
    """The operands that are integers; 1 behind them where they are not positive."""
    given = [bins(), length(), rate()]
    return by_place([*given, tirx.Cast(INT, tirx.any(*(each < 1 for each in given)))])


def _mel(low: te.Tensor, high: te.Tensor, sizes: list[Any], dtype: str) -> te.Tensor:
    """Weights (bins of the spectrum, bins in mel), from the edges in Hertz."""
    bins, length, rate = sizes
    wide = functools.partial(tirx.Cast, "float64")

    def to_mel(hertz: Any) -> Any:
        return 2595 * te.log10(1 + hertz / 700)

    def corner(index: Any) -> Any:
        """The bin of the spectrum in which a triangle begins."""
        first, last = to_mel(low()), to_mel(high())
        mel = first + wide(index) * ((last - first) / wide(bins + 2))
        hertz = 700 * (te.power(tirx.const(10, "float64"), mel / 2595) - 1)
        return tirx.Cast(INT, te.floor(wide(length + 1) * hertz / wide(rate)))

    corners = te.compute((bins + 2,), corner, name="corners")

    def weight(place: Any, triangle: Any) -> Any:
        begin, peak, end = (corners(triangle + i) for i in range(3))
        one, zero = (tirx.const(each, "float64") for each in (1, 0))
        rising = wide(place - begin) / tirx.max(wide(peak - begin), one)
        rising = tirx.Select(begin == peak, one, rising)
        falling = wide(end - place) / tirx.max(wide(end - peak), one)
        rises = tirx.all(place >= begin, place <= peak)
        falls = tirx.all(place >= peak, place < end)
        return tirx.Cast(dtype, tirx.Select(falls, falling, tirx.Select(rises, rising, zero)))

    return te.compute((_half(length), bins), weight, name="mel")


_plan_mel_kernel = kernel("plan_mel", _plan_mel)
_mel_kernel = kernel("mel_weights", _mel)

CONVERTERS = {"DFT": dft, "MelWeightMatrix": mel_weight_matrix, "STFT": stft}
