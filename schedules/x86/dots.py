"""Dot products of a few neighbours in every lane of a vector.

Four bytes, uint8 by int8 into int32: `vpdpbusd` (AVX512-VNNI, AVX-VNNI) does it in one instruction
and exactly. Without it both operands are kept in memory as int16, two for a `pmaddwd`: weights are
widened when the library is built, what they meet once for all of them. `pmaddubsw` saturates at 16
bits and is not used.

Two bfloat16 into float32: `vdpbf16ps` (AVX512-BF16), whose sums are rounded once for each product
and have denormal numbers as zeros.
"""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, NamedTuple

from tvm import te
from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T
from tvm.target import Target, codegen

from ..config import ConfigEntity, option
from .machine import Machine

BYTES = 4  # of one step of a dot product, in each operand
WIDENED = "widened"
"""The knob of configs whose bytes are kept as int16."""


class Dot(NamedTuple):
    """What a step multiplies: `size` neighbours of two operands, whose products it sums.

    Attributes
    ----------
    name : str
        Of the operands' type, in the names of implementations.
    """

    name: str
    size: int
    data: str
    weight: str
    sums: str

    def takes(self, data: str, weight: str, sums: str) -> bool:
        """Whether these element types are its own; a weight of "" has the data's."""
        return (data, weight or data, sums) == (self.data, self.weight, self.sums)

    def is_fast_on(self, target: Target) -> bool:
        """Whether implementations are worth while: for bytes always."""
        return self is OF_BYTES or has_bfloat16(target)


OF_BYTES = Dot("int8", 4, "uint8", "int8", "int32")
OF_WORDS = Dot("int8", 2, "int16", "int16", "int32")
OF_BFLOAT16 = Dot("bf16", 2, "bfloat16", "bfloat16", "float32")
DOTS = (OF_BYTES, OF_BFLOAT16)


def dot_of(data: str, weight: str, sums: str) -> Dot | None:
    """The dot product of operands of these element types, if there is one."""
    return next((dot for dot in DOTS if dot.takes(data, weight, sums)), None)


def knobs(dot: Dot, target: Target) -> dict[str, Any]:
    """What a config says of how operands are kept: bytes without VNNI are widened."""
    is_wide = dot is OF_BYTES and not vnni_lanes(target) and widened_lanes(target) > 0
    return {WIDENED: option(True)} if is_wide else {}


def kept(dot: Dot, config: ConfigEntity) -> Dot:
    """What one step multiplies, in the types that its operands are kept in."""
    return OF_WORDS if WIDENED in config else dot


def machine_of(dot: Dot, target: Target) -> Machine:
    """The machine as register tiles see it: LLVM adds products to each other before it adds them to
    their sums, and keeps some of them in registers meanwhile."""
    machine = Machine.from_target(target)
    if not knobs(dot, target):
        return machine
    return replace(machine, vector_registers=machine.vector_registers * 3 // 4, has_fma=False)


def as_kept(dtype: str, data: te.Tensor) -> te.Tensor:
    """A copy of data of another type than the one in which it is multiplied."""
    if str(data.dtype) == dtype:
        return data
    return te.compute(data.shape, lambda *at: data(*at).astype(dtype), name="widened")


def has_bfloat16(target: Target) -> bool:
    """Whether the target is a CPU with AVX512-BF16."""
    return target.kind.name == "llvm" and "avx512bf16" in _features(target)


def _features(target: Target) -> set[str]:
    return {str(name) for name in codegen.llvm_get_cpu_features(target)}


def vnni_lanes(target: Target) -> int:
    """int32 lanes of the widest `vpdpbusd` that the target has; 0 without one."""
    features = _features(target)
    if "avx512vnni" in features:
        return 16
    return 8 if "avxvnni" in features else 0


def widened_lanes(target: Target) -> int:
    """int32 lanes of the widest `pmaddwd` that the target has; 0 where it is no x86."""
    features = _features(target)
    for feature, lanes in (("avx512bw", 16), ("avx2", 8), ("sse2", 4)):
        if feature in features:
            return lanes
    return 0


@functools.lru_cache(maxsize=8)
def bfloat16_intrinsic() -> str:
    """Name of the tensor intrinsic C[16] += A[2] . B[16, 2]; registered at the first call."""
    name = "baton_vdpbf16ps_16"
    TensorIntrin.register(name, *_bfloat16())
    return name


@functools.lru_cache(maxsize=8)
def dot_intrinsic(lanes: int) -> str:
    """Name of the tensor intrinsic C[lanes] += A[4] . B[lanes, 4]; registered at the first call."""
    name = f"baton_vpdpbusd_{lanes}"
    TensorIntrin.register(name, _description(lanes), _implementation(lanes))
    return name


@functools.lru_cache(maxsize=8)
def words_intrinsic(lanes: int) -> str:
    """Name of the tensor intrinsic C[lanes] += A[2] . B[lanes, 2]; registered at the first call."""
    name = f"baton_pmaddwd_{lanes}"
    TensorIntrin.register(name, *_of_words(lanes))
    return name


@functools.lru_cache(maxsize=8)
def squares_dot_intrinsic(lanes: int) -> str:
    """Name of the tensor intrinsic C[lanes] += A[lanes, 2, 2] . B[lanes, 2, 2], lane by lane."""
    name = f"baton_vpdpbusd_lanes_{lanes}"
    TensorIntrin.register(name, *_lane_by_lane(lanes))
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


def _lane_by_lane(lanes: int) -> tuple[Any, Any]:
    instruction = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
    numbers, octets = f"int32x{lanes}", f"int8x{4 * lanes}"

    @T.prim_func(s_tir=True)
    def description(
        A: T.Buffer((lanes, 2, 2), "uint8", offset_factor=1),
        B: T.Buffer((lanes, 2, 2), "int8", offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:lanes, 0:2, 0:2], B[0:lanes, 0:2, 0:2])
            T.writes(C[0:lanes])
            for i, y, x in T.grid(lanes, 2, 2):
                with T.sblock("update"):
                    vi, vy, vx = T.axis.remap("SRR", [i, y, x])
                    C[vi] = C[vi] + T.cast(A[vi, vy, vx], "int32") * T.cast(B[vi, vy, vx], "int32")

    @T.prim_func(s_tir=True)
    def implementation(
        A: T.Buffer((lanes, 2, 2), "uint8", offset_factor=1),
        B: T.Buffer((lanes, 2, 2), "int8", offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:lanes, 0:2, 0:2], B[0:lanes, 0:2, 0:2])
            T.writes(C[0:lanes])
            C[T.ramp(T.int32(0), 1, lanes)] = T.call_llvm_pure_intrin(
                T.llvm_lookup_intrinsic_id(instruction),
                C.vload([0], dtype=numbers),
                T.reinterpret(A.vload([0, 0, 0], dtype=f"u{octets}"), dtype=octets),
                B.vload([0, 0, 0], dtype=octets),
                dtype=numbers,
            )

    return description, implementation


def _of_words(lanes: int) -> tuple[Any, Any]:
    instruction = {16: "avx512.pmaddw.d.512", 8: "avx2.pmadd.wd", 4: "sse2.pmadd.wd"}[lanes]
    instruction = f"llvm.x86.{instruction}"
    numbers, words = f"int32x{lanes}", f"int16x{2 * lanes}"

    @T.prim_func(s_tir=True)
    def description(
        A: T.Buffer((2,), "int16", offset_factor=1),
        B: T.Buffer((lanes, 2), "int16", offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:2], B[0:lanes, 0:2])
            T.writes(C[0:lanes])
            for i, k in T.grid(lanes, 2):
                with T.sblock("update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    C[vi] = C[vi] + T.cast(A[vk], "int32") * T.cast(B[vi, vk], "int32")

    @T.prim_func(s_tir=True)
    def implementation(
        A: T.Buffer((2,), "int16", offset_factor=1),
        B: T.Buffer((lanes, 2), "int16", offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:2], B[0:lanes, 0:2])
            T.writes(C[0:lanes])
            C[T.ramp(T.int32(0), 1, lanes)] = C.vload([0], dtype=numbers) + T.call_llvm_pure_intrin(
                T.llvm_lookup_intrinsic_id(instruction),
                T.reinterpret(
                    T.broadcast(T.reinterpret(A.vload([0], "int16x2"), dtype="int32"), lanes),
                    dtype=words,
                ),
                B.vload([0, 0], dtype=words),
                dtype=numbers,
            )

    return description, implementation


def _bfloat16() -> tuple[Any, Any]:
    """Description and implementation; `tir_passes.bfloat16` gives the operands their LLVM type."""

    @T.prim_func(s_tir=True)
    def description(
        A: T.Buffer((2,), "bfloat16", offset_factor=1),
        B: T.Buffer((16, 2), "bfloat16", offset_factor=1),
        C: T.Buffer((16,), "float32", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:16], A[0:2], B[0:16, 0:2])
            T.writes(C[0:16])
            for i, k in T.grid(16, 2):
                with T.sblock("update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    C[vi] = C[vi] + T.cast(A[vk], "float32") * T.cast(B[vi, vk], "float32")

    @T.prim_func(s_tir=True)
    def implementation(
        A: T.Buffer((2,), "bfloat16", offset_factor=1),
        B: T.Buffer((16, 2), "bfloat16", offset_factor=1),
        C: T.Buffer((16,), "float32", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:16], A[0:2], B[0:16, 0:2])
            T.writes(C[0:16])
            C[T.ramp(T.int32(0), 1, 16)] = T.call_llvm_pure_intrin(
                T.llvm_lookup_intrinsic_id("llvm.x86.avx512bf16.dpbf16ps.512"),
                C.vload([0], dtype="float32x16"),
                T.reinterpret(
                    T.broadcast(T.reinterpret(A.vload([0], "bfloat16x2"), dtype="int32"), 16),
                    dtype="uint16x32",
                ),
                T.reinterpret(B.vload([0, 0], dtype="bfloat16x32"), dtype="uint16x32"),
                dtype="float32x16",
            )

    return description, implementation


def accumulate(sch: Any, block: Any, reduced: Any, target: Target) -> None:
    """Finish a block C[.., lane] += A[.., step] * B[.., lane, step] with loops (.., lane, step).

    The loop over lanes is cut into vectors, each a `vdpbf16ps`, a `vpdpbusd` or a `pmaddwd` where
    the target has them, and else vector code over the lanes.

    Parameters
    ----------
    reduced
        The outermost reduction loop; the sums start at zero in front of it.
    """
    lane, step = sch.get_loops(block)[-2:]
    width = int(sch.get(lane).extent)
    lanes, intrinsic = _instruction(sch, block, width, target)
    if lanes and width % lanes == 0:
        vector, lane = sch.split(lane, [None, lanes])
        sch.unroll(vector)
        start = sch.decompose_reduction(block, reduced)
        sch.vectorize(sch.get_loops(start)[-1])
        sch.tensorize(lane, intrinsic)
        return
    sch.reorder(step, lane)
    sch.unroll(step)
    sch.vectorize(lane)
    sch.decompose_reduction(block, reduced)


def _instruction(sch: Any, block: Any, width: int, target: Target) -> tuple[int, str]:
    """Lanes and name of the tensor intrinsic for a block; 0 where the target has none."""
    dtypes = {str(region.source.dtype) for region in sch.get(block).reads}
    if OF_BFLOAT16.data in dtypes:
        return (16, bfloat16_intrinsic()) if has_bfloat16(target) else (0, "")
    if OF_WORDS.data in dtypes:
        lanes = min(widened_lanes(target), width)
        return lanes, words_intrinsic(lanes)
    lanes = vnni_lanes(target)
    return lanes, dot_intrinsic(lanes) if lanes else ""
