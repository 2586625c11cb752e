"""If, Loop and Scan: a branch runs only if it is taken, loops of known length are unrolled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import tvm_ffi
from tvm import relax

from compiler.ir.constants import constant
from compiler.ir.dynamic_shape import as_extent
from compiler.ir.loops import erased
from compiler.relay.op.slicing import slice_of_symbols

from ..node import Node, constant_value
from ..shape_expr import shape_of
from .dynamic_loop import Round, run_rounds

MAX_ITERATIONS = 1024
"""Longest loop that is unrolled."""


def branch(node: Node) -> list[relax.Expr]:
    """The branch that a constant condition takes; else an `If`, which runs one of them."""
    graphs: list[onnx.GraphProto] = [node.attrs["then_branch"], node.attrs["else_branch"]]
    condition = constant_value(node[0])
    if condition is not None:
        taken = graphs[0] if bool(condition.reshape(-1)[0]) else graphs[1]
        return node.importer.convert_subgraph(taken, [], node.scope)
    branches = [node.importer.convert_branch(graph, node.scope) for graph in graphs]
    types = [branch.body.ty for branch in branches]
    if not tvm_ffi.structural_equal(*map(erased, types)):
        raise node.unsupported(
            f"the branches return tensors of different ranks or dtypes, {types[0]} and "
            f"{types[1]}, and the condition is known only at run time"
        )
    chosen = relax.If(node.emit(relax.op.reshape(node[0], [])), *branches)
    result = node.emit(chosen)
    fields = [node.emit(relax.TupleGetItem(result, i)) for i in range(len(types[0].fields))]
    return [node.importer.with_extents(field) for field in fields]


def loop(node: Node) -> list[relax.Expr]:
    """A loop, unrolled where the number of its rounds is known."""
    unrolled = _unrolled_loop(node)
    if unrolled is not None:
        return unrolled
    body: onnx.GraphProto = node.attrs["body"]
    states = len(node.inputs) - 2
    given = node.get(1)

    def convert(number: relax.Var, carried: list[relax.Var]) -> Round:
        arguments = [number, constant(np.array(True)), *carried]
        condition, *results = node.importer.convert_subgraph(body, arguments, node.scope)
        return Round(condition, results[:states], results[states:])

    last, stacked = run_rounds(node, node.get(0), given, node.inputs[2:], convert)
    return [*last, *stacked]


def _unrolled_loop(node: Node) -> list[relax.Expr] | None:
    """The rounds one after the other; None where their number is not known, or large."""
    body: onnx.GraphProto = node.attrs["body"]
    count = constant_value(node.get(0))
    condition = node.get(1)
    if node.get(0) is not None and (count is None or count.reshape(-1)[0] > MAX_ITERATIONS):
        return None
    carried = list(node.inputs[2:])
    states = len(carried)
    stacked: list[list[relax.Expr]] = [[] for _ in body.output[1 + states :]]
    step = 0
    while count is None or step < int(count.reshape(-1)[0]):
        go_on = np.array(True) if condition is None else constant_value(condition)
        if go_on is None or step == MAX_ITERATIONS:
            return None
        if not bool(go_on.reshape(-1)[0]):
            break
        arguments = [constant(np.array(step, "int64")), constant(go_on), *carried]
        condition, *results = node.importer.convert_subgraph(body, arguments, node.scope)
        carried = results[:states]
        for column, value in zip(stacked, results[states:]):
            column.append(value)
        step += 1
    if step == 0 and stacked:
        return None
    return [*carried, *(_stack(node, column, 0) for column in stacked)]


def scan(node: Node) -> list[relax.Expr]:
    """A scan over a sequence axis, unrolled where its length is known."""
    if node.opset < 9:
        return _batched_scan(node)
    body: onnx.GraphProto = node.attrs["body"]
    count = node.attr("num_scan_inputs")
    states = len(node.inputs) - count
    axes = node.attr("scan_input_axes", (0,) * count)
    backward = node.attr("scan_input_directions", (0,) * count)
    outputs = len(body.output) - states
    output_axes = node.attr("scan_output_axes", (0,) * outputs)
    output_backward = node.attr("scan_output_directions", (0,) * outputs)
    extents = node.extents(states)
    length = extents[axes[0] % len(extents)]
    if isinstance(length, int) and 0 < length <= MAX_ITERATIONS:
        carried = list(node.inputs[:states])
        columns: list[list[relax.Expr]] = [[] for _ in range(outputs)]
        for step in range(length):
            slices = []
            for i in range(count):
                at = length - 1 - step if backward[i] else step
                slices.append(step_of(node, node[states + i], axes[i], at))
            results = node.importer.convert_subgraph(body, [*carried, *slices], node.scope)
            carried = results[:states]
            for column, value in zip(columns, results[states:]):
                column.append(value)
        sequences = []
        for column, axis, reverse in zip(columns, output_axes, output_backward):
            sequences.append(_stack(node, column[::-1] if reverse else column, axis))
        return [*carried, *sequences]

    sources = [
        node.emit(relax.op.flip(node[states + i], axes[i])) if backward[i] else node[states + i]
        for i in range(count)
    ]

    def convert(number: relax.Var, carried: list[relax.Var]) -> Round:
        slices = [
            node.emit(relax.op.take(source, number, axis % source.ty.ndim))
            for source, axis in zip(sources, axes)
        ]
        results = node.importer.convert_subgraph(body, [*carried, *slices], node.scope)
        return Round(None, results[:states], results[states:])

    rounds = extent_tensor(node, length)
    last, stacked = run_rounds(node, rounds, None, node.inputs[:states], convert)
    sequences = []
    for value, axis, reverse in zip(stacked, output_axes, output_backward):
        value = node.emit(relax.op.flip(value, 0)) if reverse else value
        order = list(range(1, value.ty.ndim))
        order.insert(axis % value.ty.ndim, 0)
        sequences.append(node.emit(relax.op.permute_dims(value, order)))
    return [*last, *sequences]


def _batched_scan(node: Node) -> list[relax.Expr]:
    """The scan of opset 8: one for each entry of a batch, which is the first axis of all."""
    if node.get(0) is not None:
        raise node.unsupported("lengths of sequences; export with opset 9 or newer")
    entries = node.shape(1)[0]
    count = node.attr("num_scan_inputs")
    inputs = [node[index] for index in range(1, len(node.inputs))]
    directions = node.attr("directions")
    columns = []
    for entry in range(entries):
        parts = [step_of(node, each, 0, entry) for each in inputs]
        attrs = {"body": node.attrs["body"], "num_scan_inputs": count}
        if directions is not None:
            attrs["scan_input_directions"] = directions
        results = scan(replace(node, opset=9, inputs=parts, attrs=attrs))
        columns.append([node.emit(each) for each in results])
    return [_stack(node, list(column), 0) for column in zip(*columns, strict=True)]


def extent_tensor(node: Node, extent: Any) -> relax.Expr:
    """An extent, a number or an expression, as a tensor () of int64."""
    if isinstance(extent, int):
        return constant(np.array(extent, "int64"))
    shape = node.emit(relax.op.shape_to_tensor(relax.ShapeExpr([extent])))
    return node.emit(relax.op.reshape(shape, ()))


def step_of(node: Node, data: relax.Expr, axis: int, index: int) -> relax.Expr:
    """Slice `index` of `data` along `axis`, without that axis; -1 is the last one."""
    shape = shape_of(data)
    if shape is None:
        raise node.unsupported("a sequence has a shape that is known only at run time")
    axis %= len(shape)
    array = constant_value(data)
    if array is not None:
        return constant(np.take(array, index, axis))
    if index < 0:
        index = shape[axis] + index
    if isinstance(index, int):
        piece = relax.op.strided_slice(data, [axis], [index], [index + 1])
        return node.emit(relax.op.squeeze(piece, [axis]))
    piece = node.emit(slice_of_symbols(data, {axis: (index, index + 1, 1)}))
    rest = [as_extent(extent) for extent in (*shape[:axis], *shape[axis + 1 :])]
    return node.emit(relax.op.reshape(piece, rest))


def _stack(node: Node, values: list[relax.Expr], axis: int) -> relax.Expr:
    shape = shape_of(values[0])
    if shape is None:
        raise node.unsupported("a step's result has a shape that is known only at run time")
    axis %= len(shape) + 1
    wide = [node.emit(relax.op.expand_dims(value, axis)) for value in values]
    return wide[0] if len(wide) == 1 else relax.op.concat(wide, axis)


CONVERTERS = {"If": branch, "Loop": loop, "Scan": scan}
