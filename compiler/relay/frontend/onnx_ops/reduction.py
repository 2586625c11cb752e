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


def log_sum_exp(node: Node) -> relax.Expr | None:
    """log(sum(exp(x))), the largest element taken out where it is finite."""
    from ..onnx_node import dtype_of

    data, axes = node[0], _axes(node)
    if axes == []:
        return data
    keep = bool(node.attr("keepdims", 1))
    largest = node.emit(relax.op.max(data, axes, keepdims=True))
    zero = relax.const(0, dtype_of(data))
    shift = node.emit(relax.op.where(relax.op.isfinite(largest), largest, zero))
    powers = relax.op.exp(relax.op.subtract(data, shift))
    total = relax.op.log(relax.op.sum(powers, axes, keepdims=True))
    result = node.emit(relax.op.add(total, shift))
    if keep:
        return result
    return relax.op.squeeze(result, list(range(len(node.shape(0)))) if axes is None else axes)


def _axes(node: Node) -> list[int] | None:
    """Axes that are reduced; None for all of them."""
    axes = node.attr("axes")
    if node.get(1) is not None:
        axes = node.value(1, "the axes").tolist()
    if not axes:
        return [] if node.attr("noop_with_empty_axes", 0) else None
    return [int(axis) for axis in axes]


CONVERTERS = {**dict.fromkeys(_OF_ONE, reduction), "ReduceLogSumExp": log_sum_exp}
