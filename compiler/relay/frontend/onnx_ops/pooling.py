"""Pooling with automatic padding."""

from __future__ import annotations

from tvm import relax

from ..onnx_node import Node
from .convolution import automatic_pads, with_pads


def pooling(node: Node) -> relax.Expr | None:
    """`auto_pad` as explicit pads; others are TVM's."""
    if node.attr("auto_pad", "NOTSET") == "NOTSET":
        return None
    return with_pads(node, automatic_pads(node, node.attr("kernel_shape")))


CONVERTERS = dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), pooling)
