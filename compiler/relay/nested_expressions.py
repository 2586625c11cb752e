"""Bindings to nested expressions, shared nodes for shared values; `flatten` is the inverse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from schedules.tir_visit import nodes_of

from ..ir.scopes import rebuilt
from ..support.depth_first import depth_first
from . import adt
from .adt import EXPRESSIONS
from .type_infer import infer_type_if_possible, is_untyped, set_type

handle = tvm_ffi.Object.__hash__

SCOPE = "baton.scope"
"""Attribute of the function that a closed scope calls with the outer values that it reads."""


def nested(function: relax.Function) -> relax.Expr:
    """Body of the function as one expression over its parameters."""
    return _Nester().expression(function.body)


def nested_scope(function: relax.Function) -> relax.Expr:
    """Body of the function as `closed` gives it; values bound in the function are computed there.

    Branches and local functions are rewritten separately, see `compiler.ir.scopes`.
    """
    nester = _Nester()
    root = nester.expression(function.body)
    return closed(root, nester.bound(function.body), nester.own)


def value_of(body: relax.Expr) -> relax.Expr:
    """Convert a sequence of bindings to one nested expression for its result."""
    return _Nester().expression(body)


def nested_function(function: relax.Function) -> relax.Function:
    """Rebuild the function with its body as one nested expression."""
    return _Nester().function(function)


def local_function(
    parameters: Sequence[relax.Var], body: relax.Expr, attrs: Any = None
) -> relax.Function:
    """Inner function of a nested body; untyped nodes get AnyType so that patterns match."""
    for node in [*parameters, *post_order(body)]:
        if node.ty.is_missing():
            set_type(node, relax.AnyType())
    sequence = _sequence([], body, body.ty)
    return relax.Function(list(parameters), sequence, body.ty, attrs=dict_attrs(attrs))


def make_call(function: relax.Expr, args: Sequence[relax.Expr], ty: Any) -> relax.Call:
    """Create a call of an inner function with a known type."""
    return set_type(relax.Call(function, list(args)), ty)


def with_operands(expr: relax.Expr, new: Sequence[relax.Expr]) -> relax.Expr:
    """Rebuild a node with other operands, in `operands` order; the node itself if none changes."""
    old = operands(expr)
    if all(a.same_as(b) for a, b in zip(old, new)):
        return expr
    if isinstance(expr, relax.Tuple):
        return infer_type_if_possible(relax.Tuple(list(new), expr.span))
    if isinstance(expr, relax.TupleGetItem):
        if isinstance(new[0], relax.Tuple):
            return new[0].fields[expr.index]
        return infer_type_if_possible(relax.TupleGetItem(new[0], expr.index, expr.span))
    if isinstance(expr, EXPRESSIONS):
        return adt.with_operands(expr, new)
    taken = iter(new)
    if isinstance(expr, relax.If):
        condition = next(taken)
        branches = [_reading(each, taken) for each in (expr.true_branch, expr.false_branch)]
        return set_type(relax.If(condition, *branches, expr.span), expr.ty)
    if isinstance(expr, relax.SeqExpr):
        cast = expr.blocks[0].bindings[0]
        block = relax.BindingBlock([relax.MatchCast(cast.var, next(taken), cast.ty)])
        return _sequence([block], expr.body, expr.body.ty)
    if isinstance(expr, relax.Function):
        return _function_reading(expr, taken)
    args = [next(taken) if isinstance(arg, relax.Expr) else arg for arg in expr.args]
    op = _function_reading(expr.op, taken) if isinstance(expr.op, relax.Function) else expr.op
    made = relax.Call(op, args, expr.attrs, expr.ty_args, expr.span)
    same = all(a.ty.same_as(b.ty) or tvm_ffi.structural_equal(a.ty, b.ty) for a, b in zip(old, new))
    if same and not expr.ty.is_missing():
        set_type(made, expr.ty)
        return made
    return infer_type_if_possible(made)


def operands(expr: relax.Expr) -> list[relax.Expr]:
    """Operands of a node, without bodies of functions and branches.

    They include the value of a `match_cast`, and the outer values that closed scopes read.
    """
    if isinstance(expr, relax.Call):
        args = [arg for arg in expr.args if isinstance(arg, relax.Expr)]
        return args + operands(expr.op) if isinstance(expr.op, relax.Function) else args
    if isinstance(expr, relax.Tuple):
        return list(expr.fields)
    if isinstance(expr, relax.TupleGetItem):
        return [expr.tuple_value]
    if isinstance(expr, relax.If):
        return [expr.cond, *_read(expr.true_branch), *_read(expr.false_branch)]
    if isinstance(expr, relax.Function):
        return _read(expr.body)
    if isinstance(expr, relax.SeqExpr):
        return _cast_value(expr)
    return adt.operands(expr)


def _cast_value(expr: relax.SeqExpr) -> list[relax.Expr]:
    """Value of a sequence of one `match_cast` that returns its variable or a shape; else empty."""
    bindings = expr.blocks[0].bindings if len(expr.blocks) == 1 else []
    if len(bindings) == 1 and isinstance(bindings[0], relax.MatchCast):
        is_read = expr.body.same_as(bindings[0].var) or isinstance(expr.body, relax.ShapeExpr)
        return [bindings[0].value] if is_read else []
    return []


def is_closed_scope(expr: Any) -> bool:
    """Whether an expression calls the function of a scope that `closed` made."""
    return (
        isinstance(expr, relax.Call)
        and isinstance(expr.op, relax.Function)
        and SCOPE in (expr.op.attrs or {})
    )


def _read(scope: relax.SeqExpr) -> list[relax.Expr]:
    """Outer values that a closed scope reads; empty for a scope that is not closed."""
    return list(scope.body.args) if is_closed_scope(scope.body) else []


def _reading(scope: relax.SeqExpr, new: Iterator[relax.Expr]) -> relax.SeqExpr:
    """Rebuild a scope that reads other outer values."""
    old = _read(scope)
    values = [next(new) for _ in old]
    if all(a.same_as(b) for a, b in zip(old, values)):
        return scope
    return _sequence([], make_call(scope.body.op, values, scope.body.ty), scope.ty)


def _function_reading(function: relax.Function, new: Iterator[relax.Expr]) -> relax.Function:
    body = _reading(function.body, new)
    return function if body.same_as(function.body) else rebuilt(function, body)


def _sequence(blocks: list[Any], body: relax.Expr, ty: Any) -> relax.SeqExpr:
    made = relax.SeqExpr(blocks, body)
    if not ty.is_missing():
        set_type(made, ty)
    return made


def post_order(
    root: relax.Expr, below: Callable[[relax.Expr], list[relax.Expr]] = operands
) -> Iterator[relax.Expr]:
    """Yield nodes once, left to right, operands (`below`) first; functions, branches are leaves."""
    return depth_first([root], below, handle)


def rewrite(root: relax.Expr, change: Any) -> relax.Expr:
    """Rebuild bottom-up; `change(old, new)` gets a node and its rebuilt copy, returns a node."""
    made: dict[int, tuple[relax.Expr, relax.Expr]] = {}
    for node in post_order(root):
        new = with_operands(node, [made[handle(each)][1] for each in operands(node)])
        made[handle(node)] = (node, change(node, new))
    return made[handle(root)][1]


def closed(
    root: relax.Expr,
    own: Sequence[relax.Expr] = (),
    inner: Mapping[int, Sequence[relax.Expr]] = MappingProxyType({}),
) -> relax.Expr:
    """Let branches and local functions read outer values through parameters only.

        before   if c { add(exp(x), x) } else { exp(x) }     both read one node exp(x)
        after    if c { fn(a) { add(a, x) }(exp(x)) } else { fn(a) { a }(exp(x)) }

    A node that several scopes read belongs to the innermost scope around all its readers, where it
    is computed once. The parameters' values are operands of the condition or function. `own`,
    `inner`: nodes that belong to the outermost scope, and to each scope in it, by its handle.
    """
    is_flat = not any(map(_scopes, post_order(root, _below)))
    return root if is_flat else _Scopes(root, own, inner).build(root, 0)


class _Scopes:
    """Scopes of an expression: 0 is the expression, others are branches and local functions."""

    def __init__(
        self, root: relax.Expr, own: Sequence[relax.Expr], inner: Mapping[int, Sequence[relax.Expr]]
    ) -> None:
        self.parent = [0]
        self.inner: dict[tuple[int, int], list[int]] = {}  # by node and its scope: scopes in it
        # By node: the scopes that read it.
        self.readers: dict[int, set[int]] = {handle(each): {0} for each in (root, *own)}
        reads: list[tuple[int, relax.Expr]] = []
        order = post_order(root, lambda node: [*_below(node), *map(_body_of, _scopes(node))])
        for node in reversed(list(order)):
            new = []
            for home in sorted({self._home(node, each) for each in self.readers[handle(node)]}):
                new += [(home, each) for each in _below(node)]
                for scope in _scopes(node):
                    self.parent.append(home)
                    self.inner.setdefault((handle(node), home), []).append(len(self.parent) - 1)
                    kept = [scope.body, *inner.get(handle(scope), ())]
                    for each in kept:
                        self.readers.setdefault(handle(each), set()).add(len(self.parent) - 1)
                    new.append((len(self.parent) - 1, scope.body))
            for reader, each in new:
                self.readers.setdefault(handle(each), set()).add(reader)
            reads += new
        # Values of an outer scope that each scope reads, with the variables it reads them by.
        self.captured: list[dict[int, tuple[relax.Expr, relax.Var]]] = [{} for _ in self.parent]
        for reader, node in reads:
            child = self._child(node, reader)
            if child > 0 and handle(node) not in self.captured[child]:
                self.captured[child][handle(node)] = (node, relax.Var("outer", node.ty))

    def _home(self, node: relax.Expr, reader: int) -> int:
        """The scope that computes a node for a reader: the innermost around all readers."""
        if not _is_computed(node):
            return reader
        readers = set(self.readers[handle(node)])
        while len(readers) > 1:  # a scope has a larger number than those around it
            innermost = max(readers)
            readers = readers - {innermost} | {self.parent[innermost]}
        return readers.pop()

    def _child(self, node: relax.Expr, reader: int) -> int:
        """The scope that reads a node from the one around it; 0 if the reader computes it."""
        home, child = self._home(node, reader), 0
        while reader != home:
            child, reader = reader, self.parent[reader]
        return child

    def build(self, root: relax.Expr, number: int) -> relax.Expr:
        """Rebuild the nodes of one scope and the scopes in it."""
        made: dict[int, relax.Expr] = {}

        def below(node: relax.Expr) -> list[relax.Expr]:
            if self._child(node, number):
                return []
            scopes = self.inner.get((handle(node), number), ())
            values = [each for scope in scopes for each, _ in self.captured[scope].values()]
            return [*_below(node), *values]

        for node in post_order(root, below):
            child = self._child(node, number)
            made[handle(node)] = (
                self.captured[child][handle(node)][1] if child else self._made(node, number, made)
            )
        return made[handle(root)]

    def _made(self, node: relax.Expr, own: int, made: dict[int, relax.Expr]) -> relax.Expr:
        if isinstance(node, relax.Call) and handle(node.op) in made:
            return make_call(made[handle(node.op)], [made[handle(a)] for a in node.args], node.ty)
        new = with_operands(node, [made[handle(each)] for each in operands(node)])
        closed_ones = []
        for number, scope in zip(self.inner.get((handle(node), own), ()), _scopes(node)):
            body = self.build(scope.body, number)
            values = [made[key] for key in self.captured[number]]
            if values:
                variables = [var for _, var in self.captured[number].values()]
                body = make_call(local_function(variables, body, {SCOPE: 1}), values, body.ty)
            closed_ones.append(_sequence([], body, scope.ty))
        if not closed_ones:
            return new
        if isinstance(node, relax.If):
            return set_type(relax.If(new.cond, *closed_ones, node.span), node.ty)
        return relax.Function(node.params, closed_ones[0], node.ret_ty, node.is_pure)


def _is_computed(node: relax.Expr) -> bool:
    """Whether a node has a value of known type that takes more than a name to read."""
    if isinstance(node, relax.Function):
        return bool(_scopes(node))
    return bool(operands(node) or isinstance(node, relax.Call)) and not is_untyped(node.ty)


def _scopes(node: relax.Expr) -> list[relax.SeqExpr]:
    """Branches or body of a node; none if bindings make them opaque, or if they are closed."""
    found: list[relax.SeqExpr] = []
    if isinstance(node, relax.If):
        found = [node.true_branch, node.false_branch]
    elif isinstance(node, relax.Function) and not node.attrs:
        found = [node.body]
    return [] if any(each.blocks or is_closed_scope(each.body) for each in found) else found


def _body_of(scope: relax.SeqExpr) -> relax.Expr:
    return scope.body


def _below(node: relax.Expr) -> list[relax.Expr]:
    """Operands of a node, and the local function that it calls."""
    is_local = isinstance(node, relax.Call) and isinstance(node.op, relax.Function)
    return [node.op, *operands(node)] if is_local and _scopes(node.op) else operands(node)


def dict_attrs(attrs: Any) -> Any:
    """Convert a dict of function attributes to TVM's DictAttrs."""
    return tvm.ir.make_node("ir.DictAttrs", **attrs) if isinstance(attrs, dict) else attrs


def is_let(binding: Any) -> bool:
    """Whether nesting must keep a binding as a let instead of substituting its value.

    Recursive functions are referenced by name. References, data and untyped function calls must be
    evaluated in binding order.
    """
    if isinstance(binding, relax.MatchCast) or not is_untyped(binding.value.ty):
        return False
    if isinstance(binding.value, tvm.ir.BaseFunc):
        return calls_itself(binding)
    return any(
        isinstance(node, EXPRESSIONS)
        or (isinstance(node, relax.Call) and not isinstance(node.op, tvm.ir.Op))
        for node in post_order(binding.value)
    )


def calls_itself(binding: relax.VarBinding) -> bool:
    """Whether a let binds a recursive function."""
    value = binding.value
    return isinstance(value, tvm.ir.BaseFunc) and any(
        node.same_as(binding.var) for node in post_order(value.body, _parts)
    )


def _parts(node: relax.Expr) -> list[relax.Expr]:
    """All child expressions of a node, including those in inner scopes."""
    if isinstance(node, relax.Call):
        return [node.op, *operands(node)]
    if isinstance(node, tvm.ir.BaseFunc):
        return [node.body]
    if isinstance(node, relax.If):
        return [node.cond, node.true_branch, node.false_branch]
    if isinstance(node, relax.SeqExpr):
        return [*(each.value for block in node.blocks for each in block.bindings), node.body]
    if isinstance(node, adt.Match):
        return [node.data, *(clause.rhs for clause in node.clauses)]
    return operands(node)


class _Nester:
    def __init__(self) -> None:
        self.values: dict[int, tuple[relax.Expr, relax.Expr]] = {}
        self.own: dict[int, list[relax.Expr]] = {}  # by handle of a nested scope: `bound` of it
        self.shapes: list[tuple[Any, relax.BindingBlock]] = []  # extents that a match_cast defines

    def function(self, function: relax.Function) -> relax.Function:
        body = self.expression(function.body)
        made = local_function(function.params, body, function.attrs)
        self.own[handle(made.body)] = self.bound(function.body)
        return made

    def bound(self, scope: relax.SeqExpr) -> list[relax.Expr]:
        """Nested values that a nested scope binds."""
        variables = [binding.var for block in scope.blocks for binding in block.bindings]
        known = [self.values[key] for key in map(handle, variables) if key in self.values]
        return [value for _, value in known]

    def expression(self, root: relax.Expr) -> relax.Expr:
        for node in post_order(root):
            if handle(node) not in self.values:
                self.values[handle(node)] = (node, self._made(node))
        return self.values[handle(root)][1]

    def _made(self, expr: relax.Expr) -> relax.Expr:
        """Rebuild a node from its nested operands."""
        if isinstance(expr, relax.SeqExpr):
            return self._sequence(expr)
        if isinstance(expr, relax.Function):
            return self.function(expr)
        if isinstance(expr, relax.ShapeExpr):
            read = _symbols(expr)
            blocks = [block for extents, block in self.shapes if read & extents]
            return _sequence(blocks[:1], expr, expr.ty) if blocks else expr
        new = [self.values[handle(each)][1] for each in operands(expr)]
        if isinstance(expr, relax.If):
            branches = [self._branch(expr.true_branch), self._branch(expr.false_branch)]
            return set_type(relax.If(*new, *branches, expr.span), expr.ty)
        made = with_operands(expr, new)
        if isinstance(made, relax.Call) and isinstance(made.op, relax.Var):
            return make_call(self.expression(made.op), made.args, made.ty)
        return made

    def _sequence(self, expr: relax.SeqExpr) -> relax.Expr:
        bindings = [each for block in expr.blocks for each in block.bindings]
        for place, binding in enumerate(bindings):
            if isinstance(binding, relax.MatchCast):
                value = self._match(binding)
            elif is_let(binding):
                return self._let(binding, bindings[place + 1 :], expr.body)
            else:
                value = self.expression(binding.value)
            self.values[handle(binding.var)] = (binding.var, value)
        return self.expression(expr.body)

    def _let(self, binding: relax.VarBinding, others: list[Any], body: relax.Expr) -> relax.Expr:
        """Keep a binding as a let: untyped value, recursive function or reference write."""
        block = relax.BindingBlock([relax.VarBinding(binding.var, self.expression(binding.value))])
        rest = relax.SeqExpr([relax.BindingBlock(others)], body) if others else body
        return _sequence([block], self.expression(rest), body.ty)

    def _branch(self, branch: relax.SeqExpr) -> relax.SeqExpr:
        body = self.expression(branch)
        made = _sequence([], body, body.ty)
        self.own[handle(made)] = self.bound(branch)
        return made

    def _match(self, binding: relax.MatchCast) -> relax.Expr:
        """Keep a match_cast as a sequence, which defines its symbolic extents."""
        value = self.expression(binding.value)
        var = relax.Var(binding.var.name, binding.ty)
        block = relax.BindingBlock([relax.MatchCast(var, value, binding.ty)])
        if isinstance(binding.ty, relax.ShapeType) and binding.ty.values:
            self.shapes.append((_symbols(relax.ShapeExpr(binding.ty.values)), block))
        return _sequence([block], var, binding.ty)


def _symbols(shape: relax.ShapeExpr) -> set[Any]:
    return {var for extent in shape.values for var in nodes_of(extent, tirx.Var)}
