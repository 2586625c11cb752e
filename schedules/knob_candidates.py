"""The candidates of a space's knobs, in TVM 0.18's order: factors, orders of axes, annotations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any


class VirtualAxis:
    """An axis that knobs are defined on; `length` is its extent."""

    def __init__(self, length: int, name: str = "") -> None:
        self.length = int(length)
        self.name = name

    def __repr__(self) -> str:
        return f"VirtualAxis({self.length})"


_BLOCKS = ("blockIdx.z", "blockIdx.y", "blockIdx.x")
_THREADS = ("threadIdx.z", "threadIdx.y", "threadIdx.x")
GPU_AXES: dict[int, tuple[str, ...]] = {
    2: (_BLOCKS[2], _THREADS[2]),
    4: (*_BLOCKS[1:], *_THREADS[1:]),
    6: (*_BLOCKS, *_THREADS),
}
VIRTUAL_GPU_AXES: dict[int, tuple[str, ...]] = {
    3: (_BLOCKS[2], "vthread.x", _THREADS[2]),
    6: (*_BLOCKS[1:], "vthread.y", "vthread.x", *_THREADS[1:]),
    9: (*_BLOCKS, "vthread.z", "vthread.y", "vthread.x", *_THREADS),
}


def axis_of(extent: Any) -> VirtualAxis:
    """An int, or an iteration variable of TE, as an axis."""
    if isinstance(extent, VirtualAxis):
        return extent
    domain = getattr(extent, "dom", None)
    if domain is not None:
        extent = domain.extent
    return VirtualAxis(int(extent))


def divisors(extent: int) -> list[int]:
    """Divisors in ascending order."""
    small = [d for d in range(1, math.isqrt(extent) + 1) if extent % d == 0]
    return small + [extent // d for d in reversed(small) if d * d != extent]


def factors_of(extent: int, policy: str, max_factor: int | None) -> list[int]:
    """Factors that a split policy allows."""
    powers = [1 << bit for bit in range(extent.bit_length()) if 1 << bit <= extent]
    if policy == "factors":
        found = divisors(extent)
    elif policy == "power2":
        found = powers
    elif policy == "verbose":
        found = list(set(divisors(extent)) | set(powers))  # in the order of this union
    else:
        raise ValueError(f"split policy {policy!r} is not known")
    return [factor for factor in found if max_factor is None or factor <= max_factor]


def inner_factors(
    extent: int, factors: Sequence[int], count: int, tails: bool
) -> Iterator[tuple[int, ...]]:
    """Lists of inner factors, the innermost first, which varies slowest."""
    for chosen in itertools.product(factors, repeat=count):
        product = math.prod(chosen)
        if extent % product == 0 or (tails and product < extent):
            yield chosen


def place_of(axes: Sequence[Any], axis: Any) -> int:
    """Position of an axis among axes."""
    return next(place for place, each in enumerate(axes) if each is axis or each == axis)


def interleaved(
    axes: Sequence[Any],
    spatial: Sequence[Sequence[Any]],
    reduce: Sequence[Sequence[Any]],
    for_gpu: bool,
) -> list[Sequence[int]]:
    """Orders that merge chains of axes in every way; for a GPU inside of the outermost ones."""
    outer = [chain[0] for chain in spatial] if for_gpu else []
    chains = [chain[1:-1] if for_gpu else chain for chain in spatial]
    inner = [chain[-1] for chain in spatial] if for_gpu else []
    middle = [list(chain) for chain in [*chains, *reduce] if chain]
    orders = ((*outer, *merged, *inner) for merged in _merged(middle))
    return [[place_of(axes, axis) for axis in order] for order in orders]


def _merged(chains: list[list[Any]]) -> Iterator[list[Any]]:
    """Every order that keeps the order of each chain."""
    if not any(chains):
        yield []
        return
    for place, chain in enumerate(chains):
        if chain:
            rest = [*chains[:place], chain[1:], *chains[place + 1 :]]
            for tail in _merged(rest):
                yield [chain[0], *tail]
