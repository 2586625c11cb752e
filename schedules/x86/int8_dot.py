"""Dot products of four bytes, uint8 by int8 into int32, in every lane of a vector.

`vpdpbusd` (AVX512-VNNI, AVX-VNNI) does it in one instruction and exactly. Without it bytes are
widened to 16 bits, those in even places and those in odd ones, for two `pmaddwd`; `pmaddubsw`
saturates in 16 bits and is not used. TVM 0.27's own intrinsic of that name passes vectors of a type
that LLVM 22 refuses.
"""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

import functools
from typing import Any

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T
from tvm.target import Target, codegen

BYTES = 4  # of one dot product


def vnni_lanes(target: Target) -> int:
    """int32 lanes of the widest `vpdpbusd` that the target has; 0 without one."""
    features = {str(name) for name in codegen.llvm_get_cpu_features(target)}
    if "avx512vnni" in features:
        return 16
    return 8 if "avxvnni" in features else 0


def widened_lanes(target: Target) -> int:
    """int32 lanes of the widest `pmaddwd` that the target has; 0 where it is no x86."""
    features = {str(name) for name in codegen.llvm_get_cpu_features(target)}
    for feature, lanes in (("avx512bw", 16), ("avx2", 8), ("sse2", 4)):
        if feature in features:
            return lanes
    return 0


@functools.lru_cache(maxsize=8)
def dot_intrinsic(lanes: int, is_widened: bool = False) -> str:
    """Name of the tensor intrinsic C[lanes] += A[4] . B[lanes, 4]; registered at the first call."""
    name = f"baton_{'pmaddwd' if is_widened else 'vpdpbusd'}_{lanes}"
    implementation = _widened(lanes) if is_widened else _implementation(lanes)
    TensorIntrin.register(name, _description(lanes), implementation)
    return name


def _description(lanes: int) -> Any:
    @T.prim_func(s_tir=True)
    def description(
        A: T.Buffer((4,), "uint8", offset_factor=1),
        B: T.Buffer((lanes, 4), "int8", offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:4], B[0:lanes, 0:4])
            T.writes(C[0:lanes])
            for i, k in T.grid(lanes, 4):
                with T.sblock("update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    C[vi] = C[vi] + T.cast(A[vk], "int32") * T.cast(B[vi, vk], "int32")

    return description


def _implementation(lanes: int) -> Any:
    instruction = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
    numbers, octets = f"int32x{lanes}", f"int8x{4 * lanes}"

    @T.prim_func(s_tir=True)
    def implementation(
        A: T.Buffer((4,), "uint8", offset_factor=1),
        B: T.Buffer((lanes, 4), "int8", offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:4], B[0:lanes, 0:4])
            T.writes(C[0:lanes])
            C[T.ramp(T.int32(0), 1, lanes)] = T.call_llvm_pure_intrin(
                T.llvm_lookup_intrinsic_id(instruction),
                C.vload([0], dtype=numbers),
                T.reinterpret(
                    T.broadcast(T.reinterpret(A.vload([0], "uint8x4"), dtype="int32"), lanes),
                    dtype=octets,
                ),
                B.vload([0, 0], dtype=octets),
                dtype=numbers,
            )

    return implementation


def _widened(lanes: int) -> Any:
    instruction = {16: "avx512.pmaddw.d.512", 8: "avx2.pmadd.wd", 4: "sse2.pmadd.wd"}[lanes]
    instruction = f"llvm.x86.{instruction}"
    numbers, octets, words = f"int32x{lanes}", f"int8x{4 * lanes}", f"int16x{2 * lanes}"

    @T.prim_func(s_tir=True)
    def implementation(
        A: T.Buffer((4,), "uint8", offset_factor=1),
        B: T.Buffer((lanes, 4), "int8", offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:4], B[0:lanes, 0:4])
            T.writes(C[0:lanes])
            C[T.ramp(T.int32(0), 1, lanes)] = (
                C.vload([0], dtype=numbers)
                + T.call_llvm_pure_intrin(
                    T.llvm_lookup_intrinsic_id(instruction),
                    T.reinterpret(
                        T.broadcast(
                            T.bitwise_and(
                                T.reinterpret(A.vload([0], "uint8x4"), dtype="int32"),
                                T.int32(0x00FF00FF),
                            ),
                            lanes,
                        ),
                        dtype=words,
                    ),
                    T.shift_right(
                        T.shift_left(
                            T.reinterpret(B.vload([0, 0], dtype=octets), dtype=words),
                            T.broadcast(T.int16(8), 2 * lanes),
                        ),
                        T.broadcast(T.int16(8), 2 * lanes),
                    ),
                    dtype=numbers,
                )
                + T.call_llvm_pure_intrin(
                    T.llvm_lookup_intrinsic_id(instruction),
                    T.reinterpret(
                        T.broadcast(
                            T.bitwise_and(
                                T.shift_right(
                                    T.reinterpret(A.vload([0], "uint8x4"), dtype="int32"),
                                    T.int32(8),
                                ),
                                T.int32(0x00FF00FF),
                            ),
                            lanes,
                        ),
                        dtype=words,
                    ),
                    T.shift_right(
                        T.reinterpret(B.vload([0, 0], dtype=octets), dtype=words),
                        T.broadcast(T.int16(8), 2 * lanes),
                    ),
                    dtype=numbers,
                )
            )

    return implementation


def accumulate(sch: Any, block: Any, reduced: Any, target: Target) -> None:
    """Finish a block C[.., lane] += A[.., step] * B[.., lane, step] with loops (.., lane, step).

    The loop over lanes is cut into vectors, each a `vpdpbusd` or two `pmaddwd` where the target has
    them, and else vector code over the lanes.

    Parameters
    ----------
    reduced
        The outermost reduction loop; the sums start at zero in front of it.
    """
    lane, step = sch.get_loops(block)[-2:]
    width = int(sch.get(lane).extent)
    lanes, is_widened = vnni_lanes(target), False
    if not lanes:
        lanes, is_widened = min(widened_lanes(target), width), True
    if lanes and width % lanes == 0:
        vector, lane = sch.split(lane, [None, lanes])
        sch.unroll(vector)
        start = sch.decompose_reduction(block, reduced)
        sch.vectorize(sch.get_loops(start)[-1])
        sch.tensorize(lane, dot_intrinsic(lanes, is_widened))
        return
    sch.reorder(step, lane)
    sch.unroll(step)
    sch.vectorize(lane)
    sch.decompose_reduction(block, reduced)
