"""Winograd convolution on blocked layouts (NCHW[x]c) for x86, along one axis or both.

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015): with
alpha = m + r - 1, each alpha x alpha patch of the input gives an m x m tile of the output of a
filter of r x r taps, F(m x m, r x r):

    U = G g G'        weights, at build time
    V = B' d B        patches of the padded input
    M = sum over input channels of U * V      alpha^2 matrix products
    out = A' M A

Along an axis of one tap, as both of 1x7 and 7x1 have one, tiles have one output and one point, and
the matrices of that axis are 1. `winograd_rules` says which convolutions and tiles these are.

Convolutions of bfloat16 are transformed in float32; U and V are rounded to bfloat16, whose products
are summed in float32 (`dots`).

Those of bytes are exact. U and V are whole numbers of 16 bits, by matrices that are multiplied by
their denominators, and so are the results, which are sums of products times a `unit`, 24 x 24 with
F(4x4, 3x3). All of that is right modulo 2^32: a product by the inverse of 9 there leaves 64 times
the sums, of which a shift leaves the sums, if 26 bits hold them (`winograd_rules`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import DataType, s_tir, te, tirx
from tvm.target import Target

from ...anchor import (
    AnchorRule,
    find_anchor,
    inline_around,
    register_anchor_rule,
    sblocks,
    with_narrow_indices,
)
from ...config import ConfigEntity
from ...conv2d import Conv2dWorkload
from ...strategy import anchor_attrs
from ...winograd import Matrix, algorithm, integer_matrices, times, transform_matrices, unit
from ..machine import sum_blocks
from ..machine.dot_product import OF_BFLOAT16, OF_BYTES, OF_WORDS, accumulate, dot_of
from ..machine.prefetch import stream_panels

NAME, OF_SHORT = "conv2d_winograd.x86", f"conv2d_winograd_{OF_BFLOAT16.name}.x86"
OF_INTEGERS = f"conv2d_winograd_{OF_BYTES.name}.x86"
NAMES = {"float32": NAME, OF_BFLOAT16.data: OF_SHORT, OF_WORDS.data: OF_INTEGERS}
"""Implementation names by operand dtype of the matmuls."""

# Elements from one position of V or M to the next are a multiple of `APART` and one cache line: a
# transform has all positions of a tile in hand, which a power of two would put into one cache set.
APART, LINE = 64, 16
STAGES = ("data_pad", "winograd_rows", "winograd_V", "winograd_M", "winograd_columns", "winograd_O")


# --- compute -----------------------------------------------------------------------------


def tile_of(kernel: Sequence[int], m: int) -> tuple[int, int]:
    """Rows and columns of a tile of the output: m along an axis of several taps."""
    down, across = (m if taps > 1 else 1 for taps in kernel)
    return down, across


def points_of(w: Conv2dWorkload, m: int) -> tuple[int, int]:
    """Number of points along each axis, equal to the input extent of a tile."""
    down, across = (size + taps - 1 for size, taps in zip(tile_of(w.kernel, m), w.kernel))
    return down, across


def grid(w: Conv2dWorkload, m: int) -> tuple[int, int]:
    """Rows and columns of tiles."""
    down, across = tile_of(w.kernel, m)
    return -(-w.out_height // down), -(-w.out_width // across)


def pack_weight(_: Any, weight: np.ndarray, config: ConfigEntity, ic_block: int) -> np.ndarray:
    """OIHW -> (points, O/oc_tile, I, oc_tile), transformed in float64; constants only.

    Of bfloat16 and int16, which int8 becomes, (points, O/oc_tile, I/2, oc_tile, 2).
    """
    m, oc_tile = config.val("m"), config.val("oc_tile")
    o, i, *kernel = weight.shape
    is_integer = weight.dtype == OF_BYTES.weight
    matrices = integer_matrices if is_integer else transform_matrices
    sizes = zip(tile_of(kernel, m), kernel, strict=True)
    rows, columns = (matrices(size, taps)[2] for size, taps in sizes)
    both_sides = np.kron(rows, columns)  # (points, taps): G g G' as one product
    g = weight.reshape(o // oc_tile, oc_tile, i, -1).transpose(3, 0, 2, 1)
    g = np.ascontiguousarray(g, "float64").reshape(-1, o * i)
    dtype = OF_WORDS.weight if is_integer else weight.dtype
    u = (both_sides @ g).astype(dtype).reshape(-1, o // oc_tile, i, oc_tile)
    dot = OF_WORDS if is_integer else dot_of(weight.dtype.name, "", "float32")
    if dot is None:
        return u
    pairs = u.reshape(-1, o // oc_tile, i // dot.size, dot.size, oc_tile)
    return np.ascontiguousarray(pairs.swapaxes(-1, -2))


def compute(w: Conv2dWorkload, config: ConfigEntity, data: Any, weight: Any) -> Any:
    """data (N, IC/b, H, W, b), packed weight -> (N, OC/b, OH, OW, b); `w` is int16 for bytes."""
    m, block, oc_tile = config.val("m"), int(data.shape[4]), int(weight.shape[3])
    together = [int(extent) for extent in weight.shape[4:]]
    (down, across), (high, wide) = tile_of(w.kernel, m), points_of(w, m)
    matrices = integer_matrices if w.is_integer else transform_matrices
    sizes = list(zip((down, across), w.kernel))
    down_matrices, across_matrices = (matrices(size, taps) for size, taps in sizes)
    rows, columns = grid(w, m)
    # Whole register tiles and groups: a guard in the inner loop would cost more than zeros.
    if group_columns(config) or not config.val("flat", False):
        columns += -columns % (group_columns(config) or config.val("tile_columns"))
    tiles = rows, columns
    v = transformed_input(
        w, data, (down_matrices[1], across_matrices[1]), (down, across), tiles, block
    )
    k = te.reduce_axis((0, int(weight.shape[2])), "k")
    part = [te.reduce_axis((0, extent), "part") for extent in together]
    of_block = block // math.prod(together)

    def multiplied(n: Any, a: Any, b: Any, r: Any, t: Any, o: Any) -> Any:
        lane = k % of_block * together[0] + part[0] if part else k % of_block
        value = v[n, a, b, r, t, k // of_block, lane].astype(w.out_dtype)
        place = (a * wide + b, o // oc_tile, k, o % oc_tile, *part)
        return te.sum(value * weight[place].astype(w.out_dtype), axis=[k, *part])

    product = te.compute(
        (w.batch, high, wide, rows, columns, w.out_channels),
        multiplied,
        name="winograd_M",
        attrs=anchor_attrs(NAMES[w.dtype], config, algorithm((down, across), w.kernel)),
    )
    back = (down_matrices[0], across_matrices[0])
    units = math.prod(unit(*size) for size in sizes) if w.is_integer else 1
    return transformed_output(w, lambda *index: product(*index), back, tiles, block, units)


def transformed_input(
    w: Conv2dWorkload,
    data: te.Tensor,
    matrices: tuple[Matrix, Matrix],
    steps: tuple[int, int],
    tiles: tuple[int, int],
    block: int,
) -> te.Tensor:
    """V of a blocked input: (n, points, points, rows, columns of tiles, blocks of channels, block).

    `matrices`: for rows and columns, (points, inputs of a tile) each.
    `steps`: inputs from one tile to the next.
    """
    (rows, columns), (down, across), chunks = tiles, steps, w.in_channels // block
    (high, wide), (of_rows, of_columns) = map(len, matrices), matrices
    dtype = w.dtype if w.is_integer else w.out_dtype
    padded = te.compute(
        (w.batch, chunks, rows * down + high - down, columns * across + wide - across, block),
        lambda n, c, y, x, i: or_zero(w, y, x, lambda y, x: data[n, c, y, x, i]),
        name="data_pad",
    )
    half = te.compute(
        (w.batch, rows, columns, chunks, high, wide, block),
        lambda n, r, t, c, a, x, i: times(
            of_rows, a, lambda y: padded[n, c, r * down + y, t * across + x, i].astype(dtype)
        ),
        name="winograd_rows",
    )
    return te.compute(
        (w.batch, high, wide, rows, columns, chunks, block),
        lambda n, a, b, r, t, c, i: times(
            of_columns, b, lambda x: half(n, r, t, c, a, x, i)
        ).astype(w.dtype),
        name="winograd_V",
    )


def or_zero(w: Conv2dWorkload, y: Any, x: Any, read: Callable[[Any, Any], Any]) -> Any:
    """An element of the padded input, which for integers is padded with their zero point."""
    top, left, _, _ = w.padding
    inside = tirx.all(y >= top, y < w.height + top, x >= left, x < w.width + left)
    beyond = tirx.const(w.pad_value, OF_BYTES.data if w.is_integer else w.dtype)
    return tirx.if_then_else(inside, read(y - top, x - left), beyond)


def transformed_output(
    w: Conv2dWorkload,
    read: Callable[..., Any],
    matrices: tuple[Matrix, Matrix],
    tiles: tuple[int, int],
    block: int,
    units: int = 1,
) -> te.Tensor:
    """The result (n, blocks of channels, h, w, block) of the products.

    `matrices`: for rows and columns, (outputs of a tile, points) each.
    `units`: by how much integers are more than the result, modulo 2^32.
    """
    of_rows, of_columns = matrices
    down, across, wide = len(of_rows), len(of_columns), len(of_columns[0])
    shape = (w.batch, *tiles, w.out_channels // block)
    columns_done = te.compute(
        (*shape, down, wide, block),
        lambda n, r, t, c, y, b, i: times(of_rows, y, lambda a: read(n, a, b, r, t, c * block + i)),
        name="winograd_columns",
    )
    done = te.compute(
        (*shape, down, across, block),
        lambda n, r, t, c, y, x, i: times(
            of_columns, x, lambda b: columns_done(n, r, t, c, y, b, i)
        ),
        name="winograd_O",
    )
    return te.compute(
        (w.batch, shape[3], w.out_height, w.out_width, block),
        lambda n, c, h, x, i: over(
            units, done[n, h // down, x // across, c, h % down, x % across, i]
        ),
        name="winograd_out",
    )


def over(units: int, total: Any) -> Any:
    """An int32 that is right modulo 2^32, over a number that divides it without a rest."""
    if units == 1:
        return total
    twos = (units & -units).bit_length() - 1
    inverse = pow(units >> twos, -1, 1 << 32)
    signed = inverse - ((inverse >> 31) << 32)
    return (total if signed == 1 else total * tirx.const(signed, "int32")) >> twos


# --- schedule ----------------------------------------------------------------------------


class Winograd(AnchorRule):
    """Schedule a fused function whose anchor is a Winograd convolution.

    rows outside (few channels):           channels outside (many):

        parallel n, row_group, column_group    parallel n, ic_chunk, row: V of each tile
          pad the rows of the group            parallel n, oc_group (and row_group)
          V of the group                         M of the group's channels
          M of the group                         O and epilogue, tile by tile
          O and epilogue, tile by tile
    """

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        if config.val("flat", False):
            sch = s_tir.Schedule(with_narrow_indices(sch.mod["main"]))
            anchor = find_anchor(sch)
        out = inline_around(sch, anchor, keep=STAGES)
        stages = [sblocks(sch)[name] for name in STAGES]
        pad, half, v, product, columns_done, tiles = stages

        if config.val("flat", False):
            for block in (v, product):
                keep_positions_apart(sch, block)
        down, across, _ = (int(sch.get(loop).extent) for loop in sch.get_loops(tiles)[-3:])
        group = self._output(sch, out, (down, across), config)
        compute_in_tile(sch, tiles, out)
        compute_in_tile(sch, columns_done, tiles)

        sch.compute_at(product, group, preserve_unit_loops=True)
        steps, lane = self._product(sch, product, config)

        if config.val("channels_outer"):
            n, a, b, r, t, c, i = sch.get_loops(v)
            sch.reorder(n, c, r, t, a, b, i)
            sch.parallel(sch.fuse(n, c, r))
        else:
            sch.compute_at(v, group, preserve_unit_loops=True)
            a, b, r, t, c, i = sch.get_loops(v)[-6:]
            sch.reorder(c, r, t, a, b, i)
        unroll_tile(sch, v)
        compute_in_tile(sch, half, v)

        if config.val("channels_outer"):
            *outer, _, channel = sch.get_loops(pad)
            sch.parallel(sch.fuse(*outer))
        else:
            sch.compute_at(pad, group, preserve_unit_loops=True)
            channel = sch.get_loops(pad)[-1]
        sch.vectorize(channel)
        if str(sch.get(v).writes[0].source.dtype) in (OF_BFLOAT16.data, OF_WORDS.data):
            accumulate(sch, product, steps, target)
        else:
            sch.vectorize(lane)
            points = math.prod(map(int, sch.get(product).writes[0].source.shape[1:3]))
            sum_blocks.mark(sch, steps, points)
            sch.decompose_reduction(product, steps)
        return sch

    @staticmethod
    def _output(sch: Any, out: Any, tile_size: tuple[int, int], config: ConfigEntity) -> Any:
        """Tile the output block; returns the loop under which one group is computed."""
        n, c, h, w, lane = sch.get_loops(out)
        row, y = sch.split(h, [None, tile_size[0]])
        tile, x = sch.split(w, [None, tile_size[1]])
        if config.val("channels_outer"):
            oc_group, c = sch.split(c, [None, config.val("oc_group")])
            tasks = [n, oc_group]
            if config.val("split_rows", False):
                row_group, row = sch.split(row, [None, config.val("rows")])
                tasks.append(row_group)
            sch.reorder(*tasks, row, tile, c, y, x, lane)
            group = sch.fuse(*tasks)
        else:
            row_group, row = sch.split(row, [None, config.val("rows")])
            if group_columns(config):
                column_group, tile = sch.split(tile, [None, group_columns(config)])
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
    def _product(sch: Any, product: Any, config: ConfigEntity) -> tuple[Any, Any]:
        """a, b, oc_tile, tiles: registers [tile_rows x tile_columns, oc_tile].

        Flat: [tile_columns, oc_tile], tiles in memory order; a smaller last tile gets separate
        code. Returns the outermost loop of the reduction, and the one over lanes.
        """
        weights = sch.get(product).reads[1].source
        of_step = [int(extent) for extent in weights.shape[3:]]
        a, b, r, t, o, k, *part = sch.get_loops(product)[-5 - len(of_step) :]
        extent = int(sch.get(k).extent)
        if config.val("flat", False):
            size = config.val("tile_columns")
            if part:
                outer, inner = _split_whole(sch, r, t, size)
            else:
                outer, inner = split_in_order_of_memory(sch, [r, t], size)
        else:
            row, row_inner = sch.split(r, [None, config.val("tile_rows")])
            tile, tile_inner = sch.split(t, [None, config.val("tile_columns")])
            outer, inner = [row, tile], [row_inner, tile_inner]
        oc, oc_inner = sch.split(o, [None, config.val("oc_tile")])
        vector, lane = sch.split(oc_inner, [None, config.val("oc_block")])
        unrolled = [*inner, vector]
        if config.val("flat", False) and config.val("oc_tile") // config.val("oc_block") > size:
            unrolled = [vector, *inner]
        steps = [k]
        if config.val("flat", False):  # one prefetch per oc_block steps
            steps = list(sch.split(k, [None, config.val("oc_block")]))
        sch.reorder(a, b, oc, *outer, *steps, *unrolled, lane, *part)
        for loop in unrolled:
            sch.unroll(loop)
        rows = [(loop, int(sch.get(loop).extent)) for loop in outer]
        stride = math.prod(of_step) * DataType(str(weights.dtype)).itemsize
        stream_panels(sch, rows, steps, extent * stride, stride)
        return steps[0], lane


def unroll_tile(sch: Any, block: Any) -> None:
    """Unroll the loops over the positions of a tile, channels being lanes."""
    y, x, lane = sch.get_loops(block)[-3:]
    sch.unroll(y)
    sch.unroll(x)
    sch.vectorize(lane)


def compute_in_tile(sch: Any, block: Any, reader: Any) -> None:
    """Compute a block at its reader's loop over one tile and channel block."""
    sch.compute_at(block, sch.get_loops(reader)[-4], preserve_unit_loops=True)
    unroll_tile(sch, block)


def split_in_order_of_memory(sch: Any, loops: Any, size: int) -> tuple[list[Any], list[Any]]:
    """Loops over register tiles of the fused loops, and inside; a smaller last one has own code."""
    flat = sch.fuse(*loops)
    is_ragged = int(sch.get(flat).extent) % size > 0
    tile, inner = sch.split(flat, [None, size])
    if is_ragged:
        sch.annotate(tile, "pragma_loop_partition_hint", 1)
    return [tile], [inner]


def _split_whole(sch: Any, r: Any, t: Any, size: int) -> tuple[list[Any], list[Any]]:
    """As `split_in_order_of_memory`, of whole register tiles, in rows or of several rows."""
    columns = int(sch.get(t).extent)
    if columns % size == 0:
        tile, inner = sch.split(t, [None, size])
        return [r, tile], [inner]
    tile, rows = sch.split(r, [None, size // columns])
    return [tile], [rows, t]


def keep_positions_apart(sch: Any, block: Any) -> None:
    """Let the positions of a tile, dimensions 1 and 2 of V or M, lie in different cache sets."""
    sch.storage_align(block, 0, 2, APART, LINE)


def group_columns(config: ConfigEntity) -> int:
    """Columns of tiles of a group; 0 for all. Older records lack one knob or both."""
    narrow = config.val("tile_columns") if config.val("split_columns", False) else 0
    return int(config.val("group_columns", 0) or narrow)


for _name in NAMES.values():
    register_anchor_rule(_name, Winograd())
