"""Limits of CUDA devices by architecture: shared memory, registers and threads.

The numbers are from the table "Technical Specifications per Compute Capability" in NVIDIA's CUDA
C++ Programming Guide; multiprocessors are those of the architecture's most common device.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tvm.target import Target

KIB = 1024
WARP = 32
MAX_GRID_YZ = 65535
# Registers are handed out to warps in units of this many.
REGISTER_UNIT = 256
_ARCH = re.compile(r"sm_(\d+)[af]?")


@dataclass(frozen=True)
class Limits:
    """Resource limits of one block, and of one multiprocessor (SM), of a device."""

    arch: int  # the compute capability without its point, 90 for sm_90, sm_90a and sm_90f
    # Bytes of shared memory; a block gets more than `static_shared` of it only as dynamic shared
    # memory, and only when the launch asks for it, as TVM's runtime does
    shared_per_sm: int
    shared_per_block: int
    threads_per_sm: int  # resident at a time
    blocks_per_sm: int
    sms: int  # multiprocessors of the device
    device: str  # the device that `sms` is of
    # Bytes that a kernel may declare statically, on every architecture
    static_shared: int = 48 * KIB
    reserved_shared: int = 0  # bytes of each resident block that CUDA keeps for itself
    registers_per_thread: int = 255  # 32-bit registers
    registers_per_block: int = 64 * KIB
    registers_per_sm: int = 64 * KIB
    threads_per_block: int = 1024

    def resident_blocks(self, threads: int, registers: int, shared: int) -> int:
        """How many blocks of a kernel one multiprocessor runs at a time.

        `threads`: of a block. `registers`: of a thread. `shared`: bytes of a block, static and
        dynamic together. Returns 0 for a kernel that can't be launched.
        """
        warps = -(-threads // WARP)
        of_warp = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
        if threads > self.threads_per_block or registers > self.registers_per_thread:
            return 0
        if warps * of_warp > self.registers_per_block or shared > self.shared_per_block:
            return 0
        return min(
            self.blocks_per_sm,
            self.threads_per_sm // (warps * WARP),
            self.registers_per_sm // max(of_warp, 1) // warps,
            self.shared_per_sm // max(shared + self.reserved_shared, 1),
        )


def _row(
    arch: int, sm_kib: int, block_kib: int, threads: int, blocks: int, sms: int, device: str
) -> tuple[int, Limits]:
    # From sm_80 on, CUDA keeps 1 KiB of each block's shared memory.
    reserved = KIB if arch >= 80 else 0
    limits = Limits(
        arch, sm_kib * KIB, block_kib * KIB, threads, blocks, sms, device, reserved_shared=reserved
    )
    return arch, limits


TABLE = dict(
    # arch, KiB of shared memory an SM and a block, threads and blocks an SM, SMs, device
    [
        _row(70, 96, 96, 2048, 32, 80, "V100"),
        _row(72, 96, 96, 2048, 32, 8, "Jetson Xavier"),
        _row(75, 64, 64, 1024, 16, 40, "T4"),
        _row(80, 164, 163, 2048, 32, 108, "A100"),
        _row(86, 100, 99, 1536, 16, 84, "A40"),
        _row(87, 164, 163, 1536, 16, 16, "Jetson Orin"),
        _row(89, 100, 99, 1536, 24, 142, "L40"),
        _row(90, 228, 227, 2048, 32, 132, "H100"),
        _row(100, 228, 227, 2048, 32, 148, "B200"),
        _row(103, 228, 227, 2048, 32, 160, "B300"),
        _row(120, 100, 99, 1536, 24, 170, "RTX 5090"),
        _row(121, 100, 99, 1536, 24, 48, "GB10"),
    ]
)


def number(arch: str) -> int | None:
    """90 for "sm_90", "sm_90a" and "sm_90f"; None for what is not a CUDA architecture."""
    match = _ARCH.fullmatch(arch)
    return None if match is None else int(match.group(1))


def plain(target: Target) -> Target:
    """The target as sm_90 for sm_90a, which TVM's rules take for a GPU without tensor cores."""
    arch = str(target.attrs.get("arch", ""))
    found = number(arch)
    if found is None or arch == f"sm_{found}":
        return target
    config = {name: value for name, value in target.export().items() if name != "tag"}
    return Target({**config, "arch": f"sm_{found}"}, host=target.host)


def of_arch(arch: str) -> Limits:
    """Limits of an architecture; an unknown (older or later) one has what every device has."""
    found = number(arch) or 0
    return TABLE.get(found) or Limits(found, 48 * KIB, 48 * KIB, 1024, 8, 16, "unknown")


def of(target: Target) -> Limits:
    """Limits of a target: those of its `arch`, overridden by its attributes.

    `max_threads_per_block` (or `max_num_threads`) and `registers_per_block` replace the table's
    numbers. So does `max_shared_memory_per_block`, except where it is 48 KiB: that many bytes of
    static shared memory is what every device reports and what TVM's tags copy, and says nothing
    of dynamic shared memory.
    """
    limits = of_arch(str(target.attrs.get("arch", "")))
    threads = _attribute(target, "max_threads_per_block", "max_num_threads")
    shared = _attribute(target, "max_shared_memory_per_block")
    registers = _attribute(target, "registers_per_block")
    if threads is not None:
        limits = replace(limits, threads_per_block=threads)
    if registers is not None:
        limits = replace(limits, registers_per_block=registers)
    if shared is not None and shared != limits.static_shared:
        static = min(shared, limits.static_shared)
        limits = replace(limits, shared_per_block=shared, static_shared=static)
    return limits


def _attribute(target: Target, *names: str) -> int | None:
    for name in names:
        if target.attrs.get(name) is not None:
            return int(target.attrs[name])
    return None
