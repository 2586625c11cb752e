"""Dot products of neighboring elements in each lane of a vector.

Four uint8 x int8 into int32: `vpdpbusd` (AVX512-VNNI, AVX-VNNI) is one exact instruction. Without
it, `pmaddubsw` sums two products at 16 bits and saturates. It is used if the constant weights are
too small to saturate it (`narrow_steps`), for example 7-bit weights. For other weights, both
operands are stored as int16 and multiplied in pairs by `pmaddwd`: weights are widened at build
time, data once for all weights.

Two bfloat16 into float32: `vdpbf16ps` (AVX512-BF16) rounds the sum once per product and flushes
denormals to zero.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from tvm import te
from tvm.script import tirx as T
from tvm.target import Target, codegen

from ...anchor import anchor_config
from ...config import ConfigEntity, option
from . import lane_intrinsic
from .cpu import Machine
from .lane_intrinsic import Operand
from .narrow_dot_product import MADD_WORDS, pairs, widened

BYTES = 4  # per operand in one step of a dot product
WIDENED = "widened"
"""Knob of configs that store bytes as int16."""
NARROW = "narrow"
"""Knob of configs that sum products at 16 bits first; its value is the number of steps summed."""
MOST_NARROW = 2
MOST_OF_A_SIGN = 128  # times 255 fits int16, with either sign


class Dot(NamedTuple):
    """One step of a dot product: the sum of products of `size` neighbors of two operands."""

    name: str  # name of the operand type in the names of implementations
    size: int
    data: str
    weight: str
    sums: str

    def takes(self, data: str, weight: str, sums: str) -> bool:
        """Whether the dtypes match this dot product; weight "" has the dtype of the data."""
        return (data, weight or data, sums) == (self.data, self.weight, self.sums)

    def is_fast_on(self, target: Target) -> bool:
        """Whether the target has an instruction; bytes use loops without one."""
        return self is OF_BYTES or has_bfloat16(target)

    def rate(self, machine: Machine) -> float:
        """Dot product steps issued per multiply-add with the same number of lanes."""
        return machine.core.short_rate if self is OF_BFLOAT16 else 1.0


OF_BYTES = Dot("int8", 4, "uint8", "int8", "int32")
OF_WORDS = Dot("int8", 2, "int16", "int16", "int32")
OF_BFLOAT16 = Dot("bf16", 2, "bfloat16", "bfloat16", "float32")
DOTS = (OF_BYTES, OF_BFLOAT16)

# Products in the time of one float32 product, measured on a Granite Rapids with AVX2 only:
# for int16 operands, and by the number of steps whose sums fit int16.
SPEEDUP_OF_WIDENED, SPEEDUP_OF_NARROW = 1.7, {1: 2.2, 2: 2.7}


def dot_of(data: str, weight: str, sums: str) -> Dot | None:
    """Return the dot product for these dtypes, or None."""
    return next((dot for dot in DOTS if dot.takes(data, weight, sums)), None)


def narrow_steps(weights: np.ndarray, target: Target) -> int:
    """Return the number of steps whose pair sums with these weights fit int16 for any data.

    `weights`: int8, with the reduction axis last, in the order of multiplication.
    Returns the largest of 2, 1 and 0 that fits. A pair is two neighbors of a step; with 2, the
    pairs of two consecutive steps are added. 0 if the target has VNNI or no `pmaddubsw`.
    """
    if target.kind.name != "llvm" or vnni_lanes(target) or not narrow_lanes(target):
        return 0
    fit = (steps for steps in (2, 1) if widest(weights, steps).max(initial=0) <= MOST_OF_A_SIGN)
    return next(fit, 0)


def widest(weights: np.ndarray, steps: int) -> np.ndarray:
    """Largest same-sign weight sum in an int16 lane, by index of the first axis (reduction last).

    Products with uint8 fit up to `MOST_OF_A_SIGN`.
    """
    whole = -weights.shape[-1] % (MOST_NARROW * BYTES)
    padded = np.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(0, whole)]).astype("int16")
    lanes = padded.reshape(len(weights), -1, steps, BYTES // 2, 2)
    of_signs = (np.maximum(sign * lanes, 0).sum((2, 4)) for sign in (1, -1))
    return np.maximum(*of_signs).max((1, 2), initial=0)


def largest_sum(weights: np.ndarray) -> int:
    """Bound the dot products of bytes with int8 weights, one for each index of the first axis."""
    rows = weights.reshape(len(weights), -1).astype("int32")
    parts = (np.maximum(sign * rows, 0).sum(1, dtype="int64") for sign in (1, -1))
    return 255 * max(int(part.max(initial=0)) for part in parts)


def knobs(dot: Dot, target: Target, narrow: int = 0) -> dict[str, Any]:
    """Return the knobs for operand storage. Bytes without VNNI are widened, unless the products of
    `narrow` steps (see `narrow_steps`) fit int16."""
    if dot is not OF_BYTES or vnni_lanes(target) or not widened_lanes(target):
        return {}
    if narrow:
        return {NARROW: option(narrow)}
    return {WIDENED: option(True)}


def kept(dot: Dot, config: ConfigEntity) -> Dot:
    """Return the dot product in the dtypes that its operands are stored in."""
    return OF_WORDS if WIDENED in config else dot


def speedup(dot: Dot, target: Target, narrow: int) -> float:
    """Products per lane in the time of one float multiply-add."""
    own = knobs(dot, target, narrow)
    if NARROW in own:
        return SPEEDUP_OF_NARROW[narrow]
    return SPEEDUP_OF_WIDENED if own else dot.size * dot.rate(Machine.from_target(target))


def machine_of(dot: Dot, target: Target) -> Machine:
    """Return the machine model for register tiles. LLVM adds products to each other before adding
    them to the sums, and keeps some of them in registers meanwhile."""
    machine = Machine.from_target(target)
    if not knobs(dot, target):
        return machine
    return replace(machine, vector_registers=machine.vector_registers * 3 // 4, has_fma=False)


def as_kept(dtype: str, data: te.Tensor) -> te.Tensor:
    """Cast data to the dtype in which it is multiplied; unchanged if it already has it."""
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
    """int32 lanes of the widest `pmaddwd` that the target has; 0 if the target is not x86."""
    features = _features(target)
    for feature, lanes in (("avx512bw", 16), ("avx2", 8), ("sse2", 4)):
        if feature in features:
            return lanes
    return 0


def narrow_lanes(target: Target) -> int:
    """int32 lanes of the widest `pmaddubsw` that the target has; 0 without one."""
    return widened_lanes(target) if "ssse3" in _features(target) else 0


@functools.lru_cache(maxsize=8)
def bfloat16_intrinsic() -> str:
    """Name of the tensor intrinsic C[16] += A[2] . B[16, 2]; registered at the first call.

    `kernel_passes.bfloat16` gives operands their LLVM type.
    """

    def add(sums: Any, data: Any, weights: Any) -> Any:
        return T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("llvm.x86.avx512bf16.dpbf16ps.512"),
            sums,
            _spread(data, 16, "uint16x32"),
            T.reinterpret(weights, dtype="uint16x32"),
            dtype="float32x16",
        )

    return _registered("baton_vdpbf16ps_16", OF_BFLOAT16, 16, add)


@functools.lru_cache(maxsize=8)
def dot_intrinsic(lanes: int) -> str:
    """Name of the tensor intrinsic C[lanes] += A[4] . B[lanes, 4]; registered at the first call."""

    def add(sums: Any, data: Any, weights: Any) -> Any:
        return T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id(f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"),
            sums,
            _spread(data, lanes, f"int8x{4 * lanes}"),
            weights,
            dtype=f"int32x{lanes}",
        )

    return _registered(f"baton_vpdpbusd_{lanes}", OF_BYTES, lanes, add)


@functools.lru_cache(maxsize=8)
def words_intrinsic(lanes: int) -> str:
    """Name of the tensor intrinsic C[lanes] += A[2] . B[lanes, 2]; registered at the first call."""

    def add(sums: Any, data: Any, weights: Any) -> Any:
        return sums + T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id(MADD_WORDS[lanes]),
            _spread(data, lanes, f"int16x{2 * lanes}"),
            weights,
            dtype=f"int32x{lanes}",
        )

    return _registered(f"baton_pmaddwd_{lanes}", OF_WORDS, lanes, add)


@functools.lru_cache(maxsize=16)
def narrow_intrinsic(lanes: int) -> str:
    """Name of the intrinsic C[lanes] += A[4] . B[lanes, 4] in int16; registered on first call."""

    def add(sums: Any, data: Any, weights: Any) -> Any:
        return sums + widened(lanes, pairs(lanes, data, weights))

    return _registered(f"baton_pmaddubsw_{lanes}", OF_BYTES, lanes, add)


def _spread(data: Any, lanes: int, dtype: str) -> Any:
    """The 32 bits of a step's data in each lane."""
    return T.reinterpret(T.broadcast(T.reinterpret(data, dtype="int32"), lanes), dtype=dtype)


def _registered(name: str, dot: Dot, lanes: int, add: Any) -> str:
    """Register C[lanes] += A[dot.size] . B[lanes, dot.size], which `add` computes on vectors."""
    size = dot.size
    data, weights = f"{dot.data}x{size}", f"{dot.weight}x{size * lanes}"
    return lane_intrinsic.register(
        name,
        Operand((lanes,), dot.sums),
        [Operand((size,), dot.data), Operand((lanes, size), dot.weight)],
        [0, size],
        lambda a, b, i, k: T.cast(a[k], dot.sums) * T.cast(b[i, k], dot.sums),
        lambda sums, a, b: add(sums, a.vload([0], dtype=data), b.vload([0, 0], dtype=weights)),
    )


@functools.lru_cache(maxsize=16)
def narrow_pair_intrinsic(lanes: int, columns: int) -> str:
    """Name of the tensor intrinsic C[lanes] += A[8] . B[2, lanes, 4], sums of which fit int16.

    Steps of B are `columns` fours apart. It is registered at the first call.
    """
    octets = f"int8x{4 * lanes}"

    def add(sums: Any, a: Any, b: Any) -> Any:
        first = pairs(lanes, a.vload([0], "uint8x4"), b.vload([0, 0, 0], dtype=octets))
        second = pairs(lanes, a.vload([4], "uint8x4"), b.vload([1, 0, 0], dtype=octets))
        return sums + widened(lanes, first + second)

    return lane_intrinsic.register(
        f"baton_pmaddubsw_{lanes}_of_{columns}",
        Operand((lanes,), "int32"),
        [Operand((8,), "uint8"), Operand((2, lanes, 4), "int8", (4 * columns, 4, 1))],
        [2, 0, 4],
        lambda a, b, i, h, k: T.cast(a[h * 4 + k], "int32") * T.cast(b[h, i, k], "int32"),
        add,
    )


@functools.lru_cache(maxsize=8)
def squares_dot_intrinsic(lanes: int) -> str:
    """Name of the tensor intrinsic C[lanes] += A[lanes, 2, 2] . B[lanes, 2, 2], lane by lane."""
    octets, shape = f"int8x{4 * lanes}", (lanes, 2, 2)

    def add(sums: Any, a: Any, b: Any) -> Any:
        return T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id(f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"),
            sums,
            T.reinterpret(a.vload([0, 0, 0], dtype=f"u{octets}"), dtype=octets),
            b.vload([0, 0, 0], dtype=octets),
            dtype=f"int32x{lanes}",
        )

    return lane_intrinsic.register(
        f"baton_vpdpbusd_lanes_{lanes}",
        Operand((lanes,), "int32"),
        [Operand(shape, "uint8"), Operand(shape, "int8")],
        [0, 2, 2],
        lambda a, b, i, y, x: T.cast(a[i, y, x], "int32") * T.cast(b[i, y, x], "int32"),
        add,
    )


def in_steps(dot: Dot, ops: Any, packed: Any, config: ConfigEntity) -> Any:
    """(.., k, n) -> (.., k / size, n, size) of the element type that the steps take."""
    *outer, k, columns = (int(extent) for extent in packed.shape)
    rank, step = len(outer), kept(dot, config)
    apart = ops.reshape(packed, (*outer, k // step.size, step.size, columns))
    return ops.transpose(apart, (*range(rank), rank, rank + 2, rank + 1)).astype(step.weight)


class DotSteps:
    """Steps of a dot-product rule that differ from those of the float rule that it extends."""

    def loops(self, sch: Any, anchor: Any) -> list[Any]:
        return list(sch.get_loops(anchor))[:-1]

    def steps(self, sch: Any, loop: Any, config: ConfigEntity) -> tuple[Any, list[Any]]:
        """Split off the steps that a narrow instruction sums, outside the lanes."""
        if NARROW not in config:
            return loop, []
        most, steps = config.val(NARROW), int(sch.get(loop).extent)
        loop, together = sch.split(loop, [None, most if steps % most == 0 else 1])
        return loop, [together]

    def multiply(self, sch: Any, anchor: Any, lane: Any, reduced: Any, target: Target) -> None:
        accumulate(sch, anchor, reduced, target)


def accumulate(sch: Any, block: Any, reduced: Any, target: Target) -> None:
    """Finish a block C[.., lane] += A[.., step] * B[.., lane, step] with loops (.., lane, step).

    The loop over lanes is split into vectors. Each is one `vdpbf16ps`, `vpdpbusd` or `pmaddwd` if
    the target has it, else plain vector code over the lanes. Narrow products have the additional
    loop of `DotSteps.steps`.

    `reduced`: the outermost reduction loop; the sums are zeroed before it.
    """
    *_, several, lane, step = sch.get_loops(block)
    is_narrow = NARROW in anchor_config(sch, block)
    steps = int(sch.get(several).extent) if is_narrow else 1
    width = int(sch.get(lane).extent)
    lanes, intrinsic = _instruction(sch, block, width, target, steps if is_narrow else 0)
    if lanes and width % lanes == 0:
        vector, lane = sch.split(lane, [None, lanes])
        if is_narrow:
            sch.reorder(vector, several)
        sch.unroll(vector)
        start = sch.decompose_reduction(block, reduced)
        sch.vectorize(sch.get_loops(start)[-1])
        sch.tensorize(several if steps > 1 else lane, intrinsic)
        return
    sch.reorder(step, lane)
    sch.unroll(step)
    sch.vectorize(lane)
    sch.decompose_reduction(block, reduced)


def _instruction(sch: Any, block: Any, width: int, target: Target, narrow: int) -> tuple[int, str]:
    """Return lanes and name of the tensor intrinsic for a block; 0 lanes if unsupported."""
    sources = [region.source for region in sch.get(block).reads]
    dtypes = {str(source.dtype) for source in sources}
    if OF_BFLOAT16.data in dtypes:
        return (16, bfloat16_intrinsic()) if has_bfloat16(target) else (0, "")
    if OF_WORDS.data in dtypes:
        lanes = min(widened_lanes(target), width)
        return lanes, words_intrinsic(lanes)
    if narrow:
        lanes = min(narrow_lanes(target), width)
        if narrow == 1:
            return lanes, narrow_intrinsic(lanes)
        return lanes, narrow_pair_intrinsic(lanes, int(sources[-1].shape[-2]))
    lanes = vnni_lanes(target)
    return lanes, dot_intrinsic(lanes) if lanes else ""
