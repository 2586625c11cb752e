"""Activations and softmax."""

from __future__ import annotations

import math

from tvm import relax

from ..node import SymbolNode

op = relax.op


def softrelu(node: SymbolNode) -> relax.Expr:
    """log(1 + exp(x)), without overflow for large x."""
    small = op.exp(op.negative(op.abs(node[0])))
    return op.add(op.log(op.add(node.scalar(1.0), small)), op.nn.relu(node[0]))


def softsign(node: SymbolNode) -> relax.Expr:
    """x / (1 + abs(x))."""
    return op.divide(node[0], op.add(node.scalar(1.0), op.abs(node[0])))


def log_sigmoid(node: SymbolNode) -> relax.Expr:
    """log(sigmoid(x)), without overflow: min(x, 0) - log(1 + exp(-abs(x)))."""
    small = op.exp(op.negative(op.abs(node[0])))
    tail = op.log(op.add(node.scalar(1.0), small))
    return op.subtract(op.minimum(node[0], node.scalar(0.0)), tail)


def mish(node: SymbolNode) -> relax.Expr:
    """x * tanh(softrelu(x))."""
    return op.multiply(node[0], op.tanh(softrelu(node)))


def hard_sigmoid(node: SymbolNode) -> relax.Expr:
    """alpha * x + beta, between 0 and 1."""
    line = op.multiply(node[0], node.scalar(node.number("alpha", 0.2)))
    line = op.add(line, node.scalar(node.number("beta", 0.5)))
    return op.minimum(op.maximum(line, node.scalar(0.0)), node.scalar(1.0))


_ACTIVATIONS = {
    "relu": lambda node: op.nn.relu(node[0]),
    "sigmoid": lambda node: op.sigmoid(node[0]),
    "tanh": lambda node: op.tanh(node[0]),
    "softrelu": softrelu,
    "softsign": softsign,
    "log_sigmoid": log_sigmoid,
    "mish": mish,
}


def activation(node: SymbolNode) -> relax.Expr:
    """The function that `act_type` names."""
    kind = node.text("act_type")
    if kind not in _ACTIVATIONS:
        raise node.unsupported(f"act_type {kind!r}; known are {sorted(_ACTIVATIONS)}")
    return _ACTIVATIONS[kind](node)


def leaky_relu(node: SymbolNode) -> relax.Expr:
    """The family of functions that are the identity, or nearly, for x > 0."""
    kind, data = node.text("act_type", "leaky"), node[0]
    node.without_effect("slope", "lower_bound", "upper_bound")  # but for the kinds that read them
    if kind == "leaky":
        return op.nn.leakyrelu(data, node.number("slope", 0.25))
    if kind == "rrelu":  # at inference the mean of the slopes
        mean = (node.number("lower_bound", 0.125) + node.number("upper_bound", 0.334)) / 2
        return op.nn.leakyrelu(data, mean)
    if kind == "prelu":
        return _prelu(node)
    if kind == "elu":
        return _elu(node, node.number("slope", 0.25), 1.0)
    if kind == "selu":
        return _elu(node, 1.6732632423543772, 1.0507009873554805)
    if kind == "gelu":
        return op.nn.gelu(data)
    raise node.unsupported(f"act_type {kind!r}")


def _prelu(node: SymbolNode) -> relax.Expr:
    """One slope for each channel, or one for all."""
    rank, slopes = len(node.shape(0)), node.shape(1)
    along = slopes
    if len(slopes) == 1 and rank > 1:
        along = (1, slopes[0]) + (1,) * (rank - 2)
    negative = op.minimum(node[0], node.scalar(0.0))
    return op.add(op.nn.relu(node[0]), op.multiply(negative, op.reshape(node[1], along)))


def _elu(node: SymbolNode, alpha: float, scale: float) -> relax.Expr:
    negative = op.exp(op.minimum(node[0], node.scalar(0.0)))
    negative = op.multiply(op.subtract(negative, node.scalar(1.0)), node.scalar(alpha))
    both = op.add(op.nn.relu(node[0]), negative)
    return both if scale == 1.0 else op.multiply(both, node.scalar(scale))


def _tempered(node: SymbolNode) -> relax.Expr:
    """The operand in the dtype of the result, divided by the temperature."""
    if node.flag("use_length", False):
        raise node.unsupported("use_length")
    temperature, dtype = node.number("temperature", 1.0), node.dtype_attr(node.dtype(0))
    data = node[0] if dtype == node.dtype(0) else node.emit(op.astype(node[0], dtype))
    return data if temperature == 1.0 else op.divide(data, relax.const(temperature, dtype))


def softmax(node: SymbolNode) -> relax.Expr:
    """exp(x) over its sum along an axis."""
    return op.nn.softmax(_tempered(node), node.integer("axis", -1))


def log_softmax(node: SymbolNode) -> relax.Expr:
    return op.nn.log_softmax(_tempered(node), node.integer("axis", -1))


def softmin(node: SymbolNode) -> relax.Expr:
    """Softmax of -x."""
    return op.nn.softmax(op.negative(_tempered(node)), node.integer("axis", -1))


def softmax_output(node: SymbolNode) -> relax.Expr:
    """Softmax; the label, the second input, serves training only."""
    node.without_effect("preserve_shape")  # of several outputs
    if node.flag("multi_output", False):
        return op.nn.softmax(node[0], 1)
    if node.flag("preserve_shape", False):
        return op.nn.softmax(node[0], -1)
    return _over_rest(node)


def softmax_activation(node: SymbolNode) -> relax.Expr:
    """Softmax over the channels, or over everything but the batch."""
    if node.text("mode", "instance") == "channel":
        return op.nn.softmax(node[0], 1)
    return _over_rest(node)


def _over_rest(node: SymbolNode) -> relax.Expr:
    shape = node.shape(0)
    if len(shape) <= 2:
        return op.nn.softmax(node[0], -1)
    flat = op.reshape(node[0], (shape[0], math.prod(shape[1:])))
    return op.reshape(op.nn.softmax(flat, -1), shape)


CONVERTERS = {
    "Activation": activation,
    "LeakyReLU": leaky_relu,
    "hard_sigmoid": hard_sigmoid,
    "log_sigmoid": log_sigmoid,
    "mish": mish,
    "softsign": softsign,
    **dict.fromkeys(("softmax", "_npx_softmax"), softmax),
    **dict.fromkeys(("log_softmax", "_npx_log_softmax"), log_softmax),
    "softmin": softmin,
    **dict.fromkeys(("Softmax", "SoftmaxOutput"), softmax_output),
    "SoftmaxActivation": softmax_activation,
}
