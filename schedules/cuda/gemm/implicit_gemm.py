"""Writes the kernel of a contraction: one design for products and convolutions.

    blockIdx = (tile of j, tile of i, s and part of k)
      for each step of k:              `stages` steps are under way at a time
        A, B tiles -> shared           cp.async of up to 16 bytes; zeros outside of the image
        products -> sums in registers  `WgmmaCore`, `MmaCore`: tensor cores; `FmaCore`: float32
      sums -> shared -> epilogue       rows of whole vectors, as the output lies in memory

The tiles of a convolution are gathered from the image: there is no im2col buffer. Where k is
divided among blocks, these leave their sums in a workspace, and a second kernel adds them up and
computes the epilogue.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import gcd
from typing import Any

from tvm import s_tir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ...strategy import PREDICTED_SECONDS_ATTR
from ..device import Device
from . import intrinsics, tile_loops
from .contraction import RESULT_LANES, Contraction
from .fma_core import FmaCore
from .gemm_tiles import Plan
from .intrinsics import INSTRUCTIONS, pointer
from .mma_core import MmaCore
from .tile_loops import both, rounds, where
from .wgmma_core import WgmmaCore

Expr = Any
_ADDING_THREADS = 128


def kernel(contraction: Contraction, plan: Plan, device: Device) -> tirx.PrimFunc:
    """The contraction's function as one kernel, or two where the plan divides k."""
    operands = contraction.a, contraction.b
    core: MmaCore | FmaCore
    if plan.tile.on_tensor_cores:
        of_tile = WgmmaCore if plan.tile.is_wgmma else MmaCore
        core = of_tile(plan.tile, INSTRUCTIONS[contraction.a.dtype], *operands)
    else:
        core = FmaCore(plan.tile, *operands)
    predicted = plan.seconds(device, core.itemsize, contraction.a.dtype == "float32")
    return _Kernel(contraction, plan, core).build().with_attr(PREDICTED_SECONDS_ATTR, predicted)


def _const(value: int) -> Expr:
    return tirx.const(value, "int32")


def _allocate(shape: tuple[int, ...], dtype: str, scope: str) -> Any:
    return T.buffer_proxy(T.alloc_buffer(shape, dtype, scope=scope))


class _Kernel:
    """Writes the statements; `plan` has the numbers, `c` the expressions."""

    def __init__(self, contraction: Contraction, plan: Plan, core: MmaCore | FmaCore) -> None:
        self.c, self.plan, self.core, self.tile = contraction, plan, core, plan.tile

    def build(self) -> tirx.PrimFunc:
        c, plan = self.c, self.plan
        workspaces = []
        kernels = []
        if plan.parts > 1:
            shape = (plan.parts, c.extent("s"), *self._result_shape())
            self.workspace = tirx.decl_buffer(shape, self.core.sum_dtype, "partial_sums")
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
            self.thread = thread
            yield

    # --- the product -------------------------------------------------------------------------

    def _multiply(self) -> None:
        c, plan, core = self.c, self.plan, self.core
        self.shared = {
            letter: T.alloc_buffer(
                (plan.stages * core.length(letter),), c.a.dtype, scope="shared.dyn"
            )
            for letter in "ij"
        }
        core.begin(self.thread)
        # A stage that is still multiplied is not overwritten.
        lead = plan.stages - 1 - core.in_flight
        for stage in range(lead):
            if stage < plan.steps:
                self._load(_const(stage), _const(stage))
            T.evaluate(intrinsics.commit())
        with T.serial(0, plan.steps) as step:
            T.evaluate(intrinsics.wait(lead - 1))
            if isinstance(core, WgmmaCore):
                if core.sum_dtype == c.a.dtype:
                    self._round(step % plan.stages)
                T.evaluate(intrinsics.fence_wgmma())
            T.evaluate(T.tvm_storage_sync("shared.dyn"))
            ahead = step + lead
            with T.If(ahead < plan.steps), T.Then():
                self._load(ahead, ahead % plan.stages)
            T.evaluate(intrinsics.commit())
            stage = step % plan.stages
            firsts = (stage * core.length(letter) for letter in "ij")
            core.multiply(self.shared["i"], self.shared["j"], *firsts)
        if isinstance(core, WgmmaCore):
            core.finish()
        # Only empty groups are left; the results' place in shared memory may be that of the tiles.
        T.evaluate(T.tvm_storage_sync("shared.dyn"))
        self._store()

    def _load(self, step: Expr, stage: Expr) -> None:
        """Have all threads copy the tiles of a step to a stage's part of shared memory."""
        for letter in self.core.operands:
            with tile_loops.each_vector(self.core, letter, self.thread) as (row, k):
                self._copy(letter, step, stage, row, k)

    def _round(self, stage: Expr) -> None:
        """Round float32s of a stage to TF32, each thread those it has copied: `wgmma` cuts off."""
        for letter, operand in self.core.operands.items():
            with tile_loops.each_vector(self.core, letter, self.thread) as (row, k):
                at = stage * self.core.length(letter) + self.core.place(letter, row, k)
                vector = pointer(self.shared[letter], at)
                T.evaluate(intrinsics.round_vector(vector, operand.lanes))

    def _copy(self, letter: str, step: Expr, stage: Expr, row: Expr, k: Expr) -> None:
        """One vector of a tile, which begins at this row and place of k."""
        c, core, operand = self.c, self.core, self.core.operands[letter]
        at_row = self.first[letter] + row
        at_k = (self.part * self.plan.steps + step) * core.step + k
        axes = c.axes
        values = {**axes["s"].at(self.s), **axes[letter].at(at_row), **axes["k"].at(at_k)}
        inside = []
        if c.extent(letter) % self.tile.rows(letter):
            inside.append(at_row < c.extent(letter))
        if c.extent("k") != self.plan.parts * self.plan.steps * core.step:
            inside.append(at_k < c.extent("k"))
        to = stage * core.length(letter) + core.place(letter, row, k)
        to, size = pointer(self.shared[letter], to), operand.lanes * core.itemsize
        if operand.is_read and size >= intrinsics.FEWEST_BYTES:
            source, condition = operand.read(values)
            inside += [] if condition is None else [condition]
            T.evaluate(intrinsics.copy(size, to, T.address_of(source), both(inside)))
            return
        value, zero = operand.at(values), tirx.const(0, operand.dtype)
        value = tirx.if_then_else(both(inside), value, zero) if inside else value
        T.evaluate(intrinsics.store(to, value))

    # --- the results -------------------------------------------------------------------------

    def _store(self) -> None:
        """The sums through shared memory to the output, or to the workspace."""
        c, tile = self.c, self.tile
        is_rows = c.along == "j"
        length, others = (tile.j, tile.i) if is_rows else (tile.i, tile.j)
        pitch = length + (8 if is_rows else 4)  # no bank conflicts where fragments are stored
        staged = _allocate((others * pitch,), self.core.sum_dtype, "shared.dyn")
        sums = T.buffer_proxy(self.core.sums)
        for at, i, j in self.core.places():
            staged[i * pitch + j if is_rows else j * pitch + i] = sums[at]
        T.evaluate(T.tvm_storage_sync("shared.dyn"))
        lanes = self._lanes()
        each = length // lanes
        with rounds(-(-others * each // tile.threads)) as at:
            place = at * tile.threads + self.thread
            across, along = place // each, place % each * lanes
            i, j = (across, along) if is_rows else (along, across)
            i, j = self.first["i"] + i, self.first["j"] + j
            inside = [place < others * each] if others * each % tile.threads else []
            inside += [i < c.extent("i")] if c.extent("i") % tile.i else []
            inside += [j < c.extent("j")] if c.extent("j") % tile.j else []
            with where(inside), self._each(lanes) as lane:
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
            total = _allocate((lanes,), self.core.sum_dtype, "local")
            along = place % each * lanes
            across, s = place // each % others, place // each // others
            with where([place < count] if count % _ADDING_THREADS else []):
                with self._each(lanes) as lane:
                    total[lane] = tirx.const(0, self.core.sum_dtype)
                with T.serial(0, plan.parts) as part, self._each(lanes) as lane:
                    more = self.workspace_proxy()[part, s, across, along + lane]
                    total[lane] = total[lane] + more
                i, j = (across, along) if c.along == "j" else (along, across)
                with self._each(lanes) as lane:
                    self._store_result(s, i, j, lane, total[lane])
