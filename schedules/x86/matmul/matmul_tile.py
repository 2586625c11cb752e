"""Register-tiled matrix product on panels of the right operand: compute and rule.

A panel is the right operand's columns of one tile, laid out (k, tile_n): constants are packed
so when the library is built, other operands are copied into a small buffer by each task. Every
step of the inner loop multiplies one panel row with one element of each of tile_m rows of the
left operand, which is read where it lies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import DataType, te, tirx
from tvm.target import Target

from ...anchor import AnchorRule
from ...config import ConfigEntity
from ...epilogue import Surroundings, inline_epilogue, with_index
from ...matmul import DenseWorkload, Product, Reader
from ...strategy import anchor_attrs
from ..machine import microkernel
from ..machine.cpu import Machine
from ..machine.dot_product import Dot, as_kept, kept
from ..machine.prefetch import stream_panels
from .matmul_rules import PARALLEL_CYCLES, Extents

PANEL = "matmul_panel"
SEVERAL_TILES = "several_tiles"
"""Option of a kernel for one row tile that a loop outside runs for several, on the same panel."""

# Places at which a single row tile reads its weights at a time, best first; see `_streams`.
STREAMS = (4, 2, 1)


# --- compute -----------------------------------------------------------------------------


def product(
    rule: str,
    w: Product,
    config: ConfigEntity,
    left: te.Tensor,
    right: te.Tensor,
    dot: Dot | None = None,
    tile: tuple[int, int] | None = None,
) -> te.Tensor:
    """The product of a workload for the rule of that name.

    `right`: as packed where it is a constant, else as the workload says. `dot`: what one step
    multiplies; single elements by default. `tile`: the register tile, if no knobs say it.
    """
    tile = tile or register_tile(config)
    if dot is not None:
        dot = kept(dot, config)
        left = as_kept(dot.data, left)
    reads = w.read_left(left), right_reader(w, config, tile[1], right, dot)
    found = tiled_product(rule, config, w.extents, tile, w.out_dtype, *reads, dot)
    return view(found, w.shape, len(w.lead) if isinstance(w, DenseWorkload) else 1)


def tiled_product(
    rule: str,
    config: ConfigEntity,
    extents: tuple[int | None, int, int, int],
    tile: tuple[int, int],
    out_dtype: str,
    lhs: Reader,
    rhs: Reader,
    dot: Dot | None = None,
) -> te.Tensor:
    """The anchor: ([batch,] m, n), both rounded up to whole tiles.

    `extents`: a batch of None leaves the batch axis out. `out_dtype`: type of the products and
    their sums. `lhs`: only called with rows below m: the rows that fill the last tile repeat the
    last row. `rhs`: is called with columns up to the last tile's end.
    """
    batch, m, n, k = extents
    tile_m, tile_n = tile
    together = 1 if dot is None else dot.size
    axis = te.reduce_axis((0, k // together), "k")
    parts = [te.reduce_axis((0, together), "part")] if together > 1 else []
    at = axis * together + parts[0] if parts else axis

    # Dynamic rows are split between kernels that each have whole tiles.
    whole = not isinstance(m, int) or m % tile_m == 0

    def element(*index: Any) -> Any:
        *outer, i, j = index
        b = outer[0] if outer else None
        row = i if whole else te.min(i, m - 1)
        left, right = lhs(b, row, at).astype(out_dtype), rhs(b, at, j).astype(out_dtype)
        return te.sum(left * right, axis=[axis, *parts])

    matrix = (m if whole else -(-m // tile_m) * tile_m, -(-n // tile_n) * tile_n)
    shape = matrix if batch is None else (batch, *matrix)
    return te.compute(shape, element, name="matmul", attrs=anchor_attrs(rule, config))


def register_tile(config: ConfigEntity) -> tuple[int, int]:
    """Return (tile_m, tile_n) from Baton's or AutoTVM's knobs."""
    if "tile_x" in config:
        return math.prod(config.size("tile_y")[1:]), config.size("tile_x")[-1]
    return config.val("tile_m"), config.val("tile_n")


def right_reader(
    w: Product, config: ConfigEntity, tile_n: int, right: te.Tensor, dot: Dot | None
) -> Reader:
    """Read the right operand of `tiled_product` from panels ([batch,] n / tile_n, k, tile_n).

    For a dot product, the elements of a step are adjacent: (..., k / size, tile_n, size). Constants
    are packed in panels. For other operands each task copies its panel, unless the knob
    `copy_panel` is false: then it reads the operand in place.
    """
    size = 1 if dot is None else dot.size
    if w.right is None:
        return _panel_reader(right, tile_n, size)
    batch, _, n, k = w.extents
    read = w.read_right(right)
    if dot is None and not config.val("copy_panel"):
        return read

    def element(*index: Any) -> Any:
        *outer, tile, step, lane = index[:-1] if dot else index
        row = step * size + index[-1] if dot else step
        column = tile * tile_n + lane
        value = read(outer[0] if outer else None, row, column)
        value = value.astype(dot.weight if dot else right.dtype)
        if n % tile_n == 0:
            return value
        return tirx.if_then_else(
            tirx.likely(column < n), value, tirx.const(0, dot.weight if dot else right.dtype)
        )

    shape = (-(-n // tile_n), k // size, tile_n, *([size] if dot else []))
    panels = te.compute(shape if batch is None else (batch, *shape), element, name=PANEL)
    return _panel_reader(panels, tile_n, size)


def _panel_reader(panels: te.Tensor, tile_n: int, size: int) -> Reader:
    def element(batch: Any, k: Any, column: Any) -> Any:
        index: tuple[Any, ...] = (column // tile_n, k, column % tile_n)
        if size > 1:
            index = (column // tile_n, k // size, column % tile_n, k % size)
        return panels[index if batch is None else (batch, *index)]

    return element


def view(product: te.Tensor, shape: Sequence[int], row_dims: int) -> te.Tensor:
    """The product without filling rows and columns, in the operator's shape.

    `row_dims`: how many dimensions before the last are rows; those before are the batch.
    """
    rank = len(shape)

    def element(*index: Any) -> Any:
        rows = ravel(index[rank - 1 - row_dims : -1], shape[rank - 1 - row_dims : -1])
        batch = index[: rank - 1 - row_dims]
        outer = [ravel(batch, shape[: len(batch)])] if len(product.shape) == 3 else []
        position = (*outer, rows, index[-1])
        return product[position]

    return te.compute(tuple(shape), element, name="matmul_view")


def ravel(index: Sequence[Any], shape: Sequence[int]) -> Any:
    """Row-major position of a multi-index."""
    position: Any = None
    for i, extent in zip(index, shape):
        position = i if position is None else position * extent + i
    return 0 if position is None else position


# --- schedule ----------------------------------------------------------------------------


class TiledMatmul(AnchorRule):
    """Schedule a fused function whose anchor is a `tiled_product`.

    Loop nest (order "bnm"; "bmn" swaps the two task loops, "bm" makes the column loop serial):

        parallel batch, column_tile, row_task
          [copy of the panel]
          row_tile in task_rows
            registers[tile_m, tile_n] = 0
            k
              unrolled tile_m, tile_n / lanes; vector lanes: fma
            epilogue of the tile

    With block_k < k the accumulators of the task's rows are kept in a buffer, and the loops are
    k_block > row_tile > k.
    """

    unrolls_rows = True
    """Whether the rows of a tile are unrolled, which keeps the sums in registers."""

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        machine = Machine.from_target(target)
        lanes = machine.lanes(str(sch.get(anchor).writes[0].source.dtype))
        parts = inline_epilogue(sch, anchor, keep=(PANEL,))
        e = self._extents(sch, anchor, parts.output)
        parallel = e.cycles(machine, lanes) >= PARALLEL_CYCLES

        is_batched = len(self.loops(sch, anchor)) == 4
        width = lanes if parts.costly_output else self.vector(config, lanes)
        task, panel_loop, tile_loop, tile = _tile_output(sch, is_batched, parts, config, e, width)
        if self.unrolls_rows and not parts.costly_output:
            for loop in tile:
                sch.unroll(loop)
        if parallel:
            sch.parallel(task)
        block_k = config.val("block_k")
        at = tile_loop if block_k == e.k else panel_loop
        for block in reversed(parts.repeated):
            sch.compute_at(block, tile_loop, preserve_unit_loops=True)
            _vectorize_last(sch, block, lanes)
        sch.compute_at(anchor, at, preserve_unit_loops=True)
        for block in parts.before:
            if str(sch.get(block).name_hint) == PANEL:
                sch.compute_at(block, panel_loop, preserve_unit_loops=True)
                self.copy(sch, block, lanes)
            else:
                schedule_alone(sch, block, lanes, parallel)
        from_memory = "copy_panel" not in config and e.k * e.n * e.item > machine.l2_bytes // 2
        one_tile = e.m <= config.val("tile_m") and SEVERAL_TILES not in config
        streams = _streams(block_k, machine) if from_memory and one_tile else 1
        rows, steps = self._accumulate(sch, anchor, config, lanes, target, streams)
        if from_memory and streams == 1 and steps is not None:
            panel = block_k * config.val("tile_n") * e.item
            stride = panel // int(sch.get(steps).extent)
            loops = [(loop, int(sch.get(loop).extent)) for loop in (tile_loop, rows)]
            stream_panels(sch, loops, [steps], panel, stride)
        return sch

    def loops(self, sch: Any, anchor: Any) -> list[Any]:
        """The anchor's loops down to the last that is not one step."""
        return list(sch.get_loops(anchor))

    def vector(self, config: ConfigEntity, lanes: int) -> int:
        """Columns that an epilogue which is not costly computes at a time."""
        return lanes

    def steps(self, _: Any, loop: Any, __: ConfigEntity) -> tuple[Any, list[Any]]:
        """Return the innermost loop over steps and the loops over steps done together, if any."""
        return loop, []

    def multiply(self, sch: Any, anchor: Any, lane: Any, reduced: Any, target: Target) -> None:
        """Vectorize one step over the lanes; initialize the sums before the loop `reduced`."""
        sch.vectorize(lane)
        sch.decompose_reduction(anchor, reduced)

    def copy(self, sch: Any, panel: Any, lanes: int) -> None:
        """Vectors of one row of the panel; down the rows first, so that a transposed operand is
        read along few cache lines at a time."""
        *_, row, column = sch.get_loops(panel)
        vector, lane = sch.split(column, [None, lanes])
        sch.reorder(vector, row, lane)
        sch.vectorize(lane)

    def _extents(self, sch: Any, anchor: Any, output: Any) -> Extents:
        """Sizes of the product, k in steps."""
        loops = self.loops(sch, anchor)
        *batch, _, _, k = (int(sch.get(loop).extent) for loop in loops)
        together = (int(sch.get(loop).extent) for loop in sch.get_loops(anchor)[len(loops) :])
        *rows, n = (int(sch.get(loop).extent) for loop in sch.get_loops(output))
        products = batch[0] if batch else 1
        item = DataType(str(sch.get(anchor).reads[-1].source.dtype)).itemsize * math.prod(together)
        return Extents(products, math.prod(rows) // products, n, k, item)

    def _accumulate(
        self,
        sch: Any,
        anchor: Any,
        config: ConfigEntity,
        lanes: int,
        target: Target,
        streams: int = 1,
    ) -> tuple[Any, Any]:
        """`streams` parts of the reduction, a divisor of it, advance together.

        Returns the loop over row tiles and the innermost one of the reduction that is a loop, None
        where there is none."""
        machine = Machine.from_target(target)
        i, j, k = self.loops(sch, anchor)[-3:]
        row_tile, ii = sch.split(i, [None, config.val("tile_m")])
        vector, lane = sch.split(j, [None, lanes])
        block_k = config.val("block_k")
        blocks = []
        if block_k < int(sch.get(k).extent):
            k_block, k = sch.split(k, [None, block_k])
            blocks = [k_block]
        unrolled = []
        if streams > 1:
            stream, k = sch.split(k, [streams, None])
            unrolled.append(stream)
        together = microkernel.steps_together(block_k // streams, machine)
        if together > 1:
            steps, k = sch.split(k, [None, together])
        k, several = self.steps(sch, k, config)
        if together > 1:
            unrolled.append(k)
        else:
            steps = k
        for loop in unrolled:
            sch.unroll(loop)
        sch.reorder(*blocks, row_tile, steps, *unrolled, ii, vector, *several, lane)
        microkernel.mark(sch, steps if blocks else row_tile, block_k, machine)
        sch.unroll(ii)
        sch.unroll(vector)
        self.multiply(sch, anchor, lane, blocks[0] if blocks else steps, target)
        return row_tile, steps


def _tile_output(
    sch: Any, is_batched: bool, parts: Surroundings, config: ConfigEntity, e: Extents, lanes: int
) -> tuple[Any, Any, Any, tuple[Any, Any]]:
    """Tile the output block; returns the task loop, the innermost loop of a task that sees one
    panel, the loop over its row tiles, and the loops over a tile's rows and vectors."""
    if is_batched:
        *outer, i, j = sch.get_loops(parts.output)
        batch = [sch.fuse(*outer)]
    else:
        flatten_rows(sch, parts)
        i, j = sch.get_loops(parts.output)
        batch = []
    row_task, row_tile, ii = sch.split(i, [None, config.val("task_rows"), config.val("tile_m")])
    column, ji = sch.split(j, [None, config.val("tile_n")])
    vector, lane = sch.split(ji, [None, lanes])
    order = config.val("task_order")
    tasks = [*batch, column, row_task] if order == "bnm" else [*batch, row_task, column]
    sch.reorder(*tasks, row_tile, ii, vector, lane)
    if order == "bm":
        task, panel_loop = sch.fuse(*tasks[:-1]), column
        if e.n % lanes:
            sch.annotate(column, "pragma_loop_partition_hint", 1)
    else:
        task = panel_loop = sch.fuse(*tasks)
    sch.vectorize(lane)
    return task, panel_loop, row_tile, (ii, vector)


def flatten_rows(sch: Any, parts: Surroundings) -> None:
    """Make blocks after the anchor two-dimensional: (*lead, n) -> (m, n).

    A tile across leading indices would count as a region of all their rows.
    """
    lead = [int(sch.get(loop).extent) for loop in sch.get_loops(parts.output)[:-1]]
    with_index(sch, parts.repeated, parts.output, lambda *i: (ravel(i[:-1], lead), i[-1]))


def _streams(steps: int, machine: Machine) -> int:
    """At how many places at a time a single row tile reads its weights: a divisor of `steps`.

    Such a product only waits for memory. Hardware prefetch follows each of several streams, which
    stop at the ends of their pages at different times: 1.4 times the bytes of a single stream
    with prefetches of the next panel on a Zen 3. More than four are slower again.
    """
    if not microkernel.registers_are_scarce(machine):
        return 1  # measured with prefetches alone
    return next(count for count in STREAMS if steps % count == 0)


def _vectorize_last(sch: Any, block: Any, lanes: int) -> None:
    *_, last = sch.get_loops(block)
    _, lane = sch.split(last, [None, lanes])
    sch.vectorize(lane)


def schedule_alone(sch: Any, block: Any, lanes: int, parallel: bool) -> None:
    """Schedule an elementwise block as a separate loop nest before the matmul."""
    *outer, last = sch.get_loops(block)
    if outer:
        first = sch.fuse(*outer)
    if int(sch.get(last).extent) >= lanes:
        _, lane = sch.split(last, [None, lanes])
        sch.vectorize(lane)
    if outer and parallel:
        sch.parallel(first)
