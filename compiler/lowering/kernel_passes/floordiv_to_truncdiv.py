"""Replace floor divisions of nonnegative integers by the processor's truncating division.

TIR's divisions round down, the processor's towards zero; TVM corrects for the signs of both
operands. It assumes that dynamic extents may be negative, so it corrected every division of a
reshape. Each expression contains the previous one, so the cost grew exponentially.

    floordiv(i * n + j, m)  ->  (i * n + j) / max(m, 1)   where i, j count and n, m are extents

An extent may be 0. Nothing uses such a quotient, but it must not end the process if LLVM hoists it
out of its loop or if it is in the shape of an empty tensor. Every divisor that is not known to be
positive therefore becomes 1 where it is 0. Divisors that a model's operators read from tensors are
checked elsewhere (`graph_passes.insert_division_checks`).
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

_PLAIN = {tirx.FloorDiv: tirx.truncdiv, tirx.FloorMod: tirx.truncmod}
_DIVISIONS = {
    **{tirx.FloorDiv: tirx.floordiv, tirx.FloorMod: tirx.floormod},
    **{tirx.Div: tirx.truncdiv, tirx.Mod: tirx.truncmod},
}
_KEEP_SIGN = (tirx.Add, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod, tirx.Min)
"""Operators whose results are not negative where none of the operands is."""


@tvm.tirx.transform.prim_func_pass(opt_level=0, name="DividePlainly")
def divide_plainly(func: tirx.PrimFunc, _: tvm.IRModule, __: Any) -> tirx.PrimFunc:
    """The pass, on lowered functions before TVM lowers divisions."""
    counts = _counts(func)
    rules = [(kind, counts.safe) for kind in _DIVISIONS]
    return func.with_body(tvm_ffi.structural_map(func.body, rules))


class _Counts:
    """Nonnegative variables: extents, loop counters over them, and values derived from both."""

    def __init__(self) -> None:
        self.variables: set[Any] = set()

    def extents(self, declared: tirx.stmt.DeclBuffer) -> None:
        self.variables.update(each for each in declared.buffer.shape if isinstance(each, tirx.Var))

    def loop(self, loop: tirx.For) -> None:
        if self.holds(loop.min):
            self.variables.add(loop.loop_var)

    def bind(self, bind: tirx.stmt.Bind) -> None:
        if self.holds(bind.value):
            self.variables.add(bind.var)

    def holds(self, value: Any) -> bool:
        """Whether an integer is provably nonnegative."""
        if isinstance(value, tirx.IntImm):
            return int(value) >= 0
        if isinstance(value, tirx.Var):
            return value in self.variables
        if isinstance(value, tirx.Cast):
            return self.holds(value.value)
        if isinstance(value, tirx.Max):
            return self.holds(value.a) or self.holds(value.b)
        return isinstance(value, _KEEP_SIGN) and self.holds(value.a) and self.holds(value.b)

    def is_positive(self, value: Any) -> bool:
        """Whether an integer is provably positive."""
        if isinstance(value, tirx.IntImm):
            return int(value) > 0
        if isinstance(value, tirx.Max):
            return self.is_positive(value.a) or self.is_positive(value.b)
        if isinstance(value, tirx.Mul):
            return self.is_positive(value.a) and self.is_positive(value.b)
        if isinstance(value, tirx.Add):
            return any(
                self.is_positive(one) and self.holds(other)
                for one, other in ((value.a, value.b), (value.b, value.a))
            )
        return False

    def safe(self, division: Any) -> Any:
        kind, a, b = type(division), division.a, division.b
        if isinstance(b, tirx.IntImm) or "int" not in str(b.ty.dtype):
            return division
        is_plain = kind in _PLAIN and self.holds(a) and self.holds(b)
        if self.is_positive(b):
            return _PLAIN[kind](a, b) if is_plain else division
        one = tirx.const(1, b.ty.dtype)
        divisor = tirx.Max(b, one) if self.holds(b) else tirx.Select(b.equal(0), one, b)
        return (_PLAIN if is_plain else _DIVISIONS)[kind](a, divisor)


def _counts(func: tirx.PrimFunc) -> _Counts:
    counts = _Counts()
    tvm_ffi.structural_walk(func.body, (tirx.stmt.DeclBuffer, counts.extents))
    if counts.variables:
        outside_in = [(tirx.For, counts.loop), (tirx.stmt.Bind, counts.bind)]
        tvm_ffi.structural_walk(func.body, outside_in, order="pre")
    return counts
