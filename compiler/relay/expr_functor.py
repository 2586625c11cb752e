"""`relay.ExprVisitor` and `relay.ExprMutator`, base classes for user-defined passes.

Visitors see nested expressions: `call.args[0]` of a call is the producing call. The body of a
module's function is nested first, and the result of a mutator is converted back to bindings.
"""

from __future__ import annotations

import sys
from typing import Any

import tvm
from tvm import relax

from ..errors import RelayError
from ..support.lazy_import import lazy_attributes
from .nested_expressions import handle, make_call, nested, with_operands
from .relay_to_relax import function_of
from .type_infer import infer_type, set_type

_FRAMES = 10_000


_METHODS = (
    (relax.Call, "visit_call"),
    (relax.Function, "visit_function"),
    (relax.Var, "visit_var"),
    (tvm.ir.GenericConst, "visit_constant"),
    (relax.Tuple, "visit_tuple"),
    (relax.TupleGetItem, "visit_tuple_getitem"),
    (relax.If, "visit_if"),
    (relax.SeqExpr, "visit_let"),
    (tvm.ir.GlobalVar, "visit_global_var"),
    (tvm.ir.Op, "visit_op"),
)
"""Visitor method of each kind of expression."""

_LEAVES = (relax.ShapeExpr,)
"""Non-expression operands of Relax operators; Relay has no visitor methods for them."""


class ExprFunctor:
    """Dispatches on the kind of an expression; each node is visited once."""

    def __init__(self) -> None:
        self.memo_map: dict[Any, Any] = {}
        self._depth = 0

    def visit(self, expr: Any) -> Any:
        """Call the visitor method for the expression's kind; the result is memoized."""
        key = handle(expr)
        if key in self.memo_map:
            return self.memo_map[key][1]
        limit = sys.getrecursionlimit()
        if self._depth == 0 and limit < _FRAMES:
            sys.setrecursionlimit(_FRAMES)
        self._depth += 1
        try:
            result = self._method(expr)(expr)
        finally:
            self._depth -= 1
            if self._depth == 0:
                sys.setrecursionlimit(limit)
        self.memo_map[key] = (expr, result)
        return result

    def _method(self, expr: Any) -> Any:
        for kind, name in _METHODS:
            if isinstance(expr, kind):
                return getattr(self, name)
        if isinstance(expr, _LEAVES) or tvm.ir.is_prim_expr(expr):
            return lambda expr: expr
        raise RelayError(f"a visitor has no method for a {type(expr).__name__}")

    def _missing(self, _: Any) -> Any:
        raise NotImplementedError

    visit_function = visit_let = visit_call = visit_var = visit_if = _missing
    visit_tuple = visit_tuple_getitem = visit_global_var = visit_op = visit_constant = _missing


class ExprVisitor(ExprFunctor):
    """Traverses an expression. Overriding methods call the base method to visit the operands."""

    def visit_function(self, func: relax.Function) -> Any:
        for var in func.params:
            self.visit(var)
        self.visit(nested(func))

    def visit_let(self, let: relax.SeqExpr) -> Any:
        for block in let.blocks:
            for binding in block.bindings:
                self.visit(binding.var)
                self.visit(binding.value)
        self.visit(let.body)

    def visit_call(self, call: relax.Call) -> Any:
        self.visit(call.op)
        for arg in call.args:
            self.visit(arg)

    def visit_var(self, var: relax.Var) -> Any:
        pass

    def visit_if(self, if_: relax.If) -> Any:
        for part in (if_.cond, if_.true_branch, if_.false_branch):
            self.visit(part)

    def visit_tuple(self, tup: relax.Tuple) -> Any:
        for field in tup.fields:
            self.visit(field)

    def visit_tuple_getitem(self, op: relax.TupleGetItem) -> Any:
        self.visit(op.tuple_value)

    def visit_global_var(self, gvar: tvm.ir.GlobalVar) -> Any:
        pass

    def visit_op(self, op: tvm.ir.Op) -> Any:
        pass

    def visit_constant(self, const: Any) -> Any:
        pass


class ExprMutator(ExprFunctor):
    """Rebuilds an expression; a node whose parts are all unchanged is reused."""

    def visit_function(self, func: relax.Function) -> relax.Expr:
        params = [self.visit(var) for var in func.params]
        before = nested(func)
        body = self.visit(before)
        same = all(new.same_as(old) for new, old in zip(params, func.params))
        if same and body.same_as(before):
            return func
        return function_of(params, body, func.attrs)

    def visit_let(self, let: relax.SeqExpr) -> relax.Expr:
        """Rebuild a sequence; its bindings correspond to Relay's lets."""
        blocks = []
        for block in let.blocks:
            bindings: list[Any] = []
            for binding in block.bindings:
                value = self.visit(binding.value)
                if isinstance(binding, relax.MatchCast):
                    bindings.append(relax.MatchCast(binding.var, value, binding.ty))
                else:
                    bindings.append(relax.VarBinding(self.visit(binding.var), value))
            blocks.append(relax.BindingBlock(bindings))
        body = self.visit(let.body)
        return set_type(relax.SeqExpr(blocks, body), body.ty)

    def visit_call(self, call: relax.Call) -> relax.Expr:
        op = self.visit(call.op)
        made = with_operands(call, [self.visit(arg) for arg in call.args])
        return made if op.same_as(call.op) else make_call(op, made.args, made.ty)

    def visit_var(self, var: relax.Var) -> relax.Expr:
        return var

    def visit_if(self, if_: relax.If) -> relax.Expr:
        condition = self.visit(if_.cond)
        branches = [self.visit(if_.true_branch), self.visit(if_.false_branch)]
        return set_type(
            relax.If(condition, *branches, if_.span),
            relax.analysis.type_lca(branches[0].ty, branches[1].ty),
        )

    def visit_tuple(self, tup: relax.Tuple) -> relax.Expr:
        return with_operands(tup, [self.visit(field) for field in tup.fields])

    def visit_tuple_getitem(self, op: relax.TupleGetItem) -> relax.Expr:
        whole = self.visit(op.tuple_value)
        if whole.same_as(op.tuple_value):
            return op
        return infer_type(relax.TupleGetItem(whole, op.index, op.span))

    def visit_global_var(self, gvar: tvm.ir.GlobalVar) -> relax.Expr:
        return gvar

    def visit_op(self, op: tvm.ir.Op) -> tvm.ir.Op:
        return op

    def visit_constant(self, const: Any) -> relax.Expr:
        return const


# Relay also exported the node classes from this module.
__getattr__ = lazy_attributes(
    __package__ or "",
    {
        "Call": ".call",
        "Function": ".function",
        **dict.fromkeys(
            ("Constant", "Expr", "GlobalVar", "If", "Let", "Tuple", "TupleGetItem", "Var"), ".expr"
        ),
    },
)
