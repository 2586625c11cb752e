"""Split long float32 reductions into blocks, which bounds the growth of rounding errors.

    for k in 4096                           for block in 8
      C[i] = C[i] + x[k] * w[k, i]    -->     sum = 0
                                              for k in 512
                                                sum = sum + x[...] * w[..., i]
                                              C[i] = C[i] + sum

A sum of K terms in one chain is off by up to K roundings of its largest partial sum; in blocks of b
terms by b + K / b. For products of one sign at K = 4096, errors were 11 times those of onnxruntime,
which also adds in blocks. A block costs one addition for each vector of a register tile, compared
to thousands of multiply-adds.

Loops marked by `schedules.x86.machine.sum_blocks`, and inner loops, use shorter blocks.

Runs on lowered functions: flat buffers, explicit vectors, unrolled register tiles.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

from schedules.generic.stages import substitute, uses
from schedules.tir_visit import nodes_of
from schedules.x86.machine.sum_blocks import MARK

from ...primfuncs.query import bound_values, expanded, replace_loop, with_parts

_MOST_TERMS = 512
"""Terms of a block; a register tile of 12 vectors has 6144 multiply-adds then."""
_LEAST_TERMS = 128
"""Terms of a loop below which it stays as it is: blocks would cost more than 1%."""


class _Sums(NamedTuple):
    # Where the sums are, the indices in terms of what is bound outside of the loop
    places: list[tuple[Any, Any]]
    of_store: dict[Any, int]  # by store of the loop's body, the position of its sum in `places`
    terms: int  # that one iteration of the loop adds to each sum


@tvm.tirx.transform.prim_func_pass(opt_level=0, name="AddInBlocks")
def add_in_blocks(func: tirx.PrimFunc, _: tvm.IRModule, __: Any) -> tirx.PrimFunc:
    body = _Splitter(bound_values(func.body)).split(func.body, ())
    return func if body.same_as(func.body) else func.with_body(body)


class _Splitter:
    def __init__(self, bound: dict[Any, Any]) -> None:
        self._bound = bound

    def split(
        self, statement: tirx.Stmt, around: tuple[tirx.For, ...], most: int | None = None
    ) -> tirx.Stmt:
        """The statement inside loops `around`, with long reductions in blocks of `most` terms."""
        if isinstance(statement, tirx.SeqStmt):
            parts = [self.split(part, around) for part in statement.seq]
            changed = any(not a.same_as(b) for a, b in zip(parts, statement.seq))
            return tirx.SeqStmt(parts) if changed else statement
        if isinstance(statement, tirx.AttrStmt):
            if statement.attr_key == MARK:
                return self.split(statement.body, around, int(statement.value))
            body = self.split(statement.body, around, most)
            if body.same_as(statement.body):
                return statement
            return with_parts(statement, lambda _: body)
        if isinstance(statement, tirx.IfThenElse):
            return with_parts(statement, lambda part: self.split(part, around))
        if not isinstance(statement, tirx.For):
            return statement
        if most is not None:
            return self._in_blocks(statement, around, most, most // 2) or statement
        body = self.split(statement.body, (*around, statement))
        if not body.same_as(statement.body):
            return replace_loop(statement, body=body)
        if nodes_of(statement.body, tirx.For):
            return statement
        return self._in_blocks(statement, around, _MOST_TERMS, _LEAST_TERMS) or statement

    def _in_blocks(
        self, loop: tirx.For, around: tuple[tirx.For, ...], most: int, least: int
    ) -> tirx.Stmt | None:
        """A loop of sums alone, in blocks; None for any other, and for a short one."""
        if loop.kind != tirx.ForKind.SERIAL or not isinstance(loop.extent, tirx.IntImm):
            return None
        sums = self._sums(loop)
        if sums is None:
            return None
        extent = int(loop.extent)
        each = sums.terms  # of a sum, in one iteration
        if extent * each < least or extent * each * self._repeats(sums, around) <= most:
            return None
        sizes = [n for n in range(1, extent + 1) if extent % n == 0 and n * each <= most]
        size = max(sizes, default=1)
        if size * each < least:  # no such divisor: the last block is shorter
            size = max(most // each, 1)
        return _blocks(loop, sums, size)

    def _repeats(self, sums: _Sums, around: tuple[tirx.For, ...]) -> int:
        """How often the loops outside may come back to the same sums."""
        count = 1
        for loop in around:
            if not any(uses(index, loop.loop_var) for _, index in sums.places):
                count *= int(loop.extent) if isinstance(loop.extent, tirx.IntImm) else 2
        return count

    def _sums(self, loop: tirx.For) -> _Sums | None:
        """The sums of a loop whose every store adds to one; None if it does anything else."""
        found = _stores(loop.body)
        if found is None:
            return None
        stores, loops, repeats = found
        inside = bound_values(loop.body)
        variables = [loop.loop_var, *(each.loop_var for each in loops)]
        places: list[tuple[Any, Any]] = []
        of_store: dict[Any, int] = {}
        for store in stores:
            index = expanded(store.indices[0], inside)
            known = expanded(index, self._bound)
            if any(uses(known, var) for var in variables):
                return None
            for at, (buffer, other) in enumerate(places):
                if buffer.same_as(store.buffer) and tvm_ffi.structural_equal(other, index):
                    of_store[store] = at
                    break
            else:
                of_store[store] = len(places)
                places.append((store.buffer, index))
        is_read = _reads(loop.body, {buffer for buffer, _ in places}) != len(stores)
        if not places or is_read or len(stores) % len(places):
            return None  # a sum is read while it is made, or they have unlike numbers of terms
        return _Sums(places, of_store, repeats * len(stores) // len(places))


def _stores(body: tirx.Stmt) -> tuple[list[tirx.BufferStore], list[tirx.For], int] | None:
    """Stores that add to a sum, the loops around them, and how often these run them.

    None if the body has any other statement but bindings and calls, such as prefetches.
    """
    parts = body.seq if isinstance(body, tirx.SeqStmt) else [body]
    parts = [part for part in parts if not isinstance(part, (tirx.stmt.Bind, tirx.Evaluate))]
    if len(parts) == 1 and isinstance(parts[0], tirx.For):
        loop = parts[0]
        found = _stores(loop.body)
        if found is None or not isinstance(loop.extent, tirx.IntImm):
            return None
        stores, loops, repeats = found
        return stores, [loop, *loops], repeats * int(loop.extent)
    if not all(isinstance(part, tirx.BufferStore) and _is_sum(part) for part in parts):
        return None
    return parts, [], 1


def _is_sum(store: tirx.BufferStore) -> bool:
    """Whether it is C[i] = C[i] + term, of float32."""
    value = store.value
    if not isinstance(value, tirx.Add) or len(store.indices) != 1:
        return False
    if not re.fullmatch(r"float32(x\d+)?", str(value.ty.dtype)):
        return False
    load = value.a
    return (
        isinstance(load, TensorLoad)
        and load.source.same_as(store.buffer)
        and tvm_ffi.structural_equal(load.indices[0], store.indices[0])
    )


def _reads(body: tirx.Stmt, buffers: set[Any]) -> int:
    count = 0

    def visit(load: Any) -> None:
        nonlocal count
        count += load.source in buffers

    tvm_ffi.structural_walk(body, (TensorLoad, visit))
    return count


def _blocks(loop: tirx.For, sums: _Sums, size: int) -> tirx.Stmt:
    """Split the loop into blocks of `size` iterations, each with its own sums."""
    dtypes = {at: store.value.ty for store, at in sums.of_store.items()}
    # One small buffer each: registers. Of the scope "local" TVM takes memory for each tile.
    own = [
        tirx.decl_buffer((1,), str(dtypes[at].dtype), f"sum{at}") for at in range(len(sums.places))
    ]

    def add(store: tirx.BufferStore) -> tirx.Stmt:
        at = sums.of_store.get(store)
        if at is None:
            return store
        return tirx.BufferStore(own[at], _load(own[at], 0) + store.value.b, [0])

    body = tvm_ffi.structural_map(loop.body, (tirx.BufferStore, add))
    extent = int(loop.extent)
    count = -(-extent // size)
    block, step = tirx.Var("block", loop.loop_var.ty), tirx.Var("step", loop.loop_var.ty)
    place = loop.min + (block * size + step if count > 1 else step)
    body = substitute(body, [(loop.loop_var, place)])
    steps = size if extent % size == 0 else tirx.min(size, extent - block * size)
    inner = tirx.For(step, 0, steps, loop.kind, body, None, loop.annotations)
    zeros = [tirx.BufferStore(each, tirx.const(0, str(each.dtype)), [0]) for each in own]
    ends = [
        tirx.BufferStore(buffer, _load(buffer, index) + _load(each, 0), [index])
        for (buffer, index), each in zip(sums.places, own)
    ]
    whole = tirx.SeqStmt([*map(tirx.AllocBuffer, own), *zeros, inner, *ends])
    return whole if count == 1 else tirx.For(block, 0, count, loop.kind, whole)


def _load(buffer: Any, index: Any) -> Any:
    return tirx.BufferLoad(buffer, [index])
