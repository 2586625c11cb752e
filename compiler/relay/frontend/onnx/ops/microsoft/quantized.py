"""Quantized operators via float32; absent zero points are 0; exactness as in `..quantization`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from compiler.ir.constants import constant, static_shape
from compiler.relay.op.nn.matmul_of_bits import matmul_of_bits as product_of_bits

from ...node import Node
from ..quantization import dequantize, qlinear_conv, quantize
from .fused import POOLING, attributes, channels_first, channels_last

Converter = Callable[[Node], relax.Expr]


def _real(node: Node, at: int, axis: int = 0) -> relax.Expr:
    """The tensor of which the quantized one, its scale and its zero point are operands."""
    return dequantize(node, node[at], node[at + 1], node.get(at + 2), axis)


def _quantized(node: Node, value: relax.Expr, at: int, dtype: str | None = None) -> relax.Expr:
    """A tensor quantized by the scale and the zero point that are operands."""
    value = node.emit(value)
    zero = node.get(at + 1)
    if zero is None:
        zero = relax.const(0, dtype or node.dtype(0))
    return quantize(node, value, node[at], zero, 0)


def _of_real(doc: str, compute: Callable[..., relax.Expr], count: int = 1) -> Converter:
    """A converter that computes on `count` dequantized operands and quantizes the result."""

    def convert(node: Node) -> relax.Expr:
        real = [_real(node, 3 * index) for index in range(count)]
        return _quantized(node, compute(node, *real), 3 * count)

    convert.__doc__ = doc
    return convert


def _leaky_relu(node: Node, data: relax.Expr) -> relax.Expr:
    return node.call("LeakyRelu", data, alpha=node.attr("alpha", 0.01))


def softmax(node: Node) -> relax.Expr:
    """Softmax over one axis, or, of operator sets before 13, over all axes from there on."""
    shape, axis = node.shape(0), node.attr("axis", -1)
    axis %= len(shape)
    data = _real(node, 0)
    if node.attr("opset") >= 13:
        return _quantized(node, relax.op.nn.softmax(data, axis), 3)
    flat = node.emit(relax.op.reshape(data, (*shape[:axis], -1)))
    result = node.emit(relax.op.nn.softmax(flat, -1))
    return _quantized(node, relax.op.reshape(result, shape), 3)


def where(node: Node) -> relax.Expr:
    """Elements of x where the condition holds, of y elsewhere, each with its scale."""
    chosen = relax.op.where(node[0], _real(node, 1), _real(node, 4))
    return _quantized(node, chosen, 7)


def concat(node: Node) -> relax.Expr:
    """Tensors, each with its scale, one after the other."""
    parts = [_real(node, at) for at in range(2, len(node.inputs), 3)]
    return _quantized(node, relax.op.concat(parts, node.required("axis")), 0)


def _pooling(name: str, names: tuple[str, ...] = ()) -> Converter:
    def compute(node: Node, data: relax.Expr) -> relax.Expr:
        last = node.attr("channels_last", 0)
        data = channels_first(node, data) if last else data
        result = node.call(name, data, **attributes(node, names))
        return channels_last(node, result) if last else result

    return _of_real(f"{name}, of a channels-last tensor if asked for.", compute)


def convolution(node: Node) -> relax.Expr:
    """QLinearConv, of channels-last data if asked for; the weights are OIHW."""
    if not node.attr("channels_last", 0):
        return qlinear_conv(node)
    node.inputs[0] = channels_first(node, node[0])
    return channels_last(node, node.emit(qlinear_conv(node)))


def reduce_mean(node: Node) -> relax.Expr:
    """The mean over axes."""
    axes, keep = list(node.required("axes")), bool(node.attr("keepdims"))
    return _quantized(node, relax.op.mean(_real(node, 0), axes or None, keepdims=keep), 3)


def reduce_sum(node: Node) -> relax.Expr:
    """The sum over axes, in int32."""
    data = node.emit(relax.op.astype(node[0], "int32"))
    axes, keep = list(node.required("axes")), bool(node.attr("keepdims"))
    return relax.op.sum(data, axes or None, keepdims=keep)


def multiply_integers(node: Node) -> relax.Expr:
    """(a - zero) * (b - zero) in int32."""
    values = []
    for at in (0, 2):
        value = relax.op.astype(node[at], "int32")
        if node.get(at + 1) is not None:
            zero = relax.op.reshape(relax.op.astype(node[at + 1], "int32"), [])
            value = relax.op.subtract(value, zero)
        values.append(node.emit(value))
    return relax.op.multiply(*values)


def gemm(node: Node) -> relax.Expr:
    """alpha * op(a) op(b) plus an int32 tensor of the products' scale; quantized if asked for."""
    a = _real(node, 0)
    b = _real(node, 3, 0 if node.attr("transB", 0) else 1)
    alpha = node.attr("alpha", 1.0)
    bias = None
    if node.get(6) is not None:
        scale = relax.op.multiply(relax.op.reshape(node[1], []), node[4])
        scale = node.emit(relax.op.multiply(scale, relax.const(alpha, "float32")))
        axis = node[6].ty.ndim - 1
        bias = dequantize(node, node[6], scale, None, axis)
    given = attributes(node, ("transA", "transB"))
    result = node.call("Gemm", a, b, bias, alpha=alpha, **given)
    return result if node.get(7) is None else _quantized(node, result, 7)


def _product(node: Node, a: relax.Expr, indices: tuple[int, int, int]) -> relax.Expr:
    """a times dequantized operand 1; `indices` are those of its scale, zero point and the bias."""
    scale, zero, bias = indices
    b = dequantize(node, node[1], node[scale], node.get(zero), len(node.shape(1)) - 1)
    product = node.call("MatMul", a, b)
    return product if node.get(bias) is None else relax.op.add(product, node[bias])


def matmul_to_float(node: Node) -> relax.Expr:
    """The float32 product of quantized matrices; b's scales may go along its columns."""
    if np.prod(node.shape(2), dtype="int64") != 1:
        raise node.unsupported("scales of rows of A are not supported")
    a = dequantize(node, node[0], node[2], node.get(4), 0)
    return _product(node, a, (3, 5, 6))


def dynamic_matmul(node: Node) -> relax.Expr:
    """MatMulIntegerToFloat of a matrix that is quantized here, by its own range."""
    a, scale, zero = node.call("DynamicQuantizeLinear", node[0], outputs=3)
    return _product(node, dequantize(node, a, scale, zero, 0), (2, 3, 4))


def matmul_integer_16(node: Node) -> relax.Expr:
    """The product of int16 matrices in int32."""
    a, b = (node.emit(relax.op.astype(node[i], "int32")) for i in (0, 1))
    return relax.op.matmul(a, b)


def quantize_linear(node: Node) -> relax.Expr:
    """QuantizeLinear; without an axis, scale and zero point are numbers."""
    zero = relax.const(0, "uint8") if node.get(2) is None else node[2]
    return quantize(node, node[0], node[1], zero, node.attr("axis", 0))


def dequantize_linear(node: Node) -> relax.Expr:
    """DequantizeLinear; without an axis, scale and zero point are numbers."""
    return dequantize(node, node[0], node[1], node.get(2), node.attr("axis", 0))


def unpacked(node: Node, data: relax.Expr, bits: int) -> relax.Expr:
    """Bytes (..., n) as the 8 / bits numbers in each, low bits first, (..., n * 8 / bits)."""
    if bits == 8:
        return data
    if bits not in (1, 2, 4):
        raise node.unsupported(f"numbers of {bits} bits are not supported")
    shape = static_shape(data) or ()
    shifts = relax.const(np.arange(0, 8, bits, dtype="uint8"))
    apart = relax.op.right_shift(node.emit(relax.op.expand_dims(data, -1)), shifts)
    kept = relax.op.bitwise_and(node.emit(apart), relax.const((1 << bits) - 1, "uint8"))
    return node.emit(relax.op.reshape(node.emit(kept), (*shape[:-1], shape[-1] * (8 // bits))))


INT8_LEVEL = 4
"""The `accuracy_level` of products that may round what they multiply to int8."""


def matmul_of_bits(node: Node) -> relax.Expr:
    """The product with weights (N, K) that are packed in blocks along K, each with its scale.

    `accuracy_level` is the least that onnxruntime may compute with: 4 lets blocks of A be rounded
    to int8; the others, float32 and halves, are computed in float32.
    """
    rounds = node.attr("accuracy_level", 0) == INT8_LEVEL
    if node.attr("weight_prepacked", 0):
        raise node.unsupported("weights that are packed for a GPU are not supported")
    k, n, size = node.required("K"), node.required("N"), node.required("block_size")
    bits, dtype = node.attr("bits", 4), node.dtype(0)
    blocks = -(-k // size)
    if 0 in node.shape(1):
        product = relax.op.zeros((*node.shape(0)[:-1], n), dtype)
    else:
        packed = node.emit(relax.op.reshape(node[1], (n, blocks, -1)))
        zeros = _block_zeros(node, n, blocks, bits)
        scales = node.emit(relax.op.reshape(node[2], (n, blocks)))
        if node.get(4) is None and 8 % bits == 0:
            operands = (node[0], packed, scales, zeros)
            product = node.emit(product_of_bits(*operands, bits=bits, rounds=rounds))
            return product if node.get(5) is None else relax.op.add(product, node[5])
        weights = unpacked(node, packed, bits)
        weights = node.emit(relax.op.astype(weights, dtype))
        if node.get(4) is None:
            scales, zeros = (relax.op.expand_dims(value, 2) for value in (scales, zeros))
        else:
            weights = node.emit(relax.op.reshape(weights, (n, blocks * size)))
            scales, zeros = (
                relax.op.take(value, node[4], 1, mode="fast") for value in (scales, zeros)
            )
        weights = node.emit(relax.op.subtract(weights, node.emit(zeros)))
        weights = node.emit(relax.op.multiply(weights, node.emit(scales)))
        weights = node.emit(relax.op.reshape(weights, (n, blocks * size)))
        if blocks * size != k:
            weights = node.emit(relax.op.strided_slice(weights, [1], [0], [k]))
        product = relax.op.matmul(node[0], node.emit(relax.op.permute_dims(weights)))
    product = node.emit(product)
    return product if node.get(5) is None else relax.op.add(product, node[5])


def _block_zeros(node: Node, n: int, blocks: int, bits: int) -> relax.Expr:
    """The zero points (n, blocks) of blocks, packed or not, or those of unsigned numbers."""
    dtype = node.dtype(0)
    if node.get(3) is None:
        return constant(np.full((n, blocks), 1 << (bits - 1), dtype))
    if node.dtype(3) != "uint8":
        return node.emit(relax.op.reshape(node[3], (n, blocks)))
    zeros = unpacked(node, node.emit(relax.op.reshape(node[3], (n, -1))), bits)
    return node.emit(relax.op.astype(relax.op.strided_slice(zeros, [1], [0], [blocks]), dtype))


NORMAL_FLOATS = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip
"""Values of the 16 NF4 codes: quantiles of a normal distribution."""

FLOATS_4 = (0.0, 0.005208333, 0.6666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
"""Values of the positive FP4 codes."""


def matmul_of_codes(node: Node) -> relax.Expr:
    """The product with weights (N, K) of 4 bits that are places in a table, high bits first."""
    node.attr("training_mode")
    k, n, size = node.required("K"), node.required("N"), node.required("block_size")
    table = NORMAL_FLOATS if node.attr("quant_type") else FLOATS_4 + tuple(-x for x in FLOATS_4)
    dtype = node.dtype(0)
    pairs = node.emit(relax.op.expand_dims(node[1], -1))
    apart = relax.op.right_shift(pairs, relax.const(np.array([4, 0], "uint8")))
    codes = relax.op.bitwise_and(node.emit(apart), relax.const(15, "uint8"))
    codes = node.emit(relax.op.flatten(node.emit(codes)))
    codes = node.emit(relax.op.astype(codes, "int32"))
    values = node.emit(relax.op.take(relax.const(np.array(table, dtype)), codes, 0))
    values = node.emit(relax.op.strided_slice(values, [0], [0], [n * k]))
    scales = node.emit(relax.op.repeat(node[2], size, axis=0))
    scales = node.emit(relax.op.strided_slice(scales, [0], [0], [n * k]))
    weights = node.emit(relax.op.multiply(values, scales))
    weights = node.emit(relax.op.reshape(weights, (n, k)))
    if node.attr("transB", 1):
        weights = node.emit(relax.op.permute_dims(weights))
    return relax.op.matmul(node[0], weights)


CONVERTERS = {
    "DequantizeLinear": dequantize_linear,
    "DynamicQuantizeMatMul": dynamic_matmul,
    "MatMulBnb4": matmul_of_codes,
    "MatMulInteger16": matmul_integer_16,
    "MatMulIntegerToFloat": matmul_to_float,
    "MatMulNBits": matmul_of_bits,
    "MulInteger": multiply_integers,
    "QGemm": gemm,
    "QLinearAdd": _of_real(
        "The sum of two tensors, each with its scale.", lambda _, a, b: relax.op.add(a, b), 2
    ),
    "QLinearAveragePool": _pooling("AveragePool", (*POOLING, "count_include_pad")),
    "QLinearConcat": concat,
    "QLinearConv": convolution,
    "QLinearGlobalAveragePool": _pooling("GlobalAveragePool"),
    "QLinearLeakyRelu": _of_real("LeakyRelu.", _leaky_relu),
    "QLinearMul": _of_real(
        "The product of two tensors, each with its scale, element by element.",
        lambda _, a, b: relax.op.multiply(a, b),
        2,
    ),
    "QLinearReduceMean": reduce_mean,
    "QLinearSigmoid": _of_real("Sigmoid.", lambda _, data: relax.op.sigmoid(data)),
    "QLinearSoftmax": softmax,
    "QLinearWhere": where,
    "QuantizeLinear": quantize_linear,
    "ReduceSumInteger": reduce_sum,
}
