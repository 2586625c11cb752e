"""Which instruction sets this machine's CPU has, asked without a compiler.

Needs the standard library alone, so that a machine with only TVM's runtime can refuse a
library built for another CPU instead of dying of an illegal instruction in it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

_SAME = (
    *("cmov", "cx8", "cx16", "mmx", "sse", "sse2", "ssse3", "sse4a", "popcnt", "bmi2", "tbm"),
    *("movbe", "aes", "adx", "f16c", "fma", "fma4", "xop", "avx", "avx2", "gfni", "vaes"),
    *("vpclmulqdq", "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl", "avx512ifma"),
    "avx512vbmi",
)
"""Features that Linux lists under LLVM's name."""

# LLVM's feature name -> the flag by which Linux lists it in /proc/cpuinfo.
# Two sorts of features are left out on purpose. Some Linux never lists, or not before very
# recent kernels, so that a missing flag proves nothing: AVX-IFMA, AVX-VNNI-INT8, AMX-FP16, APX.
# Others belong to instructions that no compiler puts into arithmetic code unasked: memory
# protection keys, shadow stacks, cache line write-back. Virtual machines like to hide those.
LINUX_FLAGS = {
    **{name: name for name in _SAME},
    "sahf": "lahf_lm",
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "crc32": "sse4_2",
    "lzcnt": "abm",
    "bmi": "bmi1",
    "pclmul": "pclmulqdq",
    "sha": "sha_ni",
    "avxvnni": "avx_vnni",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "avx512vp2intersect": "avx512_vp2intersect",
    "amx-tile": "amx_tile",
    "amx-int8": "amx_int8",
    "amx-bf16": "amx_bf16",
}

# Linux on x86-64: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA).
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


def host_features() -> frozenset[str]:
    """Instruction sets of this machine's CPU, by LLVM's names ("avx2", "sse4.2", "avx512f").

    Known only on x86 under Linux, from /proc/cpuinfo; elsewhere the set is empty.
    """
    flags = _cpuinfo_flags()
    if flags is None:
        return frozenset()
    return frozenset(name for name, flag in LINUX_FLAGS.items() if flag in flags)


def missing_features(required: Iterable[str]) -> list[str]:
    """Which of the required CPU features this machine lacks.

    `required`: LLVM feature names, such as `compiler.target.cpu_features` returns. Tuning hints
    ("fast-gather") and features that can't be detected are ignored. Returns missing features,
    oldest instruction set first. Always empty where features can't be detected: on systems other
    than Linux, and on CPUs other than x86. An empty list there is no proof that the code will run.
    """
    flags = _cpuinfo_flags()
    if flags is None:
        return []
    wanted = frozenset(required)
    return [name for name, flag in LINUX_FLAGS.items() if name in wanted and flag not in flags]


@lru_cache(maxsize=1)
def _cpuinfo_flags() -> frozenset[str] | None:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    flags = _flags_of(text)
    if flags is not None and "amx_tile" in flags and not _gets_tiles():
        return frozenset(flag for flag in flags if not flag.startswith("amx_"))
    return flags


def _gets_tiles() -> bool:
    """Whether Linux gives this process the registers of AMX, which it must be asked for."""
    if not sys.platform.startswith("linux"):
        return False
    system_call = ctypes.CDLL(None).syscall
    system_call.restype = ctypes.c_long
    arguments = (_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return bool(system_call(*map(ctypes.c_long, arguments)) == 0)


def _flags_of(cpuinfo: str) -> frozenset[str] | None:
    """Flags that every processor of a /proc/cpuinfo text has; None if it is no x86's.

    Only the x86 form has lines named "flags". Processors may differ, and a thread may run on
    any of them.
    """
    per_processor = [
        frozenset(value.split())
        for name, _, value in (line.partition(":") for line in cpuinfo.splitlines())
        if name.strip() == "flags"
    ]
    return frozenset.intersection(*per_processor) if per_processor else None
