"""Compute several vectors of a function side by side, to hide instruction latency.

    y[0:8] = f(x[0:8])                  both = f(x[0:8], x[8:16])     16 lanes
    y[8:16] = f(x[8:16])      -->       y[0:8] = both[0:8]
                                        y[8:16] = both[8:16]

An exponential is a chain of a dozen instructions, each of which needs the result of the one before.
A core looks some hundred instructions ahead, which covers a few vectors, and stalls if the chains
come one after the other. LLVM keeps that order. For a vector wider than its registers, LLVM emits
instructions that alternate between the parts, and loads their constants once.

Only stores after a loop are interleaved: LLVM orders the instructions of a block as a whole,
and would spill accumulators of the same block, for example in a depthwise convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad

from schedules.tir_visit import nodes_of

from ...primfuncs.query import op_name

# Vectors side by side: powers of two, for LLVM fills up any other number of lanes.
_COUNTS = (4, 2)
_BINARY = (
    *(tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Min, tirx.Max),
    *(tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE),
    *(tirx.LShift, tirx.RShift, tirx.BitwiseAnd, tirx.BitwiseOr),
)


@tvm.tirx.transform.prim_func_pass(opt_level=0, name="InterleaveVectors")
def interleave_vectors(func: tirx.PrimFunc, _: tvm.IRModule, __: Any) -> tirx.PrimFunc:
    """The pass, on lowered functions: flat buffers, explicit vectors, loops unrolled."""
    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.SeqStmt, _interleaved)))


def _interleaved(sequence: tirx.SeqStmt) -> tirx.Stmt:
    """The statements with runs of stores of chains interleaved, if after a loop."""
    statements: list[tirx.Stmt] = []
    run: list[tirx.BufferStore] = []
    behind_loop = False
    for statement in sequence.seq:
        behind_loop = behind_loop or _is_loop(statement)
        if behind_loop and _stores_chain(statement):
            if run and not _are_independent(run, statement):
                statements += _side_by_side(run)
                run = []
            run.append(statement)
        elif run and _is_scalar_binding(statement):
            statements.append(statement)  # before the run: it reads nothing that is stored
        else:
            statements += [*_side_by_side(run), statement]
            run = []
    statements += _side_by_side(run)
    return tirx.SeqStmt(statements) if len(statements) != len(sequence.seq) else sequence


def _is_loop(statement: tirx.Stmt) -> bool:
    while isinstance(statement, tirx.AttrStmt):
        statement = statement.body
    return isinstance(statement, tirx.For)


def _stores_chain(statement: tirx.Stmt) -> bool:
    """Whether a vector is stored whose value is computed in steps, as an exponential is."""
    if not isinstance(statement, tirx.BufferStore) or _lanes(statement.value) == 1:
        return False
    return bool(nodes_of(statement.value, tirx.Let))


def _is_scalar_binding(statement: tirx.Stmt) -> bool:
    """Whether an index is computed, of variables alone."""
    if not isinstance(statement, tirx.stmt.Bind):
        return False
    return not nodes_of(statement.value, (TensorLoad, Call))


def _are_independent(run: Sequence[tirx.BufferStore], store: tirx.BufferStore) -> bool:
    """Whether a store reads nothing that the run before it writes, and is of its type."""
    written = [each.buffer for each in run]
    return str(store.value.ty.dtype) == str(run[0].value.ty.dtype) and not any(
        load.source.same_as(buffer)
        for load in nodes_of(store.value, TensorLoad)
        for buffer in written
    )


def _side_by_side(run: Sequence[tirx.BufferStore]) -> list[tirx.Stmt]:
    """The stores of a run, with the values of several computed as one vector."""
    statements: list[tirx.Stmt] = []
    first = 0
    while first < len(run):
        count = next((count for count in _COUNTS if count <= len(run) - first), 1)
        group = run[first : first + count]
        first += count
        value = _Wide(count).of([store.value for store in group]) if count > 1 else None
        if value is None:
            statements += group
            continue
        together = tirx.Var("together", value.ty)
        statements.append(tirx.stmt.Bind(together, value))
        lanes = _lanes(group[0].value)
        for number, store in enumerate(group):
            part = tirx.Shuffle([together], list(range(number * lanes, (number + 1) * lanes)))
            statements.append(tirx.BufferStore(store.buffer, part, store.indices))
    return statements


class _Wide:
    """One expression that computes what several of the same form do, side by side."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._bound: dict[Any, Any] = {}  # variable of the first expression to the wide one's

    def of(self, parts: Sequence[Any]) -> Any | None:
        """The expression with the lanes of all parts; None if their forms differ."""
        first = parts[0]
        if any(type(part) is not type(first) for part in parts):
            return None
        if isinstance(first, tirx.Var) and first in self._bound:
            return self._bound[first]
        if isinstance(first, _BINARY):
            a, b = self.of([part.a for part in parts]), self.of([part.b for part in parts])
            return None if a is None or b is None else type(first)(a, b)
        if isinstance(first, tirx.Let):
            return self._let(parts)
        if isinstance(first, tirx.Select):
            return self._select(parts)
        if isinstance(first, tirx.Cast):
            value = self.of([part.value for part in parts])
            return None if value is None else tirx.Cast(self._wide(first), value)
        if isinstance(first, Call):
            return self._reinterpreted(parts)
        if isinstance(first, tirx.Broadcast) and _all_equal([part.value for part in parts]):
            return tirx.Broadcast(first.value, self._count * _lanes(first))
        if isinstance(first, (TensorLoad, tirx.Broadcast)):
            return tirx.Shuffle(list(parts), list(range(self._count * _lanes(first))))
        return None

    def _let(self, parts: Sequence[tirx.Let]) -> Any | None:
        value = self.of([part.value for part in parts])
        if value is None:
            return None
        var = tirx.Var(parts[0].var.name, value.ty)
        self._bound.update({part.var: var for part in parts})
        body = self.of([part.body for part in parts])
        return None if body is None else tirx.Let(var, value, body)

    def _select(self, parts: Sequence[tirx.Select]) -> Any | None:
        condition = self.of([part.condition for part in parts])
        yes = self.of([part.true_value for part in parts])
        no = self.of([part.false_value for part in parts])
        if condition is None or yes is None or no is None:
            return None
        return tirx.Select(condition, yes, no)

    def _reinterpreted(self, parts: Sequence[Call]) -> Any | None:
        if not op_name(parts[0]).endswith(".reinterpret"):
            return None
        value = self.of([part.args[0] for part in parts])
        return None if value is None else tirx.reinterpret(self._wide(parts[0]), value)

    def _wide(self, part: Any) -> str:
        """The type of `count` such vectors."""
        dtype, lanes = str(part.ty.dtype), _lanes(part)
        return f"{dtype.removesuffix(f'x{lanes}')}x{lanes * self._count}"


def _lanes(value: Any) -> int:
    return int(tvm.DataType(str(value.ty.dtype)).lanes)


def _all_equal(values: Sequence[Any]) -> bool:
    return all(tvm_ffi.structural_equal(value, values[0]) for value in values[1:])
