"""Tiles of the implicit GEMM, and what they cost on a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import tvm

from ...strategy import MIN_GAIN
from ..device import Device
from ..limits import MAX_GRID_YZ
from ..row_reductions import Rows
from .contraction import Contraction
from .intrinsics import MMA_I, MMA_J, QUAD, WARP

REGISTERS = 64 * 1024
"""Registers of a multiprocessor, from sm_70 on."""
FMA_LANES_I, FMA_LANES_J = 4, 8
"""Threads of a warp along i and j where no tensor core multiplies."""


@dataclass(frozen=True)
class Tile:
    """Tile that a thread block computes in one step."""

    i: int  # rows and columns of the results
    j: int
    warps_i: int  # warps that share them
    warps_j: int
    k_bytes: int = 64  # bytes of k in each operand row
    on_tensor_cores: bool = True  # otherwise each thread multiplies float32 in squares of 4 by 4
    is_wgmma: bool = False  # by warpgroups, which share the rows, not by warps

    def rows(self, letter: str) -> int:
        """Rows of the tile of the operand that has this axis."""
        return self.i if letter == "i" else self.j

    @property
    def threads(self) -> int:
        return self.warps_i * self.warps_j * WARP

    @property
    def mma_i(self) -> int:
        """Instructions of a warp along i."""
        return self.i // self.warps_i // MMA_I

    @property
    def mma_j(self) -> int:
        return self.j // self.warps_j // MMA_J

    @property
    def quads_i(self) -> int:
        """Squares of a thread along i."""
        return self.i // self.warps_i // (FMA_LANES_I * QUAD)

    @property
    def quads_j(self) -> int:
        return self.j // self.warps_j // (FMA_LANES_J * QUAD)

    @property
    def registers(self) -> int:
        """Estimated registers per thread: sums, fragments, and addresses."""
        if not self.on_tensor_cores:
            sums = QUAD * QUAD * self.quads_i * self.quads_j
            return sums + 2 * QUAD * (self.quads_i + self.quads_j) + 40
        # A warpgroup has no fragments; 24 more registers cover what ptxas uses (CUDA 13.0), which
        # knows the threads of a block and leaves room for all of them.
        fragments = 24 if self.is_wgmma else 4 * self.mma_i + 2 * self.mma_j
        most = REGISTERS // self.threads // 8 * 8
        return min(4 * self.mma_i * self.mma_j + fragments + 40, most)

    def shared(self, stages: int) -> int:
        """Bytes of shared memory."""
        padding = 0 if self.is_wgmma else 8  # rows
        return max(stages * (self.i + self.j + padding) * self.k_bytes, 4 * self.i * (self.j + 8))


MMA_TILES = (
    Tile(128, 128, 2, 4),
    Tile(128, 64, 2, 2),
    Tile(64, 128, 2, 2),
    Tile(64, 64, 2, 2),
    Tile(64, 32, 2, 1),
    Tile(32, 64, 1, 2),
    Tile(32, 32, 1, 2),
    Tile(16, 128, 1, 4),
    Tile(16, 64, 1, 4),
)
WGMMA_TILES = tuple(
    Tile(i, j, i // MMA_I, 1, k_bytes, is_wgmma=True)
    for i, j, k_bytes in (
        (192, 256, 128),
        (128, 256, 128),
        (128, 128, 128),
        (128, 64, 128),
        (64, 256, 128),
        (64, 128, 128),
        (64, 64, 128),
        (128, 128, 64),
        (64, 64, 64),
    )
)
FMA_TILES = tuple(
    Tile(*sizes, on_tensor_cores=False)
    for sizes in (
        (128, 128, 4, 2),
        (128, 64, 4, 1),
        (64, 128, 2, 2),
        (64, 64, 2, 1),
        (64, 64, 2, 2),
        (32, 64, 2, 1),
        (32, 32, 2, 1),
        (16, 64, 1, 2),
        (16, 32, 1, 1),
    )
)
STAGES = (4, 3)
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
FEWEST_STEPS = 4
"""Steps of k below which a part is not worth its share of the workspace."""


@dataclass(frozen=True)
class Plan:
    """Numbers of one kernel: a tile, stages, parts of k, and tiles along each axis."""

    tile: Tile
    stages: int
    parts: int
    steps: int
    tiles_i: int
    tiles_j: int
    batch: int

    @cached_property
    def blocks(self) -> int:
        return self.tiles_i * self.tiles_j * self.batch * self.parts

    def seconds(
        self, device: Device, result_bytes: int, rounds: bool = False, rows: Rows | None = None
    ) -> float:
        """How long the kernel takes, and adding the parts where there are some.

        `rounds`: whether operands are rounded in shared memory before `wgmma` reads them. `rows`:
        their kernel adds the parts; by default a second kernel does.
        """
        tile, limits = self.tile, device.limits
        resident = limits.resident_blocks(tile.threads, tile.registers, tile.shared(self.stages))
        if not resident:
            return float("inf")
        together = min(resident, -(-self.blocks // limits.sms))
        waves = -(-self.blocks // (limits.sms * together))
        rate = device.tensor_bytes if tile.on_tensor_cores else 4 * device.fmas
        lead = self.stages - 1
        if tile.is_wgmma:
            rate, lead = device.wgmma_rate(tile.i, tile.j, rounds), self.stages - 2
        products = together * tile.i * tile.j * tile.k_bytes / rate
        copies = together * (tile.i + tile.j) * tile.k_bytes / device.l2_bytes_per_cycle
        waiting = device.latency_cycles / lead
        step = max(products, copies, waiting)
        results = 4 * tile.i * tile.j * together / device.l2_bytes_per_cycle
        cycles = waves * (self.steps * step + device.latency_cycles + results)
        seconds = device.launch_seconds + cycles / device.hertz
        if self.parts > 1 and rows is not None:
            seconds += rows.adding_seconds(device, self.parts)
        elif self.parts > 1:
            traffic = (4 * self.parts + result_bytes) * self.tiles_i * tile.i * self.tiles_j
            seconds += device.launch_seconds + traffic * tile.j * self.batch / device.l2_bandwidth
        return seconds


def cheapest(tiles: Sequence[Tile], contraction: Contraction, device: Device) -> Plan | str:
    """The cheapest plan, or why there is none; dividing k must clearly pay.

    With rows after the product, k is divided, and that is faster than a kernel of their own.
    """
    extents = {letter: contraction.extent(letter) for letter in "sijk"}
    itemsize = tvm.DataType(contraction.a.dtype).itemsize
    rounds = contraction.a.dtype == "float32"
    found: list[tuple[float, int, Plan]] = []
    for order, tile in enumerate(tiles):
        steps = -(-extents["k"] * itemsize // tile.k_bytes)
        tiles_i, tiles_j = -(-extents["i"] // tile.i), -(-extents["j"] // tile.j)
        for parts in PARTS:
            if parts > 1 and steps < FEWEST_STEPS * parts:
                break
            each = -(-steps // parts)
            used = -(-steps // each)
            for stages in STAGES:
                plan = Plan(tile, stages, used, each, tiles_i, tiles_j, extents["s"])
                seconds = plan.seconds(device, itemsize, rounds, contraction.rows)
                found.append((seconds, order, plan))
    seconds, _, plan = min(found, key=lambda each: each[:2])
    undivided = min((each for each in found if each[2].parts == 1), key=lambda each: each[:2])
    if seconds >= MIN_GAIN * undivided[0]:
        seconds, _, plan = undivided
    if math.isinf(seconds):
        return f"no tile fits {device.limits.device}"
    if max(plan.tiles_i, plan.batch * plan.parts) > MAX_GRID_YZ:
        return "it has more tiles than a grid has blocks"
    apart = min(each.seconds(device, itemsize, rounds) for _, _, each in found)
    if contraction.rows is not None and (plan.parts == 1 or seconds >= apart):
        return "a kernel for the rows alone is faster"
    return plan
