"""If, Loop and Scan: a branch runs only if it is taken, loops of known length are unrolled."""

from __future__ import annotations

import numpy as np
import onnx
import tvm_ffi
from tvm import relax

from compiler.graph.constants import constant

from ..onnx_node import Node, constant_value
from ..onnx_symbolic import shape_of

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
    if not tvm_ffi.structural_equal(*types):
        raise node.unsupported(
            f"the branches return different types, {types[0]} and {types[1]}, and the condition is "
            "known only at run time"
        )
    chosen = relax.If(node.emit(relax.op.reshape(node[0], [])), *branches)
    result = node.emit(chosen)
    return [node.emit(relax.TupleGetItem(result, i)) for i in range(len(types[0].fields))]


def loop(node: Node) -> list[relax.Expr]:
    """A loop whose number of rounds is known, unrolled."""
    body: onnx.GraphProto = node.attrs["body"]
    rounds = None if node.get(0) is None else int(node.value(0, "the trip count").reshape(-1)[0])
    condition = node.get(1)
    carried = list(node.inputs[2:])
    states = len(carried)
    stacked: list[list[relax.Expr]] = [[] for _ in body.output[1 + states :]]
    step = 0
    while rounds is None or step < rounds:
        go_on = constant_value(condition) if condition is not None else np.array(True)
        if go_on is None:
            raise node.unsupported("the loop's condition is known only at run time")
        if not bool(go_on.reshape(-1)[0]):
            break
        if step == MAX_ITERATIONS:
            raise node.unsupported(f"the loop has more than {MAX_ITERATIONS} rounds")
        given = np.array(True) if condition is None else go_on
        arguments = [constant(np.array(step, "int64")), constant(given), *carried]
        results = node.importer.convert_subgraph(body, arguments, node.scope)
        condition = None if condition is None and node.get(1) is None else results[0]
        if node.get(1) is None and constant_value(results[0]) is None:
            raise node.unsupported("the loop's condition is known only at run time")
        condition = results[0]
        carried = results[1 : 1 + states]
        for column, value in zip(stacked, results[1 + states :]):
            column.append(value)
        step += 1
    if step == 0 and stacked:
        raise node.unsupported("a loop without rounds has no scan outputs")
    return [*carried, *(_stack(node, column, 0) for column in stacked)]


def scan(node: Node) -> list[relax.Expr] | None:
    """A scan, unrolled over its sequence axis."""
    if node.opset < 9:
        raise node.unsupported("Scan of opset 8 is not supported; export with opset 9 or newer")
    body: onnx.GraphProto = node.attrs["body"]
    count = node.attr("num_scan_inputs")
    states = len(node.inputs) - count
    carried = list(node.inputs[:states])
    axes = node.attr("scan_input_axes", (0,) * count)
    backward = node.attr("scan_input_directions", (0,) * count)
    outputs = len(body.output) - states
    output_axes = node.attr("scan_output_axes", (0,) * outputs)
    output_backward = node.attr("scan_output_directions", (0,) * outputs)
    length = node.shape(states)[axes[0] % len(node.shape(states))]
    if not 0 < length <= MAX_ITERATIONS:
        raise node.unsupported(f"the sequence has {length} steps, not 1 to {MAX_ITERATIONS}")
    stacked: list[list[relax.Expr]] = [[] for _ in range(outputs)]
    for step in range(length):
        slices = []
        for i in range(count):
            at = length - 1 - step if backward[i] else step
            slices.append(step_of(node, node[states + i], axes[i], at))
        results = node.importer.convert_subgraph(body, [*carried, *slices], node.scope)
        carried = results[:states]
        for column, value in zip(stacked, results[states:]):
            column.append(value)
    sequences = []
    for column, axis, reverse in zip(stacked, output_axes, output_backward):
        sequences.append(_stack(node, column[::-1] if reverse else column, axis))
    return [*carried, *sequences]


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
    piece = relax.op.strided_slice(data, [axis], [index], [index + 1])
    return node.emit(relax.op.squeeze(piece, [axis]))


def _stack(node: Node, values: list[relax.Expr], axis: int) -> relax.Expr:
    shape = shape_of(values[0])
    if shape is None:
        raise node.unsupported("a step's result has a shape that is known only at run time")
    axis %= len(shape) + 1
    wide = [node.emit(relax.op.expand_dims(value, axis)) for value in values]
    return wide[0] if len(wide) == 1 else relax.op.concat(wide, axis)


CONVERTERS = {"If": branch, "Loop": loop, "Scan": scan}
