"""Shapes of MXNet parameters that follow from the shape of the data and the attributes."""

from __future__ import annotations

import math
from collections.abc import Callable

from compiler.ir.constants import static_shape
from compiler.mxnet_format.graph import Entry
from compiler.mxnet_format.operators import canonical, is_call

from . import library as mxnet_library
from .node import SymbolNode, variables_for
from .ops.elementwise import UNARY

Shape = tuple[int, ...]


def parameter_shape(node: SymbolNode, position: int) -> Shape | None:
    """Shape that input `position` of a node must have; None where it does not follow."""
    operator = mxnet_library.operator_of(node)
    if operator is not None:
        return mxnet_library.input_shape(node, operator, position)
    op = canonical(node.op)
    if op in _SAME_SHAPES:
        others = (node.importer.known_entry(node, i) for i in range(node.count) if i != position)
        return next((static_shape(other) for other in others if other is not None), None)
    if is_call(node.node):
        scope = node.importer.body_scope(node)
        variable = scope.graph.nodes[variables_for(scope.graph, node.count)[position]]
        return _wanted_by_readers(SymbolNode(variable, node.importer, scope))
    if op.removeprefix("_npi_") in UNARY:
        return _wanted_by_readers(node)
    rule = _RULES.get(op)
    if rule is None or position == 0:
        return None
    data = node.importer.known_entry(node, 0)
    shape = None if data is None else static_shape(data)
    return None if shape is None else rule(node, shape, position)


def _wanted_by_readers(node: SymbolNode, output: int = 0) -> Shape | None:
    """Shape that a reader of a node's output wants, also one around or inside of a subgraph."""
    graph, caller = node.scope.graph, node.scope.caller
    entry = Entry(next(i for i, each in enumerate(graph.nodes) if each is node.node), output)
    for reader in graph.nodes:
        view = SymbolNode(reader, node.importer, node.scope)
        for position in (i for i, each in enumerate(reader.inputs) if each[:2] == entry[:2]):
            found = parameter_shape(view, position)
            if found is not None:
                return found
    heads = [i for i, head in enumerate(graph.heads) if head[:2] == entry[:2]]
    outside = (_wanted_by_readers(caller, i) for i in heads if caller is not None)
    return next(filter(None, outside), None)


def hidden_shapes(node: SymbolNode, shape: Shape) -> list[Shape]:
    """Shapes of the outputs that a node hides, from that of its first; [] where unknown."""
    op = canonical(node.op)
    if op == "BatchNorm":
        return [(shape[node.axis(node.integer("axis", 1), len(shape))],)] * 2
    if op == "LayerNorm":
        axis = node.axis(node.integer("axis", -1), len(shape))
        return [(*shape[:axis], 1, *shape[axis + 1 :])] * 2
    if op == "InstanceNorm":
        return [shape[:2]] * 2
    if op == "GroupNorm":
        return [(shape[0], node.integer("num_groups", 1))] * 2
    return [shape] if op == "Dropout" else []


def _convolution(node: SymbolNode, data: Shape, position: int) -> Shape:
    kernel, filters = node.integers("kernel"), node.integer("num_filter")
    groups = node.integer("num_group", 1)
    if position == 2:
        return (filters,)
    if node.has("layout") and node.text("layout").endswith("C"):
        return (filters, *kernel, data[-1] // groups)
    return (filters, data[1] // groups, *kernel)


def _deconvolution(node: SymbolNode, data: Shape, position: int) -> Shape:
    filters, groups = node.integer("num_filter"), node.integer("num_group", 1)
    return (filters,) if position == 2 else (data[1], filters // groups, *node.integers("kernel"))


def _dense(node: SymbolNode, data: Shape, position: int) -> Shape:
    units = node.integer("num_hidden")
    if position == 2:
        return (units,)
    return (units, math.prod(data[1:]) if node.flag("flatten", True) else data[-1])


def _along(default: int) -> Callable[[SymbolNode, Shape, int], Shape]:
    """Vectors along the axis that the attribute `axis` names."""
    return lambda node, data, _: (data[node.axis(node.integer("axis", default), len(data))],)


def _embedding(node: SymbolNode, data: Shape, position: int) -> Shape:
    return (node.integer("input_dim"), node.integer("output_dim"))


def _prelu(node: SymbolNode, data: Shape, position: int) -> Shape:
    return (data[1] if len(data) > 1 else 1,)


def _label(node: SymbolNode, data: Shape, position: int) -> Shape:
    if node.flag("multi_output", False):
        return (data[0], *data[2:])
    return data[:-1] if node.flag("preserve_shape", False) else data[:1]


def _upsampling(node: SymbolNode, data: Shape, position: int) -> Shape:
    scale = node.integer("scale")
    size = 2 * scale - scale % 2
    return (data[1], 1, size, size)


_RULES: dict[str, Callable[[SymbolNode, Shape, int], Shape]] = {
    "BatchNorm": _along(1),
    "Convolution": _convolution,
    "Deconvolution": _deconvolution,
    "Embedding": _embedding,
    "FullyConnected": _dense,
    "GroupNorm": _along(1),
    "InstanceNorm": _along(1),
    "LayerNorm": _along(-1),
    "LeakyReLU": _prelu,
    "LinearRegressionOutput": lambda node, data, _: data,
    "LogisticRegressionOutput": lambda node, data, _: data,
    "MAERegressionOutput": lambda node, data, _: data,
    "SoftmaxOutput": _label,
    "UpSampling": _upsampling,
}

_SAME_SHAPES = frozenset(
    [
        *("elemwise_add", "elemwise_sub", "elemwise_mul", "elemwise_div", "_plus", "_Plus"),
        *("_add", "_minus", "_sub", "_mul", "_div", "_maximum", "_minimum", "add_n"),
    ]
)
