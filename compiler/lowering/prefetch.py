"""Software prefetch of weights that a kernel streams from memory, where its schedule asks for it.

Weights do not stay in cache from one inference to the next. A core that multiplies while it reads
them gets a third of what memory can give: its reorder buffer holds some twenty steps of a
product, and hardware prefetch stops at each page. `schedules.x86.prefetch` says how schedules
mark the loops of such a product.

`llvm.prefetch` would be no way to do it: LLVM assumes that it may read any memory, and stores and
loads the accumulators in every step. An inline assembly statement that touches no memory that the
program can see leaves them in registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

from schedules.x86 import prefetch as marks

from ..target.cpu import system_triple
from ..tir import replace_loop

_LINE_BYTES = 64
_FUNCTION = "baton_prefetch"
_EFFECTS = "nounwind willreturn memory(inaccessiblemem: readwrite)"
# An address past the end of the weights is harmless: the instruction never faults.
_DEFINITION = f"""
define linkonce_odr void @{_FUNCTION}(ptr %address) alwaysinline {_EFFECTS} {{
  call void asm sideeffect "prefetcht0 ($0)", "r"(ptr %address) {_EFFECTS}
  ret void
}}
"""
_NO_MARKS: Mapping[str, int] = {}


def insert_prefetches() -> tvm.transform.Pass:
    """The pass, on lowered functions for x86: flat buffers, explicit vectors, no blocks."""

    @tvm.tirx.transform.prim_func_pass(opt_level=0, name="InsertPrefetches")
    def insert(func: tirx.PrimFunc, _: tvm.IRModule, __: Any) -> tirx.PrimFunc:
        if not _has_marks(func.body) or not _is_x86(func):
            return func
        body = _insert(func.body, _Nest(), _NO_MARKS)
        definition = tvm.ir.StringImm(_DEFINITION)
        zero = tirx.const(0, "int32")
        return func.with_body(tirx.AttrStmt(zero, "pragma_import_llvm", definition, body))

    return insert


def _is_x86(func: tirx.PrimFunc) -> bool:
    target = tvm.target.Target(func.attrs["target"])
    triple = str(target.attrs.get("mtriple") or system_triple())
    return triple.startswith(("x86_64", "i686", "i386"))


def _has_marks(body: tirx.Stmt) -> bool:
    found = False

    def check(attr: tirx.AttrStmt) -> None:
        nonlocal found
        found = found or attr.attr_key == marks.PANEL

    tvm_ffi.structural_walk(body, (tirx.AttrStmt, check))
    return found


@dataclass(frozen=True)
class _Nest:
    """Marked loops around a statement, outer ones first, as (position, extent)."""

    rows: tuple[tuple[Any, int], ...] = ()
    steps: tuple[tuple[Any, int], ...] = ()
    stride_bytes: int = 0

    def enter(self, loop: tirx.For, found: Mapping[str, int]) -> _Nest:
        """The nest inside `loop`, which carries these marks."""
        nest = self
        if marks.STRIDE in found:
            nest = replace(nest, stride_bytes=found[marks.STRIDE])
        if marks.ROWS in found:
            nest = replace(nest, rows=(*nest.rows, _part(loop, found[marks.ROWS])))
        if marks.STEPS in found:
            nest = replace(nest, steps=(*nest.steps, _part(loop, found[marks.STEPS])))
        return nest


def _insert(statement: tirx.Stmt, nest: _Nest, found: Mapping[str, int]) -> tirx.Stmt:
    """The statement with its prefetches and without its marks.

    `found` are marks of the next loop inside, which lowering may have made two, one of them for
    ragged tiles, or none, if it had one iteration.
    """
    if isinstance(statement, tirx.AttrStmt):
        if statement.attr_key in marks.KEYS:
            found = {**found, str(statement.attr_key): int(statement.value)}
            return _insert(statement.body, nest, found)
        body = _insert(statement.body, nest, found)
        return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, body)
    if isinstance(statement, tirx.SeqStmt):
        return tirx.SeqStmt([_insert(part, nest, found) for part in statement.seq])
    if isinstance(statement, tirx.IfThenElse):
        then, other = statement.then_case, statement.else_case
        return tirx.IfThenElse(
            statement.condition,
            _insert(then, nest, found),
            None if other is None else _insert(other, nest, found),
        )
    if isinstance(statement, tirx.For):
        inside = nest.enter(statement, found)
        if marks.PANEL in found:
            return _with_prefetches(statement, inside, found[marks.PANEL])
        return replace_loop(statement, body=_insert(statement.body, inside, _NO_MARKS))
    return statement


def _with_prefetches(loop: tirx.For, nest: _Nest, panel_bytes: int) -> tirx.For:
    """The innermost loop, each step of which asks for its share of the panel that comes next."""
    weights = _first_vector(loop.body)
    item = tvm.DataType(weights.source.dtype).itemsize
    step, steps = _position((*nest.steps, _part(loop, int(loop.extent))))
    row, rows = _position(nest.rows)
    next_panel = weights.indices[0].base - (step * nest.stride_bytes - panel_bytes) // item

    lines = -(-panel_bytes // _LINE_BYTES)
    each = -(-lines // (rows * steps))
    # lines / (rows * steps * each) as a factor and a shift: at most one line for each share
    shift = 30 - lines.bit_length()
    factor = (lines << shift) // (rows * steps * each)
    shares = [(row * steps + step) * each + i for i in range(each)]
    wanted = [share * factor >> shift for share in shares]
    fetches = []
    for line in wanted:
        address = tirx.BufferLoad(weights.source, [next_panel + line * (_LINE_BYTES // item)])
        call = tirx.call_extern("void", _FUNCTION, tirx.address_of(address))
        fetches.append(tirx.Evaluate(call))
    return replace_loop(loop, body=tirx.SeqStmt([loop.body, *fetches]))


def _first_vector(body: tirx.Stmt) -> TensorLoad:
    """The first vector of weights that is read; inputs are broadcast one by one."""
    vectors: list[TensorLoad] = []
    written: list[Any] = []

    def load(node: TensorLoad) -> None:
        if isinstance(node.indices[0], tirx.Ramp):
            vectors.append(node)

    def store(node: tirx.BufferStore) -> None:
        written.append(node.buffer)

    tvm_ffi.structural_walk(body, [(TensorLoad, load), (tirx.BufferStore, store)])
    return next(v for v in vectors if not any(v.source.same_as(buffer) for buffer in written))


def _part(loop: tirx.For, extent: int) -> tuple[Any, int]:
    """The loop's variable, or of a loop that was fused with outer ones its part, and extent."""
    var = loop.loop_var
    return (var if int(loop.extent) == extent else tirx.floormod(var, extent)), extent


def _position(loops: tuple[tuple[Any, int], ...]) -> tuple[Any, int]:
    """Number of an iteration of nested loops, and how many there are."""
    position: Any = tirx.const(0, "int32")
    count = 1
    for value, extent in loops:
        position = position * extent + value
        count *= extent
    return position, count
