"""Selection, cost model and knobs of polyphase Winograd convolutions (`winograd_polyphase`)."""

from __future__ import annotations

from collections.abc import Sequence

from tvm.target import Target

from ...config import ConfigEntity, options
from ...conv2d import Conv2dWorkload, register_conv2d
from ..machine.cpu import Machine
from ..machine.microkernel import registers_are_scarce
from .register_tile import macs_per_cycle, register_tile
from .winograd import grid
from .winograd_polyphase import (
    NAME,
    PARTS,
    compute,
    pack_weight,
    part_grid,
    phases,
    taps,
    whole_tile,
)
from .winograd_rules import V_L2S, best_size, transform_cycles
from .winograd_rules import cycles as winograd_cycles
from .winograd_rules import supports as winograd_supports

# More than the six points 0, 1, -1, 2, -2 and infinity cost accuracy.
MOST_POINTS = 6
TILES = (2, 3, 4)
# Share of the products that trimming must stay below, to make up for the cost of the parts.
FEWER = 0.97
# Share of the time of reading weights that remains, as they are prefetched while computing.
WEIGHTS_SHARE = 1 / 2
# Slowdown of input transforms for a blocked input, whose V goes through L3.
V_THROUGH_L3 = 3
# V of all images may fill at most 1/4 of L3.
V_SHARE_OF_L3 = 4
# M of a channel group for a row of tiles should fit 1/4 of L2, which also holds V.
M_SHARE_OF_L2 = 4
# Fastest tile for a plain input, whose reductions are short, in pixels x two vectors:
# 4x2 1.27, 5x2 1.47, 6x2 1.50 ms (7x7, 3 to 64 channels, 112x112).
SHORT_TILE = 4


def candidates(w: Conv2dWorkload) -> Sequence[int]:
    """List sufficiently accurate tile sizes m."""
    return [m for m in TILES if m + taps(w.kernel[0], w.strides[0]) - 1 <= MOST_POINTS]


def is_plain(w: Conv2dWorkload, machine: Machine) -> bool:
    """Whether the input has no whole channel blocks and is read in its plain layout."""
    return w.in_channels % machine.lanes(w.dtype) > 0


def v_bytes(w: Conv2dWorkload, m: int) -> int:
    """Size of V of all images."""
    rows, columns = grid(w, m)
    span = w.strides[0] * (m + taps(w.kernel[0], w.strides[0]) - 2) + 1
    return w.item_bytes * span**2 * w.batch * rows * columns * w.in_channels


def product_cycles(w: Conv2dWorkload, m: int, trim: bool, machine: Machine) -> float:
    """Cycles of all matmuls, per vector of output channels and input channel."""
    stride = w.strides[0]
    alpha = m + taps(w.kernel[0], stride) - 1
    rows, columns = grid(w, m)
    chunks = w.out_channels // machine.lanes(w.dtype)
    tile, vectors = register_tile(rows * columns, chunks, machine, most_vectors=2)
    cycles = 0.0
    for part in PARTS:
        values = 1
        for at_infinity in part:
            values *= phases(at_infinity, stride) * (1 if at_infinity else alpha - 1)
        extents = part_grid(w, m, part, trim)
        tiles = extents[0] * extents[1]
        if extents[1] < columns:
            down, across = whole_tile(extents, vectors, machine)
            rate = macs_per_cycle(tiles, down * across, vectors, machine)
        else:
            rate = macs_per_cycle(tiles, tile, vectors, machine)
        cycles += values * tiles / rate
    return w.batch * cycles


def pays_to_trim(w: Conv2dWorkload, m: int, machine: Machine) -> bool:
    """Whether omitting products at infinity in the last tiles clearly reduces their number."""
    whole = product_cycles(w, m, False, machine)
    return product_cycles(w, m, True, machine) < FEWER * whole


def strided_cycles(w: Conv2dWorkload, m: int, machine: Machine) -> float:
    """Estimate cycles on one core for stride 2: matmuls, transforms, weights from memory."""
    lanes = machine.lanes(w.dtype)
    alpha = m + taps(w.kernel[0], w.strides[0]) - 1
    span = w.strides[0] * (alpha - 1) + 1
    rows, columns = grid(w, m)
    trim = pays_to_trim(w, m, machine)
    products = product_cycles(w, m, trim, machine) * w.in_channels * w.out_channels / lanes
    through = 1 if is_plain(w, machine) else V_THROUGH_L3
    of_tile = through * span**2 * w.in_channels + alpha**2 * w.out_channels
    transforms = transform_cycles(w.batch * rows * columns * of_tile / lanes, machine)
    weights = w.item_bytes * span**2 * w.in_channels * w.out_channels
    return products + transforms + WEIGHTS_SHARE * machine.weight_cycles(weights)


def cycles(w: Conv2dWorkload, target: Target) -> float:
    """Estimate cycles on one core; for stride 1, those of `winograd` minus omitted products."""
    machine = Machine.from_target(target)
    if w.strides == (1, 1):
        m = best_size(w, machine)
        left_out = product_cycles(w, m, False, machine) - product_cycles(w, m, True, machine)
        saved = left_out * w.in_channels * w.out_channels / machine.lanes(w.dtype)
        return winograd_cycles(w, target) - saved
    return strided_cycles(w, _best_strided(w, machine), machine)


def fallback(w: Conv2dWorkload, target: Target) -> ConfigEntity:
    """Choose tile size by cost, register tile over a row or image, and groups with M in L2."""
    machine = Machine.from_target(target)
    block = machine.lanes(w.dtype)
    m = best_size(w, machine) if w.strides == (1, 1) else _best_strided(w, machine)
    alpha = m + taps(w.kernel[0], w.strides[0]) - 1
    rows, columns = grid(w, m)
    plain = is_plain(w, machine)
    tiles = columns if plain else rows * columns
    chunks = w.out_channels // block
    tile_columns, vectors = register_tile(tiles, chunks, machine, most_vectors=2)
    if plain and vectors > 1:
        tile_columns = min(SHORT_TILE, tiles)
    sizes = [n for n in range(vectors, chunks + 1, vectors) if chunks % n == 0]
    room = machine.l2_bytes // M_SHARE_OF_L2 if plain else machine.l2_bytes
    m_bytes = w.item_bytes * alpha**2 * tiles * block
    cores = 1 if plain else machine.num_cores
    small = [n for n in sizes if n * m_bytes <= room and n * cores <= chunks]
    return options(
        m=m,
        stride=w.strides[0],
        oc_block=block,
        oc_tile=vectors * block,
        tile_columns=tile_columns,
        oc_group=max(small, default=sizes[0]),
        trim=not plain and pays_to_trim(w, m, machine),
    )


def is_ragged(w: Conv2dWorkload, target: Target) -> bool:
    """Whether trimming the last tiles pays with stride 1, and V of an image is small enough to make
    channels the outer loop."""
    machine = Machine.from_target(target)
    if w.kernel != (3, 3) or not winograd_supports(w, target):
        return False
    m = best_size(w, machine)
    weight_bytes = w.item_bytes * (m + 2) ** 2 * w.in_channels * w.out_channels
    of_image = v_bytes(w, m) // w.batch
    channels_outer = of_image < max(V_L2S * machine.l2_bytes, weight_bytes // 2)
    return channels_outer and pays_to_trim(w, m, machine)


def supports(w: Conv2dWorkload, target: Target) -> bool:
    """Whether the target has 16 registers and the convolution is float32, one group, with constant
    weights and whole output blocks: 3x3, 5x5 or 7x7 with stride 2, or 3x3 with stride 1 if
    `winograd` supports it and trimming pays."""
    machine = Machine.from_target(target)
    if not registers_are_scarce(machine):
        return False
    if w.strides == (1, 1):
        return is_ragged(w, target)
    can_be_so = (
        w.constant_weight
        and w.is_float
        and w.dtype == "float32"
        and w.groups == 1
        and w.kernel in ((3, 3), (5, 5), (7, 7))
        and w.strides == (2, 2)
        and w.dilation == (1, 1)
        and w.out_channels % machine.lanes(w.dtype) == 0
    )
    if not can_be_so:
        return False
    if is_plain(w, machine):
        return True
    return V_SHARE_OF_L3 * v_bytes(w, _best_strided(w, machine)) <= machine.l3_bytes


def _best_strided(w: Conv2dWorkload, machine: Machine) -> int:
    """Return the tile size with the lowest cost for stride 2."""
    return min(candidates(w), key=lambda m: strided_cycles(w, m, machine))


register_conv2d(NAME, 15, supports, fallback, compute, pack=pack_weight, cycles=cycles)
