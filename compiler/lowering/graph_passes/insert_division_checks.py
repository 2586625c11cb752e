"""Insert run-time checks for zero in non-constant divisors of integer divisions.

An integer division by 0 ends the process, and so does dividing the smallest integer by -1, which
numpy and onnxruntime let wrap:

    y = divide(a, b)        becomes        c = divide_divisor(b)
                                           y = where(b == -1, negative(a), divide(a, c))

The added kernel raises `DivisionByZeroError` if b contains a 0, before anything is divided; c is 1
where b is -1. A remainder by -1 is computed as one by 1. Constant divisors are checked at compile
time, at no run-time cost. GPUs do not trap; there divisions stay as they are.

Operands of other operators with forbidden values (`_FORBIDDEN`) are checked likewise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax, te
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...ir.constants import array_of, constant, dtype_of
from ...ir.op_dialect import RELAX
from ...ir.op_facts import Forbidden, facts_of
from ...ir.rewrite import operator_name
from .runtime_check_pass import checked_by, emit_check, refusing


def check_divisors(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """Insert a check before each integer division. Raises BuildError: a constant divisor is 0."""
    return checked_by(_Checker(mod), mod, name)


def divides_at_run_time(call: Any) -> bool:
    """Whether an operator divides integers by a non-constant, or has another forbidden value."""
    rule = _rule(call)
    return rule is not None and array_of(call.args[rule.operand]) is None


def _rule(call: Any) -> Forbidden | None:
    """The values that an operand of a call must not have; None if any is valid."""
    name = operator_name(call)
    facts = facts_of(call)
    if facts.division and "int" in dtype_of(call.args[1]):
        return Forbidden(1, (0,), f"{name}: an integer is divided by 0")
    return facts.forbidden


@mutator
class _Checker(PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.changed = False
        self.wrong: list[str] = []

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        rule = _rule(call)
        if rule is None:
            return call
        name = operator_name(call)
        divisor = call.args[rule.operand]
        is_signed = dtype_of(divisor).startswith("int") and facts_of(call).forbidden is None
        array = array_of(divisor)
        minus_one = None if array is None else constant(array == -1)
        if array is None:
            checked = self._checked(divisor, name, rule, is_signed)
        elif np.isin(array, rule.values).any():
            self.wrong.append(f"{rule.message} (a constant)")
            return call
        elif not is_signed or not (array == -1).any():
            return call
        else:
            checked = constant(np.where(array == -1, 1, array).astype(array.dtype))
        self.changed = True
        operands = [*call.args]
        operands[rule.operand] = checked
        safe = RELAX.again(call, operands)
        if not is_signed or facts_of(call).division != "quotient":
            return safe
        if minus_one is None:
            minus_one = relax.op.equal(divisor, relax.const(-1, dtype_of(divisor)))
        negated = relax.op.negative(operands[0])
        return self.builder_.normalize(relax.op.where(minus_one, negated, safe))

    def _checked(
        self, divisor: relax.Expr, operator: str, rule: Forbidden, is_signed: bool
    ) -> relax.Expr:
        def kernel(given: te.Tensor) -> te.Tensor:
            return refusing(given, rule.values, rule.message, rule.kind, is_signed)

        hint = f"{operator.removeprefix('relay.').replace('.', '_')}_divisor"
        return emit_check(self.builder_, kernel, divisor, hint=hint)
