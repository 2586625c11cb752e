"""Divides numbers that are not negative as the processor does.

TIR's divisions round down, the processor's towards zero, and TVM corrects one to the other by the
signs of both operands. It takes extents that only running tells for numbers that may be negative,
so that each of the divisions that a reshape consists of was corrected, in an expression that
contains the one before: its code took time that grows with powers of their number.

    floordiv(i * n + j, m)  ->  (i * n + j) / max(m, 1)   where i, j count and n, m are extents

An extent may be 0. Nothing is computed from such a quotient, but a quotient that LLVM moves out of
its loop, or one in the shape of an empty tensor, must not end the process: every divisor that is
not a positive number becomes 1 where it is 0. Divisors that a model's operators read from tensors
are checked elsewhere (`graph_passes.insert_division_checks`).
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


def divide_plainly() -> tvm.transform.Pass:
    """The pass, on lowered functions before TVM lowers divisions."""

    @tvm.tirx.transform.prim_func_pass(opt_level=0, name="DividePlainly")
    def divide(func: tirx.PrimFunc, _: tvm.IRModule, __: Any) -> tirx.PrimFunc:
        counts = _counts(func)
        rules = [(kind, counts.safe) for kind in _DIVISIONS]
        return func.with_body(tvm_ffi.structural_map(func.body, rules))

    return divide


class _Counts:
    """Variables that are not negative: extents, what runs over them, and what is made of them."""

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
        """Whether an integer is not negative; False where that is not seen."""
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
        """Whether an integer is larger than 0; False where that is not seen."""
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
