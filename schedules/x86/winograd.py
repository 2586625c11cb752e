"""Winograd convolution F(m x m, 3x3) on blocked layouts (NCHW[x]c) for x86, m = 2 or 4.

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015): with
alpha = m + 2, each alpha x alpha patch of the input gives an m x m tile of the output:

    U = G g G'        weights, at build time
    V = B' d B        patches of the padded input
    M = sum over input channels of U * V      alpha^2 matrix products
    out = A' M A
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from tvm import s_tir, te, tirx
from tvm.target import Target

from ..anchor import anchor_config, find_anchor, inline_around, sblocks
from ..config import ConfigEntity, option
from ..conv2d import Conv2dWorkload
from ..rules import register_anchor_rule
from ..strategy import Implementation, anchor_attrs, register
from ..winograd import combine, select
from .conv2d import is_flat, with_narrow_indices
from .machine import Machine
from .prefetch import stream_panels
from .register_tile import best_tile, register_tile, tile_pixels

NAME = "conv2d_winograd.x86"

# Cost rule, for vectors of 512 bits; with narrower ones a byte takes the time of fewer flops. One
# byte of weights takes the time of so many flops (a network's weights do not stay in cache from one
# inference to the next, and prefetch hides part of the latency),
FLOPS_PER_BYTE = 8
# one that is read again and again takes less, depending on the cache that has room for it,
L2_FLOPS_PER_BYTE, L3_FLOPS_PER_BYTE = 1, 3
# transforming one element of V or M takes the time of so many,
TRANSFORM_FLOPS = 12
# and Winograd must be estimated below this share of the direct convolution.
CLEARLY = 0.9
# With rows outside the transformed weights are read again for each group of rows; that is cheaper
# than V in memory while they fill no more than so many L2 caches.
ROWS_OUTSIDE_L2S = 3
# With 16 registers, V of an image goes through L3 while it fills no more than so many L2 caches.
V_L2S = 2
# V is read again for each group of output channels, so there are no more than needed.
LEAST_OC_GROUPS = 4

_A: dict[int, list[list[float]]] = {
    2: [[1, 1, 1, 0], [0, 1, -1, -1]],
    4: [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
}
_B: dict[int, list[list[float]]] = {
    2: [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
    4: [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ],
}
_G: dict[int, list[list[float]]] = {
    2: [[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]],
    4: [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ],
}
_ITEM_BYTES = 4  # float32 alone
# Elements from one position of V or M to the next are a multiple of `APART` and one cache line: a
# transform has all positions of a tile in hand, which a power of two would put into one cache set.
APART, LINE = 64, 16
STAGES = ("data_pad", "winograd_rows", "winograd_V", "winograd_M", "winograd_columns", "winograd_O")


# --- compute -----------------------------------------------------------------------------


def pack_weight(_: Any, weight: np.ndarray, config: ConfigEntity, ic_block: int) -> np.ndarray:
    """OIHW -> (alpha^2, O/oc_tile, I, oc_tile), transformed in float64; constants only."""
    m, oc_tile = config.val("m"), config.val("oc_tile")
    o, i = weight.shape[:2]
    both_sides = np.kron(_G[m], _G[m])  # (alpha^2, 9): G g G' as one product
    g = weight.reshape(o // oc_tile, oc_tile, i, 9).transpose(3, 0, 2, 1)
    g = np.ascontiguousarray(g, "float64").reshape(9, o * i)
    return (both_sides @ g).astype(weight.dtype).reshape(-1, o // oc_tile, i, oc_tile)


def compute(w: Conv2dWorkload, config: ConfigEntity, data: Any, weight: Any) -> Any:
    """data (N, IC/b, H, W, b), weight as packed -> (N, OC/b, OH, OW, b)."""
    m, block = config.val("m"), int(data.shape[4])
    alpha, oc_tile = m + 2, int(weight.shape[3])
    rows, columns = -(-w.out_height // m), -(-w.out_width // m)
    if not is_flat(config):
        # Whole register tiles, as a guard in the inner loop would cost more than their zeros.
        columns += -columns % config.val("tile_columns")
    top, left, _, _ = w.padding
    n, ic_chunks = w.batch, w.in_channels // block
    oc_chunks = w.out_channels // block

    padded = te.compute(
        (n, ic_chunks, rows * m + 2, columns * m + 2, block),
        lambda n, c, y, x, i: tirx.if_then_else(
            tirx.all(y >= top, y < w.height + top, x >= left, x < w.width + left),
            data[n, c, y - top, x - left, i],
            tirx.const(0, w.dtype),
        ),
        name="data_pad",
    )
    half = te.compute(
        (n, rows, columns, ic_chunks, alpha, alpha, block),
        lambda n, r, t, c, a, x, i: select(
            a,
            [combine(row, lambda y: padded[n, c, r * m + y, t * m + x, i]) for row in _B[m]],
        ),
        name="winograd_rows",
    )
    v = te.compute(
        (n, alpha, alpha, rows, columns, ic_chunks, block),
        lambda n, a, b, r, t, c, i: select(
            b, [combine(row, lambda x: half[n, r, t, c, a, x, i]) for row in _B[m]]
        ),
        name="winograd_V",
    )
    k = te.reduce_axis((0, w.in_channels), "k")
    product = te.compute(
        (n, alpha, alpha, rows, columns, w.out_channels),
        lambda n, a, b, r, t, o: te.sum(
            v[n, a, b, r, t, k // block, k % block]
            * weight[a * alpha + b, o // oc_tile, k, o % oc_tile],
            axis=[k],
        ),
        name="winograd_M",
        attrs=anchor_attrs(NAME, config),
    )
    columns_done = te.compute(
        (n, rows, columns, oc_chunks, m, alpha, block),
        lambda n, r, t, c, y, b, i: select(
            y, [combine(row, lambda a: product[n, a, b, r, t, c * block + i]) for row in _A[m]]
        ),
        name="winograd_columns",
    )
    tiles = te.compute(
        (n, rows, columns, oc_chunks, m, m, block),
        lambda n, r, t, c, y, x, i: select(
            x, [combine(row, lambda b: columns_done[n, r, t, c, y, b, i]) for row in _A[m]]
        ),
        name="winograd_O",
    )
    return te.compute(
        (n, oc_chunks, w.out_height, w.out_width, block),
        lambda n, c, h, x, i: tiles[n, h // m, x // m, c, h % m, x % m, i],
        name="winograd_out",
    )


# --- schedule ----------------------------------------------------------------------------


class Winograd(s_tir.dlight.ScheduleRule):
    """Takes a fused function whose anchor is a Winograd convolution.

    rows outside (few channels):           channels outside (many):

        parallel n, row_group, column_group    parallel n, ic_chunk, row: V of each tile
          pad the rows of the group            parallel n, oc_group
          V of the group                         M of the group's channels
          M of the group                         O and epilogue, tile by tile
          O and epilogue, tile by tile
    """

    def apply(self, func: tirx.PrimFunc, target: Target, tunable: bool) -> s_tir.Schedule | None:
        sch = s_tir.Schedule(func)
        anchor = find_anchor(sch)
        if anchor is None:
            return None
        config = anchor_config(sch, anchor)
        if is_flat(config):
            sch = s_tir.Schedule(with_narrow_indices(func))
            anchor = find_anchor(sch)
        out = inline_around(sch, anchor, keep=STAGES)
        stages = [sblocks(sch)[name] for name in STAGES]
        pad, half, v, product, columns_done, tiles = stages

        if is_flat(config):
            for block in (v, product):
                keep_positions_apart(sch, block)
        group = self._output(sch, out, config)
        sch.compute_at(tiles, sch.get_loops(out)[-4], preserve_unit_loops=True)
        self._unroll_tile(sch, tiles)
        sch.compute_at(columns_done, sch.get_loops(tiles)[-4], preserve_unit_loops=True)
        self._unroll_tile(sch, columns_done)

        sch.compute_at(product, group, preserve_unit_loops=True)
        self._product(sch, product, config)

        if config.val("channels_outer"):
            n, a, b, r, t, c, i = sch.get_loops(v)
            sch.reorder(n, c, r, t, a, b, i)
            sch.parallel(sch.fuse(n, c, r))
        else:
            sch.compute_at(v, group, preserve_unit_loops=True)
            a, b, r, t, c, i = sch.get_loops(v)[-6:]
            sch.reorder(c, r, t, a, b, i)
        self._unroll_tile(sch, v)
        sch.compute_at(half, sch.get_loops(v)[-4], preserve_unit_loops=True)
        self._unroll_tile(sch, half)

        if config.val("channels_outer"):
            *outer, _, lane = sch.get_loops(pad)
            sch.parallel(sch.fuse(*outer))
        else:
            sch.compute_at(pad, group, preserve_unit_loops=True)
            lane = sch.get_loops(pad)[-1]
        sch.vectorize(lane)
        return sch

    @staticmethod
    def _output(sch: Any, out: Any, config: ConfigEntity) -> Any:
        """Tile the output block; returns the loop under which one group is computed."""
        m = config.val("m")
        n, c, h, w, lane = sch.get_loops(out)
        row, y = sch.split(h, [None, m])
        tile, x = sch.split(w, [None, m])
        if config.val("channels_outer"):
            oc_group, c = sch.split(c, [None, config.val("oc_group")])
            sch.reorder(n, oc_group, row, tile, c, y, x, lane)
            group = sch.fuse(n, oc_group)
        else:
            row_group, row = sch.split(row, [None, config.val("rows")])
            if splits_columns(config):
                column_group, tile = sch.split(tile, [None, config.val("tile_columns")])
                sch.reorder(n, row_group, column_group, row, tile, c, y, x, lane)
                group = sch.fuse(n, row_group, column_group)
            else:
                sch.reorder(n, row_group, row, tile, c, y, x, lane)
                group = sch.fuse(n, row_group)
        sch.parallel(group)
        sch.vectorize(lane)
        sch.unroll(x)
        sch.unroll(y)
        return group

    @staticmethod
    def _unroll_tile(sch: Any, block: Any) -> None:
        y, x, lane = sch.get_loops(block)[-3:]
        sch.unroll(y)
        sch.unroll(x)
        sch.vectorize(lane)

    @staticmethod
    def _product(sch: Any, product: Any, config: ConfigEntity) -> None:
        """a, b, oc_tile, tiles: registers [tile_rows x tile_columns, oc_tile].

        Flat: [tile_columns, oc_tile], tiles in the order of memory; a last tile that is smaller
        has code of its own.
        """
        a, b, r, t, o, k = sch.get_loops(product)[-6:]
        extent = int(sch.get(k).extent)
        if is_flat(config):
            flat = sch.fuse(r, t)
            size = config.val("tile_columns")
            is_ragged = int(sch.get(flat).extent) % size > 0
            tile, tile_inner = sch.split(flat, [None, size])
            if is_ragged:
                sch.annotate(tile, "pragma_loop_partition_hint", 1)
            outer, inner = [tile], [tile_inner]
        else:
            row, row_inner = sch.split(r, [None, config.val("tile_rows")])
            tile, tile_inner = sch.split(t, [None, config.val("tile_columns")])
            outer, inner = [row, tile], [row_inner, tile_inner]
        oc, oc_inner = sch.split(o, [None, config.val("oc_tile")])
        vector, lane = sch.split(oc_inner, [None, config.val("oc_block")])
        unrolled = [*inner, vector]
        if is_flat(config) and config.val("oc_tile") // config.val("oc_block") > size:
            unrolled = [vector, *inner]
        steps = [k]
        if is_flat(config):  # one prefetch for so many steps
            steps = list(sch.split(k, [None, config.val("oc_block")]))
        sch.reorder(a, b, oc, *outer, *steps, *unrolled, lane)
        for loop in unrolled:
            sch.unroll(loop)
        sch.vectorize(lane)
        rows = [(loop, int(sch.get(loop).extent)) for loop in outer]
        stride = config.val("oc_tile") * _ITEM_BYTES
        stream_panels(sch, rows, steps, extent * stride, stride)
        sch.decompose_reduction(product, steps[0])


def keep_positions_apart(sch: Any, block: Any) -> None:
    """Let the positions of a tile, dimensions 1 and 2 of V or M, lie in different cache sets."""
    sch.storage_align(block, 0, 2, APART, LINE)


# --- fallback ----------------------------------------------------------------------------


def fallback(w: Conv2dWorkload, target: Target) -> ConfigEntity:
    """Tile size, loop order and register tile by shape.

    Rows go outside while the transformed weights are few L2 caches large; V and M of one group
    of rows then share L2. Otherwise channels go outside and the weights are read once.
    """
    machine = Machine.from_target(target)
    block = machine.lanes(w.dtype)
    m = min((2, 4), key=lambda m: winograd_cost(w, m, machine))
    if machine.vector_registers <= 16:
        return flat_fallback(w, m, machine)
    rows, columns = -(-w.out_height // m), -(-w.out_width // m)
    chunks = w.out_channels // block
    vectors = 2 if chunks % 2 == 0 else 1
    pixels = tile_pixels(machine, vectors)
    tile_columns = best_tile(columns, pixels)
    tile_rows = 1
    if tile_columns == columns:
        tile_rows = max(r for r in range(1, rows + 1) if rows % r == 0 and r * columns <= pixels)

    is_ragged = columns % tile_columns > 0
    columns += -columns % tile_columns
    per_pair = 2 * (m + 2) ** 2  # operations for a tile and a pair of channels
    weight_bytes = 4 * (m + 2) ** 2 * w.in_channels * w.out_channels
    row_bytes = 4 * (m + 2) ** 2 * columns * (w.in_channels + w.out_channels)
    # Groups of one register tile: where V and M of a row fill more than half of L2, unless the
    # weights would then come from L3 for each group; and where the last tile of a row is not
    # whole, since the guard that a longer group needs in the inner loop costs more.
    is_wide = row_bytes > machine.l2_bytes // 2 and weight_bytes <= machine.l2_bytes
    most = min(max(machine.l2_bytes // 2 // row_bytes, tile_rows), rows)
    group = balanced_group(
        rows,
        range(tile_rows, most + 1, tile_rows),
        per_pair * columns * w.in_channels * w.out_channels,
        weight_bytes,
        machine,
    )
    most = max(chunks // max(LEAST_OC_GROUPS, machine.num_cores), vectors)
    oc_group = balanced_group(
        chunks,
        [size for size in range(vectors, most + 1, vectors) if chunks % size == 0],
        per_pair * rows * columns * w.in_channels * block,
        4 * (m + 2) ** 2 * rows * columns * w.in_channels,
        machine,
    )
    return ConfigEntity(
        {
            "m": option(m),
            "oc_block": option(block),
            "oc_tile": option(vectors * block),
            "rows": option(group),
            "tile_rows": option(tile_rows),
            "tile_columns": option(tile_columns),
            "oc_group": option(oc_group),
            "channels_outer": option(weight_bytes > ROWS_OUTSIDE_L2S * machine.l2_bytes),
            "split_columns": option(is_wide or is_ragged),
            "flat": option(False),
        }
    )


def flat_fallback(w: Conv2dWorkload, m: int, machine: Machine) -> ConfigEntity:
    """Register tiles that run on from row to row: 16 registers hold six tiles, seldom a row.

    A group is one row of tiles where V of the whole image is too large to go through L3: M and V
    of a row stay near, and the weights, which each row reads again, are prefetched. Otherwise it
    is so many output channels that M of all tiles fits L2.
    """
    block = machine.lanes(w.dtype)
    chunks = w.out_channels // block
    rows, columns = -(-w.out_height // m), -(-w.out_width // m)
    tile_bytes = _ITEM_BYTES * (m + 2) ** 2
    v_bytes = tile_bytes * rows * columns * w.in_channels
    weight_bytes = tile_bytes * w.in_channels * w.out_channels
    channels_outer = v_bytes < max(V_L2S * machine.l2_bytes, weight_bytes // 2)
    tiles = rows * columns if channels_outer else columns
    tile_columns, vectors = register_tile(tiles, chunks, machine, most_vectors=2)
    m_bytes = tile_bytes * rows * columns * block
    sizes = [n for n in range(vectors, chunks + 1, vectors) if chunks % n == 0]
    small = [
        n for n in sizes if n * m_bytes <= machine.l2_bytes and n * machine.num_cores <= chunks
    ]
    return ConfigEntity(
        {
            "m": option(m),
            "oc_block": option(block),
            "oc_tile": option(vectors * block),
            "rows": option(1),
            "tile_rows": option(1),
            "tile_columns": option(tile_columns),
            "oc_group": option(max(small, default=sizes[0])),
            "channels_outer": option(channels_outer),
            "split_columns": option(False),
            "flat": option(True),
        }
    )


def splits_columns(config: ConfigEntity) -> bool:
    """Whether a group is one register tile wide; older records have no such knob."""
    return "split_columns" in config and bool(config.val("split_columns"))


def balanced_group(
    extent: int, sizes: Iterable[int], flops: int, shared_bytes: int, machine: Machine
) -> int:
    """The size of groups of `extent` with which the busiest core is done first.

    Seven groups of two rows are eight rows for one of two cores, fourteen groups of one row are
    seven; but each group reads again what all of them share.

    Parameters
    ----------
    flops : int
        Operations for one of `extent`.
    shared_bytes : int
        What every group reads: from L2 where half of it has room for that, else from L3.
    """
    rate = L2_FLOPS_PER_BYTE if shared_bytes <= machine.l2_bytes // 2 else L3_FLOPS_PER_BYTE

    def busiest(size: int) -> float:
        groups = -(-extent // size)
        return -(-groups // machine.num_cores) * (size * flops + rate * shared_bytes)

    return min(sizes, key=lambda size: (busiest(size), -size))


def winograd_cost(w: Conv2dWorkload, m: int, machine: Machine) -> float:
    """Estimated floating-point operations; what is read or transformed counts as operations.

    The products of all tiles, covered completely; the transformed weights, each read once; and the
    transforms of V and M.
    """
    alpha_squared = (m + 2) ** 2
    tiles = w.batch * -(-w.out_height // m) * -(-w.out_width // m)
    channels = w.in_channels * w.out_channels
    products = 2 * tiles * alpha_squared * channels
    transforms = TRANSFORM_FLOPS * tiles * alpha_squared * (w.in_channels + w.out_channels)
    return products + transforms + weights_cost(4 * alpha_squared * channels, machine)


def direct_cost(w: Conv2dWorkload, machine: Machine) -> float:
    """The same estimate for the direct convolution."""
    channels = w.in_channels * w.out_channels * w.kernel[0] * w.kernel[1]
    macs = w.batch * w.out_height * w.out_width * channels
    return 2 * macs + weights_cost(4 * channels, machine)


def weights_cost(size: int, machine: Machine) -> float:
    """What reading so many bytes of weights from memory costs, in operations."""
    return size * FLOPS_PER_BYTE * machine.vector_bits / 512


def takes(w: Conv2dWorkload, target: Target) -> bool:
    """3x3, stride 1, float32, full convolutions on whole channel blocks, constant weights,
    where the estimate is clearly below the direct convolution's."""
    machine = Machine.from_target(target)
    lanes = machine.lanes(w.dtype)
    return (
        w.constant_weight
        and w.is_float
        and w.dtype == "float32"
        and w.groups == 1
        and w.kernel == (3, 3)
        and w.strides == w.dilation == (1, 1)
        and w.in_channels % lanes == 0
        and w.out_channels % lanes == 0
        and min(winograd_cost(w, m, machine) for m in (2, 4)) < CLEARLY * direct_cost(w, machine)
    )


register(
    "nn.conv2d",
    "cpu",
    Implementation(NAME, 20, takes, fallback, compute, Conv2dWorkload.autotvm_args, pack_weight),
)
register_anchor_rule(NAME, Winograd())
