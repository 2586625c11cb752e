"""Strassen's product with a constant matrix, one level, for x86: dense layers, 1x1 convolutions.

Strassen, "Gaussian elimination is not optimal" (1969): with both matrices in quadrants, seven
products of half the rows, columns and depth take the place of eight:

    S_q = sums of quadrants of x            seven, at run time
    T_q = sums of quadrants of the weight   at build time: 7/4 of the bytes
    P_q = S_q T_q                           seven matrix products
    out = sums of P_q

Rows 2r and 2r + 1 are of different quadrants, and so are neighbouring vectors of columns, so that
a sum reads, and a result is written to, two whole vectors of two rows.

Errors are those of sums and differences of rows and columns: of layers with random operands and 384
to 3072 columns, 0.8 to 1.6 times those of the direct product, below 2e-6 of the largest result. A
row that is far smaller than its neighbour gets an error of the neighbour's size, and an infinity or
NaN in one row of a pair spreads to the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import s_tir, te
from tvm.target import Target

from ..anchor import anchor_config, find_anchor
from ..config import ConfigEntity, option
from ..conv2d import Conv2dWorkload
from ..epilogue import Surroundings, inline_epilogue, with_index
from ..matmul import DenseWorkload
from ..rules import register_anchor_rule
from ..space import divisors
from ..strategy import Implementation, anchor_attrs, register
from ..winograd import combine, select
from . import microkernel
from .conv2d import with_narrow_indices
from .dense import row_reader
from .machine import Machine
from .matmul_tile import GOOD_BALANCE, balance, ravel, schedule_alone, unravel, view
from .prefetch import stream_panels

DENSE = "dense_strassen.x86"
CONV2D = "conv2d_strassen.x86"

# Cost rule. Making an element of S, or storing one of P and reading it again, takes the time of so
# many operations with vectors of 512 bits (half as many fit in it with vectors of 256),
TRANSFORM_FLOPS = 24
# reading a byte of weights, which prefetch lets go on beside the products, that of so many,
FLOPS_PER_BYTE = 24
# and Strassen must be estimated below this share of the direct product; of direct convolutions,
# whose inputs and results lie in channel blocks, below a smaller one.
CLEARLY, CLEARLY_CONV2D = 0.935, 0.915
# Columns of a register tile: with 16 registers, a row of a panel of four vectors is more than L2
# delivers while it is multiplied.
MOST_VECTORS, MOST_VECTORS_OF_16 = 4, 3
# Cycles from a multiply-add to one that needs its result; vectors or broadcasts loaded in a cycle;
# and cycles that each step adds (all measured on a Zen 3).
FMA_LATENCY, LOADS, STEP_CYCLES = 4, 1.7, 0.2
# Shares of L2: for what all panels of a block read of one S, for P of a task, and for one panel.
S_SHARE, P_SHARE, PANEL_SHARE = 1 / 2, 3 / 8, 1 / 8

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
_ITEM_BYTES = 4  # float32 alone


def extents_of(w: DenseWorkload | Conv2dWorkload) -> tuple[int, int, int]:
    """(m, n, k) of the product: a row is a row of x or a pixel."""
    if isinstance(w, DenseWorkload):
        return w.m, w.n, w.k
    return w.batch * w.height * w.width, w.out_channels, w.in_channels


# --- compute -----------------------------------------------------------------------------


def pack_weight(_: Any, weight: np.ndarray, config: ConfigEntity) -> np.ndarray:
    """(k, n) -> (groups, 7, k blocks, group, block_k, tile_n), in the order of use; constants only.

    A sum of two is rounded once, in whatever type it is computed.
    """
    lanes, tile_n = config.val("lanes"), config.val("tile_n")
    block_k, group = config.val("block_k"), config.val("group")
    k, n = weight.shape
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
    read = row_reader(w, x)
    product = strassen_product(
        DENSE, config, extents_of(w), lambda row, k: read(None, row, k), packed
    )
    return view(product, (*w.lead, w.n), len(w.lead))


def compute_conv2d(
    w: Conv2dWorkload, config: ConfigEntity, data: te.Tensor, packed: te.Tensor
) -> Any:
    """data (N, IC/ib, H, W, ib), weight as packed -> (N, OC/ob, H, W, ob)."""
    pixels = (w.batch, w.height, w.width)
    ic_block, oc_block = int(data.shape[4]), config.val("oc_block")

    def read(row: Any, k: Any) -> Any:
        n, y, x = unravel(row, pixels)
        return data[n, k // ic_block, y, x, k % ic_block]

    product = strassen_product(CONV2D, config, extents_of(w), read, packed)
    return te.compute(
        (w.batch, w.out_channels // oc_block, w.height, w.width, oc_block),
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
    """(m, n), m rounded up to an even number.

    Parameters
    ----------
    extents : (m, n, k)
    read : (row, k) -> element
        Only called with rows below m: the last row of an odd number is its own neighbour.
    """
    m, n, k = extents
    lanes, tile_n = config.val("lanes"), config.val("tile_n")
    block_k, group = config.val("block_k"), config.val("group")
    rows = -(-m // 2)

    def element(r: Any, c: Any, quadrant: int) -> Any:
        row, column = divmod(quadrant, 2)
        row = te.min(2 * r + row, m - 1) if row and m % 2 else 2 * r + row
        return read(row, c // lanes * (2 * lanes) + column * lanes + c % lanes)

    sums = te.compute(
        (PRODUCTS, rows, k // 2),
        lambda q, r, c: select(
            q, [combine(factors, lambda quadrant: element(r, c, quadrant)) for factors in _X]
        ),
        name=SUMS,
    )
    axis = te.reduce_axis((0, k // 2), "k")

    def weight(q: Any, c: Any) -> Any:
        panel, column = c // tile_n, c % tile_n
        return packed[panel // group, q, axis // block_k, panel % group, axis % block_k, column]

    products = te.compute(
        (PRODUCTS, rows, n // 2),
        lambda q, r, c: te.sum(sums[q, r, axis] * weight(q, c), axis=[axis]),
        name="strassen_P",
        attrs=anchor_attrs(rule, config),
    )

    def result(i: Any, j: Any) -> Any:
        column = j // (2 * lanes) * lanes + j % lanes
        return select(
            i % 2 * 2 + j // lanes % 2,
            [combine(factors, lambda q: products[q, i // 2, column]) for factors in _OUT],
        )

    return te.compute((2 * rows, n), result, name=RESULT)


# --- schedule ----------------------------------------------------------------------------


class Strassen(s_tir.dlight.ScheduleRule):
    """Takes a fused function whose anchor is a Strassen product.

        parallel row, vector
          S: seven sums of two rows of two vectors
        parallel group, row_task
          q, k_block, panel, row_tile
            registers[tile_m, tile_n] = 0
            k
              unrolled tile_m, tile_n / lanes; vector lanes: fma
          row, vector
            result and epilogue of two rows of two vectors

    With block_k < k / 2 the sums of the products are in memory from one block to the next.

    Parameters
    ----------
    is_blocked : bool
        Results are images of channel blocks, (N, C/b, H, W, b), not rows.
    """

    def __init__(self, is_blocked: bool) -> None:
        self.is_blocked = is_blocked

    def apply(self, func: Any, target: Target, _: bool) -> s_tir.Schedule | None:
        sch = s_tir.Schedule(with_narrow_indices(func))
        anchor = find_anchor(sch)
        if anchor is None:
            return None
        config = anchor_config(sch, anchor)
        lanes = config.val("lanes")
        parts = inline_epilogue(sch, anchor, keep=(SUMS, RESULT))
        result, *repeated = parts.repeated
        shape = [int(sch.get(loop).extent) for loop in sch.get_loops(parts.output)]
        with_index(sch, repeated, parts.output, _matrix_index(shape, self.is_blocked))

        task, tile = self._output(sch, parts, config)
        for block in reversed(parts.repeated):
            sch.compute_at(block, tile, preserve_unit_loops=True)
            row, column = sch.get_loops(block)[-2:]
            vector, lane = sch.split(column, [None, lanes])
            sch.vectorize(lane)
            if block is result:
                sch.unroll(row)
                sch.unroll(vector)
        sch.compute_at(anchor, task, preserve_unit_loops=True)
        self._products(sch, anchor, config, Machine.from_target(target))
        for block in parts.before:
            if str(sch.get(block).name_hint) == SUMS:
                self._sums(sch, block, lanes)
            else:
                schedule_alone(sch, block, lanes, parallel=True)
        return sch

    @staticmethod
    def _output(sch: Any, parts: Surroundings, config: ConfigEntity) -> tuple[Any, Any]:
        """Tile the output block; returns the task loop and that over tiles of 2 x 2 vectors."""
        lanes = config.val("lanes")
        i, j = sch.get_loops(parts.output)
        is_odd = int(sch.get(i).extent) % 2 > 0
        row_task, row, i = sch.split(i, [None, config.val("task_rows"), 2])
        vectors = config.val("group") * config.val("tile_n") // lanes
        group, vector, j, lane = sch.split(j, [None, vectors, 2, lanes])
        sch.reorder(group, row_task, row, vector, i, j, lane)
        if is_odd:
            sch.annotate(row, "pragma_loop_partition_hint", 1)
        task = sch.fuse(group, row_task)
        sch.parallel(task)
        sch.vectorize(lane)
        if not parts.costly_output:
            sch.unroll(i)
            sch.unroll(j)
        return task, vector

    @staticmethod
    def _products(sch: Any, products: Any, config: ConfigEntity, machine: Machine) -> None:
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
        panel_bytes = block_k * tile_n * _ITEM_BYTES
        rows = [(row_tile, int(sch.get(row_tile).extent))]
        stream_panels(sch, rows, [steps], panel_bytes, panel_bytes // int(sch.get(steps).extent))

    @staticmethod
    def _sums(sch: Any, sums: Any, lanes: int) -> None:
        q, row, column = sch.get_loops(sums)
        vector, lane = sch.split(column, [None, lanes])
        sch.reorder(row, vector, q, lane)
        sch.unroll(q)
        sch.vectorize(lane)
        sch.parallel(row)


def _matrix_index(shape: Sequence[int], is_blocked: bool) -> Callable[..., Any]:
    """Maps an index of a result of this shape to row and column of the matrix."""
    if not is_blocked:
        return lambda *index: (ravel(index[:-1], shape[:-1]), index[-1])
    n, c, h, w, lanes = shape
    return lambda b, o, y, x, i: (ravel((b, y, x), (n, h, w)), ravel((o, i), (c, lanes)))


# --- fallback ----------------------------------------------------------------------------


def dense_fallback(w: DenseWorkload, target: Target) -> ConfigEntity:
    """Knobs by `plan`."""
    return plan(extents_of(w), Machine.from_target(target))


def conv2d_fallback(w: Conv2dWorkload, target: Target) -> ConfigEntity:
    """Knobs by `plan`; channel blocks of the result are vectors."""
    config = plan(extents_of(w), Machine.from_target(target))
    return ConfigEntity({**config.knobs, "oc_block": config.knobs["lanes"]})


def plan(extents: tuple[int, int, int], machine: Machine) -> ConfigEntity:
    """Knobs for (m, n, k).

    tile_m, tile_n: the register tile; n / 2 is a multiple of tile_n.
    block_k: the largest divisor of k / 2 with which a panel takes at most an eighth of L2.
    task_rows (of m / 2) and group (panels): of a task. Both divide what they are parts of. Of the
    sizes with a block of S in half of L2, P in 3/8 of it, and all threads busy, those with which
    the tasks read the fewest bytes: S once for each group, the weights once for each task's rows.
    """
    m, n, k = extents
    lanes = machine.lanes("float32")
    rows, columns, depth = -(-m // 2), n // 2, k // 2
    tile_m, vectors = register_tile(rows, columns // lanes, machine)
    tile_n = vectors * lanes
    panels = columns // tile_n
    share = machine.l2_bytes / _ITEM_BYTES
    block_k = _largest(divisors(depth), share * PANEL_SHARE / tile_n)

    def fits(size: tuple[int, int]) -> bool:
        task_rows, group = size
        few_sums = task_rows * block_k <= share * S_SHARE
        return few_sums and PRODUCTS * task_rows * group * tile_n <= share * P_SHARE

    def busy(size: tuple[int, int]) -> float:
        task_rows, group = size
        return balance(panels // group * (rows // task_rows), machine.num_cores)

    def reads(size: tuple[int, int]) -> float:
        task_rows, group = size
        return 1 / task_rows + 1 / (group * tile_n)

    sizes = list(filter(fits, itertools.product(divisors(rows), divisors(panels)))) or [(1, 1)]
    enough = min(GOOD_BALANCE, max(map(busy, sizes)))
    task_rows, group = min((size for size in sizes if busy(size) >= enough), key=reads)
    tile_m = min(tile_m, task_rows)
    knobs = {
        "lanes": lanes,
        "tile_m": tile_m,
        "tile_n": tile_n,
        "block_k": block_k,
        "group": group,
        "task_rows": task_rows,
    }
    return ConfigEntity({name: option(value) for name, value in knobs.items()})


def register_tile(rows: int, chunks: int, machine: Machine) -> tuple[int, int]:
    """Rows and vectors of the tile with the fewest cycles for all rows.

    Two multiply-adds a cycle. The last tile may have fewer rows, with code of its own.

    Parameters
    ----------
    chunks : int
        Vectors of all columns.
    """
    most = MOST_VECTORS_OF_16 if microkernel.registers_are_scarce(machine) else MOST_VECTORS
    operations = 1 if machine.has_fma else 2

    def cycles(tile_m: int, vectors: int) -> float:
        work = tile_m * vectors * operations / 2
        return max(work, (tile_m + vectors) / LOADS, FMA_LATENCY) + STEP_CYCLES

    def cost(tile: tuple[int, int]) -> float:
        tile_m, vectors = tile
        whole, rest = divmod(rows, tile_m)
        total = whole * cycles(*tile) + (cycles(rest, vectors) if rest else 0)
        return total / vectors

    # A row of the panel and the broadcast element have registers, and so does a product that is
    # no part of a multiply-add.
    return min(
        (
            (tile_m, vectors)
            for vectors in range(most, 0, -1)
            for tile_m in range(min(rows, machine.vector_registers), 0, -1)
            if chunks % vectors == 0
            and (tile_m + 1) * vectors + operations <= machine.vector_registers
        ),
        key=cost,
    )


def _largest(sizes: Sequence[int], most: float) -> int:
    """The largest size of at most `most`; 1 is among them."""
    return max(size for size in sizes if size <= max(most, 1))


def strassen_cost(extents: tuple[int, int, int], machine: Machine) -> float:
    """Estimated floating-point operations for (m, n, k); what else takes time counts as such.

    The products and the elements of S and, once for each block of k, of P, while some threads may
    be idle; or all weights, once for each task of rows, if reading them takes longer.
    """
    m, n, k = extents
    rows = -(-m // 2)
    config = plan(extents, machine)
    blocks, passes = k // 2 // config.val("block_k"), rows // config.val("task_rows")
    tasks = passes * (n // 2 // (config.val("group") * config.val("tile_n")))
    products = 2 * PRODUCTS * rows * (n // 2) * (k // 2)
    transforms = TRANSFORM_FLOPS * PRODUCTS * rows * (n // 2 * blocks + k // 2)
    weights = FLOPS_PER_BYTE * _ITEM_BYTES * PRODUCTS * (n // 2) * (k // 2) * passes
    busy = balance(tasks, machine.num_cores)
    return max((products + transforms * _width(machine)) / busy, weights * _width(machine))


def direct_cost(extents: tuple[int, int, int], machine: Machine) -> float:
    """The same estimate for the direct product, with all rows in one task."""
    m, n, k = extents
    return max(2 * m * n * k, FLOPS_PER_BYTE * _ITEM_BYTES * n * k * _width(machine))


def _width(machine: Machine) -> float:
    """Operations in the time of one element or byte, over those with vectors of 512 bits."""
    return machine.vector_bits / 512


def pays(extents: tuple[int, int, int], machine: Machine, clearly: float = CLEARLY) -> bool:
    """Whether columns and depth are pairs of vectors, and the estimate clearly below the direct."""
    _, n, k = extents
    pair = 2 * machine.lanes("float32")
    if n % pair or k % pair:
        return False
    return strassen_cost(extents, machine) < clearly * direct_cost(extents, machine)


def takes_dense(w: DenseWorkload, target: Target) -> bool:
    """float32, constant weights, where it pays."""
    types = {w.dtype, w.rhs_dtype or w.dtype, w.out_dtype}
    if w.weight is not None or types != {"float32"}:
        return False
    return pays(extents_of(w), Machine.from_target(target))


def takes_conv2d(w: Conv2dWorkload, target: Target) -> bool:
    """1x1 of stride 1, float32, constant weights, where it pays."""
    if not (w.constant_weight and w.is_float and w.dtype == "float32"):
        return False
    if not w.is_pointwise or w.strides != (1, 1) or w.groups > 1:
        return False
    return pays(extents_of(w), Machine.from_target(target), CLEARLY_CONV2D)


register(
    "nn.dense",
    "cpu",
    Implementation(
        DENSE,
        20,
        takes_dense,
        dense_fallback,
        compute_dense,
        DenseWorkload.stored_args,
        pack_weight,
    ),
)
register(
    "nn.conv2d",
    "cpu",
    Implementation(
        CONV2D,
        20,
        takes_conv2d,
        conv2d_fallback,
        compute_conv2d,
        Conv2dWorkload.autotvm_args,
        pack_filters,
    ),
)
register_anchor_rule(DENSE, Strassen(is_blocked=False))
register_anchor_rule(CONV2D, Strassen(is_blocked=True))
