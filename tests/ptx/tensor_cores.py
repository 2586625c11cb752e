"""Matrix instructions of a warp, on registers as arrays of (warps, 32 lanes).

Where the elements of `mma` and `ldmatrix` lie is written in NVIDIA's "Parallel Thread Execution
ISA"; those of `wmma`, which NVIDIA leaves open, lie here in the order of their rows.
"""

from __future__ import annotations

import functools
import re

import numpy as np

from tests.ptx.numbers import decode, encode
from tests.ptx.program import BYTES, PtxError

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_LANE = np.arange(32)
_GROUP, _IN_GROUP = _LANE // 4, _LANE % 4
# Registers of a wmma fragment where they hold less than the whole.
WMMA_ELEMENTS = {"f16": "f16", "bf16": "bf16", "tf32": "tf32", "s8": "s8", "u8": "u8"}


def shape(opcode: tuple[str, ...]) -> tuple[int, int, int]:
    """m, n and k of an instruction."""
    match = next((_SHAPE.fullmatch(part) for part in opcode if _SHAPE.fullmatch(part)), None)
    if match is None:
        raise PtxError(f"{'.'.join(opcode)} has no shape")
    return int(match[1]), int(match[2]), int(match[3])


def mma(
    opcode: tuple[str, ...], a: list[np.ndarray], b: list[np.ndarray], c: list[np.ndarray]
) -> list[np.ndarray]:
    """`mma.sync`: the registers of d from those of a, b and c.

    Parameters
    ----------
    opcode
        Its last four parts are the types of d, a, b and c.
    a, b, c : list of numpy.ndarray
        (warps, 32) unsigned integers, one for each register.

    Returns
    -------
    list of numpy.ndarray
        The same for d. Products are exact; sums are in float64 or int64, rounded once.

    Raises
    ------
    PtxError
        A shape or type that is not known here.
    """
    m, n, k = shape(opcode)
    kinds = opcode[-4:]
    if n != 8 or m not in (8, 16) or "row" not in opcode or "col" not in opcode:
        raise PtxError(f"{'.'.join(opcode)} is not known")
    left = _matrix(a, kinds[1], (m, k), _places_a(m, k, BYTES[kinds[1]]))
    right = _matrix(b, kinds[2], (k, n), _places_b(k, BYTES[kinds[2]]))
    places = _places_c(m, BYTES[kinds[0]])
    total = left @ right + _matrix(c, kinds[3], (m, n), _places_c(m, BYTES[kinds[3]]))
    return _registers(_limited(total, kinds[0], opcode), kinds[0], places)


def fragment_of_a(registers: list[np.ndarray], kind: str, k: int) -> np.ndarray:
    """(warps, 16, k) from the registers of a first operand, as `mma` and `wgmma` have it."""
    return _matrix(registers, kind, (16, k), _places_a(16, k, BYTES[kind]))


def wmma_load(opcode: tuple[str, ...], elements: np.ndarray, registers: int) -> list[np.ndarray]:
    """Registers of a fragment from its matrix, (warps, rows, columns) as unsigned integers."""
    kind = opcode[-1]
    warps = len(elements)
    per = 4 // BYTES[kind]
    flat = elements.reshape(warps, -1).astype(f"u{BYTES[kind]}")
    words = np.ascontiguousarray(flat).view(np.uint32)
    assert words.shape[1] * per == flat.shape[1]
    used = words.shape[1] // 32
    filled = np.zeros((warps, 32, registers), np.uint32)
    filled[:, :, :used] = words.reshape(warps, 32, used)
    return [filled[:, :, i] for i in range(registers)]


def wmma_matrix(registers: list[np.ndarray], kind: str, rows: int, columns: int) -> np.ndarray:
    """The matrix of a fragment, (warps, rows, columns) as unsigned integers."""
    used = rows * columns * BYTES[kind] // 4 // 32
    words = np.stack(registers[:used], 2).astype(np.uint32)
    flat = np.ascontiguousarray(words.reshape(len(words), -1)).view(f"u{BYTES[kind]}")
    return flat.reshape(-1, rows, columns)


def wmma(
    opcode: tuple[str, ...], a: list[np.ndarray], b: list[np.ndarray], c: list[np.ndarray]
) -> list[np.ndarray]:
    """`wmma.mma.sync`, as `mma`; the types of half products are those of d and c alone."""
    m, n, k = shape(opcode)
    kinds = [part for part in opcode if part in BYTES]
    kinds = [kinds[0], "f16", "f16", kinds[1]] if len(kinds) == 2 else kinds
    left = _values(wmma_matrix(a, kinds[1], m, k), kinds[1])
    right = _values(wmma_matrix(b, kinds[2], k, n), kinds[2])
    total = left @ right + _values(wmma_matrix(c, kinds[3], m, n), kinds[3])
    total = _limited(total, kinds[0], opcode)
    bits = encode(total.reshape(-1), kinds[0]).reshape(total.shape)
    return wmma_load((kinds[0],), bits, len(bits[0].reshape(-1)) * BYTES[kinds[0]] // 128)


def _values(bits: np.ndarray, kind: str) -> np.ndarray:
    wide = np.float64 if kind[0] in "fbt" else np.int64
    return decode(bits.reshape(-1), kind).astype(wide).reshape(bits.shape)


def _limited(total: np.ndarray, kind: str, opcode: tuple[str, ...]) -> np.ndarray:
    if "satfinite" in opcode:
        return np.clip(total, -(2**31), 2**31 - 1)
    return total


def _matrix(
    registers: list[np.ndarray], kind: str, size: tuple[int, int], places: np.ndarray
) -> np.ndarray:
    """(warps, rows, columns) from registers; `places` are (registers, 32, elements, 2)."""
    words = np.stack(registers, 1).astype(np.uint32)  # warps, registers, lanes
    width = BYTES[kind]
    elements = np.ascontiguousarray(words).view(f"u{width}")
    values = _values(elements.reshape(*words.shape, 4 // width), kind)
    result = np.empty((len(words), *size), values.dtype)
    result[:, places[..., 0], places[..., 1]] = values
    return result


def _registers(matrix: np.ndarray, kind: str, places: np.ndarray) -> list[np.ndarray]:
    values = matrix[:, places[..., 0], places[..., 1]]
    bits = encode(values.reshape(-1), kind).reshape(values.shape)
    words = np.ascontiguousarray(bits).view(np.uint32)[..., 0]
    return [words[:, i] for i in range(words.shape[1])]


@functools.cache
def _places_a(m: int, k: int, width: int) -> np.ndarray:
    """Row and column of each element of a: of a register, a lane, and a part of the register."""
    parts, halves = 4 // width, m // 8
    count = m * k // (32 * parts)
    register, part = np.arange(count)[:, None, None], np.arange(parts)
    row = _GROUP[:, None] + 8 * (register % halves) + 0 * part
    column = _IN_GROUP[:, None] * parts + part + (register // halves) * 4 * parts
    return np.stack(np.broadcast_arrays(row, column), -1)


@functools.cache
def _places_b(k: int, width: int) -> np.ndarray:
    parts = 4 // width
    register, part = np.arange(k * 8 // (32 * parts))[:, None, None], np.arange(parts)
    row = _IN_GROUP[:, None] * parts + part + register * 4 * parts
    return np.stack(np.broadcast_arrays(row, _GROUP[:, None]), -1)


@functools.cache
def _places_c(m: int, width: int) -> np.ndarray:
    parts = 4 // width
    register, part = np.arange(m * 8 // (32 * parts))[:, None, None], np.arange(parts)
    element = register * parts + part
    row = _GROUP[:, None] + 8 * (element // 2)
    column = _IN_GROUP[:, None] * 2 + element % 2
    return np.stack(np.broadcast_arrays(row, column), -1)


def ldmatrix(rows: np.ndarray, transposed: bool) -> list[np.ndarray]:
    """Registers from rows: (warps, matrices, 8 rows, 4 words) as uint32."""
    halves = np.ascontiguousarray(rows).view(np.uint16)  # warps, matrices, 8, 8
    if transposed:
        halves = halves.swapaxes(2, 3)
    words = np.ascontiguousarray(halves).view(np.uint32)
    return [words[:, i].reshape(-1, 32) for i in range(words.shape[1])]
