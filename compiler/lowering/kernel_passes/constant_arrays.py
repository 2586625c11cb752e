"""Keep tables of constants small while TVM unrolls the loops that read them.

TOPI's Winograd transforms read each constant through a chain of selects, one for each element:

    for a in unroll(6): for e in unroll(6):
      y[e] += x[a] * select(a % 6 == 5 and e % 6 == 5, 1.0, select(a % 6 == 5 and e % 6 == 4, ...))

TVM copies the chain into each of a thousand unrolled statements, and only then determines which
constant each one reads. Until then a call represents the chain:

    y[e] += x[a] * call("baton.constant_table", 0, a % 6, e % 6)

After unrolling its arguments are numbers, and the call becomes the constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad
from tvm.s_tir import SBlockRealize

from schedules.tir_visit import nodes_of

from ...primfuncs.query import map_primfuncs

Expr = Any

_NAME = "baton.constant_table"
_SHORTEST = 8  # minimum length of a chain


def fold_constant_tables(lower: tvm.transform.Pass) -> tvm.transform.Pass:
    """Run the passes of `lower` with constant tables in unrolled loops hidden behind calls."""

    @tvm.transform.module_pass(opt_level=0, name="FoldConstantTables")
    def fold(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        tables: list[_Table] = []
        hidden = map_primfuncs(mod, lambda func: _hidden(func, tables))
        lowered = lower(hidden)
        return map_primfuncs(lowered, lambda func: _shown(func, tables)) if tables else lowered

    return fold


@dataclass
class _Table:
    """Contents of a chain of selects."""

    operands: list[Expr] = field(default_factory=list)  # operands of the comparisons
    # For each select, the required operand values, and the constant
    rows: list[tuple[dict[int, int], Expr]] = field(default_factory=list)
    default: Expr = None  # where no select holds
    _known: dict[tuple[int, ...], Expr] = field(default_factory=dict)

    def add(self, condition: Expr, value: Expr) -> bool:
        """Add one select; False if it does not belong to a table."""
        row: dict[int, int] = {}
        parts = [condition]
        while parts:
            part = parts.pop()
            if isinstance(part, tirx.And):
                parts += [part.b, part.a]
            elif isinstance(part, tirx.EQ) and isinstance(part.b, tirx.IntImm):
                row[self._position(part.a)] = int(part.b)
            else:
                return False
        self.rows.append((row, value))
        return isinstance(value, tirx.FloatImm)

    def _position(self, operand: Expr) -> int:
        for position, known in enumerate(self.operands):
            if tvm_ffi.structural_equal(known, operand):
                return position
        self.operands.append(operand)
        return len(self.operands) - 1

    def value(self, operands: Sequence[Expr]) -> Expr:
        """The constant for these operands, or the chain if not all are numbers."""
        if all(isinstance(operand, tirx.IntImm) for operand in operands):
            place = tuple(map(int, operands))
            if place not in self._known:
                self._known[place] = self._constant(place)
            return self._known[place]
        chain = self.default
        for row, value in reversed(self.rows):
            tests = [operands[position] == wanted for position, wanted in row.items()]
            chain = tirx.Select(tirx.all(*tests), value, chain)
        return chain

    def _constant(self, place: tuple[int, ...]) -> Expr:
        for row, value in self.rows:
            if all(place[position] == wanted for position, wanted in row.items()):
                return value
        return self.default


def _table(chain: tirx.Select) -> _Table | None:
    """Parse a chain of selects as a table; None if it is not one."""
    table, rest = _Table(), chain
    while isinstance(rest, tirx.Select):
        if not table.add(rest.condition, rest.true_value):
            return None
        rest = rest.false_value
    table.default = rest
    is_table = isinstance(rest, tirx.FloatImm) and len(table.rows) >= _SHORTEST
    return table if is_table else None


def _hidden(func: tirx.PrimFunc, tables: list[_Table]) -> tirx.PrimFunc:
    """Replace tables by calls; the tables are added to `tables`."""
    calls: dict[Any, Expr] = {}
    unrolled: set[Any] = set()  # variables that will be numbers

    def loop(node: tirx.For, visitor: Any) -> None:
        if node.kind == tirx.ForKind.UNROLLED:
            unrolled.add(node.loop_var)
        visitor.default_visit(node)

    def realize(node: SBlockRealize, visitor: Any) -> None:
        for iter_var, value in zip(node.block.iter_vars, node.iter_values):
            if unrolled.issuperset(nodes_of(value, tirx.Var)):
                unrolled.add(iter_var.var)
        visitor.default_visit(node)

    def select(node: tirx.Select, visitor: Any) -> None:
        table = _table(node)
        if table is None or not unrolled.issuperset(nodes_of(table.operands, tirx.Var)):
            visitor.default_visit(node)
            return
        calls[node] = tirx.call_pure_extern(node.ty.dtype, _NAME, len(tables), *table.operands)
        tables.append(table)

    tvm_ffi.structural_visit(
        func.body, [(tirx.For, loop), (SBlockRealize, realize), (tirx.Select, select)]
    )
    if not calls:
        return func
    swap = (tirx.Select, lambda node: calls.get(node, node))
    return func.with_body(tvm_ffi.structural_map(func.body, swap, order="pre"))


def _shown(func: tirx.PrimFunc, tables: Sequence[_Table]) -> tirx.PrimFunc:
    """Replace the calls by constants, and drop terms that add nothing."""

    def call(node: Call) -> Expr:
        if not node.args or getattr(node.args[0], "value", None) != _NAME:
            return node
        return tables[int(node.args[1])].value(node.args[2:])

    def store(node: tirx.BufferStore) -> Any:
        value = _folded(node.value)
        if value.same_as(node.value):
            return node
        is_same = isinstance(value, TensorLoad) and value.source.same_as(node.buffer)
        if is_same and tvm_ffi.structural_equal(value.indices, node.indices):
            return tirx.Evaluate(0)
        return tirx.BufferStore(node.buffer, value, node.indices)

    return func.with_body(
        tvm_ffi.structural_map(func.body, [(Call, call), (tirx.BufferStore, store)])
    )


def _folded(value: Expr) -> Expr:
    """Remove zeros and ones from a sum of products."""
    if not isinstance(value, (tirx.Add, tirx.Mul)):
        return value
    a, b = _folded(value.a), _folded(value.b)
    if isinstance(b, tirx.FloatImm) or not (a.same_as(value.a) and b.same_as(value.b)):
        return a + b if isinstance(value, tirx.Add) else a * b
    return value
