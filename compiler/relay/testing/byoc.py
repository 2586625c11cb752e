"""Annotators for tests of external compilers."""

from __future__ import annotations

from tvm import relax

from ..expr_functor import ExprMutator
from ..transform.build import again, is_op
from ..transform.regions import begin, end

_COMPILER = "ccompiler"


class CcompilerAnnotator(ExprMutator):
    """Annotates multiply(subtract(add(a, b), c), d) for the compiler "ccompiler".

    The region starts at the operands of the add and at the variables of the other operators, and
    ends at the multiply. Other operators are not annotated.
    """

    def __init__(self) -> None:
        super().__init__()
        self.in_compiler = 0

    def visit_call(self, call: relax.Call) -> relax.Expr:
        if is_op(call, "multiply"):
            self.in_compiler = 1
            made = self._over_marked_variables(call)
            complete, self.in_compiler = self.in_compiler == 2, 0
            return end(made, _COMPILER) if complete else made
        if self.in_compiler == 1 and is_op(call, "subtract"):
            return self._over_marked_variables(call)
        if self.in_compiler == 1 and is_op(call, "add"):
            self.in_compiler = 2
            return again(call, [begin(self.visit(arg), _COMPILER) for arg in call.args])
        return super().visit_call(call)

    def _over_marked_variables(self, call: relax.Call) -> relax.Expr:
        args = [self.visit(arg) for arg in call.args]
        entering = [
            begin(each, _COMPILER) if isinstance(each, relax.Var) else each for each in args
        ]
        return again(call, entering)
