"""Cost model for register tiles of pixels x channel vectors, and for channel blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ..machine.cpu import Machine

# Registers that a tile of one vector leaves free, in addition to the one for packed weights.
SPARE_REGISTERS = 2
# Cycles lost per pair of weight vectors of a step: channel blocks lie a multiple of 64 bytes
# apart, where an L1 cache of 16 banks cannot read two vectors at once.
BANK_CYCLES = 0.05
# Cycles lost per step of a tile that leaves fewer than two registers free.
TIGHT_CYCLES = 0.1
# With 16 registers, longer tiles of one vector only wait longer for their loads.
MOST_PIXELS_OF_ONE_VECTOR = 10
# Narrowest channel block: a quarter of an AVX-512 register, the whole of an SSE one.
MIN_BLOCK = 4


def largest_divisor(extent: int, most: int) -> int:
    """Largest divisor of `extent` of at most `most`."""
    return next(d for d in range(min(extent, most), 0, -1) if extent % d == 0)


def tiles_in_registers(
    machine: Machine, rows: Iterable[int], most_vectors: int, held: Callable[[int, int], int]
) -> Iterator[tuple[int, int]]:
    """Yield (rows, vectors) of tiles whose sums and `held` operands fit the registers."""
    for count in rows:
        for vectors in range(1, most_vectors + 1):
            if count * vectors + held(count, vectors) > machine.vector_registers:
                break
            yield count, vectors


def the_fewer(rows: int, vectors: int) -> int:
    """Operand registers: one for each of the smaller of rows and vectors, plus a shared one."""
    return min(rows, vectors) + 1


def register_tile(
    pixels: int,
    chunks: int,
    machine: Machine,
    most_vectors: int = 5,
    may_be_ragged: bool = False,
    only_whole: bool = False,
) -> tuple[int, int]:
    """Pixels and vectors of the tile with the most multiply-adds per cycle.

    `pixels`: per row, or per image if tiles span rows. `chunks`: channel blocks of one vector each.
    The last tile `may_be_ragged` (fewer vectors), and has whole pixels with `only_whole`.
    """
    # A tile of one vector keeps both FMA units busy with 32 registers; with 16, it waits for loads.
    most = most_vectors if machine.vector_registers <= 16 else 4

    def cycles(tile: tuple[int, int]) -> float:
        whole, rest = divmod(chunks, tile[1])
        total = whole * tile[1] / macs_per_cycle(pixels, *tile, machine)
        return total + (rest / macs_per_cycle(pixels, tile[0], rest, machine) if rest else 0)

    return min(
        (
            (tile, count)
            for count in range(1, min(most, chunks) + 1)
            if may_be_ragged or chunks % count == 0
            for tile in range(min(tile_pixels(machine, count), pixels), 0, -1)
            if not only_whole or pixels % tile == 0
        ),
        key=cycles,
    )


def tile_pixels(machine: Machine, vectors: int) -> int:
    """Most pixels of a register tile that is `vectors` wide."""
    registers = machine.vector_registers
    if vectors == 1:
        most_pixels = registers - SPARE_REGISTERS - 1
        return most_pixels if registers > 16 else min(most_pixels, MOST_PIXELS_OF_ONE_VECTOR)
    most = range(registers // vectors, 0, -1)
    return next((p for p in most if p * vectors + the_fewer(p, vectors) <= registers), 1)


def macs_per_cycle(pixels: int, tile: int, vectors: int, machine: Machine) -> float:
    """Vector multiply-adds per cycle on a row of pixels; its last tile may be narrower."""
    whole, rest = divmod(pixels, tile)
    cycles = whole * _step_cycles(tile, vectors, machine)
    if rest:
        cycles += _step_cycles(rest, vectors, machine)
    return pixels * vectors / cycles


def _step_cycles(pixels: int, vectors: int, machine: Machine) -> float:
    """Cycles of one reduction step on a register tile, including loop overhead."""
    loop = machine.core.loop_cycles
    if machine.vector_bits < 512:
        loop += BANK_CYCLES * vectors * (vectors - 1) / 2
        if pixels * vectors + the_fewer(pixels, vectors) > machine.vector_registers - 2:
            loop += TIGHT_CYCLES
    return machine.step_cycles(pixels, vectors) + loop


def best_tile(extent: int, most: int) -> int:
    """Tile of at most `most` that wastes the fewest iterations over `extent`; larger is better."""
    tiles = range(1, min(extent, most) + 1)
    return min(tiles, key=lambda t: (-(-extent // t) * t * (1 + 1.5 / t), -t))


def fewest_vectors(channels: int, lanes: int) -> int:
    """Choose the block of fewest vectors: 24 channels are two of 16 rather than three of 8."""
    blocks = [lanes >> shift for shift in range(lanes.bit_length()) if lanes >> shift >= MIN_BLOCK]
    return min(blocks or [lanes], key=lambda block: (-(-channels // block), block))


def with_empty_lanes(channels: int, lanes: int) -> int:
    """Channels that a kernel reads: unchanged if less than a block, else rounded up to blocks."""
    block = fewest_vectors(channels, lanes)
    return channels if channels < block else -(-channels // block) * block


def channel_block(channels: int, lanes: int) -> int:
    """Largest power of two up to `lanes` that divides the channels."""
    block = lanes
    while channels % block:
        block //= 2
    return block
