"""Sorting and selection of the largest."""

from __future__ import annotations

from typing import Any

from tvm import relax

from ..node import SymbolNode

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
    """Values in sorted order."""
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


CONVERTERS = {"argsort": argsort, "sort": sort, "topk": topk}
