"""Einsum of two operands as one matmul."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax

from compiler.relay.op.shapes import same_extent

from ..node import Node


def einsum(node: Node) -> relax.Expr | None:
    """Transpose, reshape, matmul, reshape, transpose; other einsums are left to TVM.

    Every label is one of four kinds: batch (in both operands and the result), contracted (in both
    operands only), left or right (in one operand and the result). A label of only one operand
    and not of the result is summed first.
    """
    equation = node.attr("equation").replace(" ", "")
    if len(node.inputs) != 2 or "." in equation or "->" not in equation:
        return None
    sides, result = equation.split("->")
    labels = sides.split(",")
    if any(len(set(side)) != len(side) for side in (*labels, result)) or len(labels) != 2:
        return None
    extents: dict[str, Any] = {}
    for index, side in enumerate(labels):
        for label, extent in zip(side, node.extents(index)):
            met = extents.get(label, extent)
            known = {each for each in (extent, met) if isinstance(each, int)}
            if len(known) > 1 or (known == {1} and not same_extent(extent, met)):
                return None  # broadcast, or wrong
            extents[label] = known.pop() if known else met
    left, right = labels
    batch = [c for c in result if c in left and c in right]
    contracted = [c for c in left if c in right and c not in result]
    rows = [c for c in result if c in left and c not in right]
    columns = [c for c in result if c in right and c not in left]
    if set(left) != {*batch, *contracted, *rows} or set(right) != {*batch, *contracted, *columns}:
        return None

    def arranged(index: int, *groups: list[str]) -> relax.Expr:
        order = [label for group in groups for label in group]
        axes = [labels[index].index(label) for label in order]
        shape = [extents[c] for c in batch] + [
            math.prod(extents[c] for c in group) for group in groups[1:]
        ]
        return relax.op.reshape(node.emit(relax.op.permute_dims(node[index], axes)), shape)

    product = relax.op.matmul(
        arranged(0, batch, rows, contracted), arranged(1, batch, contracted, columns)
    )
    made = [*batch, *rows, *columns]
    shaped = node.emit(relax.op.reshape(product, [extents[c] for c in made]))
    return relax.op.permute_dims(shaped, [made.index(label) for label in result])


CONVERTERS = {"Einsum": einsum}
