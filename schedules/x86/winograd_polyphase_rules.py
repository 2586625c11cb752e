"""Which convolutions are Winograd ones in parts (`winograd_polyphase`), and with which knobs."""

from __future__ import annotations

from collections.abc import Sequence

from tvm.target import Target

from ..config import ConfigEntity, option
from ..conv2d import Conv2dWorkload
from ..strategy import Implementation, register
from .machine import Machine
from .microkernel import registers_are_scarce
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
from .winograd_rules import CLEARLY, TRANSFORM_FLOPS, V_L2S, best_size
from .winograd_rules import supports as winograd_supports

# More points than six, 0, 1, -1, 2, -2 and infinity, cost accuracy.
MOST_POINTS = 6
TILES = (2, 3, 4)
# With stride 1, fewer products must make up for the parts.
FEWER = 0.97
# Operations of a cycle at the peak: two multiply-adds, for each lane.
FLOPS = 4
# Weights from memory are prefetched while products go on, and so take this share of their time.
WEIGHTS_SHARE = 1 / 2
# Transforming one element of a blocked input, whose V goes through L3, takes the time of so many,
V_FLOPS = 36
# and V of all images may fill so much of L3.
V_SHARE_OF_L3 = 4
# M of one group of channels of a row of tiles should stay in so much of L2 beside V.
M_SHARE_OF_L2 = 4
# With a plain input, whose reductions are short, tiles of so many pixels x two vectors are the
# fastest: 4x2 1.27, 5x2 1.47, 6x2 1.50 ms (7x7, 3 to 64 channels, 112x112).
SHORT_TILE = 4


def candidates(w: Conv2dWorkload) -> Sequence[int]:
    """Tile sizes m whose transforms are accurate enough."""
    return [m for m in TILES if m + taps(w.kernel[0], w.strides[0]) - 1 <= MOST_POINTS]


def is_plain(w: Conv2dWorkload, machine: Machine) -> bool:
    """Whether the input has no whole channel blocks and is read as it is."""
    return w.in_channels % machine.lanes(w.dtype) > 0


def v_bytes(w: Conv2dWorkload, m: int) -> int:
    """Size of V of all images."""
    rows, columns = grid(w, m)
    span = w.strides[0] * (m + taps(w.kernel[0], w.strides[0]) - 2) + 1
    return w.item_bytes * span**2 * w.batch * rows * columns * w.in_channels


def product_cycles(w: Conv2dWorkload, m: int, trim: bool, machine: Machine) -> float:
    """Cycles of all products, a vector of output channels and an input channel each."""
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
    """Whether leaving out products at infinity of the last tiles makes them clearly fewer."""
    whole = product_cycles(w, m, False, machine)
    return product_cycles(w, m, True, machine) < FEWER * whole


def cost(w: Conv2dWorkload, m: int, machine: Machine) -> float:
    """Estimated operations of stride 2: products, transforms, and weights from memory."""
    alpha = m + taps(w.kernel[0], w.strides[0]) - 1
    span = w.strides[0] * (alpha - 1) + 1
    rows, columns = grid(w, m)
    channels = w.in_channels * w.out_channels
    products = FLOPS * product_cycles(w, m, pays_to_trim(w, m, machine), machine) * channels
    v_flops = TRANSFORM_FLOPS if is_plain(w, machine) else V_FLOPS
    of_tile = v_flops * span**2 * w.in_channels + TRANSFORM_FLOPS * alpha**2 * w.out_channels
    transforms = w.batch * rows * columns * of_tile
    return products + transforms + _weights_cost(w, span**2, machine)


def direct_cost(w: Conv2dWorkload, machine: Machine) -> float:
    """The same estimate for the direct convolution."""
    chunks = w.out_channels // machine.lanes(w.dtype)
    rate = macs_per_cycle(w.out_width, *register_tile(w.out_width, chunks, machine), machine)
    channels = w.in_channels * w.out_channels * w.kernel[0] * w.kernel[1]
    products = FLOPS * w.batch * w.out_height * w.out_width / rate * channels
    return products + _weights_cost(w, w.kernel[0] * w.kernel[1], machine)


def _weights_cost(w: Conv2dWorkload, values: int, machine: Machine) -> float:
    size = w.item_bytes * values * w.in_channels * w.out_channels
    return WEIGHTS_SHARE * size * machine.flops_per_memory_byte


def fallback(w: Conv2dWorkload, target: Target) -> ConfigEntity:
    """Tile size by cost, register tile over a row's or an image's tiles, M of a group in L2."""
    machine = Machine.from_target(target)
    block = machine.lanes(w.dtype)
    if w.strides == (1, 1):
        m = best_size(w, machine)
    else:
        m = min(candidates(w), key=lambda m: cost(w, m, machine))
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
    return ConfigEntity(
        {
            "m": option(m),
            "stride": option(w.strides[0]),
            "oc_block": option(block),
            "oc_tile": option(vectors * block),
            "tile_columns": option(tile_columns),
            "oc_group": option(max(small, default=sizes[0])),
            "trim": option(not plain and pays_to_trim(w, m, machine)),
        }
    )


def is_ragged(w: Conv2dWorkload, target: Target) -> bool:
    """Whether Winograd with stride 1 has last tiles that make parts pay, and V of an image small
    enough for channels outside."""
    machine = Machine.from_target(target)
    if w.kernel != (3, 3) or not winograd_supports(w, target):
        return False
    m = best_size(w, machine)
    weight_bytes = w.item_bytes * (m + 2) ** 2 * w.in_channels * w.out_channels
    of_image = v_bytes(w, m) // w.batch
    channels_outer = of_image < max(V_L2S * machine.l2_bytes, weight_bytes // 2)
    return channels_outer and pays_to_trim(w, m, machine)


def supports(w: Conv2dWorkload, target: Target) -> bool:
    """With 16 registers, float32, full convolutions to whole channel blocks, constant weights:
    3x3, 5x5 or 7x7 with stride 2 where the estimate is clearly below the direct convolution's;
    with stride 1, what `winograd` takes, where last tiles need fewer products."""
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
    m = min(candidates(w), key=lambda m: cost(w, m, machine))
    fits = is_plain(w, machine) or V_SHARE_OF_L3 * v_bytes(w, m) <= machine.l3_bytes
    return fits and cost(w, m, machine) < CLEARLY * direct_cost(w, machine)


register(
    "nn.conv2d",
    "cpu",
    Implementation(NAME, 21, supports, fallback, compute, Conv2dWorkload.autotvm_args, pack_weight),
)
