"""Convert saved Relay modules to `syntax` nodes, the output of the text parser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ...errors import SavedModuleError
from ...support.depth_first import depth_first
from ..text import syntax
from .attributes import read_attributes
from .graph import Graph

_LEAVES = frozenset(
    {"relay.Var", "relay.Constant", "GlobalVar", "relay.GlobalVar", "Op", "relay.Op",
     "relay.Constructor"}
)  # fmt: skip
_NAMED = (syntax.Var, syntax.Constant, syntax.Global, syntax.Op, syntax.Constructor)
_DTYPE = re.compile(r"(?:bool|bfloat16|(?:u?int|float)(?:1|4|8|16|32|64))\Z")
_MAX_NESTING = 100

_OPERANDS: dict[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "relay.Call": (("op",), "args", ()),
    "relay.Tuple": ((), "fields", ()),
    "relay.TupleGetItem": (("tuple_value",), "", ()),
    "relay.If": (("cond",), "", ("true_branch", "false_branch")),
    "relay.Let": (("value",), "", ("body",)),
    "relay.Match": (("data",), "", ()),
    "relay.RefCreate": (("value",), "", ()),
    "relay.RefRead": (("ref",), "", ()),
    "relay.RefWrite": (("ref", "value"), "", ()),
}
"""Fields of each node kind: operands, a list of operands, bodies that open a scope."""


def read_module(text: str, source: str = "json") -> syntax.Module:
    """Read a module, or `main`, from `tvm.ir.save_json`; SavedModuleError if damaged or neither."""
    graph = Graph(text, source)
    kind = graph.kind(graph.root)
    reader = _Reader(graph)
    if kind in ("IRModule", "relay.Module"):
        return reader.module(graph.root)
    if kind == "relay.Function":
        return syntax.Module({"main": reader.function(graph.root)}, source=source)
    if kind in _LEAVES or kind.startswith("relay.") or kind == "GlobalVar":
        return syntax.Module({"main": reader.closed(graph.root)}, source=source)
    raise SavedModuleError(f"{source}: the document holds a {kind or 'null'}, no Relay module")


class _Reader:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.vars: dict[int, syntax.Var] = {}
        self.constants: dict[int, syntax.Constant] = {}
        self.nesting = 0

    def module(self, index: int) -> syntax.Module:
        graph = self.graph
        made = syntax.Module(source=graph.source)
        for _, at in graph.pairs(graph.node(index, "type_definitions")):
            self._type_data(made, at)
        for key, at in graph.pairs(graph.node(index, "functions")):
            name = graph.text(key, "name_hint") or graph.payload(key)
            if graph.kind(at) != "relay.Function":
                raise graph.error(at, f"@{name} is not a Relay function")
            made.functions[name] = self.function(at)
        return made

    def _type_data(self, made: syntax.Module, index: int) -> None:
        graph = self.graph
        name = self._name(graph.node(index, "header"))
        type_params = tuple(self._name(each) for each in self._list(index, "type_vars"))
        constructors = {
            graph.text(each, "name_hint"): tuple(
                self.type(kind) for kind in self._list(each, "inputs")
            )
            for each in self._list(index, "constructors")
        }
        made.types[name] = syntax.DataType(name, type_params, constructors)

    def _list(self, index: int, name: str) -> list[int]:
        return self.graph.items(self.graph.node(index, name))

    def _name(self, index: int) -> str:
        return self.graph.text(index, "name_hint") or self.graph.payload(index)

    # Functions and bodies.

    def function(self, index: int) -> syntax.Function:
        graph = self.graph
        attributes = graph.node(index, "attrs")
        return syntax.Function(
            [self.var(each) for each in self._list(index, "params")],
            self.body(graph.node(index, "body")),
            self.type(graph.node(index, "ret_type")) if graph.node(index, "ret_type") else None,
            tuple(self._name(each) for each in self._list(index, "type_params")),
            read_attributes(graph, attributes) if attributes else {},
        )

    def closed(self, index: int) -> syntax.Function:
        """Convert an expression to a function of its free variables."""
        body = self.body(index)
        bound = {var for var, _ in body.bindings}
        return syntax.Function([v for v in self.vars.values() if v not in bound], body)

    def body(self, root: int) -> syntax.Block:
        """Convert a body to a block: each shared or nested node is bound once, in its scope."""
        with self.nested(root, "functions are nested too deep"):
            return _Body(self, root).block

    @contextmanager
    def nested(self, index: int, message: str) -> Iterator[None]:
        self.nesting += 1
        if self.nesting > _MAX_NESTING:
            raise self.graph.error(index, message)
        yield
        self.nesting -= 1

    def operands(self, index: int) -> list[tuple[int, bool]]:
        """Operands of a node, and whether each opens a new scope."""
        graph, kind = self.graph, self.graph.kind(index)
        if kind in _LEAVES or kind == "relay.Function":
            return []
        if kind not in _OPERANDS:
            raise graph.error(index, "this is not a Relay expression")
        plain, listed, bodies = _OPERANDS[kind]
        found = [(graph.node(index, name), False) for name in plain]
        found += [(each, False) for each in self._list(index, listed)] if listed else []
        found += [(graph.node(index, name), True) for name in bodies]
        clauses = self._list(index, "clauses") if kind == "relay.Match" else []
        return found + [(graph.node(each, "rhs"), True) for each in clauses]

    # Leaves, patterns, types.

    def leaf(self, index: int) -> syntax.Expr:
        kind = self.graph.kind(index)
        if kind == "relay.Var":
            return self.var(index)
        if kind == "relay.Constant":
            if index not in self.constants:
                self.constants[index] = syntax.Constant(self.graph.array(index, "data"))
            return self.constants[index]
        if kind in ("Op", "relay.Op"):
            return syntax.Op(self.graph.payload(index))
        if kind == "relay.Constructor":
            return syntax.Constructor(self.graph.text(index, "name_hint"))
        if kind in ("GlobalVar", "relay.GlobalVar"):
            return syntax.Global(self._name(index))
        raise self.graph.error(index, "this is not a variable")

    def var(self, index: int) -> syntax.Var:
        graph = self.graph
        if graph.kind(index) != "relay.Var":
            raise graph.error(index, "a variable is needed here")
        identity = graph.node(index, "vid") or index
        if identity not in self.vars:
            name = graph.text(identity, "name_hint") or graph.text(index, "name_hint")
            annotation = graph.node(index, "type_annotation") or graph.node(index, "_checked_type_")
            kind = self.type(annotation) if annotation else None
            self.vars[identity] = syntax.Var(name, kind)
        return self.vars[identity]

    def pattern(self, index: int, depth: int = 0) -> syntax.Pattern:
        graph, kind = self.graph, self.graph.kind(index)
        if depth > _MAX_NESTING:
            raise graph.error(index, "patterns are nested too deep")
        if kind == "relay.PatternWildcard":
            return syntax.AnyPattern()
        if kind == "relay.PatternVar":
            return syntax.VarPattern(self.var(graph.node(index, "var")))
        fields = [
            self.pattern(each, depth + 1)
            for each in self._list(index, "fields" if kind == "relay.PatternTuple" else "patterns")
        ]
        if kind == "relay.PatternTuple":
            return syntax.TuplePattern(fields)
        if kind == "relay.PatternConstructor":
            name = graph.text(graph.node(index, "constructor"), "name_hint")
            return syntax.ConstructorPattern(name, fields)
        raise graph.error(index, "this is not a pattern")

    def type(self, index: int, depth: int = 0) -> syntax.Type:
        graph, kind = self.graph, self.graph.kind(index)
        if depth > _MAX_NESTING:
            raise graph.error(index, "types are nested too deep")
        if kind in ("relay.TensorType", "TensorType"):
            shape = tuple(self._extent(each) for each in self._list(index, "shape"))
            dtype = graph.text(index, "dtype")
            if not _DTYPE.match(dtype):
                raise graph.error(index, f"there is no data type {dtype!r:.40}")
            return syntax.TensorType(shape, dtype)
        if kind == "TupleType":
            fields = self._list(index, "fields")
            return syntax.TupleType(tuple(self.type(each, depth + 1) for each in fields))
        if kind == "FuncType":
            arguments = tuple(self.type(each, depth + 1) for each in self._list(index, "arg_types"))
            names = tuple(self._name(each) for each in self._list(index, "type_params"))
            result = self.type(graph.node(index, "ret_type"), depth + 1)
            return syntax.FuncType(arguments, result, names)
        if kind in ("relay.RefType", "RelayRefType"):
            return syntax.RefType(self.type(graph.node(index, "value"), depth + 1))
        if kind in ("TypeVar", "GlobalTypeVar"):
            return syntax.NamedType(self._name(index))
        if kind == "TypeCall":
            arguments = tuple(self.type(each, depth + 1) for each in self._list(index, "args"))
            return syntax.NamedType(self._name(graph.node(index, "func")), arguments, True)
        if kind in ("IncompleteType", "relay.IncompleteType", ""):
            return syntax.UnknownType()
        raise graph.error(index, "this is not a type")

    def _extent(self, index: int) -> int | None:
        value: Any = self.graph.value(index)
        if value is not None and (not isinstance(value, int) or value < 0):
            raise self.graph.error(index, "this is not an extent of a shape")
        return value


class _Body:
    """Conversion of one body; each node is evaluated in its scope."""

    def __init__(self, reader: _Reader, root: int) -> None:
        self.reader = reader
        self.graph = reader.graph
        scope = Scope(None, 0)
        self.where: dict[int, Scope] = {root: scope}
        self.inner: dict[tuple[int, int], Scope] = {}
        """Scopes opened by conditions, lets and clauses, by node and operand position."""
        self._assign_scopes(root)
        self.block = self._region(root, scope, {})

    def _assign_scopes(self, root: int) -> None:
        operands = self.reader.operands
        try:
            nodes = order(root, lambda node: [below for below, _ in operands(node)])
        except ValueError as error:
            raise SavedModuleError(f"{self.graph.source}: {error}") from None
        where = self.where
        for node in reversed(nodes):
            own = where[node]
            for position, (below, opens) in enumerate(operands(node)):
                seen = own
                if opens:
                    seen = self.inner[node, position] = own.inner()
                where[below] = common(where[below], seen) if below in where else seen
        for node in nodes:
            where[node].nodes.append(node)

    def _region(self, root: int, scope: Scope, names: dict[int, syntax.Expr]) -> syntax.Block:
        """Convert the nodes of one scope in order; a final let continues in the same block."""
        graph, reader = self.graph, self.reader
        bindings: list[tuple[syntax.Var, syntax.Expr]] = []
        names = dict(names) if scope.depth else names
        while True:
            following = None
            for node in scope.nodes:
                if node == root and graph.kind(node) == "relay.Let":
                    following = node
                    continue
                made = self._node(node, names)
                if isinstance(made, _NAMED):
                    names[node] = made
                else:
                    var = syntax.Var(str(len(names)), None, len(names))
                    bindings.append((var, made))
                    names[node] = var
            if following is None:
                return syntax.Block(bindings, names[root])
            bound = reader.var(graph.node(following, "var"))
            bindings.append((bound, names[graph.node(following, "value")]))
            root = graph.node(following, "body")
            scope = self.inner[following, 1]
            if self.where[root] is not scope:  # body already bound in an outer scope
                return syntax.Block(bindings, names.get(root) or reader.leaf(root))

    def _node(self, index: int, names: dict[int, syntax.Expr]) -> syntax.Expr:
        graph, reader, kind = self.graph, self.reader, self.graph.kind(index)

        def named(field: str) -> syntax.Expr:
            return names[graph.node(index, field)]

        def listed(field: str) -> list[syntax.Expr]:
            return [names[each] for each in graph.items(graph.node(index, field))]

        def region(owner: int, field: str, position: int) -> syntax.Block:
            return self._nested_region(graph.node(owner, field), self.inner[index, position], names)

        if kind in _LEAVES:
            return reader.leaf(index)
        if kind == "relay.Function":
            return reader.function(index)
        if kind == "relay.Call":
            attributes = graph.node(index, "attrs")
            read = read_attributes(graph, attributes) if attributes else {}
            return syntax.Call(named("op"), listed("args"), read)
        if kind == "relay.Tuple":
            return syntax.Tuple(listed("fields"))
        if kind == "relay.TupleGetItem":
            return syntax.Field(named("tuple_value"), graph.integer(index, "index"))
        if kind == "relay.If":
            branches = region(index, "true_branch", 1), region(index, "false_branch", 2)
            return syntax.If(named("cond"), *branches)
        if kind == "relay.Let":  # a let as an operand
            bound = reader.var(graph.node(index, "var"))
            rest = region(index, "body", 1)
            return syntax.Block([(bound, named("value")), *rest.bindings], rest.result)
        if kind == "relay.Match":
            found = enumerate(graph.items(graph.node(index, "clauses")), 1)
            clauses = [
                syntax.Clause(reader.pattern(graph.node(each, "lhs")), region(each, "rhs", place))
                for place, each in found
            ]
            return syntax.Match(named("data"), clauses, bool(graph.integer(index, "complete", 1)))
        if kind == "relay.RefCreate":
            return syntax.RefCreate(named("value"))
        if kind == "relay.RefRead":
            return syntax.RefRead(named("ref"))
        return syntax.RefWrite(named("ref"), named("value"))

    def _nested_region(
        self, root: int, scope: Scope, names: dict[int, syntax.Expr]
    ) -> syntax.Block:
        if self.where[root] is not scope:
            return syntax.Block([], names[root])
        with self.reader.nested(root, "conditions are nested too deep"):
            return self._region(root, scope, names)


@dataclass(eq=False, slots=True)
class Scope:
    """Body of a function, branch or let. `nodes` are in evaluation order.

    Nodes of a saved body can be used in several branches. Each is evaluated once, in the innermost
    scope that is visible to all its uses.
    """

    outer: Scope | None
    depth: int
    nodes: list[int] = field(default_factory=list)

    def inner(self) -> Scope:
        return Scope(self, self.depth + 1)


def common(left: Scope, right: Scope) -> Scope:
    """Innermost common scope."""
    while left is not right:
        if left.depth >= right.depth:
            assert left.outer is not None
            left = left.outer
        else:
            assert right.outer is not None
            right = right.outer
    return left


def order(root: int, uses: Callable[[int], Iterable[int]]) -> list[int]:
    """Topological order of the nodes below `root`, operands first. ValueError on a cycle."""
    found: dict[int, None] = {}
    for node in depth_first([root], uses):
        if not found.keys() >= set(uses(node)):
            raise ValueError(f"node {node} is part of a circle")
        found[node] = None
    return list(found)
