"""How fast GPUs are, for the comparison of schedules: one row for each device."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm.target import Target

from . import limits
from .limits import Limits


@dataclass(frozen=True)
class Device:
    """Rates of a GPU."""

    limits: Limits
    hertz: float  # clock of the multiprocessors
    # Products of tensor cores in a cycle of one multiprocessor, times the bytes of an element: the
    # same number for half and int8. It is what `mma.sync` reaches.
    tensor_bytes: float
    fmas: float  # float32 multiply-adds in a cycle of one multiprocessor
    bandwidth: float  # bytes in a second, of memory and of the level-2 cache
    l2_bandwidth: float
    wgmma_bytes: float = 0.0  # as `tensor_bytes`, of `wgmma`; 0 where there is none
    latency_cycles: float = 700.0  # latency of a read from memory
    launch_seconds: float = 2e-6  # from the end of one kernel to the start of the next

    @property
    def l2_bytes_per_cycle(self) -> float:
        """L2 bandwidth of one multiprocessor, when all of them read."""
        return self.l2_bandwidth / self.limits.sms / self.hertz

    @property
    def peak_tensor_bytes(self) -> float:
        """`tensor_bytes` of the fastest instruction."""
        return max(self.tensor_bytes, self.wgmma_bytes)

    def wgmma_rate(self, rows: int, columns: int, rounds: bool) -> float:
        """`wgmma_bytes`, or what shared memory, 128 bytes in a cycle, lets through of a tile.

        Each 64 rows and all columns are read by a warpgroup, and the tile is written once, or read
        and written once more where it is rounded.
        """
        traffic = 2 * rows + columns * (rows // 64 + 1) + 2 * rounds * (rows + columns)
        return min(self.wgmma_bytes, 128 * rows * columns / traffic)


# GHz, products of half in a cycle of an SM, fp32 multiply-adds, TB/s of memory and of level 2
_RATES = {
    80: (1.41, 1024, 64, 1.55, 4.0),
    86: (1.74, 512, 128, 0.70, 2.5),
    87: (1.3, 512, 128, 0.20, 0.6),
    89: (2.49, 512, 128, 0.86, 4.5),
    90: (1.755, 1300, 128, 3.35, 5.5),
    100: (1.85, 1300, 128, 8.0, 9.0),
    103: (1.92, 1300, 128, 8.0, 9.0),
    120: (2.41, 512, 128, 1.79, 7.0),
    121: (2.4, 512, 128, 0.27, 2.0),
}
# `mma.sync` reaches 62.9 % of Hopper's tensor cores on average (Luo et al. 2024, arXiv:2402.13499)
# or about two thirds (FlashAttention-3, 2024), hence 1300 above. `wgmma` reaches all of them.
_WGMMA_HALVES = {"sm_90a": 2048}


def h200(device: Device) -> Device:
    """An H200, which is an H100 beside faster memory."""
    return replace(device, bandwidth=4.8e12, limits=replace(device.limits, device="H200"))


def of(target: Target) -> Device:
    """The device of a target; one that is not in the table has the rates of sm_80."""
    found = limits.of(target)
    ghz, halves, fmas, memory, level_2 = _RATES.get(found.arch, _RATES[80])
    wgmma = 2.0 * _WGMMA_HALVES.get(str(target.attrs.get("arch", "")), 0)
    return Device(found, ghz * 1e9, 2.0 * halves, fmas, memory * 1e12, level_2 * 1e12, wgmma)
