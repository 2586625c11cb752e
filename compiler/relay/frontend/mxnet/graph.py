"""Conversion of a symbol, node by node, into the Relax function `main`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax

from compiler.errors import BatonError, FrontendError, UnknownShapeError, UnsupportedOperatorError
from compiler.ir.constants import dtype_of, static_shape, to_tensor
from compiler.mxnet_format.attributes import is_none, parse_dtype, parse_int_tuple
from compiler.mxnet_format.graph import Entry, Graph, Node
from compiler.mxnet_format.operators import is_call, outputs_of
from compiler.tvm_workarounds.block_builder import BlockBuilder

from . import library as mxnet_library
from .node import SymbolNode, variables_for
from .ops import CONVERTERS, is_known
from .shapes import hidden_shapes, parameter_shape
from .subgraph_nodes import ClaimedBindings

Shape = tuple[int, ...]
OutputType = tuple["Shape | None", "str | None"]
"""Shape and dtype of one output, None where unknown."""


@dataclass
class Scope:
    """Values of the entries of one graph: (node, output) to Relax expression."""

    graph: Graph
    values: dict[tuple[int, int], relax.Expr] = field(default_factory=dict)
    # the entry of the outer graph for each variable of a subgraph
    outer: dict[int, tuple[Scope, Entry]] = field(default_factory=dict)
    # the node that calls a subgraph, in its own scope
    caller: SymbolNode | None = None


class SymbolImporter:
    """One import of one symbol, whose nodes come after those they read.

    Shapes of variables that are not in `shapes` are deduced where an operator reads them; `dtype`
    is that of the variables without a value, for all or by name; `arrays` are the parameters'
    values.
    """

    def __init__(
        self,
        graph: Graph,
        shapes: Mapping[str, Shape],
        dtype: str | Mapping[str, str],
        arrays: Mapping[str, np.ndarray],
    ):
        self.graph = graph
        self.shapes = shapes
        self.dtype = dtype
        self.arrays = arrays
        self.builder = BlockBuilder()
        self.numpy_semantics = graph.attrs.get("is_np_shape", ("int", 0))[1] != 0
        self._variables: dict[str, relax.Var] = {}
        self._read_all = False
        self._claims = ClaimedBindings(self.builder)
        self._places = 0

    def run(self) -> tuple[tvm.IRModule, dict[str, tvm.runtime.Tensor]]:
        """Convert the symbol; returns the module and the values of its parameters."""
        self._build()
        inputs, params = self._ordered_variables()
        module = self.builder.get()
        module["main"] = module["main"].with_attr("num_input", len(inputs))
        return self._claims.outlined(module), {
            var.name: to_tensor(self.arrays[var.name]) for var in params
        }

    def infer(self) -> tuple[dict[str, Shape], list[Shape]]:
        """Shapes of all variables, also of those that inference does not read, and outputs."""
        self._read_all = True
        outputs = self._build()
        shapes = {name: static_shape(var) or () for name, var in self._variables.items()}
        for node in self.graph.variables():
            if node.name not in shapes:  # given to a subgraph whose outputs do not need it
                shape = self.shapes.get(node.name, self._shape_hint(node))
                if shape is None:
                    raise UnknownShapeError(
                        f"give the shape of {node.name!r} too: no operator that the outputs need "
                        "reads it"
                    )
                shapes[node.name] = shape
        return shapes, [static_shape(value) or () for value in outputs]

    def output_types(self) -> list[tuple[Shape, str]]:
        """Shape and dtype of every output."""
        return [(static_shape(value) or (), dtype_of(value)) for value in self._build()]

    def infer_types(self) -> list[list[OutputType]]:
        """Output types of all nodes, hidden ones too, if known; FrontendError if contradictory."""
        self._read_all = True
        scope = Scope(self.graph)

        def convert() -> list[relax.Expr]:
            for index in range(len(self.graph.nodes)):
                self._try_node(index, scope)
            return [relax.const(0)]

        self._build_main(convert)
        return [self._types_of(index, scope) for index in range(len(self.graph.nodes))]

    def _try_node(self, index: int, scope: Scope) -> None:
        """Convert one node, unless something it needs is not known."""
        node = self.graph.nodes[index]
        if node.is_variable:
            self._value(scope, Entry(index), lambda: None)
            return
        try:
            results = self._convert_node(node, scope)
        except (UnknownShapeError, UnsupportedOperatorError):
            return
        scope.values.update({(index, k): value for k, value in enumerate(results)})

    def _types_of(self, index: int, scope: Scope) -> list[OutputType]:
        node = self.graph.nodes[index]
        count = outputs_of(node).total
        found: list[OutputType] = [(None, None)] * count
        for position in range(count):
            value = scope.values.get((index, position))
            if value is not None:
                found[position] = static_shape(value), dtype_of(value)
        shape, dtype = found[0]
        if shape is not None and dtype is not None and count > 1 and found[1] == (None, None):
            view = SymbolNode(node, self, scope)
            hidden = hidden_shapes(view, shape)[: count - 1]
            found[1 : 1 + len(hidden)] = [(each, dtype) for each in hidden]
        return found

    def _build(self) -> list[relax.Expr]:
        self._check_operators(self.graph)
        return self._build_main(lambda: self.convert_graph(Scope(self.graph)))

    def _build_main(self, convert: Callable[[], list[relax.Expr]]) -> list[relax.Expr]:
        """Build `main` of the variables that `convert` reads; returns its outputs."""
        try:
            with self.builder.function("main"):
                with self.builder.dataflow():
                    outputs = convert()
                    result = outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)
                    bound = self.builder.emit_output(result)
                inputs, params = self._ordered_variables()
                self.builder.emit_func_output(bound, params=[*inputs, *params])
        except Exception:
            self.builder._end_block()  # else the builder prints a warning when it goes
            raise
        return outputs

    def _ordered_variables(self) -> tuple[list[relax.Var], list[relax.Var]]:
        """The variables that were read: inputs, and parameters with a value."""
        names = dict.fromkeys(node.name for node in self.graph.variables())
        read = [self._variables[name] for name in names if name in self._variables]
        inputs = [var for var in read if var.name not in self.arrays]
        return inputs, [var for var in read if var.name in self.arrays]

    def convert_graph(self, scope: Scope) -> list[relax.Expr]:
        """Convert the nodes that the graph's outputs need; returns the outputs."""
        for index in scope.graph.reachable():
            node = scope.graph.nodes[index]
            if not node.is_variable:
                for position, value in enumerate(self._convert_node(node, scope)):
                    scope.values[index, position] = value
        return [self._head(head, scope) for head in scope.graph.heads]

    def convert_body(self, graph: Graph, arguments: Sequence[relax.Expr]) -> list[relax.Expr]:
        """Convert a subgraph whose variables, in node order, receive `arguments`."""
        variables = variables_for(graph, len(arguments))
        scope = Scope(graph, {(i, 0): value for i, value in zip(variables, arguments)})
        return self.convert_graph(scope)

    def body_scope(self, call: SymbolNode) -> Scope:
        """The scope of a subgraph node's body.

        An argument is looked up when something inside reads it, so that the shape of a parameter
        can follow from there.
        """
        body = call.node.subgraphs[0]
        variables = variables_for(body, call.count)
        links = {i: (call.scope, entry) for i, entry in zip(variables, call.node.inputs)}
        return Scope(body, outer=links, caller=call)

    def entry_value(self, reader: SymbolNode, position: int) -> relax.Expr | None:
        """Value of an input of a node; None for a variable whose shape can't be known."""
        scope, entry = reader.scope, reader.node.inputs[position]
        found = self._value(scope, entry, lambda: parameter_shape(reader, position))
        source = scope.graph.nodes[entry.node]
        if found is None and not source.is_variable:
            raise reader.unsupported(
                f"it reads output {entry.output} of operator {source.op} (node {source.name!r}), "
                f"which inference does not compute"
            )
        return found

    def known_entry(self, reader: SymbolNode, position: int) -> relax.Expr | None:
        """Value of an input if it is known without deducing a shape."""
        return self._value(reader.scope, reader.node.inputs[position], lambda: None)

    def _value(
        self, scope: Scope, entry: Entry, deduce: Callable[[], Shape | None]
    ) -> relax.Expr | None:
        """Value of an entry; a variable that is read for the first time is declared."""
        key = (entry.node, entry.output)
        if key in scope.values:
            return scope.values[key]
        source = scope.graph.nodes[entry.node]
        if not source.is_variable:
            return None
        if entry.node in scope.outer:
            found = self._value(*scope.outer[entry.node], deduce)
        else:
            found = self._variable(source)
            if found is None:
                shape = deduce()
                found = None if shape is None else self._declare(source, shape)
        if found is not None:
            scope.values[key] = found
        return found

    def _head(self, head: Entry, scope: Scope) -> relax.Expr:
        node = scope.graph.nodes[head.node]
        found = self._value(scope, head, lambda: None)
        if found is None and node.is_variable:
            raise UnknownShapeError(f"give the shape of input {node.name!r} in `shape`")
        if found is None:
            raise UnsupportedOperatorError(
                f"operator {node.op} (node {node.name!r}) has no output {head.output}"
            )
        return found

    def _variable(self, node: Node) -> relax.Var | None:
        """The parameter of `main` for a variable; None while its shape is unknown."""
        if node.name in self._variables:
            return self._variables[node.name]
        shape = self.shapes.get(node.name)
        if shape is None:
            shape = self._shape_hint(node)
        return None if shape is None else self._declare(node, shape)

    def _declare(self, node: Node, shape: Shape) -> relax.Var:
        ty = relax.TensorType(shape, self._dtype(node))
        self._variables[node.name] = relax.Var(node.name, ty)
        return self._variables[node.name]

    def _shape_hint(self, node: Node) -> Shape | None:
        """The `__shape__` of a variable, unless it leaves sizes open."""
        text = node.attrs.get("__shape__")
        if text is None or is_none(text):
            return None
        try:
            shape = parse_int_tuple(text)
        except ValueError as error:
            raise FrontendError(f"variable {node.name!r}: __shape__ is {text!r}") from error
        least = 0 if self.numpy_semantics else 1
        complete = all(extent >= least for extent in shape)
        return shape if complete and (shape or self.numpy_semantics) else None

    def _dtype(self, node: Node) -> str:
        if node.name in self.arrays:
            return str(self.arrays[node.name].dtype)
        if not isinstance(self.dtype, str) and node.name in self.dtype:
            return self.dtype[node.name]
        hint = node.attrs.get("__dtype__")
        if hint is not None and not is_none(hint) and hint != "-1":
            try:
                return parse_dtype(hint)
            except ValueError as error:
                raise FrontendError(f"variable {node.name!r}: __dtype__ is {hint!r}") from error
        return self.dtype if isinstance(self.dtype, str) else "float32"

    def _check_operators(self, graph: Graph) -> None:
        """Raise for the operators that nothing can convert, before any work is done."""
        missing: dict[str, Node] = {}
        pending = [graph]
        while pending:
            for node in pending.pop().nodes:
                pending += node.subgraphs
                known = node.is_variable or is_call(node) or is_known(node.op)
                if not known:
                    missing.setdefault(node.op, node)
        if missing:
            named = [f"operator {op} (node {node.name!r})" for op, node in missing.items()]
            raise UnsupportedOperatorError(
                f"not supported: {'; '.join(named)}. An operator of a library is known once "
                "compiler.mxnet.library.load has loaded it"
            )

    def new_place(self) -> int:
        """A number for one place of an operator in the model."""
        self._places += 1
        return self._places

    def _convert_node(self, node: Node, scope: Scope) -> list[relax.Expr]:
        view = SymbolNode(node, self, scope)
        operator = mxnet_library.operator_of(view)
        if operator is not None:
            with self._claims.of(node, operator.runtime):
                return mxnet_library.convert(view, operator)
        if is_call(node):
            with self._claims.of(node):  # its body, in its place
                return self.convert_graph(self.body_scope(view))
        if node.op not in CONVERTERS:
            raise view.unsupported("the importer does not know it")
        if self._read_all:
            self._read_inputs(view)
        try:
            result = CONVERTERS[node.op](view)
            view.refuse_unread()
            results = result if isinstance(result, list) else [result]
            return [self._bind(value) for value in results]
        except BatonError:
            raise
        except Exception as error:
            # TVM reports what it can't infer by errors of many classes.
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise FrontendError(f"{view.describe()} can't be converted: {reason[-1]}") from error

    def _read_inputs(self, view: SymbolNode) -> None:
        for position in range(view.count):
            view[position]

    def _bind(self, value: Any) -> relax.Expr:
        if isinstance(value, (relax.Var, tvm.ir.GenericConst)):
            return value
        return self.builder.emit(value)
