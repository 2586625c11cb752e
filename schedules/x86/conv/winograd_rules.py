"""Selection, cost model and fallback configs of Winograd convolutions (see `winograd`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from tvm import DataType
from tvm.target import Target

from ...config import ConfigEntity, options
from ...conv2d import Conv2dWorkload, register_conv2d
from ...strategy import implementations
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

# Cost in flops of a byte that every group of tiles reads again, by the cache that holds it.
L2_FLOPS_PER_BYTE, L3_FLOPS_PER_BYTE = 1, 3
# Vector operations that transforming one vector of V or M costs.
TRANSFORM_OPERATIONS = 6
# With rows as the outer loop, each group of rows reads the transformed weights again. That is
# cheaper than V in memory up to this size of the weights, in L2 caches.
ROWS_OUTSIDE_L2S = 3
# Largest V of an image, in L2 caches, that goes through L3 on machines with 16 registers. It is
# larger for integers: keeping V and M of a row in a near cache gains less for them.
V_L2S, V_L2S_OF_INTEGERS = 2, 4
# Up to this many rows of tiles (signals), groups are columns whose V and M fit half of L2.
FEW_ROWS = 3
# Output channels form at least this many groups; more are avoided, as each reads V again.
LEAST_OC_GROUPS = 4
# Split tasks by both channels and rows if that keeps more than this many times the cores busy.
BUSIER = 1.4

# Use float32 if it takes less than this share of bfloat16's cycles: float32 images have twice the
# bytes, and need casts next to bfloat16 operators.
CLEARLY_WIDE = 0.85

# Tile sizes along both axes and along one. More points than these have larger errors than
# F(4x4, 3x3). Relative to the largest result, errors of sums over 192 channels are 1.7e-6 for
# F(2, 7), 2.1e-6 for F(4, 5), 2.4e-6 for F(6, 3) and 6.4e-6 for F(3, 7).
TILES_OF_BOTH, TILES_OF_ONE = (2, 4), (2, 3, 4, 6)
MOST_POINTS_OF_BOTH, MOST_POINTS_OF_ONE = 6, 9
# Limit for bfloat16: sums over 192 channels have up to 1.8 times the error of direct convolution
# with F(2x2, 3x3), and eight times with F(4x4, 3x3).
MOST_POINTS_OF_SHORT = 4
# int16 vectors multiplied and added in the time of one float multiply-add.
RATE_OF_WORDS = 0.8


def candidates(w: Conv2dWorkload) -> Sequence[int]:
    """List sufficiently accurate tile sizes m; none for 1x1 and for large kernels."""
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
    """Whether U and V fit int16 for any input bytes, and the sums fit int32 after scaling by the
    largest power of two that divides the unit."""
    sizes = list(zip(tile_of(w.kernel, m), w.kernel))
    of_data, of_taps = zip(*(integer_matrices(*size)[1:] for size in sizes))
    parts = [np.maximum(sign * np.kron(*of_data), 0).sum(1) for sign in (1, -1)]
    largest_v = 255 * max(part.max() for part in parts)
    largest_u = 128 * np.abs(np.kron(*of_taps)).sum(1).max()
    units = math.prod(unit(*size) for size in sizes)
    fits = max(largest_u, largest_v) < 1 << 15
    return fits and 0 < w.largest * (units & -units) < 1 << 31


def best_size(w: Conv2dWorkload, machine: Machine) -> int:
    """Return the tile size with the lowest estimated cost."""
    return min(candidates(w), key=lambda m: cycles_of(w, m, machine))


def _together(w: Conv2dWorkload) -> int:
    """Number of input channels that one instruction multiplies in each lane."""
    if w.dtype == OF_WORDS.data:
        return OF_WORDS.size
    dot = dot_of(w.dtype, w.weight_dtype, w.out_dtype)
    return 1 if dot is None else dot.size


def _machine(w: Conv2dWorkload, target: Target) -> Machine:
    """Return the machine model for register tiles of the matmuls."""
    return machine_of(OF_BYTES, target) if w.is_integer else Machine.from_target(target)


def _bytes_of_tile(w: Conv2dWorkload, m: int) -> int:
    """Bytes of V and M of one tile, all channels."""
    sums = DataType(w.out_dtype).itemsize
    return values(w, m) * (w.item_bytes * w.in_channels + sums * w.out_channels)


def values(w: Conv2dWorkload, m: int) -> int:
    """Elements of V per tile and input channel; each is a separate matmul over the channels."""
    return math.prod(points_of(w, m))


def fallback(w: Conv2dWorkload, target: Target) -> ConfigEntity:
    """Choose tile size, loop order and register tile from the shape.

    Rows are the outer loop while the transformed weights fill few L2 caches; V and M of one group
    of rows then share L2. Otherwise channels are the outer loop and the weights are read once.
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
    # A group is one register tile if V and M of a row fill more than half of L2, unless each group
    # would then read the weights from L3. It is also one if the last tile of a row is partial,
    # since the guard that a longer group needs in the inner loop costs more.
    is_wide = row_bytes > machine.l2_bytes // 2 and weight_bytes <= machine.l2_bytes
    most = min(max(machine.l2_bytes // 2 // row_bytes, tile_rows), rows)
    group = balanced_group(
        rows,
        [
            size
            for size in range(tile_rows, most + 1, tile_rows)
            if _together(w) == 1 or rows % size == 0  # no guards around an intrinsic
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
    return options(
        m=m,
        oc_block=block,
        oc_tile=vectors * block,
        rows=group,
        tile_rows=tile_rows,
        tile_columns=tile_columns,
        oc_group=oc_group,
        channels_outer=channels_outer,
        split_rows=both is not None,
        split_columns=is_wide or is_ragged,
        group_columns=group_columns,
        flat=False,
    )


def _tasks_of_both(
    batch: int, tasks: int, blocks: tuple[int, int], rows: tuple[int, int], machine: Machine
) -> tuple[int, int] | None:
    """Return channel blocks and rows per task if splitting both keeps clearly more cores busy.

    `tasks`: tasks per image without this split. `blocks`, `rows`: number per image, and the minimum
    per task; a task has a multiple of that minimum.
    """

    def divisors(extent: int, least: int) -> list[int]:
        return [size for size in range(least, extent + 1, least) if extent % size == 0]

    def is_busy(size: tuple[int, int]) -> float:
        return machine.busy(batch * blocks[0] // size[0] * (rows[0] // size[1]))

    sizes = [(size, part) for size in divisors(*blocks) for part in divisors(*rows)]
    best = max(sizes, key=lambda size: (min(is_busy(size), GOOD_BALANCE), math.prod(size)))
    return best if is_busy(best) > BUSIER * machine.busy(batch * tasks) else None


def flat_fallback(w: Conv2dWorkload, m: int, machine: Machine) -> ConfigEntity:
    """Choose a config with register tiles that span rows: 16 registers hold six, rarely a row.

    If V of the whole image is too large to go through L3, a group is one row of tiles: its M and V
    stay in a near cache, and the weights, which each row reads again, are prefetched. Otherwise a
    group is a number of output channels for which M of all tiles fits L2.
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
    return options(
        m=m,
        oc_block=block,
        oc_tile=vectors * block,
        rows=group,
        tile_rows=1,
        tile_columns=tile_columns,
        oc_group=oc_group,
        channels_outer=channels_outer,
        split_rows=both is not None,
        split_columns=False,
        group_columns=group_columns,
        flat=True,
    )


def _flat_tile(
    w: Conv2dWorkload, rows: int, columns: int, chunks: int, machine: Machine, least: int = 1
) -> tuple[int, int]:
    """Return tiles and vectors of a register tile. Integer tiles divide a row or cover whole rows,
    and have at least `least` vectors."""
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
    """Tile columns per group, in whole register tiles; 0 (all) with more than `FEW_ROWS` rows."""
    rows, columns = grid(w, m)
    if rows > FEW_ROWS:
        return 0
    room = machine.l2_bytes // 2 // _bytes_of_tile(w, m)
    most = min(room, -(-columns // machine.num_cores))
    return tile_columns * max(most // tile_columns, 1)


def balanced_group(
    extent: int, sizes: Iterable[int], flops: int, shared_bytes: int, machine: Machine
) -> int:
    """Choose the group size along `extent` that minimizes the time of the busiest core.

    On two cores, seven groups of two rows give one core eight rows; fourteen groups of one row
    give it seven. But each group reads the shared data again.

    `flops`: operations per index of `extent`.
    `shared_bytes`: data that every group reads: from L2 if it fits half of L2, else from L3.
    """
    rate = L2_FLOPS_PER_BYTE if shared_bytes <= machine.l2_bytes // 2 else L3_FLOPS_PER_BYTE

    def busiest(size: int) -> float:
        groups = -(-extent // size)
        return -(-groups // machine.num_cores) * (size * flops + rate * shared_bytes)

    return min(sizes, key=lambda size: (busiest(size), -size))


def cycles_of(w: Conv2dWorkload, m: int, machine: Machine) -> float:
    """Estimate cycles on one core: matmuls of all tiles at the rate of their register tile,
    transforms of V and M, and reading the transformed weights from memory."""
    lanes = machine.lanes(w.out_dtype)
    tiles = w.batch * math.prod(grid(w, m)) * values(w, m)
    steps = w.in_channels // _together(w)
    products = tiles * steps * (w.out_channels // lanes) / _rate(w, m, machine)
    transforms = transform_cycles(tiles * (w.in_channels + w.out_channels) // lanes, machine)
    weights = w.item_bytes * values(w, m) * w.in_channels * w.out_channels
    return products + transforms + machine.weight_cycles(weights)


def transform_cycles(vectors: float, machine: Machine) -> float:
    """Estimate cycles for one core to transform this number of vectors of V or M."""
    return TRANSFORM_OPERATIONS / machine.fmas * vectors


def _rate(w: Conv2dWorkload, m: int, machine: Machine) -> float:
    """Vector multiply-adds of the matmuls per cycle."""
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
    """Return Winograd tile rows, tile columns and vectors of a register tile (32 registers)."""
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
    """Estimate cycles on one core with the best tile size."""
    machine = _machine(w, target)
    return cycles_of(w, best_size(w, machine), machine)


def beats_half_floats(w: Conv2dWorkload, halves: Conv2dWorkload, target: Target) -> bool:
    """Whether the best float32 implementation is estimated clearly faster than bfloat16's best."""
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
    """Whether the kernel has 2 to 5 taps along both axes or several along one, stride 1, `dtype`
    operands, float32 sums, one group, whole channel blocks and constant weights."""
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
    """Convert a convolution of bytes to the int16 types that its matmuls use."""
    return replace(w, dtype=OF_WORDS.data, weight_dtype=OF_WORDS.weight)


def supports_integers(w: Conv2dWorkload, target: Target) -> bool:
    """Like `supports`, for bytes and constant weights on targets without VNNI (int16 pairs)."""
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


register_conv2d(
    OF_INTEGERS,
    15,
    supports_integers,
    lambda w, target: fallback(products_of(w), target),
    lambda w, config, data, weight: compute(products_of(w), config, data, weight),
    pack=pack_weight,
    cycles=lambda w, target: cycles(products_of(w), target),
)
for _name, _type in ((NAME, "float32"), (OF_SHORT, OF_BFLOAT16.data)):
    register_conv2d(
        _name,
        15,
        partial(supports, dtype=_type),
        fallback,
        compute,
        pack=pack_weight,
        cycles=cycles,
    )
