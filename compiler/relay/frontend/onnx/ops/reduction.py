"""Reductions."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from ..node import Node, constant_value
from . import dynamic_operands

Function = Callable[[relax.Expr], relax.Expr]


def _same(data: relax.Expr) -> relax.Expr:
    return data


def _square(data: relax.Expr) -> relax.Expr:
    return relax.op.multiply(data, data)


_OF_ONE: dict[str, Function] = {
    "ReduceL1": relax.op.abs,
    "ReduceL2": relax.op.abs,
    "ReduceLogSum": relax.op.log,
    "ReduceSumSquare": _square,
}
"""Function that a reduction applies to a single element; the identity for the others."""

_OF_SUMS: dict[str, tuple[Function, Function]] = {
    "ReduceL2": (_square, relax.op.sqrt),
    "ReduceLogSum": (_same, relax.op.log),
}
"""Reductions with functions that Relax has for floats only: of the elements, of their sum."""


def reduction(node: Node) -> relax.Expr | None:
    """Reductions of nothing, along run-time axes, and functions of sums of integers."""
    if _are_computed(node):
        return _along_computed_axes(node)
    axes, name = _axes(node), node.proto.op_type
    if axes == []:
        function = _OF_ONE.get(name, _same)
        return _as_float(node, function) if name == "ReduceLogSum" else function(node[0])
    if name not in _OF_SUMS or not _of_integers(node):
        return None
    inner, outer = _OF_SUMS[name]
    keep = bool(node.attr("keepdims", 1))
    return _as_float(node, lambda data: outer(relax.op.sum(inner(data), axes, keep)))


def log_sum_exp(node: Node) -> relax.Expr:
    """log(sum(exp(x))), the largest element taken out where it is finite."""
    if _are_computed(node):
        return _along_computed_axes(node)
    axes = _axes(node)
    if axes == []:
        return node[0]
    return _as_float(node, lambda data: _log_sum_exp(node, data, axes))


def _log_sum_exp(node: Node, data: relax.Expr, axes: list[int] | None) -> relax.Expr:
    from .elementwise import number

    largest = node.emit(relax.op.max(data, axes, keepdims=True))
    shift = node.emit(relax.op.where(relax.op.isfinite(largest), largest, number(0, data)))
    powers = relax.op.exp(relax.op.subtract(data, shift))
    total = relax.op.log(relax.op.sum(powers, axes, keepdims=True))
    result = node.emit(relax.op.add(total, shift))
    if node.attr("keepdims", 1):
        return result
    return relax.op.squeeze(result, list(range(len(node.shape(0)))) if axes is None else axes)


def _of_integers(node: Node) -> bool:
    return "int" in node.dtype(0)


def _as_float(node: Node, function: Function) -> relax.Expr:
    """A function of the operand, in float64 if it is of integers, back in its dtype."""
    if not _of_integers(node):
        return function(node[0])
    return relax.op.astype(function(node.emit(relax.op.astype(node[0], "float64"))), node.dtype(0))


def _are_computed(node: Node) -> bool:
    """Whether the axes are known only at run time; of how many there are, the shape tells."""
    axes = node.get(1)
    return axes is not None and constant_value(axes) is None and node.shape(1) not in ((), (0,))


def _along_computed_axes(node: Node) -> relax.Expr:
    """A reduction whose axes are computed while the model runs."""
    name, dtype = node.proto.op_type, node.dtype(0)
    axes, data = dynamic_operands.axes_of(node, node[1], node[0].ty.ndim), node[0]
    wide = {"bool": "uint8", "float16": "float32"}.get(dtype, dtype)
    if name in ("ReduceLogSumExp", "ReduceL2", "ReduceLogSum") and _of_integers(node):
        wide = "float64"
    if name == "ReduceMean" and _of_integers(node):
        wide = "uint64" if dtype.startswith("uint") else "int64"
    if wide != dtype:
        data = node.emit(relax.op.astype(data, wide))
    if name == "ReduceLogSumExp":
        largest = dynamic_operands.reduce(node, data, axes, "max")
        finite = relax.op.isfinite(largest)
        shift = node.emit(relax.op.where(finite, largest, relax.const(0, wide)))
        total = dynamic_operands.reduce(node, data, axes, "sum", shift)
        result = relax.op.add(relax.op.log(total), shift)
    else:
        kind = {"ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min"}.get(name, "sum")
        kind = "prod" if name == "ReduceProd" else kind
        inner = {"ReduceL1": relax.op.abs, "ReduceL2": _square, "ReduceSumSquare": _square}
        elements = node.emit(inner[name](data)) if name in inner else data
        result = dynamic_operands.reduce(node, elements, axes, kind)
        outer = {"ReduceL2": relax.op.sqrt, "ReduceLogSum": relax.op.log}
        result = outer[name](result) if name in outer else result
    result = node.emit(result)
    if wide != dtype:
        result = node.emit(relax.op.astype(result, dtype))
    if node.attr("keepdims", 1):
        return result
    return dynamic_operands.without_axes(node, result, axes, like=node[0])


def _axes(node: Node) -> list[int] | None:
    """Axes that are reduced; None for all of them."""
    axes = node.attr("axes")
    if node.get(1) is not None:
        if node.shape(1) == (0,):  # no axes, whoever computes them
            axes, node.inputs[1] = [], None
        else:
            axes = node.value(1, "the axes").tolist()
    if not axes:
        return [] if node.attr("noop_with_empty_axes", 0) else None
    return [int(axis) for axis in axes]


CONVERTERS = {
    **dict.fromkeys(
        [
            *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceMax", "ReduceMean"),
            *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
        ],
        reduction,
    ),
    "ReduceLogSumExp": log_sum_exp,
}
