"""Reductions that leave the operand's shape as it is."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from ..onnx_node import Node

_OF_ONE: dict[str, Callable[[relax.Expr], relax.Expr]] = {
    "ReduceL1": relax.op.abs,
    "ReduceL2": relax.op.abs,
    "ReduceLogSum": relax.op.log,
    "ReduceSumSquare": lambda data: relax.op.multiply(data, data),
}
"""What each reduction makes of one element; the others leave it as it is."""


def reduction(node: Node) -> relax.Expr | None:
    """`noop_with_empty_axes` without axes: every element is reduced by itself."""
    if not node.attr("noop_with_empty_axes", 0):
        return None
    if node.get(1) is not None and node.value(1, "the axes").size:
        return None
    return _OF_ONE[node.proto.op_type](node[0])


CONVERTERS = dict.fromkeys(_OF_ONE, reduction)
