"""Matmuls, Einsum and determinants."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from compiler.ir.dynamic_shape import as_extent
from compiler.relay.op.shapes import broadcast_extents, joint_shape, same_extent
from compiler.relay.op.te_op import kernel

from ..node import Node
from ..shape_expr import shape_of


def gemm(node: Node) -> None:
    """TVM's, which takes the factors of a product of integers as integers."""
    if not node.dtype(0).startswith(("float", "bfloat")):
        for name in ("alpha", "beta"):
            if node.attr(name, 1.0) % 1:
                raise node.unsupported(f"{name} of a product of integers must be whole")


def _determinants(data: te.Tensor) -> te.Tensor:
    """Determinants of (count, n, n), by elimination in float64 with the largest pivots."""
    count, size, _ = data.shape

    def build(ins: Any, outs: Any) -> Any:
        with IRBuilder() as builder:
            given, work, result = (T.buffer_proxy(each) for each in (*ins, *outs))
            with T.parallel(0, count) as i:
                value = T.buffer_proxy(T.alloc_buffer((1,), "float64", scope="local"))
                kept = T.buffer_proxy(T.alloc_buffer((1,), "float64", scope="local"))
                pivot = T.buffer_proxy(T.alloc_buffer((1,), "int64", scope="local"))
                value[0] = T.float64(1)
                with T.grid(size, size) as (row, column):
                    work[i, row, column] = tirx.Cast("float64", given[i, row, column])
                with T.serial(0, size) as step:
                    pivot[0] = tirx.Cast("int64", step)
                    with T.serial(0, size) as row:
                        larger = tirx.abs(work[i, row, step]) > tirx.abs(work[i, pivot[0], step])
                        with T.If(tirx.all(row > step, larger)), T.Then():
                            pivot[0] = tirx.Cast("int64", row)
                    with T.If(pivot[0] != step), T.Then():
                        value[0] = -value[0]
                        with T.serial(0, size) as column:
                            kept[0] = work[i, step, column]
                            work[i, step, column] = work[i, pivot[0], column]
                            work[i, pivot[0], column] = kept[0]
                    value[0] = value[0] * work[i, step, step]
                    with T.serial(0, size) as row:
                        usable = work[i, step, step] != T.float64(0)
                        with T.If(tirx.all(row > step, usable)), T.Then():
                            kept[0] = work[i, row, step] / work[i, step, step]
                            with T.serial(0, size) as column:
                                work[i, row, column] = (
                                    work[i, row, column] - kept[0] * work[i, step, column]
                                )
                result[i] = tirx.Cast(data.dtype, value[0])
            return builder.get()

    made = te.extern(
        [data.shape, (count,)], [data], build, dtype=["float64", data.dtype], name="determinants"
    )
    return made[1]


_determinants_kernel = kernel("determinants", _determinants)


def det(node: Node) -> relax.Expr:
    """The determinants of the matrices in the last two axes."""
    *outer, rows, columns = node.shape(0)
    if rows != columns or not node.dtype(0).startswith("float"):
        raise node.unsupported("determinants are of square matrices of floats")
    flat = relax.op.reshape(node[0], (math.prod(outer), rows, columns))
    return relax.op.reshape(node.emit(_determinants_kernel(node.emit(flat))), outer)


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
            shared = label in result and not known  # a batch, which may broadcast
            joint = joint_shape([[met], [extent]])[0] if shared else met
            extents[label] = known.pop() if known else joint
    if any(same_extent(extent, 0) for extent in extents.values()) and {*result} <= {*extents}:
        shape = [as_extent(extents[label]) for label in result]  # of zeros: sums of no elements
        return relax.op.zeros(shape, node.dtype(0))
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
        given = node.emit(relax.op.permute_dims(node[index], axes))
        batches = [extents[c] for c in batch] + (shape_of(given) or [])[len(batch) :]
        return relax.op.reshape(node.emit(broadcast_extents(given, batches)), shape)

    product = relax.op.matmul(
        arranged(0, batch, rows, contracted), arranged(1, batch, contracted, columns)
    )
    made = [*batch, *rows, *columns]
    shaped = node.emit(relax.op.reshape(product, [extents[c] for c in made]))
    return relax.op.permute_dims(shaped, [made.index(label) for label in result])


def attention(node: Node) -> None:
    """Require keys and values of one length: ONNX's function body would broadcast a length of 1."""
    shapes = [None if node.get(i) is None else shape_of(node[i]) for i in (1, 2)]
    keys, values = (shape[-2] if shape and len(shape) > 2 else None for shape in shapes)
    if keys is None or values is None or same_extent(keys, values):
        return
    if isinstance(keys, int) and isinstance(values, int):
        raise node.unsupported(
            f"K (input 1) has {keys} positions along axis -2, V (input 2) has {values}; "
            "give both the same length"
        )
    index, length = (1, values) if isinstance(values, int) else (2, keys)
    shape = [as_extent(extent) for extent in shapes[index - 1] or ()]
    shape[-2] = as_extent(length)
    node.inputs[index] = node.emit(relax.op.reshape(node[index], shape))  # checked at run time


CONVERTERS = {"Attention": attention, "Det": det, "Einsum": einsum, "Gemm": gemm}
