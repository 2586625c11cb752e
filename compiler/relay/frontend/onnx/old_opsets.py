"""Nodes of the operator sets 1 to 6 in the form that operator set 7 gave their operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from tvm import relax

from compiler.ir.constants import constant

from .node import Node, constant_value

_DROPPED = frozenset(["axis", "broadcast", "consumed_inputs", "is_test", "output_sequence"])
"""Attributes that opset 7 has no more; `axis` only of operators that broadcast."""


def in_form_of_opset_7(node: Node) -> Node:
    """Bring an ONNX node to opset 7's form; UnsupportedOperatorError if invalid or random."""
    change = _CHANGES.get(node.proto.op_type)
    inputs, attrs = change(node) if change is not None else (node.inputs, node.attrs)
    dropped = _DROPPED if change is _broadcast else _DROPPED - {"axis"}
    attrs = {name: value for name, value in attrs.items() if name not in dropped}
    new = {name for name, value in attrs.items() if value is not node.attrs.get(name)}
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    del proto.attribute[:]
    proto.attribute.extend(e for e in node.proto.attribute if e.name in attrs and e.name not in new)
    proto.attribute.extend(onnx.helper.make_attribute(name, attrs[name]) for name in new)
    names = [*node.proto.input[: len(inputs)]]
    names += [f"input_{i}" for i in range(len(names), len(inputs))]
    del proto.input[:]
    proto.input.extend(names)
    return replace(node, proto=proto, inputs=list(inputs), attrs=attrs)


Form = tuple[list[Any], dict[str, Any]]


def _broadcast(node: Node) -> Form:
    """Align the second operand with the first from `axis` on; by default with its last axes."""
    first, second = node.shape(0), node.shape(1)
    if not node.attr("broadcast", 0):
        if first != second:
            raise node.unsupported("operands of different shapes need broadcast=1 before opset 7")
        return node.inputs, node.attrs
    axis = node.attr("axis", len(first) - len(second))
    if axis < 0:
        axis += len(first)
    after = len(first) - len(second) - axis
    if axis < 0 or after < 0:
        raise node.unsupported(f"the operands can't be broadcast along axis {node.attr('axis')}")
    for extent, own in zip(second, first[axis:]):
        if extent not in (1, own):
            raise node.unsupported(f"the operands can't be broadcast from axis {axis} on")
    if after == 0:
        return node.inputs, node.attrs
    return [node[0], _reshaped(node, 1, (*second, *[1] * after))], node.attrs


def _slope_of_channels(node: Node) -> Form:
    """A slope of PRelu is one number, or one for each channel, which is axis 1."""
    data, slope = node.shape(0), node.shape(1)
    if len(slope) != 1 or slope == (1,) or len(data) < 2:
        return node.inputs, node.attrs
    return [node[0], _reshaped(node, 1, (*slope, *[1] * (len(data) - 2)))], node.attrs


def _reshaped(node: Node, index: int, shape: tuple[int, ...]) -> relax.Expr:
    value = constant_value(node[index])
    if value is not None:
        return constant(value.reshape(shape))
    return node.emit(relax.op.reshape(node[index], shape))


def _gemm(node: Node) -> Form:
    rows = node.shape(0)[1 if node.attr("transA", 0) else 0]
    columns = node.shape(1)[0 if node.attr("transB", 0) else 1]
    if not node.attr("broadcast", 0) and node.shape(2) != (rows, columns):
        raise node.unsupported("C of another shape than the product's needs broadcast=1")
    return node.inputs, node.attrs


def _inference(node: Node) -> Form:
    """One output of BatchNormalization is that of inference, whatever `is_test` says."""
    if not node.attr("is_test", 0) and any(node.proto.output[1:]):
        raise node.unsupported("training mode (is_test=0) before opset 7 is not supported")
    return node.inputs, node.attrs


def _dropout(node: Node) -> Form:
    if not node.attr("is_test", 0) and node.attr("ratio", 0.5) != 0:
        raise node.unsupported("dropout in training mode (is_test=0) draws random numbers")
    return node.inputs, node.attrs


def _cast(node: Node) -> Form:
    """`to` is the name of a type before opset 6."""
    target = node.attr("to")
    if isinstance(target, str):
        numbers = dict(onnx.TensorProto.DataType.items())
        if target.upper() not in numbers:
            raise node.unsupported(f"{target!r} is not a type of tensors")
        target = numbers[target.upper()]
    return node.inputs, {"to": target}


def _defaults(**values: Any) -> Callable[[Node], Form]:
    """Defaults that opset 7 does not have, or others."""
    return lambda node: (node.inputs, {**values, **node.attrs})


def _of_opset(newer: int, change: Callable[[Node], Form]) -> Callable[[Node], Form]:
    """A change that came with opset `newer`."""
    return lambda node: change(node) if node.opset < newer else (node.inputs, node.attrs)


def _pad(node: Node) -> Form:
    attrs = dict(node.attrs)
    if "paddings" not in attrs:
        raise node.unsupported("the attribute paddings is missing")
    return node.inputs, {"pads": attrs.pop("paddings"), **attrs}


def _reshape(node: Node) -> Form:
    if "shape" not in node.attrs:
        raise node.unsupported("the attribute shape is missing")
    return [node[0], constant(np.array(node.attr("shape"), "int64"))], {}


def _split(node: Node) -> Form:
    attrs = dict(node.attrs)
    if node.get(1) is not None:
        attrs["split"] = tuple(node.value(1, "the extents").tolist())
    if "axis" not in attrs:
        raise node.unsupported("the attribute axis is missing, which has no default in opset 1")
    return [node[0]], attrs


def _tile(node: Node) -> Form:
    repeats = np.ones(len(node.shape(0)), "int64")
    repeats[int(node.value(2, "the axis").reshape(()))] = node.value(1, "the tiles").reshape(())
    return [node[0], constant(repeats)], {}


def _upsample(node: Node) -> Form:
    scales = (1.0, 1.0, node.attr("height_scale"), node.attr("width_scale"))
    if None in scales:
        raise node.unsupported("the attributes height_scale and width_scale are missing")
    return node.inputs, {"mode": node.attr("mode", "nearest"), "scales": scales}


_BROADCASTING = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")
_CHANGES: dict[str, Callable[[Node], Form]] = {
    **dict.fromkeys(_BROADCASTING, _broadcast),
    "BatchNormalization": _inference,
    "Cast": _cast,
    "Concat": _of_opset(4, _defaults(axis=1)),
    "Dropout": _dropout,
    "Gemm": _gemm,
    "PRelu": _slope_of_channels,
    "Pad": _of_opset(2, _pad),
    "Reshape": _of_opset(5, _reshape),
    "Selu": _of_opset(6, _defaults(alpha=1.6732, gamma=1.0507)),
    "Split": _of_opset(2, _split),
    "Tile": _of_opset(6, _tile),
    "Upsample": _upsample,
}
"""Changes up to opset 7 by operator; other operators only lost attributes without effect."""
