"""Operators on quantized tensors: dequantized, computed in float32, quantized again.

A build for a CPU computes on integers what stands between the two
(`lowering.graph_passes.lower_qdq_to_int8`); other targets compute it in float32, which holds
every integer below 2**24. `ConvInteger` is exact on all.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from compiler.ir.constants import constant, static_shape

from ..node import Node, constant_value, dtype_of
from ..shape_expr import shape_of

_LIMITS = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}


def dequantize(
    node: Node, data: relax.Expr, scale: relax.Expr, zero: relax.Expr | None, axis: int
) -> relax.Expr:
    """(data - zero) * scale in float32; scale and zero are scalars or vectors along `axis`."""
    check_numbers(node, dtype_of(data), scale, zero)
    rank = len(shape_of(data) or node.extents(0))
    zeros = relax.const(0, dtype_of(data)) if zero is None else zero
    known = _known(node, scale, zeros)
    if known is not None:
        return node.emit(relax.op.dequantize(data, *known, axis, "float32"))
    value = relax.op.astype(data, "float32")
    if zero is not None:
        value = relax.op.subtract(value, _along(relax.op.astype(zero, "float32"), zero, rank, axis))
    factor = scale if dtype_of(scale) == "float32" else relax.op.astype(scale, "float32")
    return node.emit(relax.op.multiply(value, _along(factor, scale, rank, axis)))


def quantize(
    node: Node, value: relax.Expr, scale: relax.Expr, zero: relax.Expr, axis: int
) -> relax.Expr:
    """round(value / scale) + zero, saturated to the dtype of `zero`."""
    rank = len(shape_of(value) or node.extents(0))
    dtype = dtype_of(zero)
    if dtype not in _LIMITS:
        raise node.unsupported(f"quantization to {dtype} is not supported")
    check_numbers(node, dtype, scale, zero)
    known = _known(node, scale, zero)
    if known is not None and dtype_of(value) == "float32":
        return node.emit(relax.op.quantize(value, *known, axis, dtype))
    factor = scale if dtype_of(scale) == "float32" else relax.op.astype(scale, "float32")
    scaled = relax.op.round(relax.op.divide(value, _along(factor, scale, rank, axis)))
    offset = _along(relax.op.astype(zero, "float32"), zero, rank, axis)
    low, high = _LIMITS[dtype]
    return relax.op.astype(relax.op.clip(relax.op.add(scaled, offset), low, high), dtype)


def _known(node: Node, scale: relax.Expr, zero: relax.Expr) -> tuple[relax.Expr, relax.Expr] | None:
    """Scale and zero point as constants for Relax's operators; None where they are computed."""
    factors, zeros = constant_value(scale), constant_value(zero)
    if factors is None or zeros is None or max(factors.ndim, zeros.ndim) > 1:
        return None
    factors, zeros = (each.reshape(()) if each.size == 1 else each for each in (factors, zeros))
    if factors.ndim != zeros.ndim:
        factors, zeros = np.broadcast_arrays(factors, zeros)
    return constant(factors.astype("float32")), constant(zeros)


def check_numbers(node: Node, dtype: str, scale: relax.Expr, zero: relax.Expr | None) -> None:
    """Reject what quantizes no tensor of integers of type `dtype`.

    That is a known scale of 0, infinity or NaN, zero points of another type than the tensor, and
    several of them, but not as many as scales.
    """
    known = constant_value(scale)
    if known is not None and not known.all():
        raise node.unsupported("a scale is 0")
    if known is not None and not np.isfinite(known).all():
        raise node.unsupported("a scale is infinite or NaN")
    if zero is None:
        return
    check_zero(node, dtype, zero)
    counts = [int(np.prod(static_shape(each) or ())) for each in (scale, zero)]
    if 1 not in counts and counts[0] != counts[1]:
        raise node.unsupported(f"the number of scales is {counts[0]}, of zero points {counts[1]}")


def check_zero(node: Node, dtype: str, zero: relax.Expr) -> None:
    """Refuse a zero point of another type than the tensor has."""
    if dtype_of(zero) != dtype:
        raise node.unsupported(f"a tensor of {dtype} has a zero point of {dtype_of(zero)}")


def check_whole(node: Node, index: int) -> None:
    """Refuse an operand, a scale or zero point of a whole tensor, that is more than one number."""
    extents = static_shape(node[index])
    if extents is not None and np.prod(extents) != 1:
        raise node.unsupported(f"operand {index} has shape {list(extents)}, must be one number")


def _along(value: relax.Expr, given: relax.Expr, rank: int, axis: int) -> relax.Expr:
    """`value`, of the shape of `given`, so that it broadcasts along `axis` of `rank` axes."""
    extents = static_shape(given) or ()
    if len(extents) > 1:
        return value
    size = int(np.prod(extents, dtype="int64"))
    if size == 1:
        return relax.op.reshape(value, [])
    along = [1] * rank
    along[axis] = size
    return relax.op.reshape(value, along)


def qlinear_matmul(node: Node) -> relax.Expr:
    """MatMul of quantized tensors; scales of B may go along its columns."""
    left = dequantize(node, node[0], node[1], node[2], len(node.shape(0)) - 2)
    right = dequantize(node, node[3], node[4], node[5], len(node.shape(3)) - 1)
    product = node.emit(relax.op.matmul(left, right))
    return quantize(node, product, node[6], node[7], product.ty.ndim - 1)


def qlinear_conv(node: Node) -> relax.Expr:
    """Conv of quantized tensors; scales of the weights may go along the output channels."""
    for index in (1, 6):
        check_whole(node, index)
    data = dequantize(node, node[0], node[1], node[2], 1)
    weights = dequantize(node, node[3], node[4], node[5], 0)
    bias = None
    if node.get(8) is not None:
        if node.dtype(8) != "int32":
            raise node.unsupported(f"a bias of {node.dtype(8)}, which must be int32")
        scale = relax.op.multiply(relax.op.reshape(node[1], []), node[4])
        bias = dequantize(node, node[8], node.emit(scale), None, 0)
    result = convolution(node, data, weights, bias)
    return quantize(node, result, node[6], node[7], 1)


def conv_integer(node: Node) -> relax.Expr:
    """Conv of 8-bit integers in int32, zero points subtracted."""
    values = []
    for index, zero_index, axis in ((0, 2, 1), (1, 3, 0)):
        value = node.emit(relax.op.astype(node[index], "int32"))
        zero = node.get(zero_index)
        if zero is not None:
            check_zero(node, node.dtype(index), zero)
            offset = relax.op.astype(zero, "int32")
            offset = _along(offset, zero, len(node.extents(index)), axis)
            value = node.emit(relax.op.subtract(value, offset))
        values.append(value)
    return convolution(node, values[0], values[1], None)


def convolution(
    node: Node, data: relax.Expr, weights: relax.Expr, bias: relax.Expr | None
) -> relax.Expr:
    """The Conv node with the attributes of `node` on these operands."""
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    return node.call("Conv", data, weights, bias, **{name: node.attr(name) for name in names})


def matmul_integer(node: Node) -> None:
    """TVM's converter."""
    for index in (0, 1):
        zero = node.get(2 + index)
        if zero is not None:
            check_zero(node, node.dtype(index), zero)


def dynamic_quantize_linear(node: Node) -> list[relax.Expr]:
    """A tensor quantized to its own range, which has 0 in it; the scale of no range is 1."""
    data = node[0]
    low = relax.op.minimum(relax.op.min(data), relax.const(0.0, "float32"))
    high = relax.op.maximum(relax.op.max(data), relax.const(0.0, "float32"))
    low = node.emit(low)
    span = relax.op.astype(relax.op.subtract(high, low), "float64")
    # In float64 the quotient is rounded once. One that is larger moves ties of both ends downwards,
    # and the largest element is no longer 255.
    step = relax.op.astype(relax.op.divide(span, relax.const(255.0, "float64")), "float32")
    step = node.emit(step)
    flat = relax.op.equal(step, relax.const(0.0, "float32"))
    scale = node.emit(relax.op.where(flat, relax.const(1.0, "float32"), step))
    offset = relax.op.round(relax.op.negative(relax.op.divide(low, scale)))
    zero = node.emit(relax.op.astype(relax.op.clip(offset, 0, 255), "uint8"))
    return [quantize(node, data, scale, zero, 0), scale, zero]


def quantize_linear(node: Node) -> relax.Expr | None:
    """TVM's converter, of floats: integers are divided by the scale in its dtype, or in float32.

    Where a scale is of a block of elements along an axis, it is repeated.
    """
    from ..model import tensor_dtype

    zero = node.get(2)
    _check_linear(node, "" if zero is None else dtype_of(zero), zero)
    if not node.dtype(1).startswith(("float", "bfloat")):
        node.inputs[1] = node.emit(relax.op.astype(node[1], "float32"))
    if not node.dtype(0).startswith(("float", "bfloat")):
        node.inputs[0] = node.emit(relax.op.astype(node[0], node.dtype(1)))
    if not node.attr("block_size", 0):
        return None
    scale = _of_blocks(node, 1)
    if zero is not None:
        return quantize(node, node[0], scale, _of_blocks(node, 2), 0)
    to = node.attr("output_dtype", 0)
    dtype = tensor_dtype(to, "the result of QuantizeLinear") if to else "uint8"
    zeros = relax.op.full(node.shape(0), relax.const(0, dtype))
    return quantize(node, node[0], scale, node.emit(zeros), 0)


def dequantize_linear(node: Node) -> relax.Expr | None:
    """TVM's converter; where a scale is of a block of elements along an axis, it is repeated."""
    _check_linear(node, node.dtype(0), node.get(2))
    if not node.attr("block_size", 0):
        return None
    zero = None if node.get(2) is None else _of_blocks(node, 2)
    value = dequantize(node, node[0], _of_blocks(node, 1), zero, 0)
    return value if node.dtype(1) == "float32" else relax.op.astype(value, node.dtype(1))


def _check_linear(node: Node, dtype: str, zero: relax.Expr | None) -> None:
    """Refuse numbers that can't be those of a tensor, or of blocks of it."""
    check_numbers(node, dtype, node[1], zero)
    extents = static_shape(node[1]) or ()
    if len(extents) > 1 and not node.attr("block_size", 0):
        raise node.unsupported(f"scales of shape {list(extents)} without the attribute block_size")


def _of_blocks(node: Node, index: int) -> relax.Expr:
    """Operand `index` with each element as often as its block has elements of the data."""
    shape = node.shape(0)
    axis, size = node.axis(1, len(shape)), node.attr("block_size")
    if -(-shape[axis] // size) != node.shape(index)[axis]:
        raise node.unsupported(f"blocks of {size} along axis {axis}")
    repeated = relax.op.repeat(node[index], size, axis)
    return node.emit(relax.op.strided_slice(repeated, [axis], [0], [shape[axis]]))


CONVERTERS = {
    "DequantizeLinear": dequantize_linear,
    "DynamicQuantizeLinear": dynamic_quantize_linear,
    "QuantizeLinear": quantize_linear,
    "ConvInteger": conv_integer,
    "MatMulInteger": matmul_integer,
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
}
