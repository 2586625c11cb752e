"""Matrix products."""

from __future__ import annotations

from ..onnx_node import Node


def gemm(node: Node) -> None:
    """TVM's, which takes the factors of a product of integers as integers."""
    if not node.dtype(0).startswith(("float", "bfloat")):
        for name in ("alpha", "beta"):
            if node.attr(name, 1.0) % 1:
                raise node.unsupported(f"{name} of a product of integers must be whole")


CONVERTERS = {"Gemm": gemm}
