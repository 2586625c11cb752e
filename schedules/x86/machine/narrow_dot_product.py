"""Four or eight products of bytes in every lane of a vector, by sums of pairs at 16 bits.

`pmaddubsw` multiplies uint8 by int8 and adds two neighbors, `pmaddwd` by ones adds two of these
sums in int32. Between them stands the sum of two steps where 16 bits hold it.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

MADD_WORDS = {
    16: "llvm.x86.avx512.pmaddw.d.512",
    8: "llvm.x86.avx2.pmadd.wd",
    4: "llvm.x86.sse2.pmadd.wd",
}
"""LLVM's names, by lanes of int32."""
MADD_BYTES = {
    16: "llvm.x86.avx512.pmaddubs.w.512",
    8: "llvm.x86.avx2.pmadd.ub.sw",
    4: "llvm.x86.ssse3.pmadd.ub.sw.128",
}


def pairs(lanes: int, four: Any, weights: Any) -> Any:
    """Sums of two products at 16 bits, each four bytes by the weights of a lane."""
    spread = T.broadcast(T.reinterpret(four, dtype="int32"), lanes)
    return T.call_llvm_pure_intrin(
        T.llvm_lookup_intrinsic_id(MADD_BYTES[lanes]),
        T.reinterpret(spread, dtype=f"int8x{4 * lanes}"),
        weights,
        dtype=f"int16x{2 * lanes}",
    )


def widened(lanes: int, pairs: Any) -> Any:
    """Sums of two neighbors of int16, in int32."""
    return T.call_llvm_pure_intrin(
        T.llvm_lookup_intrinsic_id(MADD_WORDS[lanes]),
        pairs,
        T.broadcast(T.int16(1), 2 * lanes),
        dtype=f"int32x{lanes}",
    )
