"""Reductions, sorting and selection of the largest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from ..node import SymbolNode

op = relax.op
Converter = Callable[[SymbolNode], Any]


def _axes(node: SymbolNode) -> list[int]:
    """The axes that go: those in `axis`, the others if `exclude`, all without any."""
    rank = len(node.shape(0))
    named = sorted({node.axis(axis, rank) for axis in node.integers("axis", ())})
    if not node.flag("exclude", False):
        return named or list(range(rank))
    return [axis for axis in range(rank) if axis not in named] if named else list(range(rank))


def _finish(node: SymbolNode, result: relax.Expr) -> relax.Expr:
    """Without numpy semantics, a number is an array of one element."""
    result = node.emit(result)
    if node.shape_of(result) == () and not node.importer.numpy_semantics:
        return op.reshape(result, (1,))
    return result


def _reduction(function: Callable[..., Any]) -> Converter:
    def convert(node: SymbolNode) -> relax.Expr:
        data, dtype = node[0], node.dtype(0)
        if function is op.mean and "float" not in dtype:
            dtype = "float32"
        dtype = node.dtype_attr(dtype)
        if function is op.mean and "float" not in dtype:
            raise node.unsupported(f"a mean of the dtype {dtype}")
        if dtype != node.dtype(0):
            data = node.emit(op.astype(data, dtype))
        return _finish(node, function(data, _axes(node), keepdims=node.flag("keepdims", False)))

    return convert


def norm(node: SymbolNode) -> relax.Expr:
    """Sum of absolute values (ord 1) or root of the sum of squares (ord 2)."""
    order = node.integer("ord", 2)
    keep = node.flag("keepdims", False)
    if order == 1:
        return _finish(node, op.sum(op.abs(node[0]), _axes(node), keepdims=keep))
    if order != 2:
        raise node.unsupported(f"ord {order}")
    return _finish(node, op.sqrt(op.sum(op.multiply(node[0], node[0]), _axes(node), keepdims=keep)))


def _arg(function: Callable[..., Any]) -> Converter:
    """Positions, as float32 but for numpy operators; without an axis, in the flattened array."""

    def convert(node: SymbolNode) -> relax.Expr:
        axis, keep, data = node.integer("axis", None), node.flag("keepdims", False), node[0]
        if axis is None:
            data, axis = op.reshape(data, (-1,)), 0
            keep = keep and len(node.shape(0)) == 1
        else:
            axis = node.axis(axis, len(node.shape(0)))
        result = node.emit(function(node.emit(data), axis, keepdims=keep))
        dtype = "int64" if node.op.startswith("_npi") else "float32"
        return _finish(node, op.astype(result, dtype))

    return convert


def argmax_channel(node: SymbolNode) -> relax.Expr:
    """Position of the maximum along axis 1, as float32."""
    return op.astype(node.emit(op.argmax(node[0], 1)), "float32")


op = relax.op


def _operand(node: SymbolNode) -> tuple[relax.Expr, int]:
    """Data and axis; without an axis, the flattened data."""
    if "axis" in node.node.attrs and not node.has("axis"):
        return node.emit(op.reshape(node[0], (-1,))), 0
    return node[0], node.axis(node.integer("axis", -1), len(node.shape(0)))


def argsort(node: SymbolNode) -> relax.Expr:
    """Positions in sorted order."""
    data, axis = _operand(node)
    order = op.argsort(data, axis, not node.flag("is_ascend", True), "int32")
    return op.astype(node.emit(order), node.dtype_attr("float32"))


def sort(node: SymbolNode) -> relax.Expr:
    data, axis = _operand(node)
    return op.sort(data, axis, not node.flag("is_ascend", True))


def topk(node: SymbolNode) -> Any:
    """The k largest or smallest: their positions, values, or both."""
    data, axis = _operand(node)
    kind, count = node.text("ret_typ", "indices"), node.integer("k", 1)
    if kind not in ("indices", "value", "both"):
        raise node.unsupported(f"ret_typ {kind!r}")
    count = count if count > 0 else node.shape_of(data)[axis]
    largest = not node.flag("is_ascend", False)
    both = node.emit(op.topk(data, count, axis, "both", largest, "int32"))
    values = relax.TupleGetItem(both, 0)
    indices = node.emit(relax.TupleGetItem(both, 1))
    positions = op.astype(indices, node.dtype_attr("float32"))
    return {"indices": positions, "value": values, "both": [values, positions]}[kind]


CONVERTERS: dict[str, Converter] = {
    **{
        name: _reduction(function)
        for function, names in (
            (op.mean, ("mean", "_npi_mean")),
            (op.sum, ("sum", "sum_axis", "_np_sum", "_npi_sum")),
            (op.max, ("max", "max_axis", "_np_max", "_npi_max")),
            (op.min, ("min", "min_axis", "_np_min", "_npi_min")),
            (op.prod, ("prod", "_np_prod", "_npi_prod")),
        )
        for name in names
    },
    "norm": norm,
    "argmax": _arg(op.argmax),
    "argmin": _arg(op.argmin),
    "_npi_argmax": _arg(op.argmax),
    "_npi_argmin": _arg(op.argmin),
    "argmax_channel": argmax_channel,
    "argsort": argsort,
    "sort": sort,
    "topk": topk,
}
