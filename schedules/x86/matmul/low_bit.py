"""Numbers of a few bits in words of 32, and the steps of products that read a word in each lane.

A word's numbers are in order, low bits first. `vpermps` of AVX-512 looks a float32 up by the low
four bits of a lane, so a shift is all that it needs. Dot products of bytes take the numbers at the
same place of a word's bytes together, by a shift and a mask.
"""

from __future__ import annotations

import functools
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.target import Target, codegen

from ..machine import lane_intrinsic
from ..machine.dot_product import vnni_lanes, widened_lanes
from ..machine.lane_intrinsic import Operand

WORD = 32
_BYTES = WORD // 8

# A float32 of this exponent counts in units of its last place, 2**-23 of it.
_UNITS, _FRACTION = 2**23, 0x4B000000
_TABLE = 16  # lanes of `vpermps`, which looks numbers of four bits up


def bit_of_step(number: Any, bits: int) -> Any:
    """Where in a word the number begins that a dot product of bytes takes in this place."""
    return number % _BYTES * 8 + number // _BYTES * bits


def as_integer(word: Any, shift: Any, bits: int) -> Any:
    """The number at this bit of a word, as int32."""
    moved = word >> tirx.Cast("uint32", shift)
    return tirx.Cast("int32", moved & tirx.const((1 << bits) - 1, "uint32"))


def as_float(word: Any, place: Any, bits: int, zero: Any) -> Any:
    """The number at this place of a word less a zero point, as float32."""
    whole = as_integer(word, place * bits, bits)
    if isinstance(zero, int):  # the last bits of a float, which costs no conversion
        units = tirx.const(float(_UNITS + zero), "float32")
        return tirx.reinterpret("float32", whole | _FRACTION) - units
    return tirx.Cast("float32", whole) - zero


def has_table(target: Target, bits: int) -> bool:
    """Whether the target can look up numbers of `bits` bits in a vector register."""
    return 1 << bits <= _TABLE and "avx512f" in _features(target)


def multiplies_bytes(target: Target, bits: int) -> bool:
    """Whether dot products of int8 with `bits` bits are exact; without VNNI, 8 saturate 16 bits."""
    return bool(vnni_lanes(target)) or (bits < 8 and widened_lanes(target) >= 8)


def _features(target: Target) -> set[str]:
    return {str(name) for name in codegen.llvm_get_cpu_features(target)}


def _register_step(
    name: str, dtypes: tuple[str, str], extents: tuple[int, int], product: Any, sums: Any
) -> str:
    """Register C[lanes] += A[places] . numbers of B[lanes] under this name, and return the name.

    `dtypes` are of A and C, `extents` are (places, lanes). `product(a, b, place)` is of scalars,
    `sums(word, A, total)` of vectors.
    """
    (row, total), (places, lanes) = dtypes, extents
    return lane_intrinsic.register(
        name,
        Operand((lanes,), total),
        [Operand((places,), row), Operand((lanes,), "uint32")],
        [0, places],
        lambda a, b, i, k: product(a[k], b[i], k),
        lambda vector, a, b: sums(b.vload([0], dtype=f"uint32x{lanes}"), a, vector),
    )


@functools.lru_cache(maxsize=32)
def float_step(bits: int, zero: int | None) -> str:
    """Name of the tensor intrinsic C[16] += A[places] . (numbers of B[16] - zero), by a table.

    Without a zero point there is an operand Z[16]. It is registered at the first call.
    """
    places, lanes = WORD // bits, _TABLE
    look_up = T.llvm_lookup_intrinsic_id("llvm.x86.avx512.permvar.sf.512")
    floats = f"float32x{lanes}"
    table = tirx.Ramp(tirx.const(0, "int32"), tirx.const(1, "int32"), lanes)
    if 1 << bits < _TABLE:
        table = table & tirx.Broadcast(tirx.const((1 << bits) - 1, "int32"), lanes)
    table = tirx.Cast(floats, table - tirx.Broadcast(tirx.const(zero or 0, "int32"), lanes))

    def number(word: Any, place: int) -> Any:
        index = word >> tirx.Broadcast(tirx.const(place * bits, "uint32"), lanes) if place else word
        index = tirx.reinterpret(f"int32x{lanes}", index)
        return T.call_llvm_pure_intrin(look_up, table, index, dtype=floats)

    def sums(word: Any, row: Any, total: Any, zeros: Any = None) -> Any:
        for place in range(places):
            weight = number(word, place)
            weight = weight if zeros is None else weight - zeros
            total = total + tirx.Broadcast(row[place], lanes) * weight
        return total

    name = f"baton_{bits}_bits_{'less' if zero is None else zero}"
    if zero is not None:

        def product(a: Any, b: Any, place: Any) -> Any:
            return a * as_float(b, place, bits, zero)

        return _register_step(name, ("float32", "float32"), (places, lanes), product, sums)

    words, row = Operand((lanes,), "uint32"), Operand((places,), "float32")
    vector = Operand((lanes,), "float32")
    return lane_intrinsic.register(
        name,
        vector,
        [row, words, vector],
        [0, places],
        lambda a, b, z, i, k: a[k] * as_float(b[i], k, bits, z[i]),
        lambda total, a, b, z: sums(
            b.vload([0], dtype=f"uint32x{lanes}"), a, total, z.vload([0], dtype=floats)
        ),
    )


@functools.lru_cache(maxsize=32)
def byte_step(bits: int, lanes: int, is_vnni: bool) -> str:
    """Name of int32 intrinsic C[lanes] += A . numbers of B[lanes]; A's order: `bit_of_step`."""
    numbers = WORD // bits
    mask = sum(((1 << bits) - 1) << (8 * byte) for byte in range(_BYTES))
    integers, octets, pairs = f"int32x{lanes}", f"int8x{4 * lanes}", f"int16x{2 * lanes}"
    ones = tirx.Broadcast(tirx.const(1, "int16"), 2 * lanes)

    def call(name: str, dtype: str, *operands: Any) -> Any:
        number = T.llvm_lookup_intrinsic_id(f"llvm.x86.{name}")
        return T.call_llvm_pure_intrin(number, *operands, dtype=dtype)

    def plus(total: Any, unsigned: Any, signed: Any) -> Any:
        if is_vnni:
            return call(f"avx512.vpdpbusd.{32 * lanes}", integers, total, unsigned, signed)
        madd, sum_ = {
            16: ("avx512.pmaddubs.w.512", "avx512.pmaddw.d.512"),
            8: ("avx2.pmadd.ub.sw", "avx2.pmadd.wd"),
        }[lanes]
        return total + call(sum_, integers, call(madd, pairs, unsigned, signed), ones)

    def sums(word: Any, row: Any, total: Any) -> Any:
        for part in range(8 // bits):
            moved = word >> tirx.Broadcast(tirx.const(part * bits, "uint32"), lanes)
            unsigned = moved & tirx.Broadcast(tirx.const(mask, "uint32"), lanes)
            four = tirx.reinterpret("int32", row.vload([part * _BYTES], "int8x4"))
            operands = (unsigned, tirx.Broadcast(four, lanes))
            total = plus(total, *(tirx.reinterpret(octets, each) for each in operands))
        return total

    def product(a: Any, b: Any, place: Any) -> Any:
        return tirx.Cast("int32", a) * as_integer(b, bit_of_step(place, bits), bits)

    name = f"baton_{bits}_bits_{'vpdpbusd' if is_vnni else 'pmaddubsw'}_{lanes}"
    return _register_step(name, ("int8", "int32"), (numbers, lanes), product, sums)
