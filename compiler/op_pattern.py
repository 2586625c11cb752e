"""What FuseOps may fuse a kernel with: its operator pattern, read and written."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

# relax.op.OpPatternKind: elementwise consumers are fused behind OUT_ELEMENTWISE_FUSABLE, and
# nothing with OPAQUE.
BROADCAST, INJECTIVE, OUT_ELEMENTWISE_FUSABLE, OPAQUE = 1, 2, 4, 8

ATTRIBUTE = "op_pattern"


def op_pattern(kernel: tirx.PrimFunc) -> int:
    """The kernel's pattern; opaque if it has none, as for FuseOps."""
    return int(kernel.attrs.get(ATTRIBUTE, OPAQUE)) if kernel.attrs else OPAQUE


def callee(mod: tvm.IRModule, value: relax.Expr) -> tirx.PrimFunc | None:
    """The TIR function that a `call_tir` calls."""
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return None
    if value.op.name != "relax.call_tir":
        return None
    kernel = mod[value.args[0]]
    return kernel if isinstance(kernel, tirx.PrimFunc) else None


def with_pattern(
    mod: tvm.IRModule,
    find: Callable[[tvm.IRModule, relax.Function], list[relax.Call]],
    pattern: int,
) -> tvm.IRModule:
    """Have the calls that `find` names call copies of their kernels with another pattern."""
    for gvar, function in mod.functions_items():
        if isinstance(function, relax.Function) and (calls := find(mod, function)):
            separator = _Separator(mod, calls, pattern)
            separator.builder_.update_func(gvar, separator.visit_expr(function))
            mod = separator.builder_.get()
    return mod


@mutator
class _Separator(PyExprMutator):
    """Has some calls call a copy of their kernel with another pattern."""

    def __init__(self, mod: tvm.IRModule, calls: list[relax.Call], pattern: int) -> None:
        super().__init__(mod)
        self._mod = mod
        self._calls = calls
        self._pattern = pattern
        self._copies: dict[str, relax.GlobalVar] = {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if not any(call.same_as(each) for each in self._calls):
            return super().visit_call_(call)
        name = call.args[0].name_hint
        if name not in self._copies:
            kernel = self._mod[name].with_attr(ATTRIBUTE, self._pattern)
            self._copies[name] = self.builder_.add_func(kernel, name)
        args = [self._copies[name], *(self.visit_expr(arg) for arg in call.args[1:])]
        return relax.Call(call.op, args, call.attrs, call.ty_args)
