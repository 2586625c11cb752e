"""Strassen's product with a constant matrix, one level, for x86: dense layers, 1x1 convolutions.

Strassen, "Gaussian elimination is not optimal" (1969): with both matrices in quadrants, seven
products of half the rows, columns and depth take the place of eight:

    S_q = sums of quadrants of x            seven, at run time
    T_q = sums of quadrants of the weight   at build time: 7/4 of the bytes
    P_q = S_q T_q                           seven matrix products
    out = sums of P_q

Rows 2r and 2r + 1 are of different quadrants, and so are neighboring vectors of columns, so that
a sum reads, and a result is written to, two whole vectors of two rows. S and P of images in channel
blocks lie in channel blocks as well, so that all is read and written in the order of memory.

Errors are those of sums and differences of rows and columns (`scripts.bench.error_bounds`): of
layers with random operands and 384 to 3072 columns, 0.8 to 1.6 times those of the direct product,
below 2e-6 of the largest result. A row that is far smaller than its neighbor gets an error of the
neighbor's size, and an infinity or NaN in one row of a pair spreads to the other. So both must be
of one sample: who selects these implementations has to know that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import DataType, te, tirx
from tvm.target import Target

from ...anchor import AnchorRule, register_anchor_rule, sblocks
from ...config import ConfigEntity
from ...conv2d import Conv2dWorkload
from ...epilogue import Surroundings, inline_epilogue, with_index
from ...matmul import DenseWorkload, unravel
from ...strategy import anchor_attrs
from ...winograd import combine, times
from ..machine import microkernel
from ..machine.cpu import Machine, collide
from ..machine.prefetch import prefetch_results, stream_panels
from .matmul_tile import ravel, schedule_alone, view

DENSE = "dense_strassen.x86"
CONV2D = "conv2d_strassen.x86"
ALGORITHM = "strassen"

# Of quadrants 11, 12, 21, 22: the sums of x and of the weight that each product multiplies; and
# for each quadrant of the result, the products that it is the sum of.
_X = (
    (1, 0, 0, 1),
    (0, 0, 1, 1),
    (1, 0, 0, 0),
    (0, 0, 0, 1),
    (1, 1, 0, 0),
    (-1, 0, 1, 0),
    (0, 1, 0, -1),
)
_WEIGHT = (
    (1, 0, 0, 1),
    (1, 0, 0, 0),
    (0, 1, 0, -1),
    (-1, 0, 1, 0),
    (0, 0, 0, 1),
    (1, 1, 0, 0),
    (0, 0, 1, 1),
)
_OUT = (
    (1, 0, 0, 1, -1, 0, 1),
    (0, 0, 1, 0, 1, 0, 0),
    (0, 1, 0, 1, 0, 0, 0),
    (1, -1, 1, 0, 0, 1, 0),
)
PRODUCTS = len(_X)
SUMS, RESULT = "strassen_S", "strassen_out"
DTYPE = "float32"
"""Element type of the matmuls; error bounds exist only for this type."""
ITEM_BYTES = DataType(DTYPE).itemsize
# Unused rows of S that keep its blocks apart.
MORE_ROWS = 2


def extents_of(w: DenseWorkload | Conv2dWorkload) -> tuple[int, int, int]:
    """(m, n, k) of the product: a row is a row of x or a pixel."""
    if isinstance(w, DenseWorkload):
        return w.m, w.n, w.k
    return w.batch * w.out_height * w.out_width, w.out_channels, w.in_channels


def padded(extent: int, multiple: int) -> int:
    """The next multiple."""
    return -(-extent // multiple) * multiple


def halves(extents: tuple[int, int, int], lanes: int) -> tuple[int, int, int]:
    """(m, n, k) of each of the seven products; n and k are whole vectors."""
    m, n, k = extents
    return -(-m // 2), padded(n, 2 * lanes) // 2, padded(k, 2 * lanes) // 2


# --- compute -----------------------------------------------------------------------------


def pack_weight(_: Any, weight: np.ndarray, config: ConfigEntity) -> np.ndarray:
    """(k, n) -> (groups, 7, k blocks, group, block_k, tile_n), in the order of use; constants only.

    A sum of two is rounded once, in whatever type it is computed. Zeros complete pairs of vectors
    and panels.
    """
    lanes, tile_n = config.val("lanes"), config.val("tile_n")
    block_k, group = config.val("block_k"), config.val("group")
    k, n = (
        padded(extent, 2 * size) for extent, size in zip(weight.shape, (lanes, tile_n), strict=True)
    )
    if weight.shape != (k, n):
        weight = np.pad(weight, [(0, k - weight.shape[0]), (0, n - weight.shape[1])])
    pairs = weight.reshape(k // (2 * lanes), 2, lanes, n // (2 * lanes), 2, lanes)
    quadrants = [pairs[:, i, :, :, j] for i in range(2) for j in range(2)]
    packed = np.empty((PRODUCTS, *quadrants[0].shape), weight.dtype)
    for sums, factors in zip(packed, _WEIGHT, strict=True):
        sums[:] = combine(factors, quadrants.__getitem__)
    shape = (PRODUCTS, -1, block_k, n // (2 * group * tile_n), group, tile_n)
    return np.ascontiguousarray(packed.reshape(shape).transpose(3, 0, 1, 4, 2, 5))


def pack_filters(ops: Any, weight: np.ndarray, config: ConfigEntity, _: int) -> np.ndarray:
    """OIHW of one tap, packed as the matrix (I, O)."""
    o, i, _, _ = weight.shape
    return pack_weight(ops, weight.reshape(o, i).T, config)


def compute_dense(w: DenseWorkload, config: ConfigEntity, x: te.Tensor, packed: te.Tensor) -> Any:
    """x (*lead, k), weight as packed -> (*lead, n)."""
    read = w.read_left(x)
    product = strassen_product(
        DENSE, config, extents_of(w), lambda row, k: read(None, row, k), packed
    )
    return view(product, (*w.lead, w.n), len(w.lead))


def compute_conv2d(
    w: Conv2dWorkload, config: ConfigEntity, data: te.Tensor, packed: te.Tensor
) -> Any:
    """data (N, IC/ib, H, W, ib), weight as packed -> (N, OC/ob, H, W, ob)."""
    pixels, (down, across) = (w.batch, w.out_height, w.out_width), w.strides
    ic_block, oc_block = int(data.shape[4]), config.val("oc_block")

    def read(row: Any, k: Any) -> Any:
        n, y, x = unravel(row, pixels)
        return data[n, k // ic_block, y * down, x * across, k % ic_block]

    product = strassen_product(CONV2D, config, extents_of(w), read, packed)
    return te.compute(
        (w.batch, w.out_channels // oc_block, w.out_height, w.out_width, oc_block),
        lambda n, c, y, x, o: product[ravel((n, y, x), pixels), c * oc_block + o],
        name="conv2d_NCHWc",
    )


def strassen_product(
    rule: str,
    config: ConfigEntity,
    extents: tuple[int, int, int],
    read: Callable[[Any, Any], Any],
    packed: te.Tensor,
) -> te.Tensor:
    """(m, n), rounded up to whole tasks of pairs of rows and to pairs of panels.

    `read`: only called with rows below m: the last row replaces missing rows.
    """
    m, _, k = extents
    lanes, tile_n = config.val("lanes"), config.val("tile_n")
    block_k, group = config.val("block_k"), config.val("group")
    rows, columns, depth = halves(extents, lanes)
    rows, columns = padded(rows, config.val("task_rows")), padded(columns, tile_n)
    # Blocks of S that would share sets of L1 lie further apart.
    crowded = rule == CONV2D and collide(depth // lanes, rows * lanes * ITEM_BYTES)
    more = MORE_ROWS if crowded else 0

    def element(r: Any, c: Any, quadrant: int) -> Any:
        row, column = divmod(quadrant, 2)
        row = 2 * r + row
        if more or 2 * rows > m:
            row = te.min(row, m - 1)
        index = c // lanes * (2 * lanes) + column * lanes + c % lanes
        if column and k % (2 * lanes):
            return tirx.if_then_else(index < k, read(row, index), tirx.const(0, DTYPE))
        return read(row, index)

    sums = te.compute(
        (PRODUCTS, rows + more, depth),
        lambda q, r, c: times(_X, q, lambda quadrant: element(r, c, quadrant)),
        name=SUMS,
    )
    axis = te.reduce_axis((0, depth), "k")

    def weight(q: Any, c: Any) -> Any:
        panel, column = c // tile_n, c % tile_n
        return packed[panel // group, q, axis // block_k, panel % group, axis % block_k, column]

    products = te.compute(
        (PRODUCTS, rows, columns),
        lambda q, r, c: te.sum(sums[q, r, axis] * weight(q, c), axis=[axis]),
        name="strassen_P",
        attrs=anchor_attrs(rule, config, ALGORITHM),
    )

    def result(i: Any, j: Any) -> Any:
        column = j // (2 * lanes) * lanes + j % lanes
        place = i % 2 * 2 + j // lanes % 2
        return times(_OUT, place, lambda q: products[q, i // 2, column])

    return te.compute((2 * rows, 2 * columns), result, name=RESULT)


# --- schedule ----------------------------------------------------------------------------


class Strassen(AnchorRule):
    """Schedule a fused function whose anchor is a Strassen product.

        parallel row, vector                  [images: vector, row]
          S: seven sums of two rows of two vectors
        parallel group, row_task              [or parallel row_task, S of its rows, group]
          q, k_block, panel, row_tile
            registers[tile_m, tile_n] = 0
            k
              unrolled tile_m, tile_n / lanes; vector lanes: fma
          row, vector                         [images: vector, row]
            result and epilogue of two rows of two vectors

    With block_k < k / 2 the sums of the products are in memory from one block to the next. For
    images, the matmuls prefetch the addends of the results and their destination.

    `is_blocked`: results are images of channel blocks, (N, C/b, H, W, b), not rows.
    """

    def __init__(self, is_blocked: bool) -> None:
        self.is_blocked = is_blocked

    narrow_indices = True

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        lanes = config.val("lanes")
        parts = inline_epilogue(sch, anchor, keep=(SUMS, RESULT))
        result, *repeated = parts.repeated
        shape = [int(sch.get(loop).extent) for loop in sch.get_loops(parts.output)]
        with_index(sch, repeated, parts.output, _matrix_index(shape, self.is_blocked))

        if self.is_blocked:
            for block in (sblocks(sch)[SUMS], anchor):
                sch.transform_layout(block, ("write", 0), _blocks_of(lanes))
        row_task, task, loops = self._output(sch, parts, config)
        for block in reversed(parts.repeated):
            sch.compute_at(block, loops[-1], preserve_unit_loops=True)
            row, column = sch.get_loops(block)[-2:]
            vector, lane = sch.split(column, [None, lanes])
            sch.vectorize(lane)
            if block is result:
                sch.unroll(row)
                sch.unroll(vector)
        sch.compute_at(anchor, task, preserve_unit_loops=True)
        tiles = self._products(sch, anchor, config, Machine.from_target(target))
        if self.is_blocked:
            prefetch_results(sch, tiles, loops)
        for block in parts.before:
            if str(sch.get(block).name_hint) == SUMS:
                self._sums(sch, block, lanes, row_task)
            else:
                schedule_alone(sch, block, lanes, parallel=True)
        return sch

    def _output(self, sch: Any, parts: Surroundings, config: ConfigEntity) -> tuple[Any, Any, Any]:
        """Tile the output block.

        Returns the loop over tasks of rows if each makes its own S, else None; the loop under which
        one group's products are computed; the loops over tiles of 2 x 2 vectors.
        """
        lanes = config.val("lanes")
        i, j = sch.get_loops(parts.output)
        is_ragged = [
            int(sch.get(loop).extent) % size > 0
            for loop, size in ((i, 2 * config.val("task_rows")), (j, 2 * config.val("tile_n")))
        ]
        row_task, row, i = sch.split(i, [None, config.val("task_rows"), 2])
        vectors = config.val("group") * config.val("tile_n") // lanes
        group, vector, j, lane = sch.split(j, [None, vectors, 2, lanes])
        loops = self._in_order(row, vector)
        by_task = config.val("sums_by_task", False)
        tasks = [row_task, group] if by_task else [group, row_task]
        sch.reorder(*tasks, *loops, i, j, lane)
        for loop, has_rest in zip((row, vector), is_ragged, strict=True):
            if has_rest:
                sch.annotate(loop, "pragma_loop_partition_hint", 1)
        task = group if by_task else sch.fuse(*tasks)
        sch.parallel(row_task if by_task else task)
        sch.vectorize(lane)
        if not parts.costly_output:
            sch.unroll(i)
            sch.unroll(j)
        return row_task if by_task else None, task, loops

    def _in_order(self, row: Any, vector: Any) -> list[Any]:
        """Loops over rows and vectors in the order in which they lie in memory."""
        return [vector, row] if self.is_blocked else [row, vector]

    @staticmethod
    def _products(sch: Any, products: Any, config: ConfigEntity, machine: Machine) -> list[Any]:
        """Returns the loops over register tiles."""
        lanes, block_k = config.val("lanes"), config.val("block_k")
        tile_m, tile_n = config.val("tile_m"), config.val("tile_n")
        q, r, c, k = sch.get_loops(products)[-4:]
        is_ragged = int(sch.get(r).extent) % tile_m > 0
        row_tile, i = sch.split(r, [None, tile_m])
        panel, vector, lane = sch.split(c, [None, tile_n // lanes, lanes])
        blocks = []
        if block_k < int(sch.get(k).extent):
            k_block, k = sch.split(k, [None, block_k])
            blocks = [k_block]
        steps, step = sch.split(k, [None, microkernel.steps_together(block_k, machine)])
        sch.reorder(q, *blocks, panel, row_tile, steps, step, i, vector, lane)
        for loop in (step, i, vector):
            sch.unroll(loop)
        sch.vectorize(lane)
        if is_ragged:
            sch.annotate(row_tile, "pragma_loop_partition_hint", 1)
        sch.decompose_reduction(products, blocks[0] if blocks else steps)
        microkernel.mark(sch, row_tile, block_k, machine)
        panel_bytes = block_k * tile_n * ITEM_BYTES
        rows = [(row_tile, int(sch.get(row_tile).extent))]
        stream_panels(sch, rows, [steps], panel_bytes, panel_bytes // int(sch.get(steps).extent))
        return [q, *blocks, panel, row_tile]

    def _sums(self, sch: Any, sums: Any, lanes: int, row_task: Any) -> None:
        if row_task is not None:
            sch.compute_at(sums, row_task, preserve_unit_loops=True)
        q, row, column = sch.get_loops(sums)[-3:]
        vector, lane = sch.split(column, [None, lanes])
        loops = self._in_order(row, vector)
        sch.reorder(*loops, q, lane)
        sch.unroll(q)
        sch.vectorize(lane)
        if row_task is None:
            sch.parallel(loops[0])


def _blocks_of(lanes: int) -> Callable[..., Any]:
    """Maps an index of S or P to one in blocks of columns, (7, columns / lanes, rows, lanes)."""
    return lambda q, r, c: (q, c // lanes, r, c % lanes)


def _matrix_index(shape: Sequence[int], is_blocked: bool) -> Callable[..., Any]:
    """Maps an index of a result of this shape to row and column of the matrix."""
    if not is_blocked:
        return lambda *index: (ravel(index[:-1], shape[:-1]), index[-1])
    n, c, h, w, lanes = shape
    return lambda b, o, y, x, i: (ravel((b, y, x), (n, h, w)), ravel((o, i), (c, lanes)))


register_anchor_rule(DENSE, Strassen(is_blocked=False))
register_anchor_rule(CONV2D, Strassen(is_blocked=True))
