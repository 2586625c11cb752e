"""Convolutions and matrix products with what onnxruntime fused into them; channels-last forms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import relax

from ...node import Node
from ..elementwise import number

ACTIVATIONS: dict[str, tuple[tuple[str, float], ...]] = {
    "Clip": (("min", -3.4028234663852886e38), ("max", 3.4028234663852886e38)),
    "Elu": (("alpha", 1.0),),
    "HardSigmoid": (("alpha", 0.2), ("beta", 0.5)),
    "LeakyRelu": (("alpha", 0.01),),
    "Relu": (),
    "Selu": (("alpha", 1.6732632), ("gamma", 1.050701)),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": (("alpha", 1.0),),
}
"""Activations that onnxruntime fuses: their parameters, in order, with the defaults."""

WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
POOLING = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")


def attributes(node: Node, names: tuple[str, ...]) -> dict[str, Any]:
    """Attributes in `names` that the node has."""
    return {name: node.attr(name) for name in names}


def activated(node: Node, data: relax.Expr, parameters: list[float | None]) -> relax.Expr:
    """The activation that the node names, of `data`; a parameter that is None has its default."""
    name = node.attr("activation")
    if not name:
        return data
    if name not in ACTIVATIONS:
        raise node.unsupported(f"the activation {name!r} is not supported")
    defaults = ACTIVATIONS[name]
    given = [*parameters, *[None] * len(defaults)]
    values: dict[str, Any] = {
        key: default if value is None else value for (key, default), value in zip(defaults, given)
    }
    if name == "Clip":
        return node.call("Clip", data, *(number(value, data) for value in values.values()))
    return node.call(name, data, **values)


def fused_conv(node: Node) -> relax.Expr:
    """Convolution of x and w, plus a bias, plus a tensor of the result's shape, activated."""
    result = node.call("Conv", node[0], node[1], node.get(2), **attributes(node, WINDOW))
    if node.get(3) is not None:
        result = node.emit(relax.op.add(result, node[3]))
    return activated(node, result, list(node.attr("activation_params", ())))


def channels_first(node: Node, data: relax.Expr) -> relax.Expr:
    """A tensor NHWC as NCHW."""
    rank = data.ty.ndim
    return node.emit(relax.op.permute_dims(data, [0, rank - 1, *range(1, rank - 1)]))


def channels_last(node: Node, data: relax.Expr) -> relax.Expr:
    """A tensor NCHW as NHWC."""
    return node.emit(relax.op.permute_dims(data, [0, *range(2, data.ty.ndim), 1]))


def nhwc_conv(node: Node) -> relax.Expr:
    """FusedConv of channels-last tensors; the weights are OIHW."""
    inputs = [*node.inputs, *[None] * (4 - len(node.inputs))]
    inputs[0] = channels_first(node, node[0])
    inputs[3] = None if node.get(3) is None else channels_first(node, node[3])
    return channels_last(node, fused_conv(replace(node, inputs=inputs)))


def nhwc_max_pool(node: Node) -> relax.Expr:
    """MaxPool of a channels-last tensor."""
    data = channels_first(node, node[0])
    return channels_last(node, node.call("MaxPool", data, **attributes(node, POOLING)))


def fused_gemm(node: Node) -> relax.Expr:
    """Gemm, activated."""
    names = ("alpha", "beta", "transA", "transB")
    result = node.call("Gemm", node[0], node[1], node.get(2), **attributes(node, names))
    return _activated_by_name(node, result)


def _activated_by_name(node: Node, data: relax.Expr) -> relax.Expr:
    """`activated` with each parameter in the attribute `activation_<parameter>`."""
    order = [key for key, _ in ACTIVATIONS.get(node.attr("activation"), ())]
    return activated(node, data, [node.attr(f"activation_{key}") for key in order])


def fused_matmul(node: Node) -> relax.Expr:
    """alpha * op(a) op(b), where op may exchange the last two axes and move the first to them."""
    a, b = (_operand(node, index, letter) for index, letter in ((0, "A"), (1, "B")))
    product = node.call("MatMul", a, b)
    alpha = node.attr("alpha", 1.0)
    return product if alpha == 1.0 else relax.op.multiply(product, number(alpha, product))


def _operand(node: Node, index: int, letter: str) -> relax.Expr:
    """Operand `index` of a product, its axes permuted as the attributes say."""
    rank = len(node.shape(index))
    axes = list(range(rank))
    if node.attr(f"transBatch{letter}", 0):
        if rank < 3:
            raise node.unsupported(f"transBatch{letter} needs a batch of matrices")
        axes = [*axes[1:-1], 0, axes[-1]]  # (M, batch, K) to (batch, M, K)
    if node.attr(f"trans{letter}", 0) and rank > 1:
        axes[-2:] = axes[:-3:-1]
    if axes == list(range(rank)):
        return node[index]
    return node.emit(relax.op.permute_dims(node[index], axes))


def fused_matmul_activation(node: Node) -> relax.Expr:
    """FusedMatMul, activated."""
    result = node.emit(fused_matmul(node))
    if node.attr("activation") == "Softmax":
        return relax.op.nn.softmax(result, node.attr("activation_axis", -1))
    return _activated_by_name(node, result)


def transposed_conv_with_pads(node: Node) -> relax.Expr:
    """ConvTranspose whose pads, which must be constant, are an operand."""
    given = attributes(node, ("auto_pad", "dilations", "group", "kernel_shape", "strides"))
    given["output_padding"] = node.attr("output_padding")
    if node.get(2) is not None:
        given["pads"] = [int(value) for value in node.value(2, "the pads").reshape(-1)]
    return node.call("ConvTranspose", node[0], node[1], node.get(3), **given)


CONVERTERS = {
    "ConvTransposeWithDynamicPads": transposed_conv_with_pads,
    "FusedConv": fused_conv,
    "FusedGemm": fused_gemm,
    "FusedMatMul": fused_matmul,
    "FusedMatMulActivation": fused_matmul_activation,
    "NhwcConv": nhwc_conv,
    "NhwcFusedConv": nhwc_conv,
    "NhwcMaxPool": nhwc_max_pool,
    "TransposeMatMul": fused_matmul,
}
