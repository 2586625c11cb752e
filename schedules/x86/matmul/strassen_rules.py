"""Selection, cost model and knobs of Strassen dense layers and 1x1 convolutions (`strassen`)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tvm.target import Target

from ...config import ConfigEntity, options
from ...conv2d import Conv2dWorkload, register_conv2d
from ...knob_candidates import divisors
from ...matmul import DenseWorkload, register_dense
from ..conv import conv2d
from ..conv.register_tile import tiles_in_registers
from ..machine.cpu import Machine
from ..machine.microkernel import registers_are_scarce
from .matmul_rules import GOOD_BALANCE, Extents, efficiency
from .strassen import (
    CONV2D,
    DENSE,
    DTYPE,
    ITEM_BYTES,
    PRODUCTS,
    compute_conv2d,
    compute_dense,
    extents_of,
    halves,
    pack_filters,
    pack_weight,
    padded,
)

# Cost in flops of computing an element of S, or of storing and re-reading one of P, measured on a
# core with 32 flops per cycle. It grows up to the second value for cores with more flops, whose
# wider caches move more bytes per cycle.
TRANSFORM_FLOPS, MOST_TRANSFORM_FLOPS = 12, 18
# Maximum vectors of a register tile: with 16 registers, L2 cannot deliver a panel row of four
# vectors in the time of its multiply-adds.
MOST_VECTORS, MOST_VECTORS_OF_16 = 4, 3
# Cycles lost per step if a tile ends inside a cache line of blocked S, which the next tile reads
# again: 512 to 512 channels at 14x14 took 8% longer with five rows than with six.
PART_OF_LINE_CYCLES = 0.3
# Tolerances: cost of a task size relative to the cheapest and, for images, cycles of its row tiles
# relative to the fewest.
NEARLY_CHEAPEST, NEARLY_FEWEST = 1.005, 1.03
# Shares of L2: for the block of one S that all panels read, for P of a task, for P in addition to
# blocked S of all rows, and for one panel.
S_SHARE, P_SHARE, P_SHARE_BLOCKED, PANEL_SHARE = 1 / 2, 3 / 8, 3 / 16, 1 / 8
_LINE_BYTES = 64


def dense_fallback(w: DenseWorkload, target: Target) -> ConfigEntity:
    """Knobs by `plan`."""
    return plan(extents_of(w), Machine.from_target(target))


def conv2d_fallback(w: Conv2dWorkload, target: Target) -> ConfigEntity:
    """Knobs by `plan`; channel blocks of the result are vectors."""
    config = plan(extents_of(w), Machine.from_target(target), is_blocked=True)
    return ConfigEntity({**config.knobs, "oc_block": config.knobs["lanes"]})


@functools.lru_cache(maxsize=1024)
def plan(extents: tuple[int, int, int], machine: Machine, is_blocked: bool = False) -> ConfigEntity:
    """Knobs for (m, n, k).

    tile_m, tile_n: the register tile.
    block_k: the largest divisor of half the depth with which a panel takes at most an eighth of L2.
    task_rows (pairs of rows; the last task may have fewer) and group (panels, which it divides): of
    a task. Of the sizes with a block of S in half of L2, P in 3/8 of it (images: 3/16), and at most
    0.5% above the lowest cost, those with which the tasks read the fewest bytes: S once for each
    group, the weights once for each task's rows.
    sums_by_task (images): where the tasks of rows alone keep the threads busy, each makes its own
    S, which is then in L2 or near.

    `is_blocked`: whether rows are pixels of an image in channel blocks.
    """
    lanes = machine.lanes(DTYPE)
    rows, columns, depth = halves(extents, lanes)
    tile_m, vectors = register_tile(rows, columns // lanes, machine, is_blocked)
    tile_n = vectors * lanes
    panels = -(-columns // tile_n)
    share = machine.l2_bytes / ITEM_BYTES
    block_k = _largest(divisors(depth), share * PANEL_SHARE / tile_n)
    p_share = share * (P_SHARE_BLOCKED if is_blocked else P_SHARE)

    def fits(size: tuple[int, int]) -> bool:
        task_rows, group = size
        few_sums = task_rows * block_k <= share * S_SHARE
        return few_sums and PRODUCTS * task_rows * group * tile_n <= p_share

    def reads(size: tuple[int, int]) -> float:
        task_rows, group = size
        return 1 / task_rows + 1 / (group * tile_n)

    def cost(size: tuple[int, int]) -> float:
        task_rows, group = size
        return _cycles_of(extents, Tasks(task_rows, group * tile_n, block_k), machine)

    def cycles(size: tuple[int, int]) -> float:
        tasks = -(-rows // size[0])
        return tasks * _cycles(size[0], min(tile_m, size[0]), vectors, machine, is_blocked)

    row_sizes = sorted({-(-rows // tasks) for tasks in range(1, rows + 1)})
    sizes = list(filter(fits, itertools.product(row_sizes, divisors(panels)))) or [(1, 1)]
    sizes = _at_most(NEARLY_CHEAPEST * min(map(cost, sizes)), cost, sizes)
    if is_blocked:
        sizes = _at_most(NEARLY_FEWEST * min(map(cycles, sizes)), cycles, sizes)
    task_rows, group = min(sizes, key=reads)
    knobs = {
        "lanes": lanes,
        "tile_m": min(tile_m, task_rows),
        "tile_n": tile_n,
        "block_k": block_k,
        "group": group,
        "task_rows": task_rows,
    }
    if is_blocked:
        row_tasks = -(-rows // task_rows)
        is_busy = machine.busy(row_tasks) >= GOOD_BALANCE
        knobs["sums_by_task"] = row_tasks > 1 and is_busy
    return options(**knobs)


def register_tile(
    rows: int, chunks: int, machine: Machine, is_blocked: bool = False
) -> tuple[int, int]:
    """Choose rows and vectors of the register tile with the fewest cycles for all rows.

    The last tile may have fewer rows, with separate code. Tiles whose last panel needs zero columns
    as padding are chosen only if they save 3%.

    `chunks`: vectors of all columns. `is_blocked`: whether S lies in channel blocks.
    """
    most = MOST_VECTORS_OF_16 if registers_are_scarce(machine) else MOST_VECTORS
    counts = range(1, min(rows, machine.vector_registers) + 1)
    fitting = tiles_in_registers(machine, counts, most, lambda _, v: v + machine.operations)
    tiles = sorted(fitting, key=lambda tile: (-tile[1], -tile[0]))

    def cycles(tile: tuple[int, int]) -> float:
        return _cycles(rows, *tile, machine, is_blocked) * -(-chunks // tile[1])

    whole = [tile for tile in tiles if chunks % tile[1] == 0]
    fewest = min(map(cycles, tiles))
    return min(_at_most(NEARLY_FEWEST * fewest, cycles, whole) or tiles, key=cycles)


def _cycles(rows: int, tile_m: int, vectors: int, machine: Machine, is_blocked: bool) -> float:
    """Cycles of one reduction step for all rows; the last tile may have fewer rows."""

    def of_tile(count: int) -> float:
        return machine.step_cycles(count, vectors, machine.operations) + machine.core.loop_cycles

    whole, rest = divmod(rows, tile_m)
    cycles = whole * of_tile(tile_m) + (of_tile(rest) if rest else 0)
    if is_blocked and tile_m * machine.lanes(DTYPE) * ITEM_BYTES % _LINE_BYTES:
        cycles += whole * PART_OF_LINE_CYCLES
    return cycles


def _at_most(
    most: float, measure: Callable[[tuple[int, int]], float], sizes: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    return [size for size in sizes if measure(size) <= most]


def _largest(sizes: Sequence[int], most: float) -> int:
    """The largest size of at most `most`; 1 is among them."""
    return max(size for size in sizes if size <= max(most, 1))


def cycles(
    extents: tuple[int, int, int], machine: Machine, efficiency: float, is_blocked: bool = False
) -> float:
    """Estimate cycles of a core for (m, n, k); `efficiency`: direct matmul's share of peak."""
    config = plan(extents, machine, is_blocked)
    columns = config.val("group") * config.val("tile_n")
    tasks = Tasks(config.val("task_rows"), columns, config.val("block_k"))
    return _cycles_of(extents, tasks, machine, efficiency)


class Tasks(NamedTuple):
    """Rows, columns (whole panels) and reduction steps of each matmul of a task."""

    rows: int
    columns: int
    block_k: int


def _cycles_of(
    extents: tuple[int, int, int], task: Tasks, machine: Machine, efficiency: float = 1.0
) -> float:
    """Estimate cycles: matmuls, elements of S, and elements of P once per block of k, with idle
    threads; or reading all weights once per task of rows, if that takes longer.
    """
    rows, columns, depth = halves(extents, machine.lanes(DTYPE))
    row_tasks, columns = -(-rows // task.rows), padded(columns, task.columns)
    products = 2 * row_tasks * task.rows * columns * depth
    elements = rows * (columns * (depth // task.block_k) + depth)
    busy = machine.busy(row_tasks * (columns // task.columns))
    transform = min(TRANSFORM_FLOPS * machine.flops_per_cycle / 32, MOST_TRANSFORM_FLOPS)
    flops = PRODUCTS * (products / efficiency + transform * elements) / busy
    weights = PRODUCTS * ITEM_BYTES * columns * depth * row_tasks
    return machine.overlap_with_weights(flops / machine.flops_per_cycle, weights)


def supports_dense(w: DenseWorkload, target: Target) -> bool:
    """Whether it is float32 with constant weights, and columns and depth are whole vectors.

    The caller must ensure that all rows belong to one batch element, since pairs must not mix them.
    """
    types = {w.dtype, w.rhs_dtype or w.dtype, w.out_dtype}
    if w.weight is not None or types != {DTYPE}:
        return False
    return _is_whole(extents_of(w), Machine.from_target(target))


def supports_conv2d(w: Conv2dWorkload, target: Target) -> bool:
    """Whether 1x1, float32, constant weights, whole vectors; stride 1 only with 32 registers.

    Pairs of pixels must not span images, so images of a batch need an even number of pixels.
    """
    machine = Machine.from_target(target)
    if not (w.constant_weight and w.is_float and w.dtype == DTYPE):
        return False
    if not w.is_pointwise or w.groups > 1:
        return False
    if w.batch > 1 and w.out_height * w.out_width % 2:
        return False  # a pair of rows would mix two images of the batch
    if w.strides != (1, 1) and not registers_are_scarce(machine):
        return False
    return _is_whole(extents_of(w), machine)


def _is_whole(extents: tuple[int, int, int], machine: Machine) -> bool:
    _, n, k = extents
    lanes = machine.lanes(DTYPE)
    return n % lanes == k % lanes == 0


def dense_cycles(w: DenseWorkload, target: Target) -> float:
    """Estimate cycles on one core, with matmuls at the speed of a direct matmul."""
    machine = Machine.from_target(target)
    e = Extents(1, w.m, w.n, w.k, ITEM_BYTES)
    return cycles(extents_of(w), machine, efficiency(e, machine))


def conv2d_cycles(w: Conv2dWorkload, target: Target) -> float:
    """Estimate cycles on one core, with matmuls at the speed of a direct convolution."""
    machine = Machine.from_target(target)
    return cycles(extents_of(w), machine, conv2d.efficiency(w, machine), is_blocked=True)


register_dense(
    DENSE, 15, supports_dense, dense_fallback, compute_dense, pack=pack_weight, cycles=dense_cycles
)
register_conv2d(
    CONV2D,
    15,
    supports_conv2d,
    conv2d_fallback,
    compute_conv2d,
    pack=pack_filters,
    cycles=conv2d_cycles,
)
