"""Four or eight products of bytes in every lane of a vector, by sums of pairs at 16 bits.

`pmaddubsw` multiplies uint8 by int8 and adds two neighbors, `pmaddwd` by ones adds two of these
sums in int32. Between them stands the sum of two steps where 16 bits hold it.
"""

# mypy: disable-error-code="valid-type"

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


def narrow_pair(lanes: int, columns: int) -> tuple[Any, Any]:
    """C[lanes] += A[8] . B[2, lanes, 4], with steps of B `columns` fours apart, and its code."""
    octets = f"int8x{4 * lanes}"

    @T.prim_func(s_tir=True)
    def description(
        A: T.Buffer((8,), "uint8", offset_factor=1),
        B: T.Buffer((2, lanes, 4), "int8", strides=[4 * columns, 4, 1], offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:8], B[0:2, 0:lanes, 0:4])
            T.writes(C[0:lanes])
            for h, i, k in T.grid(2, lanes, 4):
                with T.sblock("update"):
                    vi, vh, vk = T.axis.remap("SRR", [i, h, k])
                    C[vi] = C[vi] + T.cast(A[vh * 4 + vk], "int32") * T.cast(B[vh, vi, vk], "int32")

    @T.prim_func(s_tir=True)
    def implementation(
        A: T.Buffer((8,), "uint8", offset_factor=1),
        B: T.Buffer((2, lanes, 4), "int8", strides=[4 * columns, 4, 1], offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:8], B[0:2, 0:lanes, 0:4])
            T.writes(C[0:lanes])
            C[T.ramp(T.int32(0), 1, lanes)] = C.vload([0], dtype=f"int32x{lanes}") + widened(
                lanes,
                pairs(lanes, A.vload([0], "uint8x4"), B.vload([0, 0, 0], dtype=octets))
                + pairs(lanes, A.vload([4], "uint8x4"), B.vload([1, 0, 0], dtype=octets)),
            )

    return description, implementation
