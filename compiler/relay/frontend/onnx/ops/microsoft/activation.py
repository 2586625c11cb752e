"""Activations, biases in front of them, and dropout."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import relax

from compiler.ir.constants import constant

from ...node import Node, constant_value
from ..elementwise import number


def gelu(node: Node) -> relax.Expr:
    """x * Phi(x), of x plus a bias where there is one."""
    return node.call("Gelu", _biased(node, 1))


def fast_gelu(node: Node) -> relax.Expr:
    """Gelu by a hyperbolic tangent, of x plus a bias where there is one."""
    return node.call("Gelu", _biased(node, 1), approximate="tanh")


def gemm_fast_gelu(node: Node) -> relax.Expr:
    """FastGelu of a matrix product plus a bias."""
    product = node.call("MatMul", node[0], node[1])
    return fast_gelu(replace(node, inputs=[product, node.get(2)]))


def _biased(node: Node, index: int) -> relax.Expr:
    bias = node.get(index)
    return node[0] if bias is None else node.emit(relax.op.add(node[0], bias))


def quick_gelu(node: Node) -> relax.Expr:
    """x * sigmoid(alpha * x)."""
    return gated(node[0], node.attr("alpha", 1.702))


def gated(data: relax.Expr, alpha: float = 1.0) -> relax.Expr:
    """data * sigmoid(alpha * data)."""
    scaled = data if alpha == 1.0 else relax.op.multiply(data, number(alpha, data))
    return relax.op.multiply(data, relax.op.sigmoid(scaled))


def scaled_silu(node: Node) -> relax.Expr:
    """silu(scale * x); the scale is an operand or `alpha`."""
    alpha = number(node.attr("alpha", 1.0), node[0])
    if node.get(1) is not None:
        alpha = relax.op.astype(relax.op.reshape(node[1], []), node.dtype(0))
    return gated(node.emit(relax.op.multiply(node[0], alpha)))


def bias_split_gelu(node: Node) -> relax.Expr:
    """The left half of x + bias, times the Gelu of the right half."""
    total = node.emit(relax.op.add(node[0], node[1]))
    left, right = _halves(node, total)
    return relax.op.multiply(left, node.call("Gelu", right))


def _halves(node: Node, data: relax.Expr) -> list[relax.Expr]:
    both = node.emit(relax.op.split(data, 2, axis=-1))
    return [node.emit(relax.TupleGetItem(both, i)) for i in (0, 1)]


def swiglu(node: Node) -> relax.Expr:
    """gate * sigmoid(alpha * gate) * (up + beta), both limited; `up` may be the second half."""
    if node.dtype(0) != "float32":
        raise node.unsupported("only float32 is supported")
    node.attr("round_activation", 0)  # rounds to the operand's dtype, which float32 is
    gate, up = (node[0], node[1]) if node.get(1) is not None else _halves(node, node[0])
    limit, beta = node.attr("limit", 0.0), node.attr("activation_beta", 0.0)
    if limit > 0:
        gate = node.emit(relax.op.minimum(gate, number(limit, gate)))
        up = node.emit(relax.op.clip(up, -limit, limit))
    if beta != 0:
        up = node.emit(relax.op.add(up, number(beta, up)))
    gate = node.emit(gated(gate, node.attr("activation_alpha", 1.0)))
    return relax.op.multiply(gate, up)


def bias_add(node: Node) -> relax.Expr:
    """x + bias + skip."""
    return relax.op.add(relax.op.add(node[0], node[1]), node[2])


def bias_dropout(node: Node) -> list[relax.Expr]:
    """x + bias + residual, dropout doing nothing; the mask is of ones."""
    result = relax.op.add(node[0], node[1])
    if node.get(2) is not None:
        result = relax.op.add(result, node[2])
    return [result, *_mask(node, 3)]


def bitmask_bias_dropout(node: Node) -> list[relax.Expr]:
    """BiasDropout; the mask's bits are packed, which only training needs."""
    return bias_dropout(node)


def bitmask_dropout(node: Node) -> list[relax.Expr]:
    """The operand; the mask's bits are packed, which only training needs."""
    return [node[0], *_mask(node, 1)]


def _mask(node: Node, ratio: int) -> list[relax.Expr]:
    """The mask that the node asks for, whose operands `ratio` and behind may not ask to drop."""
    node.attr("seed")
    training = node.get(ratio + 1)
    if training is not None:
        value = constant_value(training)
        if value is None or bool(value.reshape(-1)[0]):
            raise node.unsupported("dropout in training mode draws random numbers")
    if not any(node.proto.output[1:]):
        return []
    if node.proto.op_type.startswith("Bitmask"):
        raise node.unsupported("a mask of packed bits is not supported")
    return [constant(np.ones(node.shape(0), "bool"))]


def bias_softmax(node: Node) -> relax.Expr:
    """Softmax over all axes from `axis` on, of a sum."""
    node.attr("is_inner_broadcast")  # which axes the bias lacks, as its shape says
    shape = node.shape(0)
    axis = node.axis(1, len(shape))
    total = node.emit(relax.op.add(node[0], node[1]))
    if axis == len(shape) - 1:
        return relax.op.nn.softmax(total, -1)
    flat = node.emit(relax.op.reshape(total, (*shape[:axis], -1)))
    return relax.op.reshape(node.emit(relax.op.nn.softmax(flat, -1)), shape)


CONVERTERS = {
    "BiasAdd": bias_add,
    "BiasDropout": bias_dropout,
    "BiasGelu": gelu,
    "BiasSoftmax": bias_softmax,
    "BiasSplitGelu": bias_split_gelu,
    "BitmaskBiasDropout": bitmask_bias_dropout,
    "BitmaskDropout": bitmask_dropout,
    "FastGelu": fast_gelu,
    "Gelu": gelu,
    "GemmFastGelu": gemm_fast_gelu,
    "QuickGelu": quick_gelu,
    "ScaledSiLU": scaled_silu,
    "SwiGLU": swiglu,
}
