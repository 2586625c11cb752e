"""Calls of kernels, and what FuseOps may fuse a kernel with: its operator pattern."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

# relax.op.OpPatternKind: elementwise consumers are fused behind OUT_ELEMENTWISE_FUSABLE, and
# nothing with OPAQUE.
BROADCAST, INJECTIVE, OUT_ELEMENTWISE_FUSABLE, OPAQUE = 1, 2, 4, 8

ATTRIBUTE = "op_pattern"


def op_pattern(kernel: tirx.PrimFunc) -> int:
    """The kernel's pattern; opaque if it has none, as for FuseOps."""
    return int(kernel.attrs.get(ATTRIBUTE, OPAQUE)) if kernel.attrs else OPAQUE


_CALLS = ("relax.call_tir", "relax.call_tir_inplace")


def called_kernel(value: relax.Expr) -> str | None:
    """Name of the TIR function that a binding calls; None if it calls none."""
    is_call = isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)
    return str(value.args[0].name_hint) if is_call and value.op.name in _CALLS else None


def callee(mod: tvm.IRModule, value: relax.Expr) -> tirx.PrimFunc | None:
    """The TIR function that a binding calls; None if it calls none."""
    name = called_kernel(value)
    return None if name is None else mod[name]


Known = TypeVar("Known")


def unfusable_calls(
    mod: tvm.IRModule,
    function: relax.Function,
    of_anchor: Callable[[relax.Var], Known],
    behind: Callable[[relax.VarBinding, tirx.PrimFunc, list[Known | None]], Known | None],
) -> list[relax.Call]:
    """Elementwise calls that must not be fused after an anchor.

    `of_anchor`: the fact about an anchor's result. `behind` derives that of a later call from its
    operands' (None for operands that no anchor made); None to start a new kernel.
    """
    found: list[relax.Call] = []
    known: dict[relax.Var, Known] = {}
    for binding in (each for block in function.body.blocks for each in block.bindings):
        kernel = callee(mod, binding.value)
        pattern = OPAQUE if kernel is None else op_pattern(kernel)
        if pattern == OUT_ELEMENTWISE_FUSABLE:
            known[binding.var] = of_anchor(binding.var)
        elif pattern <= BROADCAST:
            operands = [known.get(each) for each in binding.value.args[1].fields]
            if all(each is None for each in operands):
                continue
            result = behind(binding, kernel, operands)
            if result is None:
                found.append(binding.value)
            else:
                known[binding.var] = result
    return found


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
        self._calls = calls  # keeps them alive: a new call may else have the hash of one of them
        self._hashes = {tvm_ffi.Object.__hash__(call) for call in calls}
        self._pattern = pattern
        self._copies: dict[str, relax.GlobalVar] = {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if tvm_ffi.Object.__hash__(call) not in self._hashes:
            return super().visit_call_(call)
        name = call.args[0].name_hint
        if name not in self._copies:
            kernel = self._mod[name].with_attr(ATTRIBUTE, self._pattern)
            self._copies[name] = self.builder_.add_func(kernel, name)
        args = [self._copies[name], *(self.visit_expr(arg) for arg in call.args[1:])]
        return relax.Call(call.op, args, call.attrs, call.ty_args)
