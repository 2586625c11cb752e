"""Operators of onnxruntime's own domain that are ONNX's in an older form, and single ones."""

from __future__ import annotations

import numpy as np
from tvm import relax

from compiler.ir.constants import constant, static_shape

from ...node import Node, constant_value, dtype_of
from ..elementwise import number
from .quantized import unpacked


def same(node: Node) -> relax.Expr:
    """The operand."""
    return node[0]


def expand_dims(node: Node) -> relax.Expr:
    """An axis of one, at a place that must be constant."""
    return relax.op.expand_dims(node[0], int(node.value(1, "the axis").reshape(-1)[0]))


def trilu(node: Node) -> relax.Expr:
    """One triangle of matrices."""
    return node.call("Trilu", node[0], node.get(1), upper=node.attr("upper", 1))


def pad(node: Node) -> relax.Expr:
    """Pad; pads may be a matrix of one row, the value a vector of one number."""
    pads = node.emit(relax.op.flatten(node[1])) if len(node.shape(1)) > 1 else node[1]
    known = constant_value(node[1])
    if known is not None:
        pads = constant(known.reshape(-1))
    value = node.get(2)
    if value is not None:
        value = node.emit(relax.op.reshape(value, []))
    return node.call("Pad", node[0], pads, value, mode=node.attr("mode", "constant"))


def arange(node: Node) -> relax.Expr:
    """Range; the operands are numbers or vectors of one."""
    numbers = []
    for index, what in ((0, "the start"), (1, "the limit"), (2, "the step")):
        known = node.inputs[index : index + 1] not in ([], [None])
        value = node.value(index, what) if known else np.ones((), node.dtype(0))
        numbers.append(constant(value.reshape(())))
    return node.call("Range", *numbers)


def gather_nd(node: Node) -> relax.Expr:
    """GatherND without batches."""
    return node.call("GatherND", node[0], node.emit(relax.op.astype(node[1], "int64")))


def grid_sample(node: Node) -> relax.Expr:
    """GridSample, whose modes have other names now."""
    mode = node.attr("mode", "bilinear")
    return node.call(
        "GridSample",
        node[0],
        node[1],
        align_corners=node.attr("align_corners", 0),
        mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode),
        padding_mode=node.attr("padding_mode", "zeros"),
    )


def unique(node: Node) -> list[relax.Expr]:
    """The values of a constant in order of their first occurrence, places and counts."""
    values = node.value(0, "the operand, which decides the result's shape,")
    _, first, places, counts = np.unique(
        values, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first)
    rank = np.argsort(order)
    found = (values[np.sort(first)], rank[places.reshape(-1)], counts[order])
    return [constant(array) for array in found]


def inverse(node: Node) -> relax.Expr:
    """The inverse of matrices, which must be constant."""
    values = node.value(0, "the matrix")
    try:
        return constant(np.linalg.inv(values.astype("float64")).astype(values.dtype))
    except np.linalg.LinAlgError as error:
        raise node.unsupported(f"the matrix has no inverse ({error})") from None


def distances(node: Node) -> relax.Expr:
    """(M, K): the distance of each row of a (M, N) from each of b (K, N)."""
    metric = node.attr("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise node.unsupported(f"the metric {metric!r} is not supported")
    difference = relax.op.subtract(
        relax.op.expand_dims(node[0], 1), relax.op.expand_dims(node[1], 0)
    )
    difference = node.emit(difference)
    square = relax.op.sum(node.emit(relax.op.multiply(difference, difference)), 2)
    return relax.op.sqrt(square) if metric == "euclidean" else square


def block_repeated_ngrams(node: Node) -> relax.Expr:
    """Scores (B, V), -inf for each token that would repeat `ngram_size` tokens of ids (B, S)."""
    (batch, length), vocabulary = node.shape(0), node.shape(1)[1]
    size = node.required("ngram_size")
    if size < 1:
        raise node.unsupported(f"ngram_size={size} is not positive")
    begins = length - size + 1
    if begins < 1:
        return node[1]
    repeats: relax.Expr = constant(np.ones((batch, begins), "bool"))
    for place in range(size - 1):
        said = relax.op.strided_slice(node[0], [1], [place], [place + begins])
        last = relax.op.strided_slice(node[0], [1], [begins + place], [begins + place + 1])
        repeats = node.emit(relax.op.logical_and(repeats, relax.op.equal(said, last)))
    after = relax.op.strided_slice(node[0], [1], [size - 1], [length])
    tokens = constant(np.arange(vocabulary))
    hits = relax.op.equal(node.emit(relax.op.expand_dims(after, 2)), tokens)
    hits = relax.op.logical_and(hits, relax.op.expand_dims(repeats, 2))
    hit = relax.op.max(node.emit(relax.op.astype(node.emit(hits), "int32")), 1)
    hit = node.emit(relax.op.astype(node.emit(hit), "bool"))
    return relax.op.where(hit, number(-np.inf, node[1]), node[1])


def unfold(node: Node) -> relax.Expr:
    """Windows along one axis, which become a last axis."""
    shape, size = node.shape(0), node.required("size")
    axis, step = node.attr("dim", -1) % len(shape), node.attr("step", 1)
    if not 0 < size <= shape[axis] or step < 1:
        raise node.unsupported(f"no windows of {size} elements, {step} apart, along {shape[axis]}")
    begins = np.arange(0, shape[axis] - size + 1, step)
    windows = relax.op.take(node[0], constant(begins[:, None] + np.arange(size)), axis)
    order = [*range(axis + 1), *range(axis + 2, len(shape) + 1), axis + 1]
    return relax.op.permute_dims(node.emit(windows), order)


def _fourier(n: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """(n, n // 2 + 1): cosines and negative sines of the one-sided transform of n numbers."""
    angles = 2 * np.pi * np.outer(np.arange(n), np.arange(n // 2 + 1)) / n
    return np.cos(angles).astype(dtype), -np.sin(angles).astype(dtype)


def _check_fourier(node: Node) -> None:
    plain = node.attr("onesided", 1) == 1 and not node.attr("normalized", 0)
    if not plain or node.attr("signal_ndim", 1) != 1:
        raise node.unsupported("only one-sided transforms of one axis, not normalized")


def fourier(node: Node) -> relax.Expr:
    """(..., n) as (..., n // 2 + 1, 2): real and imaginary parts, by products."""
    _check_fourier(node)
    parts = [
        node.emit(relax.op.matmul(node[0], constant(table)))
        for table in _fourier(node.shape(0)[-1], node.dtype(0))
    ]
    return relax.op.stack(parts, axis=-1)


def inverse_fourier(node: Node) -> relax.Expr:
    """(..., n // 2 + 1, 2) as (..., n) for an even n."""
    _check_fourier(node)
    half = node.shape(0)[-2] - 1
    cosines, sines = _fourier(2 * half, "float64")
    weight = np.full(half + 1, 1 / half)
    weight[[0, half]] /= 2
    terms = [
        relax.op.matmul(_part(node, node[0], i), constant((table * weight).T.astype(node.dtype(0))))
        for i, table in enumerate((cosines, sines))
    ]
    return relax.op.add(*map(node.emit, terms))


def _part(node: Node, data: relax.Expr, index: int) -> relax.Expr:
    """The real (0) or imaginary (1) parts of (..., 2)."""
    return node.emit(relax.op.take(data, relax.const(index, "int64"), axis=-1))


def complex_product(node: Node) -> relax.Expr:
    """The product of complex numbers (..., 2)."""
    return _complex_product(node, 1.0)


def conjugate_product(node: Node) -> relax.Expr:
    """The product of complex numbers (..., 2) with conjugates of others."""
    return _complex_product(node, -1.0)


def _complex_product(node: Node, sign: float) -> relax.Expr:
    (a, b), (c, d) = ([_part(node, node[i], part) for part in (0, 1)] for i in (0, 1))
    if sign < 0:
        d = node.emit(relax.op.negative(d))
    real = relax.op.subtract(relax.op.multiply(a, c), relax.op.multiply(b, d))
    imaginary = relax.op.add(relax.op.multiply(a, d), relax.op.multiply(b, c))
    return relax.op.stack([node.emit(real), node.emit(imaginary)], axis=-1)


def is_all_finite(node: Node) -> relax.Expr:
    """Whether no element of any operand is infinite or not a number."""
    checks = []
    if not node.attr("isinf_only", 0):
        checks.append(relax.op.isnan)
    if not node.attr("isnan_only", 0):
        checks.append(relax.op.isinf)
    bad: relax.Expr = relax.const(0, "int32")
    for index in range(len(node.inputs)):
        for check in checks:
            found = relax.op.max(relax.op.astype(check(node[index]), "int32"))
            bad = node.emit(relax.op.maximum(bad, node.emit(found)))
    return relax.op.equal(bad, relax.const(0, "int32"))


def embedding(node: Node) -> relax.Expr:
    """Rows of a table; the other operands are for training."""
    return relax.op.take(node[0], node[1], 0, mode="fast")


def gated_add(node: Node) -> relax.Expr:
    """x + y * gate."""
    if node.get(3) is not None:
        raise node.unsupported("a gate that is projected is not supported")
    return relax.op.add(node[0], relax.op.multiply(node[1], node[2]))


def gemma_rotation(node: Node) -> list[relax.Expr]:
    """q and k times the cosines of angles, plus both half rotated times the sines."""
    dtype = node.dtype(1)
    cos, sin = (
        node.emit(relax.op.expand_dims(relax.op.astype(function(node[0]), dtype), 1))
        for function in (relax.op.cos, relax.op.sin)
    )
    return [
        relax.op.add(relax.op.multiply(node[i], cos), relax.op.multiply(node[i + 1], sin))
        for i in (1, 3)
    ]


def gather_of_blocks(node: Node) -> relax.Expr:
    """Rows of a table whose numbers are packed in blocks along the last axis, each with its scale.

    An index out of range chooses a row of zeros.
    """
    size, bits = node.attr("block_size", 128), node.attr("bits", 4)
    rank = len(node.shape(0))
    axes = node.attr("gather_axis", 0) % rank, node.attr("quantize_axis", 1) % rank
    if node.dtype(0) != "uint8" or axes != (0, rank - 1):
        raise node.unsupported("only rows of bytes with blocks along the last axis")
    rows = node.shape(0)[0]
    indices, dtype = node[1], node.dtype(1)
    inside = relax.op.logical_and(
        relax.op.greater_equal(indices, relax.const(-rows, dtype)),
        relax.op.less(indices, relax.const(rows, dtype)),
    )
    below = relax.op.less(indices, relax.const(0, dtype))
    places = relax.op.where(below, relax.op.add(indices, relax.const(rows, dtype)), indices)
    places = node.emit(relax.op.clip(node.emit(places), 0, rows - 1))

    def chosen(index: int) -> relax.Expr:
        return node.emit(relax.op.take(node[index], places, 0, mode="fast"))

    scales = chosen(2)
    codes = unpacked(node, chosen(0), bits)
    if node.get(3) is None:
        zeros: relax.Expr = relax.const(1 << (bits - 1), "uint8")
    else:
        blocks = node.shape(2)[-1]
        zeros = unpacked(node, chosen(3), bits)
        zeros = node.emit(
            relax.op.strided_slice(zeros, [rank - 1 + len(node.shape(1)) - 1], [0], [blocks])
        )
        zeros = _per_element(node, zeros, size, codes)
    wide = dtype_of(scales)
    values = relax.op.subtract(relax.op.astype(codes, wide), relax.op.astype(zeros, wide))
    values = relax.op.multiply(node.emit(values), _per_element(node, scales, size, codes))
    values = node.emit(values)
    missing = values.ty.ndim - len(node.shape(1))
    kept = relax.op.reshape(node.emit(inside), (*node.shape(1), *[1] * missing))
    return relax.op.where(node.emit(kept), values, number(0.0, values))


def _per_element(node: Node, value: relax.Expr, size: int, like: relax.Expr) -> relax.Expr:
    """A value of each block of the last axis, for each element of `like`."""
    extents = static_shape(like) or ()
    axis = len(extents) - 1
    wide = node.emit(relax.op.repeat(value, size, axis=axis))
    return node.emit(relax.op.strided_slice(wide, [axis], [0], [extents[-1]]))


CONVERTERS = {
    "CDist": distances,
    "ComplexMul": complex_product,
    "ComplexMulConj": conjugate_product,
    "ExpandDims": expand_dims,
    "GatedAdd": gated_add,
    "GatherBlockQuantized": gather_of_blocks,
    "GatherND": gather_nd,
    "GemmaRotaryEmbedding": gemma_rotation,
    "GridSample": grid_sample,
    "Inverse": inverse,
    "Irfft": inverse_fourier,
    "IsAllFinite": is_all_finite,
    "NGramRepeatBlock": block_repeated_ngrams,
    "Pad": pad,
    "Range": arange,
    "Rfft": fourier,
    "SampleOp": same,
    "TorchEmbedding": embedding,
    "Trilu": trilu,
    "UnfoldTensor": unfold,
    "Unique": unique,
}
