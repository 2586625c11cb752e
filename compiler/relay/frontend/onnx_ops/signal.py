"""Fourier transforms, as products with matrices of cosines and sines that are known."""

from __future__ import annotations

import numpy as np
from tvm import relax

from compiler.graph.constants import constant

from ..onnx_node import Node, constant_value


def dft(node: Node) -> relax.Expr:
    """The discrete transform along one axis, or its inverse, of real or complex numbers."""
    rank = len(node.shape(0))
    axis = node.attr("axis", 1)
    if node.opset >= 20:
        axis = -2
        if node.get(2) is not None and constant_value(node[2]) is None:
            return _along_some_axis(node, rank)
        if node.get(2) is not None:
            axis = int(node.value(2, "the axis").reshape(-1)[0])
    axis %= rank
    length = None
    if node.get(1) is not None:
        length = int(node.value(1, "the length").reshape(-1)[0])
    inverse, onesided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    return transform(node, node[0], axis, length, inverse, onesided)


def _along_some_axis(node: Node, rank: int) -> relax.Expr:
    """The transform along every axis, of which one that only running tells is chosen."""
    if node.get(1) is not None or node.attr("onesided", 0):
        raise node.unsupported("an axis known only at run time, and a result of other extents")
    axis = node.emit(relax.op.reshape(node[2], ()))
    result = None
    for each in range(rank - 1):
        made = transform(node, node[0], each, None, bool(node.attr("inverse", 0)), onesided=False)
        if result is None:
            result = made
            continue
        named = [relax.op.equal(axis, relax.const(place, "int64")) for place in (each, each - rank)]
        result = node.emit(relax.op.where(relax.op.logical_or(*named), made, result))
    if result is None:
        raise node.unsupported("there is no axis to transform along")
    return result


def transform(
    node: Node, data: relax.Expr, axis: int, length: int | None, inverse: bool, onesided: bool
) -> relax.Expr:
    """The transform of `data`, whose last axis has real and imaginary parts, or real ones alone.

    Parameters
    ----------
    axis : int
        Which is transformed, not negative and not the last.
    length : int or None
        To which the axis is cut, or filled up by zeros.
    onesided : bool
        Only the first half of the result, of real numbers; of the inverse, real numbers of the
        first half.
    """
    *shape, parts = (int(extent) for extent in node.emit(data).ty.shape.values)
    dtype = str(node.emit(data).ty.dtype)
    if parts not in (1, 2) or (onesided and not inverse and parts != 1):
        raise node.unsupported(f"a transform of {parts} parts of numbers, onesided={onesided}")
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
    """What numbers are multiplied by: (given, parts of these, parts of all results), float64."""
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
    """Transforms of the windows of a signal."""
    shape = node.shape(0)
    data = node[0] if len(shape) == 3 else relax.op.expand_dims(node[0], -1)
    parts = shape[2] if len(shape) == 3 else 1
    step = int(node.value(1, "the step").reshape(-1)[0])
    window = node.get(2)
    if node.get(3) is not None:
        length = int(node.value(3, "the length of a frame").reshape(-1)[0])
    else:
        length = node.shape(2)[0] if window is not None else shape[1]
    frames = (shape[1] - length) // step + 1
    if step < 1 or length < 1 or frames < 1:
        raise node.unsupported(f"frames of {length}, each {step} further, of {shape[1]}")
    places = np.arange(frames)[:, None] * step + np.arange(length)[None]
    rows = relax.op.take(data, constant(places.reshape(-1).astype("int64")), 1, mode="fast")
    cut = relax.op.reshape(rows, (shape[0], frames, length, parts))
    if window is not None:
        cut = relax.op.multiply(cut, relax.op.reshape(window, (length, 1)))
    onesided = bool(node.attr("onesided", 1)) and parts == 1
    return transform(node, node.emit(cut), 2, None, inverse=False, onesided=onesided)


def mel_weight_matrix(node: Node) -> relax.Expr:
    """Not reached with constants, of which the matrix is computed while importing."""
    for index in range(5):
        node.value(index, "what decides the matrix")
    raise node.unsupported("the matrix can't be computed from these operands")


CONVERTERS = {"DFT": dft, "MelWeightMatrix": mel_weight_matrix, "STFT": stft}
