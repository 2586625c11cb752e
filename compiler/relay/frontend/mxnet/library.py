"""Operators of libraries in a symbol: calls of foreign code, typed by what the library infers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from compiler.errors import FrontendError, LibraryOperatorError
from compiler.ir.constants import dtype_of, static_shape
from compiler.mxnet_format.graph import Graph
from compiler.mxnet_format.subgraph_node import library_operator, visible_attrs, visible_json
from compiler.runtime import foreign
from compiler.runtime.library_operators import LibraryOperator, TensorType

from .node import SymbolNode, variables_for

SUBGRAPH_JSON = "subgraph_sym_json"
"""Attribute by which an operator of subgraphs gets what it is to run."""

Shape = tuple[int, ...]


def operator_of(node: SymbolNode) -> LibraryOperator | None:
    """Library operator of a node, or None; a subgraph's body wins unless its operator runs it."""
    return library_operator(node.node)


def _has_body(node: SymbolNode) -> bool:
    return len(node.node.subgraphs) == 1


def convert(node: SymbolNode, operator: LibraryOperator) -> list[relax.Expr]:
    """Outputs of a library operator; LibraryOperatorError if it rejects them or writes inputs."""
    attrs = visible_attrs(node.node.attrs)
    extra = operator.extra_inputs(attrs)
    if node.count < extra:
        raise FrontendError(f"{node.describe()} has {node.count} inputs; {extra} are to be extra")
    if not _has_body(node) and node.count != operator.counts(attrs)[0]:
        raise FrontendError(
            f"{node.describe()} has {node.count} inputs; it takes {operator.counts(attrs)[0]}"
        )
    mutated = operator.mutated_inputs(attrs)
    if mutated:
        raise LibraryOperatorError(
            f"{node.describe()}: {operator} writes to its inputs {mutated}; operators of libraries "
            "may only read their inputs here"
        )
    inputs = [(node.shape(index), node.dtype(index)) for index in range(node.count)]
    seen = inputs[: node.count - extra]
    if _has_body(node):
        attrs[SUBGRAPH_JSON] = visible_json(node.node.subgraphs[0])
        results = _Body(node, seen).output_types()
    else:
        _, results = operator.types(attrs, seen)
    place = node.importer.new_place()
    packed = operator.code(attrs, inputs, place).pack(node.count)
    foreign.register()
    arguments = [relax.const(np.frombuffer(packed, "uint8"), "uint8"), *node.all()]
    types = [relax.TensorType(shape, dtype) for shape, dtype in results]
    callee = relax.ExternFunc(foreign.RUN)
    call = node.emit(relax.call_dps_packed(callee, relax.Tuple(arguments), types))
    if len(types) == 1:
        return [call]
    return [node.emit(relax.TupleGetItem(call, index)) for index in range(len(types))]


def input_shape(node: SymbolNode, operator: LibraryOperator, position: int) -> Shape | None:
    """Shape that input `position` of a node must have, as the library infers it from the others."""
    attrs = visible_attrs(node.node.attrs)
    count = node.count - operator.extra_inputs(attrs)
    if position >= count:
        return None
    known = [node.importer.known_entry(node, index) for index in range(count)]
    types = [None if each is None else (static_shape(each) or (), dtype_of(each)) for each in known]
    if _has_body(node):
        return _Body(node, types).shape(position)
    try:
        shapes, _ = operator.types(attrs, [each or ((), "float32") for each in types])
    except LibraryOperatorError:  # it needs the shape, and so does the user
        return None
    return shapes[position] or None


class _Body:
    """The subgraph of a node, to infer types with; `inputs` are types, None where unknown."""

    def __init__(self, node: SymbolNode, inputs: Sequence[TensorType | None]) -> None:
        body = node.node.subgraphs[0]
        variables = variables_for(body, len(inputs))
        nodes = list(body.nodes)
        for number, index in enumerate(variables):  # names inside may repeat
            attrs = {k: v for k, v in nodes[index].attrs.items() if k == "__shape__"}
            nodes[index] = type(nodes[index])(nodes[index].op, f"in{number}", attrs=attrs)
        types = {f"in{number}": each for number, each in enumerate(inputs) if each is not None}
        self._importer = type(node.importer)(
            Graph(nodes, body.heads, node.importer.graph.attrs),
            {name: shape for name, (shape, _) in types.items()},
            {name: dtype for name, (_, dtype) in types.items()},
            {},
        )

    def output_types(self) -> list[TensorType]:
        return self._importer.output_types()

    def shape(self, position: int) -> Shape | None:
        shapes, _ = self._importer.infer()
        return shapes.get(f"in{position}")
