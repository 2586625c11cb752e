"""What a schedule must know of the CPU it is made for: vectors, registers, caches, cores."""

from __future__ import annotations

import functools
import math
import os
from dataclasses import dataclass
from pathlib import Path

from tvm import DataType
from tvm.target import Target, codegen

# Sizes assumed for a CPU that is not this machine's: the smallest of the server and desktop
# cores since 2015 (Haswell, Zen 2) that can run the given vector width.
DEFAULT_L1_BYTES = 32 * 1024
DEFAULT_L2_BYTES = 256 * 1024
DEFAULT_L2_BYTES_AVX512 = 1024 * 1024
DEFAULT_L3_BYTES = 8 * 1024 * 1024
DEFAULT_CORES = 4

# L1 of x86 cores: bytes apart at which lines share a set, and lines of a set.
SET_BYTES, SET_WAYS = 4096, 8

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True)
class Machine:
    """Facts about one CPU target.

    Attributes
    ----------
    vector_bits : int
        Width of the vector registers that compiled code uses.
    vector_registers : int
        16, or 32 with AVX-512VL.
    l1_bytes, l2_bytes, l3_bytes : int
        Data caches as one core sees them; read from this machine if the target is its CPU,
        documented defaults otherwise.
    num_cores : int
        Threads that a parallel loop may count on.
    has_fma : bool
        Whether a multiply-add is one instruction.
    """

    vector_bits: int
    vector_registers: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    num_cores: int
    has_fma: bool

    @staticmethod
    def from_target(target: Target) -> Machine:
        """Facts about `target`, an LLVM CPU target; cached per target.

        Raises
        ------
        ValueError
            The target is not an LLVM CPU.
        """
        if target.kind.name != "llvm":
            raise ValueError(f"a machine description needs an llvm target, not {target}")
        return _from_description(str(target))

    def lanes(self, dtype: str) -> int:
        """Elements of `dtype` in one vector register, at least 1; a bool counts as a byte."""
        bits = max(DataType(str(dtype)).bits, 8)
        return max(self.vector_bits // bits, 1)


@functools.lru_cache(maxsize=64)
def _from_description(description: str) -> Machine:
    target = Target(description)
    features = {str(name) for name in codegen.llvm_get_cpu_features(target)}
    bits = _vector_bits(features)
    l1, l2, l3, cores = _defaults(bits)
    if _is_host(target):
        l1 = _cache_bytes(1) or l1
        l2 = _cache_bytes(2) or l2
        l3 = _cache_bytes(3) or l3
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    cores = int(target.attrs.get("num-cores", cores))
    return Machine(bits, 32 if "avx512vl" in features else 16, l1, l2, l3, cores, "fma" in features)


def _vector_bits(features: set[str]) -> int:
    """AVX without AVX2 counts as 128 bits: it has no integer vectors of 256."""
    if "avx512f" in features and "avx512vl" in features:
        return 512
    return 256 if "avx2" in features else 128


def _defaults(vector_bits: int) -> tuple[int, int, int, int]:
    l2 = DEFAULT_L2_BYTES_AVX512 if vector_bits == 512 else DEFAULT_L2_BYTES
    return DEFAULT_L1_BYTES, l2, DEFAULT_L3_BYTES, DEFAULT_CORES


def _is_host(target: Target) -> bool:
    mcpu = str(target.attrs.get("mcpu", ""))
    return mcpu != "" and mcpu == codegen.llvm_get_system_cpu()


def _cache_bytes(level: int) -> int | None:
    """Data or unified cache of `level` as Linux reports it; None where it does not."""
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
