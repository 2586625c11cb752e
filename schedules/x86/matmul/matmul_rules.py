"""Cost model for register tile, k blocks and tasks of a tiled matmul (`matmul_tile`)."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tvm import DataType
from tvm.target import Target

from ...config import ConfigEntity, Knob, option
from ...matmul import Operand, Product
from ..conv.register_tile import largest_divisor, tiles_in_registers
from ..machine.cpu import Machine

# Waking the thread pool takes 1 to 4 us; a kernel that runs for less than about three times
# that (30 000 cycles) stays on one thread.
PARALLEL_CYCLES = 30_000
# A ragged last tile computes unused rows, and its row addresses need registers.
RAGGED_ROWS_PENALTY = 1.06
# Sufficient share of busy threads; tasks are assigned to threads statically.
GOOD_BALANCE = 0.95
# Rows that one copied panel should serve, so that the copy is a small part of the work.
ROWS_PER_COPY = 32
# Maximum vectors of a register tile.
MOST_VECTORS = 12


@dataclass(frozen=True)
class Extents:
    """Extents of a (batched) matmul and its element size in bytes."""

    batch: int
    m: int
    n: int
    k: int
    item: int

    @staticmethod
    def of(w: Product, step: int = 1) -> Extents:
        """Extents of a workload that multiplies `step` neighbors along k at a time."""
        batch, m, n, k = w.extents
        item = DataType(w.rhs_dtype or w.dtype).itemsize
        return Extents(batch or 1, m, n, k // step, item * step)

    def cycles(self, machine: Machine, lanes: int) -> float:
        """Estimated cycles on one core: the multiply-adds, or reading the operands."""
        operands = self.item * self.batch * (self.m * self.k + self.k * self.n)
        macs = self.batch * self.m * self.n * self.k
        return max(macs / (machine.fmas * lanes), operands / machine.core.memory_bytes)


def cycles(e: Extents, machine: Machine, lanes: int) -> float:
    """Estimate cycles on one core; a constant right operand is read while computing."""
    computing = e.batch * e.m * e.n * e.k / (efficiency(e, machine) * machine.fmas * lanes)
    return machine.overlap_with_weights(computing, e.item * e.n * e.k)


def efficiency(e: Extents, machine: Machine) -> float:
    """Return the share of peak speed that a float32 register tile reaches."""
    lanes = machine.lanes("float32")
    tile_m, tile_n = choose_tile(e, machine, lanes)
    vectors = tile_n // lanes
    step = machine.step_cycles(tile_m, vectors) + machine.core.loop_cycles
    return tile_m * vectors / step / machine.fmas


@functools.lru_cache(maxsize=4096)
def choose_tile(
    e: Extents, machine: Machine, lanes: int, only_whole: bool = False
) -> tuple[int, int]:
    """Choose (tile_m, tile_n) of the register tile.

    The cost of a tile is the cycles of one k step times the tiles of the padded matmul, divided by
    the share of busy threads.

    `only_whole`: take only tiles whose columns divide n.
    """
    parallel = e.cycles(machine, lanes) >= PARALLEL_CYCLES

    def cost(tile: tuple[int, int]) -> float:
        tile_m, vectors = tile
        row_tiles, column_tiles = -(-e.m // tile_m), -(-e.n // (vectors * lanes))
        total = tile_cycles(tile_m, vectors, e.item, machine, lanes) * row_tiles * column_tiles
        if e.m % tile_m:
            total *= RAGGED_ROWS_PENALTY
        return total / machine.busy(e.batch * row_tiles * column_tiles) if parallel else total

    # A panel row stays in registers unless there is a single row to use it.
    tiles = tiles_in_registers(
        machine,
        range(1, min(e.m, machine.vector_registers) + 1),
        MOST_VECTORS,
        lambda rows, vectors: (vectors if rows > 1 else 0) + machine.operations,
    )
    tile_m, vectors = min(
        (t for t in tiles if not only_whole or t[1] == 1 or e.n % (t[1] * lanes) == 0), key=cost
    )
    return tile_m, vectors * lanes


def tile_cycles(rows: int, vectors: int, item: int, machine: Machine, lanes: int) -> float:
    """Cycles of a step on panels: multiply-adds, and an eighth of a cycle per 16 bytes read."""
    step = machine.step_cycles(rows, vectors, machine.operations)
    return step + (rows + vectors * lanes) * item / 128


def fallback(w: Product, target: Target, step: int = 1) -> ConfigEntity:
    """Knobs of a workload that multiplies `step` neighbors along k at a time, by `plan`."""
    return plan(Extents.of(w, step), target, w.out_dtype, w.right)


def plan(
    e: Extents, target: Target, dtype: str, rhs: Operand | None, machine: Machine | None = None
) -> ConfigEntity:
    """Knobs of the tiled product.

    tile_m, tile_n: the register tile, by `choose_tile`.
    block_k: all of k, unless several row tiles use a panel that is larger than its share of L2;
    then the largest divisor of k with which it takes half of that, if all tasks can have the
    same number of rows or it is larger than all of L2.
    copy_panel (where the right operand is not a constant): a panel is read in place if a single
    row tile uses it and its rows are contiguous and of whole tiles.
    task_order and task_rows (row tiles per task):

    * "bnm": tasks are (column tile, rows). The panel stays in cache while the task's rows of the
      left operand pass, which suits a left operand that stays in half of L2.
    * "bmn": as many rows per task as fit half of L2; they stay while the panels pass.
    * "bm": a task does all columns of its rows. Used where n is not a multiple of the vector: only
      a serial column loop can be partitioned so that its last tile alone takes element-wise
      stores. Without several row tiles or products, threads need the columns; stores are a small
      part of the work then.

    `rhs`: how a right operand that is computed at run time lies in memory; None for panels.
    `machine`: the target's by default.
    """
    machine = machine or Machine.from_target(target)
    lanes = machine.lanes(dtype)
    in_place = rhs is not None and rhs.contiguous_columns and e.n % lanes == 0
    tile_m, tile_n = choose_tile(e, machine, lanes, only_whole=in_place)
    row_tiles, column_tiles = -(-e.m // tile_m), -(-e.n // tile_n)
    if row_tiles > 1 and in_place:
        in_place = False
        tile_m, tile_n = choose_tile(e, machine, lanes)
        row_tiles, column_tiles = -(-e.m // tile_m), -(-e.n // tile_n)
    block_k = _block_k(e, machine, tile_n) if row_tiles > 1 else e.k
    resident = max(machine.l2_bytes // 2 // (tile_m * block_k * e.item), 1)
    # A task with fewer rows than others has a guard, which within blocks of k is in the reduction,
    # whose accumulators are then in memory.
    even = 2 * largest_divisor(row_tiles, resident) >= min(row_tiles, resident)
    if block_k < e.k and not even and e.k * tile_n * e.item <= machine.l2_bytes:
        block_k = e.k
        resident = max(machine.l2_bytes // 2 // (tile_m * block_k * e.item), 1)
    parallel = e.cycles(machine, lanes) >= PARALLEL_CYCLES
    columns_in_one_task = row_tiles > 1 or e.batch >= machine.num_cores or not parallel
    if e.n % lanes and columns_in_one_task:
        order, tasks, rows = "bm", e.batch, min(row_tiles, resident)
    elif row_tiles > resident:
        order, tasks, rows = "bmn", e.batch * column_tiles, resident
    else:
        order, tasks, rows = "bnm", e.batch * column_tiles, row_tiles
    if parallel:
        least = 1 if rhs is None else min(row_tiles, -(-ROWS_PER_COPY // tile_m))
        rows = _rows_per_task(row_tiles, rows, least, tasks, machine.num_cores)
    if block_k < e.k and even:
        rows = largest_divisor(row_tiles, max(rows, resident // 2))
    knobs: dict[str, Knob] = {
        "tile_m": option(tile_m),
        "tile_n": option(tile_n),
        "block_k": option(block_k),
        "task_order": option(order),
        "task_rows": option(rows),
    }
    if rhs is not None:
        knobs["copy_panel"] = option(not in_place)
    return ConfigEntity(knobs)


def _block_k(e: Extents, machine: Machine, tile_n: int) -> int:
    share = machine.l2_bytes
    if machine.vector_bits < 512:
        # The next panel arrives while this one and the rows are read. Cores with vectors of 512
        # bits have 1 MB or more, of which all was measured to be no worse.
        share //= 2
    if e.k * tile_n * e.item <= share:
        return e.k
    most = share // 2 // (tile_n * e.item)
    block = largest_divisor(e.k, most)
    return block if block * 4 >= most else e.k


def _rows_per_task(row_tiles: int, most: int, least: int, tasks: int, threads: int) -> int:
    """Most row tiles per task, up to `most`, with busy threads; `tasks`: if each did all rows."""

    def busy(rows: int) -> float:
        per_thread = -(-tasks * -(-row_tiles // rows) // threads)
        return tasks * row_tiles / (threads * per_thread * rows)

    counts = range(most, min(least, most) - 1, -1)
    good = min(GOOD_BALANCE, max(map(busy, counts)))
    return next(rows for rows in counts if busy(rows) >= good)
