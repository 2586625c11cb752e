"""Keep TVM's buffer flattening from rewriting indices incorrectly.

    x[(i % 58 - 1) // 2]      becomes      x[(i + 1) % 58 // 2 - 1]
    x[(11 - i) // 2]          becomes      x[i // -2 + 5]

TVM 0.27's FlattenBuffer decomposes an index into pieces of loop iterators. It pads a dividend to a
multiple of the divisor. That is correct for whole iterators, but not for the pieces that fused
loops, reshapes and tiles leave. It also loses the sign of a falling index. It rewrites only sums,
products, quotients and remainders. So each index with such a quotient or remainder is shifted by 0
bits, which TVM's passes keep and LLVM removes:

    x[((i % 58 - 1) // 2) >> 0]
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.ir import Range, TensorLoad

from schedules.tir_visit import nodes_of

Expr = Any

_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod)
_WITHOUT_PARTS = (tirx.Var, tirx.IntImm)


def guard_indices(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Hide indices that FlattenBuffer might rewrite incorrectly, with or without blocks."""
    if not _divides(func.body):  # fast path: most functions have no division at all
        return func
    indices = _Indices(func)

    def load(node: TensorLoad) -> Expr:
        guarded = indices.guarded(node.indices)
        return node if guarded is None else tirx.BufferLoad(node.source, guarded)

    def store(node: tirx.BufferStore) -> Any:
        guarded = indices.guarded(node.indices)
        return node if guarded is None else tirx.BufferStore(node.buffer, node.value, guarded)

    body = tvm_ffi.structural_map(func.body, [(TensorLoad, load), (tirx.BufferStore, store)])
    return func.with_body(body) if indices.found else func


class _Indices:
    """Ranges of the index variables of a function, from its loops and blocks."""

    def __init__(self, func: tirx.PrimFunc) -> None:
        self.found = False
        self._analyzer = sym.Analyzer()
        self._values: list[tuple[Any, Expr]] = []  # block iterator, its value

        def loop(node: tirx.For, visitor: Any) -> None:
            self._analyzer.bind(node.loop_var, Range.from_min_extent(node.min, node.extent))
            visitor.default_visit(node)

        def realize(node: s_tir.SBlockRealize, visitor: Any) -> None:
            for iter_var, value in zip(node.block.iter_vars, node.iter_values):
                self._values.append((iter_var.var, self._of_loops(value)))
            visitor.default_visit(node)

        tvm_ffi.structural_visit(func.body, [(tirx.For, loop), (s_tir.SBlockRealize, realize)])

    def guarded(self, indices: Any) -> list[Expr] | None:
        """The indices with the unsafe ones made opaque; None if all are safe."""
        wrong = [_divides(index) and self._is_misread(index) for index in indices]
        if not any(wrong):
            return None
        self.found = True
        return [_opaque(index) if bad else index for index, bad in zip(indices, wrong)]

    def _is_misread(self, index: Expr) -> bool:
        return is_misread(self._analyzer.simplify(self._of_loops(index)))

    def _of_loops(self, expression: Expr) -> Expr:
        """Substitute the values of block iterators into the expression."""

        def value_of(variable: Any) -> Expr:
            for iterator, value in self._values:
                if iterator.same_as(variable):
                    return value
            return variable

        return tvm_ffi.structural_map(expression, (tirx.Var, value_of))


def is_misread(index: Expr) -> bool:
    """Whether FlattenBuffer may change the value of a simplified index, conservatively.

    That is possible for a division of a sum that has an offset or a falling term. By a sum of
    symbols, FlattenBuffer may fail.
    """
    return any(
        _has_offset(node.a)
        or _falls(node.a)
        or _is_negative(node.b)
        or isinstance(node.b, (tirx.Add, tirx.Sub))
        for node in nodes_of(index, _DIVISIONS)
    )


def _divides(part: Any) -> bool:
    return not isinstance(part, _WITHOUT_PARTS) and bool(nodes_of(part, _DIVISIONS))


def _has_offset(total: Expr) -> bool:
    """Whether a sum has a constant term."""
    if isinstance(total, (tirx.Add, tirx.Sub)):
        return _has_offset(total.a) or _has_offset(total.b)
    return isinstance(total, tirx.IntImm) and int(total) != 0


def _falls(total: Expr) -> bool:
    """Whether a sum has a term with a negative factor."""
    if isinstance(total, tirx.Add):
        return _falls(total.a) or _falls(total.b)
    if isinstance(total, tirx.Mul):
        return _is_negative(total.a) or _is_negative(total.b)
    return isinstance(total, tirx.Sub)


def _is_negative(factor: Expr) -> bool:
    return isinstance(factor, tirx.IntImm) and int(factor) < 0


def _opaque(index: Expr) -> Expr:
    return tirx.RShift(index, tirx.const(0, index.ty))
