"""Rewriting of operator calls, one at a time, in the order in which they are computed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

SKIPPED_ATTRIBUTES = ("Primitive", "Composite", "Codegen")
"""Functions with one of these belong to fusion or to an external code generator."""


class CallRule(ABC):
    """What a pass does to calls of operators.

    An instance serves one function, so that it may keep state between calls.
    """

    def __init__(self) -> None:
        self.scope: Scope

    def name(self, expr: Any) -> str:
        """The name of the operator that `expr` calls; "" for what the rule does not know."""
        return operator_name(expr)

    @abstractmethod
    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        """What replaces `call`, which is of the operator `name`; None to leave it as it is.

        The replacement must have the shape and dtype of the call. It may nest new calls.
        """


class Scope:
    """What a rule may ask about the function that it rewrites."""

    def __init__(self, function: relax.Function, mutator_: Any):
        self.function = function
        self._mutator = mutator_
        self._uses: Counter[relax.Var] = Counter()
        relax.analysis.post_order_visit(function.body, self._count)

    def _count(self, expr: relax.Expr) -> None:
        if isinstance(expr, relax.SeqExpr):
            for block in expr.blocks:
                for binding in block.bindings:
                    self._count_operands(binding.value)
            self._count_operands(expr.body)

    def _count_operands(self, value: Any) -> None:
        if isinstance(value, relax.Tuple):
            for item in value.fields:
                self._count_operands(item)
        elif isinstance(value, relax.TupleGetItem):
            self._count_var(value.tuple_value)
        elif isinstance(value, tvm.ir.Call):
            for argument in value.args:
                self._count_operands(argument)
        elif isinstance(value, relax.If):
            self._count_var(value.cond)
        else:
            self._count_var(value)

    def _count_var(self, value: Any) -> None:
        if isinstance(value, relax.Var):
            self._uses[value] += 1

    def definition(self, expr: Any) -> Any:
        """The expression that computes `expr`: what a variable is bound to, else `expr` itself."""
        while isinstance(expr, relax.Var):
            value = self._mutator.lookup_binding(expr)
            if value is None:
                return expr
            expr = value
        return expr

    def call_of(self, expr: Any, name: str) -> relax.Call | None:
        """The call that computes `expr` if it is one of the operator `name`; else None."""
        value = self.definition(expr)
        return value if self._mutator.rule.name(value) == name else None

    def emit(self, expr: relax.Expr) -> relax.Var:
        """A variable for a new expression that several calls will read."""
        return self._mutator.builder_.emit(expr)

    def used_once(self, expr: Any) -> bool:
        """Whether a variable is read in one place only.

        A variable that the rewriting itself made is read where it was made.
        """
        return isinstance(expr, relax.Var) and self._uses[expr] <= 1


def variables_of(value: relax.Expr) -> list[relax.Var]:
    """The variables that an expression reads, as often as it does."""
    found: list[relax.Var] = []

    def note(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Var):
            found.append(expr)

    relax.analysis.post_order_visit(value, note)
    return found


def operator_name(expr: Any) -> str:
    """Name of the operator that `expr` calls, without "relax."; "" if it calls none of Relax's.

    Kernels of Relay's operators that Relax does not have are operators "relay.<name>" of Relax.
    """
    if isinstance(expr, tvm.ir.Call) and isinstance(expr.op, tvm.ir.Op):
        name = str(expr.op.name)
        if name.startswith(("relax.", "relay.")):
            return name.removeprefix("relax.")
    return ""


@mutator
class _Applier(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, function: relax.Function, rule: CallRule):
        super().__init__(mod)
        self.rule = rule
        self.has_changed = False
        rule.scope = Scope(function, self)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        name = self.rule.name(call)
        if not name:
            return call
        replacement = self.rule.rewrite(call, name)
        if replacement is None:
            return call
        self.has_changed = True
        return self.builder_.normalize(replacement)


def rewrite_calls(mod: tvm.IRModule, rule: Callable[[], CallRule]) -> tvm.IRModule:
    """Apply a rule to every call of every Relax function, and drop what is no longer used."""
    changed: dict[tvm.ir.GlobalVar, relax.Function] = {}
    for variable, function in mod.functions.items():
        if not isinstance(function, relax.Function) or _is_skipped(function):
            continue
        applier = _Applier(mod, function, rule())
        result = applier.visit_expr(function)
        if applier.has_changed:
            changed[variable] = result
    if not changed:
        return mod
    updated = mod.clone()
    for variable, function in changed.items():
        updated.update_func(variable, function)
    updated = relax.transform.CanonicalizeBindings()(updated)
    for variable in changed:
        updated.update_func(variable, relax.analysis.remove_all_unused(updated[variable]))
    return updated


def _is_skipped(function: relax.Function) -> bool:
    attributes = function.attrs
    return attributes is not None and any(name in attributes for name in SKIPPED_ATTRIBUTES)
