"""Writes the kernel of a contraction on tensor cores: one design for products and convolutions.

    blockIdx = (tile of j, tile of i, s and part of k)
      for each step of k:              `stages` steps are under way at a time
        A, B tiles -> shared           cp.async of up to 16 bytes; zeros outside of the image
        ldmatrix -> registers          chunks of 16 bytes are swizzled: no bank conflicts
        mma.sync                       sums stay in registers
      sums -> shared -> epilogue       rows of whole vectors, as the output lies in memory

The tiles of a convolution are gathered from the image: there is no im2col buffer. Where k is
divided among blocks, these leave their sums in a workspace, and a second kernel adds them up and
computes the epilogue.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import gcd
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from . import fragments
from .contraction import RESULT_LANES, Contraction, Operand
from .fragments import (
    CHUNK_BYTES,
    INSTRUCTIONS,
    MMA_I,
    MMA_J,
    MMA_K_BYTES,
    TRANSPOSED_BITS,
    WARP,
)
from .gemm_tiles import Plan

Expr = Any
_ADDING_THREADS = 128
_UNROLLED = 8


def kernel(contraction: Contraction, plan: Plan) -> tirx.PrimFunc:
    """The contraction's function as one kernel, or two where the plan divides k."""
    return _Kernel(contraction, plan).build()


def _const(value: int) -> Expr:
    return tirx.const(value, "int32")


def _all(conditions: list[Expr]) -> Expr:
    found: Expr = tirx.const(True, "bool")
    for at, condition in enumerate(conditions):
        found = condition if at == 0 else tirx.And(found, condition)
    return found


def _allocate(shape: tuple[int, ...], dtype: str, scope: str) -> Any:
    return T.buffer_proxy(T.alloc_buffer(shape, dtype, scope=scope))


def _stored(operand: Operand) -> Operand:
    """The operand as it is stored in shared memory: only 16 bits can be transposed from there."""
    if operand.along != "k" and tvm.DataType(operand.dtype).bits != TRANSPOSED_BITS:
        return replace(operand, along="k", lanes=1)
    return operand


def _rounds(count: int) -> Any:
    """A loop, written out where it is short."""
    return T.unroll(0, count) if count <= _UNROLLED else T.serial(0, count)


def _pointer(buffer: Any, place: Expr) -> Expr:
    """Where an element of shared memory or of a thread's array is.

    TVM 0.27 takes memory whose elements only have their addresses taken for unused; `access_ptr`
    counts as a use of all of it. It says that memory is read, copies included: barriers are
    placed by hand.
    """
    return buffer.access_ptr("r", offset=place)


class _Kernel:
    """Writes the statements; `plan` has the numbers, `c` the expressions."""

    def __init__(self, contraction: Contraction, plan: Plan) -> None:
        self.c, self.plan = contraction, plan
        self.operands = {"i": _stored(contraction.a), "j": _stored(contraction.b)}
        self.instruction = INSTRUCTIONS[contraction.a.dtype]
        self.itemsize = tvm.DataType(contraction.a.dtype).itemsize
        self.chunk = CHUNK_BYTES // self.itemsize
        self.tile = plan.tile
        self.step = self.tile.k_bytes // self.itemsize

    def build(self) -> tirx.PrimFunc:
        c, plan = self.c, self.plan
        workspaces = []
        kernels = []
        if plan.parts > 1:
            shape = (plan.parts, c.extent("s"), *self._result_shape())
            self.workspace = tirx.decl_buffer(shape, self.instruction.sum_dtype, "partial_sums")
            workspaces.append(self.workspace)
        with IRBuilder() as builder:
            with self._grid():
                self._multiply()
            kernels.append(builder.get())
        if plan.parts > 1:
            with IRBuilder() as builder:
                self._add_parts()
                kernels.append(builder.get())
        body = kernels[0] if len(kernels) == 1 else tirx.SeqStmt(kernels)
        root = s_tir.SBlock([], [], [], "root", body, None, workspaces)
        return c.func.with_body(s_tir.SBlockRealize([], True, root))

    def _result_shape(self) -> tuple[int, int]:
        """Extents of the workspace, its innermost axis that along which results lie."""
        i, j = self.c.extent("i"), self.c.extent("j")
        return (i, j) if self.c.along == "j" else (j, i)

    @contextmanager
    def _grid(self) -> Iterator[None]:
        plan = self.plan
        with (
            T.thread_binding(0, plan.tiles_j, thread="blockIdx.x") as block_j,
            T.thread_binding(0, plan.tiles_i, thread="blockIdx.y") as block_i,
            T.thread_binding(0, self.c.extent("s") * plan.parts, thread="blockIdx.z") as block_z,
            T.thread_binding(0, self.tile.threads, thread="threadIdx.x") as thread,
        ):
            self.first = {"i": block_i * self.tile.i, "j": block_j * self.tile.j}
            self.s, self.part = block_z // plan.parts, block_z % plan.parts
            self.thread, self.lane, self.warp = thread, thread % WARP, thread // WARP
            yield

    # --- the product -------------------------------------------------------------------------

    def _multiply(self) -> None:
        c, tile, plan = self.c, self.tile, self.plan
        self.shared = {
            letter: T.alloc_buffer((plan.stages * size * self.step,), c.a.dtype, scope="shared.dyn")
            for letter, size in (("i", tile.i), ("j", tile.j))
        }
        sum_dtype = self.instruction.sum_dtype
        self.sums = T.alloc_buffer((tile.mma_i * tile.mma_j * 4,), sum_dtype, scope="local")
        self.a = T.alloc_buffer((tile.mma_i * 4,), "uint32", scope="local")
        self.b = T.alloc_buffer((tile.mma_j * 2,), "uint32", scope="local")
        with T.unroll(0, tile.mma_i * tile.mma_j * 4) as at:
            T.buffer_store(self.sums, tirx.const(0, sum_dtype), [at])
        steps = plan.steps
        for stage in range(plan.stages - 1):
            if stage < steps:
                self._load(_const(stage), _const(stage))
            T.evaluate(fragments.commit())
        with T.serial(0, steps) as step:
            T.evaluate(fragments.wait(plan.stages - 2))
            T.evaluate(T.tvm_storage_sync("shared.dyn"))
            ahead = step + (plan.stages - 1)
            with T.If(ahead < steps), T.Then():
                self._load(ahead, ahead % plan.stages)
            T.evaluate(fragments.commit())
            for at in range(tile.k_bytes // MMA_K_BYTES):
                self._multiply_step(step % plan.stages, at)
        T.evaluate(fragments.wait(0))
        T.evaluate(T.tvm_storage_sync("shared.dyn"))
        self._store()

    def _load(self, step: Expr, stage: Expr) -> None:
        """Have all threads copy the tiles of a step to a stage's part of shared memory."""
        for letter, operand in self.operands.items():
            rows = self.tile.i if letter == "i" else self.tile.j
            across, along = (rows, self.step) if operand.along == "k" else (self.step, rows)
            each = along // operand.lanes
            count = across * each
            rounds = -(-count // self.tile.threads)
            with _rounds(rounds) as at:
                place = at * self.tile.threads + self.thread
                if count % self.tile.threads == 0:
                    self._copy(letter, operand, step, stage, place // each, place % each)
                else:
                    with T.If(place < count), T.Then():
                        self._copy(letter, operand, step, stage, place // each, place % each)

    def _copy(
        self, letter: str, operand: Operand, step: Expr, stage: Expr, across: Expr, vector: Expr
    ) -> None:
        """One vector of a tile: row `across`, elements from `vector * lanes` on."""
        rows = self.tile.i if letter == "i" else self.tile.j
        first = vector * operand.lanes
        row, k = (across, first) if operand.along == "k" else (first, across)
        at_row = self.first[letter] + row
        at_k = (self.part * self.plan.steps + step) * self.step + k
        values = {
            **self.c.axes["s"].at(self.s),
            **self.c.axes[letter].at(at_row),
            **self.c.axes["k"].at(at_k),
        }
        inside = []
        if self.c.extent(letter) % rows:
            inside.append(at_row < self.c.extent(letter))
        if self.c.extent("k") != self.plan.parts * self.plan.steps * self.step:
            inside.append(at_k < self.c.extent("k"))
        shared = self.shared[letter]
        to = stage * (rows * self.step) + self._place(operand, rows, across, first)
        size = operand.lanes * self.itemsize
        if size >= 4:
            source, condition = operand.read(values)
            inside += [] if condition is None else [condition]
            T.evaluate(
                fragments.copy(size, _pointer(shared, to), T.address_of(source), _all(inside))
            )
            return
        zero = tirx.const(0, operand.dtype)
        value = operand.at(values)
        value = tirx.if_then_else(_all(inside), value, zero) if inside else value
        T.evaluate(fragments.store(_pointer(shared, to), value))

    def _place(self, operand: Operand, rows: int, across: Expr, along: Expr) -> Expr:
        """Where an element lies in its tile: chunks of a row change places from row to row."""
        length = self.step if operand.along == "k" else rows
        chunks = length // self.chunk
        # Rows of fewer than 8 chunks share the 128 bytes of all banks.
        turn = across // max(8 // chunks, 1) % min(chunks, 8)
        chunk = tirx.bitwise_xor(along // self.chunk, turn)
        return across * length + chunk * self.chunk + along % self.chunk

    def _multiply_step(self, stage: Expr, at: int) -> None:
        """The products of 32 bytes of k."""
        tile = self.tile
        row_i = self.warp // tile.warps_j * (tile.mma_i * MMA_I)
        row_j = self.warp % tile.warps_j * (tile.mma_j * MMA_J)
        for n in range(tile.mma_i):
            self._fragment("i", self.a, n, row_i + n * MMA_I, stage, at)
        for n in range(tile.mma_j // 2):
            self._fragment("j", self.b, n, row_j + n * 2 * MMA_J, stage, at)
        for n in range(tile.mma_i):
            for m in range(tile.mma_j):
                sums, a, b = (
                    _pointer(buffer, place)
                    for buffer, place in (
                        (self.sums, (n * tile.mma_j + m) * 4),
                        (self.a, n * 4),
                        (self.b, m * 2),
                    )
                )
                T.evaluate(fragments.mma(self.instruction, sums, a, b))

    def _fragment(self, letter: str, to: Any, n: int, row: Expr, stage: Expr, at: int) -> None:
        """16 rows and 32 bytes of k, as four registers.

        Registers of A hold rows 0-7 and 8-15 of the first 16 bytes, then of the others; those of B
        first all bytes of rows 0-7.
        """
        rows = self.tile.i if letter == "i" else self.tile.j
        block, in_block = self.lane // 8, self.lane % 8
        operand, rows_first = self.operands[letter], letter == "i"
        half_row, half_k = (block % 2, block // 2) if rows_first else (block // 2, block % 2)
        k = at * (MMA_K_BYTES // self.itemsize)
        if operand.along == "k":
            across = row + half_row * 8 + in_block
            along = k + half_k * self.chunk
        else:
            across = k + half_k * 8 + in_block
            along = row + half_row * 8
        place = stage * (rows * self.step) + self._place(operand, rows, across, along)
        source = _pointer(self.shared[letter], place)
        T.evaluate(fragments.ldmatrix(_pointer(to, n * 4), source, operand.along != "k"))

    # --- the results -------------------------------------------------------------------------

    def _store(self) -> None:
        """The sums through shared memory to the output, or to the workspace."""
        c, tile = self.c, self.tile
        is_rows = c.along == "j"
        length, others = (tile.j, tile.i) if is_rows else (tile.i, tile.j)
        pitch = length + (8 if is_rows else 4)  # no bank conflicts where fragments are stored
        staged = _allocate((others * pitch,), self.instruction.sum_dtype, "shared.dyn")
        row_i = self.warp // tile.warps_j * (tile.mma_i * MMA_I) + self.lane // 4
        row_j = self.warp % tile.warps_j * (tile.mma_j * MMA_J) + self.lane % 4 * 2
        for n in range(tile.mma_i):
            for m in range(tile.mma_j):
                for at in range(4):
                    i, j = row_i + (n * MMA_I + at // 2 * 8), row_j + (m * MMA_J + at % 2)
                    place = i * pitch + j if is_rows else j * pitch + i
                    sums = T.buffer_proxy(self.sums)
                    staged[place] = sums[(n * tile.mma_j + m) * 4 + at]
        T.evaluate(T.tvm_storage_sync("shared.dyn"))
        lanes = self._lanes()
        each = length // lanes
        rounds = -(-others * each // tile.threads)
        with _rounds(rounds) as at:
            place = at * tile.threads + self.thread
            across, along = place // each, place % each * lanes
            i, j = (across, along) if is_rows else (along, across)
            i, j = self.first["i"] + i, self.first["j"] + j
            inside = [place < others * each] if others * each % tile.threads else []
            inside += [i < c.extent("i")] if c.extent("i") % tile.i else []
            inside += [j < c.extent("j")] if c.extent("j") % tile.j else []
            with self._where(inside), self._each(lanes) as lane:
                total = staged[across * pitch + along + lane]
                if self.plan.parts > 1:
                    self.workspace_proxy()[
                        self.part, self.s, (i if is_rows else j), (j if is_rows else i) + lane
                    ] = total
                else:
                    self._store_result(self.s, i, j, lane, total)

    def _lanes(self) -> int:
        if self.plan.parts == 1:
            return self.c.lanes
        return gcd(RESULT_LANES, self._result_shape()[1])

    def workspace_proxy(self) -> Any:
        return T.buffer_proxy(self.workspace)

    @contextmanager
    def _where(self, conditions: list[Expr]) -> Iterator[None]:
        if not conditions:
            yield
            return
        with T.If(_all(conditions)), T.Then():
            yield

    @contextmanager
    def _each(self, lanes: int) -> Iterator[Expr]:
        if lanes == 1:
            yield _const(0)
            return
        with T.vectorized(0, lanes) as lane:
            yield lane

    def _store_result(self, s: Expr, i: Expr, j: Expr, lane: Expr, total: Expr) -> None:
        c = self.c
        lanes = {"i": 0, "j": 0, c.along: lane}
        values = {**c.axes["s"].at(s)}
        for letter, position in (("i", i), ("j", j)):
            values |= c.axes[letter].at(position, lanes[letter])
        result, indices = c.stored(values, total.astype(c.sum_dtype))
        T.buffer_store(c.output, result, indices)

    def _add_parts(self) -> None:
        """The second kernel: partial sums, added in order, and the epilogue."""
        c, plan = self.c, self.plan
        others, length = self._result_shape()
        lanes = c.lanes
        each = length // lanes
        count = c.extent("s") * others * each
        with (
            T.thread_binding(0, -(-count // _ADDING_THREADS), thread="blockIdx.x") as block,
            T.thread_binding(0, _ADDING_THREADS, thread="threadIdx.x") as thread,
        ):
            place = block * _ADDING_THREADS + thread
            total = _allocate((lanes,), self.instruction.sum_dtype, "local")
            along = place % each * lanes
            across, s = place // each % others, place // each // others
            with self._where([place < count] if count % _ADDING_THREADS else []):
                with self._each(lanes) as lane:
                    total[lane] = tirx.const(0, self.instruction.sum_dtype)
                with T.serial(0, plan.parts) as part, self._each(lanes) as lane:
                    more = self.workspace_proxy()[part, s, across, along + lane]
                    total[lane] = total[lane] + more
                i, j = (across, along) if c.along == "j" else (along, across)
                with self._each(lanes) as lane:
                    self._store_result(s, i, j, lane, total[lane])
