"""Machine model of a CPU target: vectors, registers, caches, cores."""

from __future__ import annotations

import functools
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path

from tvm import DataType
from tvm.target import Target, codegen

from .cpu_models import Core, core_of
from .host import host_name

# Threads assumed for a parallel loop if the target has no num-cores and is not this machine.
DEFAULT_CORES = 4
# Slowdown of reading weights from memory while computing, relative to reading them alone.
OVERLAPPED_WEIGHT_FACTOR = 3
# Maximum vector FMA units of a core.
MOST_FMAS = 2
# Half-width vectors are used if they take less than this share of the full-width cycles.
CLEARLY_FEWER = 0.96

# L1 of x86 cores: stride in bytes at which lines share a set, and lines per set.
SET_BYTES, SET_WAYS = 4096, 8

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True)
class Machine:
    """Facts about one CPU target."""

    vector_bits: int  # width of the vector registers that compiled code uses
    vector_registers: int  # 16, or 32 with AVX-512VL
    # Data caches as one core sees them; read from this machine if the target is its CPU, otherwise
    # taken from the table (`cpu_models`)
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    num_cores: int  # threads that a parallel loop may count on
    has_fma: bool  # whether a multiply-add is one instruction
    core: Core  # other properties of its cores from the table

    @staticmethod
    def from_target(target: Target) -> Machine:
        """Facts about an LLVM CPU target, cached; ValueError for another target."""
        if target.kind.name != "llvm":
            raise ValueError(f"a machine description needs an llvm target, not {target}")
        return _from_description(str(target))

    def lanes(self, dtype: str) -> int:
        """Elements of `dtype` in one vector register, at least 1; a bool counts as a byte."""
        bits = max(DataType(str(dtype)).bits, 8)
        return max(self.vector_bits // bits, 1)

    @property
    def fmas(self) -> float:
        """Vector multiply-adds issued per cycle."""
        return min(self.core.fma_bits / self.vector_bits, MOST_FMAS)

    @property
    def loads(self) -> float:
        """Vectors or broadcasts that a register tile loads per cycle."""
        return min(self.core.loads, self.core.load_bits / self.vector_bits)

    @property
    def operations(self) -> int:
        """Vector operations per multiply-add; also the registers for it: a product needs one."""
        return 1 if self.has_fma else 2

    @property
    def flops_per_cycle(self) -> float:
        """Peak float32 operations of a core per cycle."""
        return 2 * self.fmas * self.lanes("float32")

    def for_channels(self, channels: int, dtype: str = "float32") -> Machine:
        """Return the machine with half the vector width if that wastes clearly fewer lanes.

        Only for cores that split wide vectors into two halves: 40 channels are five vectors of
        eight lanes, which a Zen 4 multiplies in the time of two and a half vectors of sixteen.
        """
        half = replace(self, vector_bits=self.vector_bits // 2)
        is_split = self.core.fma_bits < MOST_FMAS * self.vector_bits

        def cycles(machine: Machine) -> float:
            return -(-channels // machine.lanes(dtype)) / machine.fmas

        return half if is_split and cycles(half) < CLEARLY_FEWER * cycles(self) else self

    def busy(self, tasks: int) -> float:
        """Average share of busy cores while they run this number of equal tasks."""
        return tasks / (-(-tasks // self.num_cores) * self.num_cores)

    def weight_cycles(self, size: int) -> float:
        """Cycles for a core to read `size` bytes of weights from memory: no cache keeps them."""
        return size / self.core.memory_bytes

    def overlap_with_weights(self, computing: float, size: int) -> float:
        """Cycles of a kernel whose weights are prefetched while it computes."""
        return max(computing, OVERLAPPED_WEIGHT_FACTOR * self.weight_cycles(size))

    def step_cycles(self, rows: int, vectors: int, operations: int = 1) -> float:
        """Cycles of one reduction step on a register tile, without loop overhead.

        A step loads an element per row and a vector per column. Each sum takes one vector operation
        (two without FMA) and depends on the sum of the previous step.
        """
        work = rows * vectors * operations / self.fmas
        return max(work, (rows + vectors) / self.loads, self.core.fma_latency)


@functools.lru_cache(maxsize=64)
def _from_description(description: str) -> Machine:
    target = Target(description)
    features = {str(name) for name in codegen.llvm_get_cpu_features(target)}
    bits = _vector_bits(features)
    core, cores = core_of(str(target.attrs.get("mcpu", "")), bits), DEFAULT_CORES
    l1, l2, l3 = core.l1_bytes, core.l2_bytes, core.l3_bytes
    if is_host(target):
        l1 = _cache_bytes(1) or l1
        l2 = _cache_bytes(2) or l2
        l3 = _cache_bytes(3) or l3
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    cores = int(target.attrs.get("num-cores", cores))
    registers = 32 if "avx512vl" in features else 16
    return Machine(bits, registers, l1, l2, l3, cores, "fma" in features, core)


def _vector_bits(features: set[str]) -> int:
    """Return the vector width; AVX without AVX2 has no 256-bit integers and counts as 128."""
    if "avx512f" in features and "avx512vl" in features:
        return 512
    return 256 if "avx2" in features else 128


def is_host(target: Target) -> bool:
    """Whether the target names the CPU of this machine."""
    mcpu = str(target.attrs.get("mcpu", ""))
    return mcpu != "" and mcpu == host_name()


def _cache_bytes(level: int) -> int | None:
    """Size of the data or unified cache of `level` as reported by Linux; None if unknown."""
    try:
        for index in sorted(_CACHES.glob("index*")):
            kind = (index / "type").read_text().strip()
            if int((index / "level").read_text()) == level and kind != "Instruction":
                size = (index / "size").read_text().strip()
                return int(size[:-1]) * 1024 if size.endswith("K") else int(size)
    except (OSError, ValueError):
        return None
    return None


def collide(count: int, stride: int) -> bool:
    """Whether `count` lines that lie `stride` bytes apart evict each other from L1."""
    return count > SET_WAYS * (SET_BYTES // math.gcd(stride, SET_BYTES))
