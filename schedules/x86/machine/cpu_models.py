"""Table of x86 cores by LLVM CPU name, for the cost models.

With fixed numbers, a build for an `-mcpu` has the same result on any machine, busy or idle.
Sources: the vendors' optimization manuals and uops.info for issue rates, data sheets for caches and
clocks. `scripts.bench.machine` measures the same numbers on the machine it runs on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Core:
    """One core, with one thread on it."""

    # Bits of vectors multiplied and added, and loaded, per cycle: two 256-bit vectors are 512. A
    # Zen 4 has no more for 512-bit vectors, which its units process in two halves.
    fma_bits: int
    load_bits: int
    fma_latency: float  # cycles until a multiply-add's result can be used
    loads: float  # maximum vectors or broadcasts that a register tile loads per cycle
    loop_cycles: float  # loop overhead in cycles per reduction step
    l1_bytes: int  # data caches; for a shared L3, the share of one core while the others are busy
    l2_bytes: int
    l3_bytes: int
    memory_bytes: float = 8  # bytes that one core reads from memory per cycle, with prefetching
    gigahertz: float = 3.0  # clock while all cores compute
    short_rate: float = 1.0  # dot products of bfloat16 pairs (`vdpbf16ps`) issued per multiply-add


# Loads and loop cycles were measured on a Zen 3, a Zen 4 and, with 512 bits per cycle, a Zen 5;
# other cores of the same issue width are assumed to match. One core of a Zen 4 on a shared machine
# read 5.1 bytes per cycle from memory, but 2.6 while computing: the cost models count a third of 8.
# Numbers of Sapphire Rapids were measured on a Granite Rapids, where bfloat16 dot products take
# four times as long as multiply-adds of the same number of lanes.
_HASWELL = Core(512, 512, 5, 1.7, 0.2, 32 * KIB, 256 * KIB, 8 * MIB)
_SKYLAKE = Core(512, 512, 4, 1.7, 0.2, 32 * KIB, 256 * KIB, 8 * MIB, gigahertz=3.6)
_ALDER_LAKE = Core(512, 768, 4, 2.5, 0.2, 48 * KIB, 1280 * KIB, 12 * MIB, gigahertz=4.5)
_RAPTOR_LAKE = Core(512, 768, 4, 2.5, 0.2, 48 * KIB, 2 * MIB, 12 * MIB, gigahertz=5.0)
_SKYLAKE_SERVER = Core(1024, 1024, 4, 2.0, 1.0, 32 * KIB, 1 * MIB, 8 * MIB, gigahertz=2.4)
_ICE_LAKE_CLIENT = Core(512, 1024, 4, 2.0, 0.2, 48 * KIB, 512 * KIB, 8 * MIB, gigahertz=3.2)
_TIGER_LAKE = Core(512, 1024, 4, 2.0, 0.2, 48 * KIB, 1280 * KIB, 12 * MIB, gigahertz=4.0)
_ROCKET_LAKE = Core(512, 1024, 4, 2.0, 0.2, 48 * KIB, 512 * KIB, 16 * MIB, gigahertz=4.5)
_ICE_LAKE_SERVER = Core(1024, 1024, 4, 2.0, 1.0, 48 * KIB, 1280 * KIB, 12 * MIB, gigahertz=2.6)
_SAPPHIRE_RAPIDS = Core(
    1024, 1024, 4, 2.0, 1.0, 48 * KIB, 2 * MIB, 16 * MIB, gigahertz=2.6, short_rate=0.25
)
_ZEN = Core(256, 256, 5, 1.7, 0.2, 32 * KIB, 512 * KIB, 8 * MIB, gigahertz=3.4)
_ZEN_2 = Core(512, 512, 5, 1.7, 0.2, 32 * KIB, 512 * KIB, 16 * MIB, gigahertz=3.3)
_ZEN_3 = Core(512, 512, 4, 1.7, 0.2, 32 * KIB, 512 * KIB, 32 * MIB, gigahertz=3.4)
_ZEN_4 = Core(512, 512, 4, 1.7, 0.2, 32 * KIB, 1 * MIB, 32 * MIB, gigahertz=3.7)
_ZEN_5 = Core(1024, 1024, 4, 2.0, 1.0, 48 * KIB, 1 * MIB, 32 * MIB, gigahertz=4.1)

CORES: Mapping[str, Core] = {
    "haswell": _HASWELL,
    "core-avx2": _HASWELL,
    "broadwell": _HASWELL,
    "skylake": _SKYLAKE,
    "skylake-avx512": _SKYLAKE_SERVER,
    "skx": _SKYLAKE_SERVER,
    "cascadelake": _SKYLAKE_SERVER,
    "cooperlake": replace(_SKYLAKE_SERVER, short_rate=0.25),
    "cannonlake": _ICE_LAKE_CLIENT,
    "icelake-client": _ICE_LAKE_CLIENT,
    "tigerlake": _TIGER_LAKE,
    "rocketlake": _ROCKET_LAKE,
    "icelake-server": _ICE_LAKE_SERVER,
    "sapphirerapids": _SAPPHIRE_RAPIDS,
    "emeraldrapids": _SAPPHIRE_RAPIDS,
    "graniterapids": _SAPPHIRE_RAPIDS,
    "graniterapids-d": _SAPPHIRE_RAPIDS,
    "alderlake": _ALDER_LAKE,
    "raptorlake": _RAPTOR_LAKE,
    "meteorlake": _RAPTOR_LAKE,
    "arrowlake": _RAPTOR_LAKE,
    "arrowlake-s": _RAPTOR_LAKE,
    "lunarlake": _RAPTOR_LAKE,
    "znver1": _ZEN,
    "znver2": _ZEN_2,
    "znver3": _ZEN_3,
    "znver4": _ZEN_4,
    "znver5": _ZEN_5,
}

# Defaults by vector width for CPUs outside the table, such as x86-64-v2, v3 and v4: caches that all
# server and desktop cores with such vectors have, and units of most of them.
GENERIC: Mapping[int, Core] = {
    128: Core(256, 256, 4, 1.7, 0.2, 32 * KIB, 256 * KIB, 8 * MIB),
    256: Core(512, 512, 4, 1.7, 0.2, 32 * KIB, 256 * KIB, 8 * MIB),
    512: Core(1024, 1024, 4, 2.0, 1.0, 32 * KIB, 1 * MIB, 8 * MIB),
}


def core_of(mcpu: str, vector_bits: int) -> Core:
    """Return the core for LLVM's CPU name `mcpu`, or a generic core if it is not in the table."""
    return CORES.get(mcpu, GENERIC[vector_bits])
