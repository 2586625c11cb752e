"""Shared parts of passes that insert a checking kernel before an operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ...errors import BuildError
from ...primfuncs.fusion_pattern import ATTRIBUTE, OPAQUE
from ...primfuncs.kernel_operators import NamingBuilder
from .kernel_error import give_up, local, set_error


def checked_by(checker: Any, mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """Rewrite function `name` with a mutator that inserts checks.

    `checker.changed`: whether it changed anything. `checker.wrong`: an error that it found, raised
    here as BuildError, because an exception would lose its class on the way through TVM.
    """
    function = checker.visit_expr(mod[name])
    if checker.wrong:
        raise BuildError(checker.wrong[0])
    if not checker.changed:
        return mod
    checker.builder_.update_func(mod.get_global_var(name), function)
    return checker.builder_.get()


def operand_of(call: relax.Call, rule: Any) -> relax.Expr:
    """The operand of a call, or field of a tuple, that a rule about extents or indices names."""
    argument = call.args[rule.operand]
    return argument if rule.field is None else _fields(argument)[rule.field]


def with_operand(operands: Sequence[relax.Expr], rule: Any, value: relax.Expr) -> list[relax.Expr]:
    """The operands with another one, or field, in the place that a rule names."""
    changed = list(operands)
    if rule.field is not None:
        fields = _fields(changed[rule.operand])
        fields[rule.field] = value
        value = relax.Tuple(fields)
    changed[rule.operand] = value
    return changed


def _fields(argument: Any) -> list[relax.Expr]:
    if isinstance(argument, relax.Tuple):
        return list(argument.fields)
    return [relax.TupleGetItem(argument, i) for i in range(len(argument.ty.fields))]


def emit_check(
    builder: relax.BlockBuilder,
    compute: Callable[..., Any],
    *operands: Any,
    hint: str,
    fuses: bool = False,
) -> relax.Var:
    """Emit a TE kernel, named `hint`; return its result. It may be fused if it does not raise."""
    call = NamingBuilder(builder).call_te(compute, *operands, primfunc_name_hint=hint)
    if not fuses:
        gvar = call.args[0]
        builder.update_func(gvar, builder.get()[gvar].with_attr(ATTRIBUTE, OPAQUE))
    return builder.emit(call)


def refusing(
    values: te.Tensor, forbidden: Sequence[int], message: str, kind: str, as_divisors: bool = False
) -> te.Tensor:
    """Copy integers; raise an error if one of them is forbidden.

    `kind`: error class, as `compiler.runtime.executor` registers it. `as_divisors`: -1 becomes 1.
    """
    dtype = str(values.dtype)

    def build(ins: Any, outs: Any) -> Any:
        with IRBuilder() as builder:
            given, kept = T.buffer_proxy(ins[0]), T.buffer_proxy(outs[0])
            with T.seq_scope():
                wrong = local("int32")
                wrong[0] = T.int32(0)

                def copy(axis: int, at: tuple[Any, ...]) -> None:
                    if axis < len(values.shape):
                        with T.serial(0, values.shape[axis]) as here:
                            copy(axis + 1, (*at, here))
                        return
                    value = given[at or (0,)]
                    for each in forbidden:
                        found = tirx.Cast("int32", value == tirx.const(each, dtype))
                        wrong[0] = wrong[0] | found
                    if as_divisors:
                        is_minus_one = value == tirx.const(-1, dtype)
                        value = tirx.Select(is_minus_one, tirx.const(1, dtype), value)
                    kept[at or (0,)] = value

                copy(0, ())
                with T.If(wrong[0] != 0), T.Then():
                    set_error(kind, [message])
                    give_up()
            return builder.get()

    return te.extern([values.shape], [values], build, dtype=dtype, name="checked_values")
