"""Which convolutions are Winograd ones (`winograd`), and with which knobs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from tvm import DataType
from tvm.target import Target

from ...config import ConfigEntity, option
from ...conv2d import Conv2dWorkload
from ...strategy import Implementation, implementations, register
from ...winograd import MOST_WHOLE_POINTS, integer_matrices, unit
from ..machine.cpu import Machine
from ..machine.dot_product import (
    OF_BFLOAT16,
    OF_BYTES,
    OF_WORDS,
    WIDENED,
    dot_of,
    knobs,
    machine_of,
)
from ..machine.microkernel import registers_are_scarce
from ..matmul.matmul_rules import GOOD_BALANCE
from .register_tile import best_tile, macs_per_cycle, register_tile, tile_pixels
from .winograd import NAME, OF_INTEGERS, OF_SHORT, compute, grid, pack_weight, points_of, tile_of

# A byte that groups of tiles read again and again takes the time of so many flops, depending on the
# cache that has room for it.
L2_FLOPS_PER_BYTE, L3_FLOPS_PER_BYTE = 1, 3
# Transforming a vector of V or M takes the time of so many operations on vectors.
TRANSFORM_OPERATIONS = 6
# With rows outside the transformed weights are read again for each group of rows; that is cheaper
# than V in memory while they fill no more than so many L2 caches.
ROWS_OUTSIDE_L2S = 3
# With 16 registers, V of an image goes through L3 while it fills no more than so many L2 caches; a
# row's V and M of integers gain less from being near.
V_L2S, V_L2S_OF_INTEGERS = 2, 4
# Groups of so few rows, as signals have, are as many columns as V and M of which half of L2 holds.
FEW_ROWS = 3
# V is read again for each group of output channels, so there are no more than needed.
LEAST_OC_GROUPS = 4
# Tasks are blocks of channels and rows where so many times the cores are busy then.
BUSIER = 1.4

# Products of float32 must take this share of bfloat16's cycles: their images have twice the bytes,
# and are rounded or widened where bfloat16 stands beside them.
CLEARLY_WIDE = 0.85

# Tile sizes along both axes and along one; more points than these make errors that are larger than
# those of F(4x4, 3x3): relative to the largest result, sums over 192 channels have 1.7e-6 with
# F(2, 7), 2.1e-6 with F(4, 5), 2.4e-6 with F(6, 3) and 6.4e-6 with F(3, 7).
TILES_OF_BOTH, TILES_OF_ONE = (2, 4), (2, 3, 4, 6)
MOST_POINTS_OF_BOTH, MOST_POINTS_OF_ONE = 6, 9
# Of bfloat16: sums over 192 channels with F(2x2, 3x3) have up to 1.8 times the error of the direct
# ones, with F(4x4, 3x3) eight times.
MOST_POINTS_OF_SHORT = 4
# Vectors of words that are multiplied and added in the time of a multiply-add of floats.
RATE_OF_WORDS = 0.8


def candidates(w: Conv2dWorkload) -> Sequence[int]:
    """Tile sizes m whose transforms are accurate enough; none for 1x1 and for large kernels."""
    if max(w.kernel) == 1:
        return ()
    sizes: Sequence[int] = TILES_OF_BOTH
    most = MOST_POINTS_OF_BOTH
    if min(w.kernel) == 1:
        sizes, most = TILES_OF_ONE, MOST_POINTS_OF_ONE
    if w.is_integer:
        return [m for m in sizes if max(points_of(w, m)) <= MOST_WHOLE_POINTS and _is_exact(w, m)]
    if _together(w) > 1:
        most = MOST_POINTS_OF_SHORT
    return [m for m in sizes if max(points_of(w, m)) <= most]


def _is_exact(w: Conv2dWorkload, m: int) -> bool:
    """Whether int16 holds U and V, whatever the bytes are, and results their sums: times a power
    of two that divides the unit, they fit int32."""
    sizes = list(zip(tile_of(w.kernel, m), w.kernel))
    of_data, of_taps = zip(*(integer_matrices(*size)[1:] for size in sizes))
    parts = [np.maximum(sign * np.kron(*of_data), 0).sum(1) for sign in (1, -1)]
    largest_v = 255 * max(part.max() for part in parts)
    largest_u = 128 * np.abs(np.kron(*of_taps)).sum(1).max()
    units = math.prod(unit(*size) for size in sizes)
    fits = max(largest_u, largest_v) < 1 << 15
    return fits and 0 < w.largest * (units & -units) < 1 << 31


def best_size(w: Conv2dWorkload, machine: Machine) -> int:
    """The tile size of the lowest cost."""
    return min(candidates(w), key=lambda m: cycles_of(w, m, machine))


def _together(w: Conv2dWorkload) -> int:
    """Input channels that an instruction multiplies in each lane."""
    if w.dtype == OF_WORDS.data:
        return OF_WORDS.size
    dot = dot_of(w.dtype, w.weight_dtype, w.out_dtype)
    return 1 if dot is None else dot.size


def _machine(w: Conv2dWorkload, target: Target) -> Machine:
    """The machine as the register tiles of the products see it."""
    return machine_of(OF_BYTES, target) if w.is_integer else Machine.from_target(target)


def _bytes_of_tile(w: Conv2dWorkload, m: int) -> int:
    """Of V and M, all channels."""
    sums = DataType(w.out_dtype).itemsize
    return values(w, m) * (w.item_bytes * w.in_channels + sums * w.out_channels)


def values(w: Conv2dWorkload, m: int) -> int:
    """Elements of V of a tile and an input channel: a product of all channels for each."""
    return math.prod(points_of(w, m))


def fallback(w: Conv2dWorkload, target: Target) -> ConfigEntity:
    """Tile size, loop order and register tile by shape.

    Rows go outside while the transformed weights are few L2 caches large; V and M of one group
    of rows then share L2. Otherwise channels go outside and the weights are read once.
    """
    machine = _machine(w, target)
    block = machine.lanes(w.out_dtype)
    m = best_size(w, machine)
    if registers_are_scarce(machine):
        return flat_fallback(w, m, machine)
    rows, columns = grid(w, m)
    chunks = w.out_channels // block
    tile_rows, tile_columns, vectors = _tile(rows, columns, chunks, machine)
    is_ragged = columns % tile_columns > 0
    columns += -columns % tile_columns
    tile_bytes = w.item_bytes * values(w, m)
    # Operations for a tile and a pair of channels.
    per_pair = 2 * values(w, m) // _together(w)
    weight_bytes = tile_bytes * w.in_channels * w.out_channels
    row_bytes = columns * _bytes_of_tile(w, m)
    # Groups of one register tile: where V and M of a row fill more than half of L2, unless the
    # weights would then come from L3 for each group; and where the last tile of a row is not
    # whole, since the guard that a longer group needs in the inner loop costs more.
    is_wide = row_bytes > machine.l2_bytes // 2 and weight_bytes <= machine.l2_bytes
    most = min(max(machine.l2_bytes // 2 // row_bytes, tile_rows), rows)
    group = balanced_group(
        rows,
        [
            size
            for size in range(tile_rows, most + 1, tile_rows)
            if _together(w) == 1 or rows % size == 0  # an intrinsic can't stand behind a guard
        ],
        per_pair * columns * w.in_channels * w.out_channels,
        weight_bytes,
        machine,
    )
    most = max(chunks // max(LEAST_OC_GROUPS, machine.num_cores), vectors)
    oc_group = balanced_group(
        chunks,
        [size for size in range(vectors, most + 1, vectors) if chunks % size == 0],
        per_pair * rows * columns * w.in_channels * block,
        tile_bytes * rows * columns * w.in_channels,
        machine,
    )
    channels_outer = weight_bytes > ROWS_OUTSIDE_L2S * machine.l2_bytes
    group_columns = 0 if channels_outer else _columns_of_signals(w, m, tile_columns, machine)
    tasks = chunks // oc_group
    if not channels_outer:
        in_group = group_columns or (tile_columns if is_wide or is_ragged else columns)
        tasks = -(-rows // group) * -(-columns // in_group)
    both = _tasks_of_both(w.batch, tasks, (chunks, vectors), (rows, tile_rows), machine)
    if both:
        channels_outer, group_columns, (oc_group, group) = True, 0, both
    return ConfigEntity(
        {
            "m": option(m),
            "oc_block": option(block),
            "oc_tile": option(vectors * block),
            "rows": option(group),
            "tile_rows": option(tile_rows),
            "tile_columns": option(tile_columns),
            "oc_group": option(oc_group),
            "channels_outer": option(channels_outer),
            "split_rows": option(both is not None),
            "split_columns": option(is_wide or is_ragged),
            "group_columns": option(group_columns),
            "flat": option(False),
        }
    )


def _tasks_of_both(
    batch: int, tasks: int, blocks: tuple[int, int], rows: tuple[int, int], machine: Machine
) -> tuple[int, int] | None:
    """Channel blocks and rows of a task, where tasks of both keep clearly more cores busy.

    Parameters
    ----------
    tasks : int
        That an image has otherwise.
    blocks, rows : (int, int)
        Of an image, and the least of a task, of which a task has a multiple.
    """

    def divisors(extent: int, least: int) -> list[int]:
        return [size for size in range(least, extent + 1, least) if extent % size == 0]

    def is_busy(size: tuple[int, int]) -> float:
        return machine.busy(batch * blocks[0] // size[0] * (rows[0] // size[1]))

    sizes = [(size, part) for size in divisors(*blocks) for part in divisors(*rows)]
    best = max(sizes, key=lambda size: (min(is_busy(size), GOOD_BALANCE), math.prod(size)))
    return best if is_busy(best) > BUSIER * machine.busy(batch * tasks) else None


def flat_fallback(w: Conv2dWorkload, m: int, machine: Machine) -> ConfigEntity:
    """Register tiles that run on from row to row: 16 registers hold six tiles, seldom a row.

    A group is one row of tiles where V of the whole image is too large to go through L3: M and V
    of a row stay near, and the weights, which each row reads again, are prefetched. Otherwise it
    is so many output channels that M of all tiles fits L2.
    """
    block = machine.lanes(w.out_dtype)
    chunks = w.out_channels // block
    rows, columns = grid(w, m)
    tile_bytes = w.item_bytes * values(w, m)
    v_bytes = tile_bytes * rows * columns * w.in_channels
    weight_bytes = tile_bytes * w.in_channels * w.out_channels
    through_l3 = (V_L2S_OF_INTEGERS if w.is_integer else V_L2S) * machine.l2_bytes
    channels_outer = v_bytes < max(through_l3, weight_bytes // 2)
    rows_of_tiles = rows if channels_outer else 1
    tile_columns, vectors = _flat_tile(w, rows_of_tiles, columns, chunks, machine)
    m_bytes = DataType(w.out_dtype).itemsize * values(w, m) * rows * columns * block
    sizes = [n for n in range(vectors, chunks + 1, vectors) if chunks % n == 0]
    small = [
        n for n in sizes if n * m_bytes <= machine.l2_bytes and n * machine.num_cores <= chunks
    ]
    oc_group, group = max(small, default=sizes[0]), 1
    group_columns = 0 if channels_outer else _columns_of_signals(w, m, tile_columns, machine)
    tasks = chunks // oc_group
    if not channels_outer:
        tasks = rows * -(-columns // (group_columns or columns))
    both = _tasks_of_both(w.batch, tasks, (chunks, vectors), (rows, 1), machine)
    if both:
        channels_outer, group_columns, (oc_group, group) = True, 0, both
        tile_columns = _flat_tile(w, group, columns, vectors, machine, vectors)[0]
    return ConfigEntity(
        {
            "m": option(m),
            "oc_block": option(block),
            "oc_tile": option(vectors * block),
            "rows": option(group),
            "tile_rows": option(1),
            "tile_columns": option(tile_columns),
            "oc_group": option(oc_group),
            "channels_outer": option(channels_outer),
            "split_rows": option(both is not None),
            "split_columns": option(False),
            "group_columns": option(group_columns),
            "flat": option(True),
        }
    )


def _flat_tile(
    w: Conv2dWorkload, rows: int, columns: int, chunks: int, machine: Machine, least: int = 1
) -> tuple[int, int]:
    """Tiles and vectors of a register tile; of integers whole parts of a row, or whole rows, and
    at least so many vectors."""
    vectors = range(least, min(chunks, 2) + 1)
    if not w.is_integer:
        return register_tile(rows * columns, chunks, machine, most_vectors=vectors[-1])
    sizes = [
        (tiles, count)
        for count in vectors
        for tiles in range(1, tile_pixels(machine, count) + 1)
        if chunks % count == 0
        and (columns % tiles == 0 or rows * columns % tiles == tiles % columns == 0)
    ]

    def cycles(size: tuple[int, int]) -> float:
        step = machine.step_cycles(size[0], size[1], machine.operations)
        return (step + machine.core.loop_cycles) / math.prod(size)

    return min(sizes, key=cycles)


def _columns_of_signals(w: Conv2dWorkload, m: int, tile_columns: int, machine: Machine) -> int:
    """Columns of tiles of a group: whole register tiles, or 0, all, where there are more rows."""
    rows, columns = grid(w, m)
    if rows > FEW_ROWS:
        return 0
    room = machine.l2_bytes // 2 // _bytes_of_tile(w, m)
    most = min(room, -(-columns // machine.num_cores))
    return tile_columns * max(most // tile_columns, 1)


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


def cycles_of(w: Conv2dWorkload, m: int, machine: Machine) -> float:
    """Of a core: the products of all tiles at the rate of their register tile, the transforms of V
    and M, and the transformed weights from memory."""
    lanes = machine.lanes(w.out_dtype)
    tiles = w.batch * math.prod(grid(w, m)) * values(w, m)
    steps = w.in_channels // _together(w)
    products = tiles * steps * (w.out_channels // lanes) / _rate(w, m, machine)
    transforms = transform_cycles(tiles * (w.in_channels + w.out_channels) // lanes, machine)
    weights = w.item_bytes * values(w, m) * w.in_channels * w.out_channels
    return products + transforms + machine.weight_cycles(weights)


def transform_cycles(vectors: float, machine: Machine) -> float:
    """Of a core that transforms so many vectors of V or M."""
    return TRANSFORM_OPERATIONS / machine.fmas * vectors


def _rate(w: Conv2dWorkload, m: int, machine: Machine) -> float:
    """Vector multiply-adds of the products in a cycle."""
    (rows, columns), chunks = grid(w, m), w.out_channels // machine.lanes(w.out_dtype)
    rate = RATE_OF_WORDS if w.is_integer else 1.0
    if w.dtype == OF_BFLOAT16.data:
        rate = OF_BFLOAT16.rate(machine)
    if registers_are_scarce(machine):
        tile = _flat_tile(w, rows, columns, chunks, machine)
        return macs_per_cycle(rows * columns, *tile, machine) * rate
    tile_rows, tile_columns, vectors = _tile(rows, columns, chunks, machine)
    whole, tiles = -(-columns // tile_columns) * tile_columns, tile_rows * tile_columns
    return macs_per_cycle(tiles, tiles, vectors, machine) * columns / whole * rate


def _tile(rows: int, columns: int, chunks: int, machine: Machine) -> tuple[int, int, int]:
    """Rows and columns of Winograd's tiles, and vectors, of a register tile of 32 registers."""
    vectors = 2 if chunks % 2 == 0 else 1
    pixels = tile_pixels(machine, vectors)
    tile_columns = best_tile(columns, pixels)
    if tile_columns < columns:
        return 1, tile_columns, vectors
    return (
        max(r for r in range(1, rows + 1) if rows % r == 0 and r * columns <= pixels),
        tile_columns,
        vectors,
    )


def cycles(w: Conv2dWorkload, target: Target) -> float:
    """Of a core, with the best tile size."""
    machine = _machine(w, target)
    return cycles_of(w, best_size(w, machine), machine)


def beats_half_floats(w: Conv2dWorkload, halves: Conv2dWorkload, target: Target) -> bool:
    """Whether the best product in float32 is estimated clearly below the best of bfloat16."""
    wide, short = (
        min(
            (
                impl.cycles(each, target)
                for impl in implementations("nn.conv2d", each, target)
                if impl.cycles
            ),
            default=math.inf,
        )
        for each in (w, halves)
    )
    return wide < CLEARLY_WIDE * short < math.inf


def supports(w: Conv2dWorkload, target: Target, dtype: str = "float32") -> bool:
    """Two to five taps along both axes, or several along one; stride 1, operands of `dtype`, sums
    of float32, full convolutions on whole channel blocks, constant weights."""
    lanes = Machine.from_target(target).lanes(w.out_dtype)
    return (
        w.constant_weight
        and (w.dtype, w.weight_dtype or dtype, w.out_dtype) == (dtype, dtype, "float32")
        and (dtype == "float32" or OF_BFLOAT16.is_fast_on(target))
        and w.groups == 1
        and w.strides == w.dilation == (1, 1)
        and w.in_channels % lanes == 0
        and w.out_channels % lanes == 0
        and len(candidates(w)) > 0
    )


def products_of(w: Conv2dWorkload) -> Conv2dWorkload:
    """A convolution of bytes as its products are computed."""
    return replace(w, dtype=OF_WORDS.data, weight_dtype=OF_WORDS.weight)


def supports_integers(w: Conv2dWorkload, target: Target) -> bool:
    """As `supports`, of bytes by weights that are known, where a step is two words: no VNNI."""
    lanes = Machine.from_target(target).lanes(w.out_dtype)
    return (
        w.is_bytes
        and WIDENED in knobs(OF_BYTES, target)
        and w.groups == 1
        and w.strides == w.dilation == (1, 1)
        and w.in_channels % lanes == 0
        and w.out_channels % lanes == 0
        and len(candidates(products_of(w))) > 0
    )


register(
    "nn.conv2d",
    "cpu",
    Implementation(
        OF_INTEGERS,
        15,
        supports_integers,
        lambda w, target: fallback(products_of(w), target),
        lambda w, config, data, weight: compute(products_of(w), config, data, weight),
        Conv2dWorkload.autotvm_args,
        pack_weight,
        lambda w, target: cycles(products_of(w), target),
    ),
)
for _name, _type in ((NAME, "float32"), (OF_SHORT, OF_BFLOAT16.data)):
    register(
        "nn.conv2d",
        "cpu",
        Implementation(
            _name,
            15,
            partial(supports, dtype=_type),
            fallback,
            compute,
            Conv2dWorkload.autotvm_args,
            pack_weight,
            cycles,
        ),
    )
