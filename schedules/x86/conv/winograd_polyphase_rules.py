"""Which convolutions are Winograd ones in parts (`winograd_polyphase`), and with which knobs."""

from __future__ import annotations

from collections.abc import Sequence

from tvm.target import Target

from ...config import ConfigEntity, option
from ...conv2d import Conv2dWorkload
from ...strategy import Implementation, register
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

# More points than six, 0, 1, -1, 2, -2 and infinity, cost accuracy.
MOST_POINTS = 6
TILES = (2, 3, 4)
# With stride 1, fewer products must make up for the parts.
FEWER = 0.97
# Weights from memory are prefetched while products go on, and so take this share of their time.
WEIGHTS_SHARE = 1 / 2
# A blocked input's V goes through L3, by which its transforms take so many times as long,
V_THROUGH_L3 = 3
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


def strided_cycles(w: Conv2dWorkload, m: int, machine: Machine) -> float:
    """Of a core, with stride 2: products, transforms, and weights from memory."""
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
    """Of a core; with stride 1 those of `winograd`, with fewer products."""
    machine = Machine.from_target(target)
    if w.strides == (1, 1):
        m = best_size(w, machine)
        left_out = product_cycles(w, m, False, machine) - product_cycles(w, m, True, machine)
        saved = left_out * w.in_channels * w.out_channels / machine.lanes(w.dtype)
        return winograd_cycles(w, target) - saved
    return strided_cycles(w, _best_strided(w, machine), machine)


def fallback(w: Conv2dWorkload, target: Target) -> ConfigEntity:
    """Tile size by cost, register tile over a row's or an image's tiles, M of a group in L2."""
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
    3x3, 5x5 or 7x7 with stride 2; with stride 1, what `winograd` takes, where last tiles need fewer
    products."""
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
    """The tile size of the lowest cost, of stride 2."""
    return min(candidates(w), key=lambda m: strided_cycles(w, m, machine))


register(
    "nn.conv2d",
    "cpu",
    Implementation(
        NAME, 15, supports, fallback, compute, Conv2dWorkload.autotvm_args, pack_weight, cycles
    ),
)
