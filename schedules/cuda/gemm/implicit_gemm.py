"""Writes the kernel of a contraction: one design for products and convolutions.

    blockIdx = (tile of j, tile of i, s and part of k)
      for each step of k:              `stages` steps are under way at a time
        A, B tiles -> shared           cp.async of up to 16 bytes; zeros outside of the image
        products -> sums in registers  `WgmmaCore`, `MmaCore`: tensor cores; `FmaCore`: float32
      sums -> shared -> epilogue       rows of whole vectors, as the output lies in memory

The tiles of a convolution are gathered from the image: there is no im2col buffer. Where k is
divided among blocks, these leave their sums in a workspace, and a second kernel adds them up,
computes the epilogue, and reduces rows of the result if the function goes on with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm import s_tir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T
from tvm.target import Target

from ...strategy import PREDICTED_SECONDS_ATTR
from .. import device as devices
from ..register_tiles import RegisterTiles
from . import intrinsics, tile_loops
from .contraction import Contraction
from .fma_core import FmaCore
from .gemm_tiles import Plan
from .intrinsics import INSTRUCTIONS, pointer
from .mma_core import MmaCore
from .tile_loops import both, rounds, where
from .wgmma_core import WgmmaCore

Expr = Any


def kernel(contraction: Contraction, plan: Plan, target: Target) -> tirx.PrimFunc:
    """The contraction's function as one kernel, or two where the plan divides k."""
    operands = contraction.a, contraction.b
    core: MmaCore | FmaCore
    if plan.tile.on_tensor_cores:
        of_tile = WgmmaCore if plan.tile.is_wgmma else MmaCore
        core = of_tile(plan.tile, INSTRUCTIONS[contraction.a.dtype], *operands)
    else:
        core = FmaCore(plan.tile, *operands)
    device = devices.of(target)
    rows, is_rounded = contraction.rows, contraction.a.dtype == "float32"
    predicted = plan.seconds(device, core.itemsize, is_rounded, rows)
    if rows is not None:
        predicted += device.launch_seconds + rows.seconds(device)[0]
    func = _Kernel(contraction, plan, core).build(target)
    return func.with_attr(PREDICTED_SECONDS_ATTR, predicted)


def _const(value: int) -> Expr:
    return tirx.const(value, "int32")


def _allocate(shape: tuple[int, ...], dtype: str, scope: str) -> Any:
    return T.buffer_proxy(T.alloc_buffer(shape, dtype, scope=scope))


class _Kernel:
    """Writes the statements; `plan` has the numbers, `c` the expressions."""

    def __init__(self, contraction: Contraction, plan: Plan, core: MmaCore | FmaCore) -> None:
        self.c, self.plan, self.core, self.tile = contraction, plan, core, plan.tile

    def build(self, target: Target) -> tirx.PrimFunc:
        c, plan = self.c, self.plan
        workspaces = []
        kernels = []
        if plan.parts > 1:
            shape = (plan.parts, *c.sums.shape)
            self.workspace = tirx.decl_buffer(shape, self.core.sum_dtype, "partial_sums")
            workspaces.append(self.workspace)
        with IRBuilder() as builder:
            with self._grid():
                self._multiply()
            kernels.append(builder.get())
        if plan.parts > 1:
            second = c.with_added_parts(self.workspace)
            rule: Any = RegisterTiles() if c.rows is None else c.rows
            root = rule.apply(second, target, False).mod["main"].body.block
            kernels.append(root.body)
            workspaces += root.alloc_buffers
        body = kernels[0] if len(kernels) == 1 else tirx.SeqStmt(kernels)
        root = s_tir.SBlock([], [], [], "root", body, None, workspaces)
        return c.func.with_body(s_tir.SBlockRealize([], True, root))

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
        lanes = c.lanes
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
                self._store_result(i, j, lane, staged[across * pitch + along + lane])

    @contextmanager
    def _each(self, lanes: int) -> Iterator[Expr]:
        if lanes == 1:
            yield _const(0)
            return
        with T.vectorized(0, lanes) as lane:
            yield lane

    def _store_result(self, i: Expr, j: Expr, lane: Expr, total: Expr) -> None:
        c = self.c
        lanes = {"i": 0, "j": 0, c.along: lane}
        values = {**c.axes["s"].at(self.s)}
        for letter, position in (("i", i), ("j", j)):
            values |= c.axes[letter].at(position, lanes[letter])
        if self.plan.parts > 1:
            T.buffer_store(self.workspace, total, [self.part, *c.place_of_sum(values)])
            return
        result, indices = c.stored(values, total.astype(c.sum_dtype))
        T.buffer_store(c.output, result, indices)
