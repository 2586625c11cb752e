"""Bindings to nested expressions, shared nodes for shared values; `flatten` is the inverse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from . import adt
from .adt import EXPRESSIONS
from .type_infer import infer_type_if_possible, is_untyped, set_type

handle = tvm_ffi.Object.__hash__


def nested(function: relax.Function) -> relax.Expr:
    """Body of the function as one expression over its parameters."""
    return _Nester().expression(function.body)


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
    sequence = relax.SeqExpr([], body)
    set_type(sequence, body.ty)
    return relax.Function(list(parameters), sequence, body.ty, attrs=dict_attrs(attrs))


def make_call(function: relax.Expr, args: Sequence[relax.Expr], ty: Any) -> relax.Call:
    """Create a call of an inner function with a known type."""
    made = relax.Call(function, list(args))
    set_type(made, ty)
    return made


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
    if isinstance(expr, relax.If):
        made: relax.Expr = relax.If(new[0], expr.true_branch, expr.false_branch, expr.span)
        set_type(made, expr.ty)
        return made
    if isinstance(expr, EXPRESSIONS):
        return adt.with_operands(expr, new)
    taken = iter(new)
    args = [next(taken) if isinstance(arg, relax.Expr) else arg for arg in expr.args]
    made = relax.Call(expr.op, args, expr.attrs, expr.ty_args, expr.span)
    same = all(a.ty.same_as(b.ty) or tvm_ffi.structural_equal(a.ty, b.ty) for a, b in zip(old, new))
    if same and not expr.ty.is_missing():
        set_type(made, expr.ty)
        return made
    return infer_type_if_possible(made)


def operands(expr: relax.Expr) -> list[relax.Expr]:
    """Operands of a node, without bodies of functions and branches."""
    if isinstance(expr, relax.Call):
        return [arg for arg in expr.args if isinstance(arg, relax.Expr)]
    if isinstance(expr, relax.Tuple):
        return list(expr.fields)
    if isinstance(expr, relax.TupleGetItem):
        return [expr.tuple_value]
    if isinstance(expr, relax.If):
        return [expr.cond]
    return adt.operands(expr)


def post_order(
    root: relax.Expr, below: Callable[[relax.Expr], list[relax.Expr]] = operands
) -> Iterator[relax.Expr]:
    """Yield nodes once, left to right, operands (`below`) first; functions, branches are leaves."""
    done: set[int] = set()
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        key = handle(node)
        if key in done:
            continue
        if ready:
            done.add(key)
            yield node
            continue
        stack.append((node, True))
        stack.extend((each, False) for each in reversed(below(node)))


def rewrite(root: relax.Expr, change: Any) -> relax.Expr:
    """Rebuild bottom-up; `change(old, new)` gets a node and its rebuilt copy, returns a node."""
    made: dict[int, tuple[relax.Expr, relax.Expr]] = {}
    for node in post_order(root):
        new = with_operands(node, [made[handle(each)][1] for each in operands(node)])
        made[handle(node)] = (node, change(node, new))
    return made[handle(root)][1]


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
    if not isinstance(value, tvm.ir.BaseFunc):
        return False
    stack, seen = [value.body], set()
    while stack:
        node = stack.pop()
        if node.same_as(binding.var):
            return True
        if handle(node) not in seen:
            seen.add(handle(node))
            stack += _parts(node)
    return False


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

    def function(self, function: relax.Function) -> relax.Function:
        body = self.expression(function.body)
        return local_function(function.params, body, function.attrs)

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
        new = [self.values[handle(each)][1] for each in operands(expr)]
        if isinstance(expr, relax.If):
            branches = [self._branch(expr.true_branch), self._branch(expr.false_branch)]
            made: relax.Expr = relax.If(*new, *branches, expr.span)
            set_type(made, expr.ty)
            return made
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
        made = relax.SeqExpr([block], self.expression(rest))
        if not body.ty.is_missing():
            set_type(made, body.ty)
        return made

    def _branch(self, branch: relax.SeqExpr) -> relax.SeqExpr:
        body = self.expression(branch)
        sequence = relax.SeqExpr([], body)
        set_type(sequence, body.ty)
        return sequence

    def _match(self, binding: relax.MatchCast) -> relax.Expr:
        """Keep a match_cast as a sequence, which defines its symbolic extents."""
        value = self.expression(binding.value)
        var = relax.Var(binding.var.name, binding.ty)
        block = relax.BindingBlock([relax.MatchCast(var, value, binding.ty)])
        sequence = relax.SeqExpr([block], var)
        set_type(sequence, binding.ty)
        return sequence
