"""Lower the loop nests that `schedules.x86.machine.amx` marks to AMX tile instructions.

A nest sums products over rows and columns. It becomes, for two tiles of each at a time,

    zero four tiles of sums
    for each step of the reduction
      load two tiles of data, two of weights; multiply each by each
    store the sums

Rows that do not fill whole tiles are computed by a tile that overlaps the preceding rows; their
sums are the same. All tiles of a nest have the same number of rows.

The tile shapes are configured at the start of a parallel task, or of the kernel: Linux grants a
process the tile registers on request, which the first such call makes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import TensorLoad
from tvm.target import codegen

from schedules.generic.stages import substitute
from schedules.tir_visit import nodes_of
from schedules.x86.conv.register_tile import largest_divisor
from schedules.x86.machine.amx import GROUP_BYTES, MARK, PAIR, STEP_BYTES, TILE_COLUMNS, TILE_ROWS

from ...primfuncs.query import (
    bound_values,
    expanded,
    has_attribute,
    marked_loop,
    replace_loop,
    with_llvm,
    with_parts,
)

PRODUCTS = ("tdpbusd", "tdpbf16ps")
CONFIGURE = "baton_amx_configure"

# Registers: four tiles of sums, two of data, two of weights.
_SUMS, _DATA, _WEIGHTS = 0, 4, 6

_TEXT = """
@baton_amx_is_ours = linkonce_odr global i8 0
declare void @llvm.x86.ldtilecfg(ptr)
define linkonce_odr i32 @baton_amx_configure(i32 %rows, i32 %bytes, i32 %groups) noinline {
  %is_ours = load i8, ptr @baton_amx_is_ours
  %is_known = icmp ne i8 %is_ours, 0
  br i1 %is_known, label %configure, label %ask
ask: ; arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
  %got = call i64 asm sideeffect "syscall",
    "={rax},0,{rdi},{rsi},~{rcx},~{r11},~{memory},~{dirflag},~{fpsr},~{flags}"(
    i64 158, i64 4131, i64 18)
  store i8 1, ptr @baton_amx_is_ours
  br label %configure
configure: ; palette 1; bytes of a row of each tile, 16 bits, at 16; rows, 8 bits, at 48
  %place = alloca [64 x i8], align 64
  store <64 x i8> zeroinitializer, ptr %place, align 64
  store i8 1, ptr %place
  %r8 = trunc i32 %rows to i8
  %g8 = trunc i32 %groups to i8
  %b16 = trunc i32 %bytes to i16
SHAPES
  call void @llvm.x86.ldtilecfg(ptr %place)
  ret i32 0
}
"""


def _shapes() -> str:
    """Stores of the shapes of the eight tiles."""
    lines = []
    for tile in range(8):
        width = "%b16" if _DATA <= tile < _WEIGHTS else str(STEP_BYTES)
        rows = "%g8" if tile >= _WEIGHTS else "%r8"
        for name, kind, value, at in (
            ("w", "i16", width, 16 + 2 * tile),
            ("r", "i8", rows, 48 + tile),
        ):
            place = f"%{name}{tile}"
            lines.append(f"  {place} = getelementptr i8, ptr %place, i64 {at}")
            lines.append(f"  store {kind} {value}, ptr {place}")
    return "\n".join(lines)


CONFIGURE_TEXT = _TEXT.replace("SHAPES", _shapes())
"""Sets the tiles' shapes: rows of data and sums, bytes of a row of data, rows of weights."""


@tvm.tirx.transform.prim_func_pass(opt_level=0, name="MultiplyTiles")
def multiply_tiles(func: tirx.PrimFunc, _: tvm.IRModule, __: Any) -> tirx.PrimFunc:
    """The pass, on lowered functions."""
    if not has_attribute(func.body, MARK):
        return func
    bound = bound_values(func.body)

    def replace(sequence: tirx.SeqStmt) -> tirx.Stmt:
        parts = list(sequence.seq)
        marked = [i for i, part in enumerate(parts) if marked_loop(part, MARK) is not None]
        for i in reversed(marked):
            nest = _Nest.of(marked_loop(parts[i], MARK), bound)
            first = i - 1 if i and _zeroes(parts[i - 1], nest.sums) else i
            parts[first : i + 1] = nest.by_tiles()
        return tirx.SeqStmt(parts) if marked else sequence

    attributes = nodes_of(func.body, tirx.AttrStmt)
    loops = [marked_loop(attr, MARK) for attr in attributes if attr.attr_key == MARK]
    (shape,) = {_Nest.of(loop, bound).shape for loop in loops}
    body = _with_shapes(func.body, shape)
    return func.with_body(tvm_ffi.structural_map(body, (tirx.SeqStmt, replace)))


@dataclass(frozen=True)
class _Shape:
    """Tile shape of a kernel: rows of data and sums, and groups of four bytes along k."""

    rows: int
    groups: int


@dataclass(frozen=True)
class _Operand:
    """One side of the sums: its buffer and flat index."""

    buffer: Any
    index: Any

    @property
    def item(self) -> int:
        return int(tvm.DataType(str(self.buffer.dtype)).itemsize)

    def at(self, values: Mapping[Any, Any]) -> Any:
        """Address for these values of the variables."""
        pairs = [
            (var, tirx.const(value, var.ty.dtype) if isinstance(value, int) else value)
            for var, value in values.items()
        ]
        index = substitute(self.index, pairs) if pairs else self.index
        return tirx.address_of(tirx.BufferLoad(self.buffer, [_simple(index)]))

    def step(self, var: Any) -> int:
        """Stride in elements of a loop variable."""
        return int(_simple(substitute(self.index, [(var, var + 1)]) - self.index))


@dataclass(frozen=True)
class _Nest:
    """A marked nest, with its loops sorted by role."""

    sums: _Operand
    data: _Operand
    weights: _Operand
    rows: list[tirx.For]
    columns: tirx.For
    reduction: list[tirx.For]
    k: tirx.For | None
    part: tirx.For

    @staticmethod
    def of(root: tirx.For, bound: Mapping[Any, Any]) -> _Nest:
        (store,) = nodes_of(root, tirx.BufferStore)
        sums = _Operand(store.buffer, expanded(store.indices[0], bound))
        loads = [
            _Operand(load.source, expanded(load.indices[0], bound))
            for load in nodes_of(expanded(store.value, bound), TensorLoad)
            if not load.source.same_as(store.buffer)
        ]
        data, weights = loads
        loops = nodes_of(root, tirx.For, order="pre")
        rows = [each for each in loops if sums.step(each.loop_var) and data.step(each.loop_var)]
        (columns,) = (each for each in loops if each not in rows and sums.step(each.loop_var))
        reduced = [each for each in loops if not sums.step(each.loop_var)]
        part = reduced.pop()
        size = int(part.extent)
        across = TILE_COLUMNS * size
        is_k = bool(reduced) and weights.step(reduced[-1].loop_var) == across
        is_k = is_k and data.step(reduced[-1].loop_var) == size
        k = reduced.pop() if is_k else None
        return _Nest(sums, data, weights, rows, columns, reduced, k, part)

    @property
    def shape(self) -> _Shape:
        count = int(self.rows[-1].extent) if self.rows else 1
        most = STEP_BYTES // GROUP_BYTES
        groups = largest_divisor(int(self.k.extent), most) if self.k is not None else 1
        return _Shape(-(-count // -(-count // TILE_ROWS)), groups)

    def by_tiles(self) -> list[tirx.Stmt]:
        """Statements that compute the sums, two tiles of rows by two of columns at a time."""
        every = range(0, int(self.columns.extent), TILE_COLUMNS)
        columns = [every[first : first + PAIR] for first in range(0, len(every), PAIR)]
        pairs, rest = divmod(self._row_tiles, PAIR)
        found: list[tirx.Stmt] = []
        for several in columns:
            if pairs:
                pair = tirx.Var("pair", self.columns.loop_var.ty)
                body = self._pair([self._rows_of(pair * PAIR + i) for i in range(PAIR)], several)
                found.append(tirx.For(pair, 0, pairs, tirx.ForKind.SERIAL, tirx.SeqStmt(body)))
            if rest:
                found += self._pair([self._rows_of(self._row_tiles - 1)], several)
        return found

    @property
    def _row_tiles(self) -> int:
        """Number of row tiles, summed over the runs of rows."""
        *outer, inner = [int(each.extent) for each in self.rows] or [1]
        return math.prod(outer) * -(-inner // TILE_ROWS)

    def _rows_of(self, tile: Any) -> dict[Any, Any]:
        """The first row of a tile, by the variables of the loops over rows."""
        if not self.rows:
            return {}
        *outer, inner = self.rows
        count, size = int(inner.extent), self.shape.rows
        tiles = -(-count // TILE_ROWS)
        place, values = tile // tiles, {}
        values[inner.loop_var] = tirx.min(tile % tiles * size, count - size)
        for loop in reversed(outer):
            values[loop.loop_var] = place % int(loop.extent)
            place = place // int(loop.extent)
        return values

    def _pair(self, rows: Sequence[dict[Any, Any]], columns: Sequence[int]) -> list[tirx.Stmt]:
        tiles = [(i, j) for i in range(len(rows)) for j in range(len(columns))]
        groups = self.shape.groups
        first = {self.part.loop_var: 0}
        steps: list[tirx.Stmt] = []
        loop = self.k
        if loop is not None:
            var = tirx.Var("step", loop.loop_var.ty)
            count = int(loop.extent) // groups
            first[loop.loop_var] = var * groups if count > 1 else 0
        across = 0 if loop is None else self.weights.step(loop.loop_var) * self.weights.item
        for i, row in enumerate(rows):
            apart = self.data.step(self.rows[-1].loop_var) * self.data.item if self.rows else 0
            steps.append(_load(_DATA + i, self.data.at({**row, **first}), apart))
            for j, column in enumerate(columns):
                if i == 0:
                    place = self.weights.at({self.columns.loop_var: column, **first})
                    steps.append(_load(_WEIGHTS + j, place, across or STEP_BYTES))
                steps.append(self._multiply(i, j))
        inner: tirx.Stmt = tirx.SeqStmt(steps)
        if loop is not None and count > 1:
            inner = tirx.For(var, 0, count, tirx.ForKind.SERIAL, inner)
        for each in reversed(self.reduction):
            inner = replace_loop(each, body=inner)
        # Each copy of the loops needs its own variables.
        inner = _with_new_loops(inner)
        of_row = self.sums.step(self.rows[-1].loop_var) * self.sums.item if self.rows else 0
        stored = []
        for i, j in tiles:
            place = self.sums.at({**rows[i], self.columns.loop_var: columns[j]})
            apart = tirx.const(of_row, "int64")
            stored.append(_tile("tilestored64", _SUMS + PAIR * i + j, place, apart))
        zeroed = [_tile("tilezero", _SUMS + PAIR * i + j) for i, j in tiles]
        return [*zeroed, *_parts(inner), *stored]

    def _multiply(self, i: int, j: int) -> tirx.Stmt:
        name = PRODUCTS[0 if self.data.item == 1 else 1]
        registers = (_DATA + i, _WEIGHTS + j)
        numbers = [tirx.const(register, "int8") for register in registers]
        return _tile(name, _SUMS + PAIR * i + j, *numbers)


def _tile(name: str, register: int, *arguments: Any) -> tirx.Stmt:
    """A tile instruction, by the suffix of its LLVM intrinsic."""
    return tirx.Evaluate(call_instruction(name, tirx.const(register, "int8"), *arguments))


def call_instruction(name: str, *arguments: Any) -> Any:
    number = tirx.const(codegen.llvm_lookup_intrinsic_id(f"llvm.x86.{name}"), "uint32")
    return tirx.call_llvm_intrin("", number, *arguments)


def _load(register: int, place: Any, apart: int) -> tirx.Stmt:
    return _tile("tileloadd64", register, place, tirx.const(apart, "int64"))


def _with_new_loops(statement: tirx.Stmt) -> tirx.Stmt:
    def renew(loop: tirx.For) -> tirx.For:
        var = tirx.Var(loop.loop_var.name, loop.loop_var.ty)
        body = substitute(loop.body, [(loop.loop_var, var)])
        return replace_loop(loop, loop_var=var, body=body)

    return tvm_ffi.structural_map(statement, (tirx.For, renew))


def _zeroes(statement: tirx.Stmt, sums: _Operand) -> bool:
    """Whether a statement only sets the sums to zero."""
    stores = nodes_of(statement, tirx.BufferStore)
    return len(stores) == 1 and bool(stores[0].buffer.same_as(sums.buffer))


def _with_shapes(body: tirx.Stmt, shape: _Shape) -> tirx.Stmt:
    """Configure the tile shapes in a kernel's parallel tasks, or in its body."""
    numbers = (shape.rows, shape.groups * GROUP_BYTES, shape.groups)
    arguments = [tirx.const(number, "int32") for number in numbers]
    begin = tirx.Evaluate(tirx.call_extern("int32", CONFIGURE, *arguments))
    end = tirx.Evaluate(call_instruction("tilerelease"))
    tasks = 0

    def task(loop: tirx.For) -> tirx.For:
        nonlocal tasks
        if loop.kind != tirx.ForKind.PARALLEL or not has_attribute(loop, MARK):
            return loop
        tasks += 1
        return replace_loop(loop, body=tirx.SeqStmt([begin, *_parts(loop.body), end]))

    body = tvm_ffi.structural_map(body, (tirx.For, task))
    if not tasks:
        body = _between(begin, body, end)
    return with_llvm(body, CONFIGURE_TEXT)


def _between(begin: tirx.Stmt, body: tirx.Stmt, end: tirx.Stmt) -> tirx.Stmt:
    """Insert statements before and after the body, inside all marks: it may end with a return."""
    if isinstance(body, tirx.AttrStmt) and body.attr_key != MARK:
        return with_parts(body, lambda inside: _between(begin, inside, end))
    parts = _parts(body)
    marked = [i for i, part in enumerate(parts) if has_attribute(part, MARK)]
    if marked == marked[:1] and isinstance(parts[marked[0]], tirx.AttrStmt):
        attr = parts[marked[0]]
        if attr.attr_key != MARK:
            parts[marked[0]] = _between(begin, attr, end)
            return tirx.SeqStmt(parts)
    behind = marked[-1] + 1
    return tirx.SeqStmt([begin, *parts[:behind], end, *parts[behind:]])


def _parts(statement: tirx.Stmt) -> list[tirx.Stmt]:
    """The statements of a sequence, or the statement alone; TVM does not nest sequences."""
    return list(statement.seq) if isinstance(statement, tirx.SeqStmt) else [statement]


def _simple(index: Any) -> Any:
    return sym.Analyzer().simplify(index)
