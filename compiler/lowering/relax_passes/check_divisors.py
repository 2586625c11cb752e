"""Has the divisors of integer divisions that are known only at run time checked for 0.

A division of integers by 0 ends the process, and so does that of the smallest one by -1, which
numpy and onnxruntime let wrap:

    y = divide(a, b)        becomes        c = divide_divisor(b)
                                           y = where(b == -1, negative(a), divide(a, c))

The added kernel raises `DivisionByZeroError` if there is a 0 in b, before anything is divided; c
has 1 where b has -1. A remainder by -1 is that by 1. Divisors that are constants are checked here,
and nothing is left of that. GPUs do not trap; there divisions stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T
from tvm.target import Target

from ...graph.constants import array_of, constant, dtype_of
from ...graph.rewrite import operator_name
from .raise_error import give_up, local, set_error
from .run_time_checks import checked_by, emit_check

KIND = "DivisionByZeroError"
"""Name of the error that kernels raise, as `compiler.runtime.executor` registers it."""

_QUOTIENTS = ("divide", "floor_divide")
_REMAINDERS = ("mod", "floor_mod")
_OF_SHAPES = ("relay.unravel_index",)  # extents, of which a negative one means nothing


def check_divisors(
    mod: tvm.IRModule, chosen_targets: Mapping[str, Target], but: Collection[str] = ()
) -> tvm.IRModule:
    """Put a check in front of each division of integers on a CPU.

    Parameters
    ----------
    mod : tvm.IRModule
        At operator level. It is not changed.
    chosen_targets
        Target of each Relax function.
    but : collection of str
        Names of functions for which there are records; they divide by constants only.

    Raises
    ------
    BuildError
        A constant divisor is 0.
    """
    for name, target in chosen_targets.items():
        if name not in but and target.kind.name == "llvm":
            mod = checked_by(_Checker(mod), mod, name)
    return mod


def divides_at_run_time(call: Any) -> bool:
    """Whether an operator divides integers by what is not a constant."""
    return _divides(call) and array_of(call.args[1]) is None


def _divides(call: Any) -> bool:
    if operator_name(call) not in (*_QUOTIENTS, *_REMAINDERS, *_OF_SHAPES):
        return False
    return "int" in dtype_of(call.args[1])


@mutator
class _Checker(PyExprMutator):
    """Checks the divisors of one function."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.changed = False
        self.wrong: list[str] = []

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if not _divides(call):
            return call
        name = operator_name(call)
        dividend, divisor = call.args
        is_signed = dtype_of(divisor).startswith("int") and name not in _OF_SHAPES
        array = array_of(divisor)
        minus_one = None if array is None else constant(array == -1)
        if array is None:
            checked = self._checked(divisor, name.removeprefix("relay."))
        elif not array.all():
            self.wrong.append(f"{name.removeprefix('relay.')}: a constant divisor of integers is 0")
            return call
        elif not is_signed or not (array == -1).any():
            return call
        else:
            checked = constant(np.where(array == -1, 1, array).astype(array.dtype))
        self.changed = True
        safe = relax.Call(call.op, [dividend, checked], call.attrs, call.ty_args)
        if not is_signed or name not in _QUOTIENTS:
            return safe
        if minus_one is None:
            minus_one = relax.op.equal(divisor, relax.const(-1, dtype_of(divisor)))
        return self.builder_.normalize(relax.op.where(minus_one, relax.op.negative(dividend), safe))

    def _checked(self, divisor: relax.Expr, operator: str) -> relax.Expr:
        def kernel(given: te.Tensor) -> te.Tensor:
            return _checked(given, operator)

        hint = f"{operator.replace('.', '_')}_divisor"
        return emit_check(self.builder_, kernel, divisor, hint=hint)


def _checked(divisors: te.Tensor, operator: str) -> te.Tensor:
    """A copy of the divisors with 1 for -1; the kernel raises an error if one is 0."""
    dtype = str(divisors.dtype)

    def build(ins: Any, outs: Any) -> Any:
        with IRBuilder() as builder:
            given, kept = T.buffer_proxy(ins[0]), T.buffer_proxy(outs[0])
            with T.seq_scope():
                zero = local("int32")
                zero[0] = T.int32(0)

                def copy(axis: int, at: tuple[Any, ...]) -> None:
                    if axis < len(divisors.shape):
                        with T.serial(0, divisors.shape[axis]) as here:
                            copy(axis + 1, (*at, here))
                        return
                    value = given[at or (0,)]
                    zero[0] = zero[0] | tirx.Cast("int32", value == tirx.const(0, dtype))
                    if dtype.startswith("int"):
                        is_minus_one = value == tirx.const(-1, dtype)
                        value = tirx.Select(is_minus_one, tirx.const(1, dtype), value)
                    kept[at or (0,)] = value

                copy(0, ())
                with T.If(zero[0] != 0), T.Then():
                    set_error(KIND, [f"{operator}: an integer is divided by 0"])
                    give_up()
            return builder.get()

    return te.extern([divisors.shape], [divisors], build, dtype=dtype, name="checked_divisors")
