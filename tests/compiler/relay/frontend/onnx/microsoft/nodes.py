"""Nodes of onnxruntime's own domain."""

from __future__ import annotations

import onnx
from onnx import helper

DOMAINS = {"com.microsoft": 1}


def own(operator: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    """A node; names of inputs and outputs are apart by a space, two spaces leave one out."""
    return helper.make_node(
        operator, inputs.split(" "), outputs.split(" "), domain="com.microsoft", **attributes
    )
