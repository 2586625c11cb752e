"""Operators that only change a tensor's shape."""

from __future__ import annotations

import math

from tvm import relax

from compiler.graph.constants import array_of, static_shape

from ... import dialect
from ..onnx_node import Node


def flatten(node: Node) -> relax.Expr | None:
    """The axes before `axis` as one, and the others as one; sizes of empty tensors too.

    Behind the first axis it is Relay's `nn.batch_flatten`, which is good for any number of samples.
    """
    shape = static_shape(node[0])
    axis = node.attr("axis", 1)
    if shape is None or not -len(shape) <= axis <= len(shape):
        return None
    if axis < 0:
        axis += len(shape)
    flat = (math.prod(shape[:axis]), math.prod(shape[axis:]))
    # to Relax's reshape, an extent of 0 is that of the operand's axis in the same place
    if any(extent == 0 and shape[i : i + 1] != (0,) for i, extent in enumerate(flat)):
        raise node.unsupported(f"an empty tensor of shape {shape} along axis {axis}")
    if axis == 1 and array_of(node[0]) is None:
        return dialect.call("nn.batch_flatten", [node[0]])
    return relax.op.reshape(node[0], flat)


CONVERTERS = {"Flatten": flatten}
