"""The space of a template's configs: knobs with their candidates, and the index of each config.

A config's index is a little-endian mixed-radix number: the knob that was defined first varies
fastest. Candidates and their order are those of TVM 0.18, so that an index in one of its logs
means the same config here.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from tvm.target import Target

from .config import (
    AnnotateEntity,
    ConfigEntity,
    InstantiationError,
    Knob,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
)

MOST_RANDOM_TRIES = 10_000
"""Random indices that may be refused by a filter before the space is searched in order."""


class VirtualAxis:
    """An axis that knobs are defined on; `length` is its extent."""

    def __init__(self, length: int, name: str = "") -> None:
        self.length = int(length)
        self.name = name

    def __repr__(self) -> str:
        return f"VirtualAxis({self.length})"


class ConfigSpace:
    """All configs of one task.

    While a template runs with a space, each knob reads as its first candidate.

    Attributes
    ----------
    space_map : dict
        Knob name to the list of its candidates, in the order of definition.
    flop : float
        What the template said with `add_flop`.
    """

    is_fallback = False

    def __init__(self) -> None:
        self.space_map: dict[str, list[Knob]] = {}
        self.flop = 0.0
        self._filters: list[Callable[[ConfigEntity], bool]] = []
        self._errors: list[str] = []

    # --- what templates call ---------------------------------------------------------------

    def axis(self, extent: Any) -> VirtualAxis:
        """An axis of some extent: an int, or an iteration variable of TE."""
        return _axis(extent)

    reduce_axis = axis

    def define_split(
        self,
        name: str,
        axis: Any,
        policy: str = "factors",
        *,
        num_outputs: int = 2,
        max_factor: int | None = None,
        filter: Callable[[SplitEntity], bool] | None = None,
        no_tail: bool = False,
        candidate: Sequence[Sequence[int]] = (),
        **_: Any,
    ) -> list[VirtualAxis]:
        """A knob that splits an axis into `num_outputs` loops.

        Parameters
        ----------
        axis : int, VirtualAxis or IterVar
        policy : str
            "factors": divisors. "power2": powers of two. "verbose": both. "candidate": the lists
            in `candidate`.
        max_factor : int, optional
            Largest factor.
        filter : callable, optional
            Which entities to keep.
        no_tail : bool
            Powers of two must divide as well.

        Raises
        ------
        IndexError
            No candidate is left.
        ValueError
            The policy is not known.
        """
        extent = _axis(axis).length
        if policy == "candidate":
            sizes: list[tuple[int, ...]] = [tuple(size) for size in candidate]
        else:
            factors = _factors(extent, policy, max_factor)
            tails = policy != "factors" and not no_tail
            sizes = [
                (-1, *reversed(inner)) for inner in _inner_factors(
                    extent, factors, num_outputs - 1, tails)
            ]  # fmt: skip
        self._define(name, [SplitEntity(size) for size in sizes], filter)
        return [VirtualAxis(1, f"{name}.{part}") for part in range(num_outputs)]

    def define_reorder(
        self,
        name: str,
        axes: Sequence[Any],
        policy: str,
        *,
        interval: tuple[int, int] = (0, 0),
        candidate: Sequence[Sequence[Any]] = (),
        spatial: Sequence[Sequence[Any]] = (),
        reduce: Sequence[Sequence[Any]] = (),
        filter: Callable[[ReorderEntity], bool] | None = None,
        **_: Any,
    ) -> list[Any]:
        """A knob that reorders axes.

        Parameters
        ----------
        policy : str
            "identity"; "all" permutations; "interval_all": those of positions interval[0] to
            interval[1] - 1; "candidate": orders of the axes themselves; "interleave": the chains
            of `spatial` and `reduce` merged in every way; "interleave_cuda": the same inside the
            outermost spatial and before the innermost ones.

        Raises
        ------
        ValueError
            The policy is not known.
        """
        places = list(range(len(axes)))
        if policy == "identity":
            orders: list[Sequence[int]] = [places]
        elif policy == "all":
            orders = list(itertools.permutations(places))
        elif policy == "interval_all":
            begin, end = interval
            middle = itertools.permutations(places[begin:end])
            orders = [[*places[:begin], *part, *places[end:]] for part in middle]
        elif policy == "candidate":
            orders = [[_place(axes, axis) for axis in order] for order in candidate]
        elif policy in ("interleave", "interleave_cuda"):
            orders = _interleaved(axes, spatial, reduce, policy == "interleave_cuda")
        else:
            raise ValueError(f"knob {name}: reorder policy {policy!r} is not known")
        self._define(name, [ReorderEntity(tuple(order)) for order in orders], filter)
        return list(axes)

    def define_annotate(
        self,
        name: str,
        axes: Sequence[Any],
        policy: str,
        *,
        filter: Callable[[AnnotateEntity], bool] | None = None,
        num_anchor: int = 1,
        **_: Any,
    ) -> list[Any]:
        """A knob that annotates axes.

        Parameters
        ----------
        policy : str
            "bind_gpu", "bind_gpu_virtual", "locate_cache" (with `num_anchor`), or names of
            "none" (also "try"), "unroll" and "vec" joined by "_"; at most one axis is "vec".

        Raises
        ------
        ValueError
            The policy is not known.
        """
        count = len(axes)
        if policy == "bind_gpu":
            options = [_GPU[count]] if count in _GPU else []
        elif policy == "bind_gpu_virtual":
            options = [_GPU_VIRTUAL[count]] if count in _GPU_VIRTUAL else []
        elif policy == "locate_cache":
            options = list(itertools.combinations(range(count), num_anchor))  # type: ignore[arg-type]
        else:
            words = ["none" if word == "try" else word for word in policy.split("_")]
            if not {"none", "unroll", "vec"}.issuperset(words):
                raise ValueError(f"knob {name}: annotation policy {policy!r} is not known")
            options = [
                chosen for chosen in itertools.product(words, repeat=count)
                if chosen.count("vec") <= 1
            ]  # fmt: skip
        self._define(name, [AnnotateEntity(tuple(option)) for option in options], filter)
        return list(axes)

    def define_knob(
        self,
        name: str,
        candidate: Sequence[Any],
        filter: Callable[[OtherOptionEntity], bool] | None = None,
    ) -> None:
        """A knob that is one of some values."""
        self._define(name, [OtherOptionEntity(value) for value in candidate], filter)

    def multi_filter(self, accept: Callable[[ConfigEntity], bool]) -> None:
        """Keep only the configs that `accept` takes; indices stay as they are."""
        self._filters.append(accept)

    def add_flop(self, flop: float) -> None:
        """Say how many operations the kernel does; else they are counted."""
        self.flop += float(flop)

    def raise_error(self, message: str) -> None:
        """Note that the first candidates don't fit together; says nothing about the space."""
        self._errors.append(message)

    def _define(self, name: str, candidates: Sequence[Any], accept: Any) -> None:
        if name in self.space_map:
            return
        kept = [entity for entity in candidates if accept is None or accept(entity)]
        if not kept:
            raise IndexError(f"knob {name} has no candidate")
        self.space_map[name] = kept

    # --- reading ---------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Knob:
        return self.space_map[name][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.space_map)

    def __contains__(self, name: object) -> bool:
        return name in self.space_map

    def __len__(self) -> int:
        """Number of configs, those that filters refuse included."""
        return self.range_length

    def __bool__(self) -> bool:
        return True

    @property
    def dims(self) -> list[int]:
        """Number of candidates of each knob."""
        return [len(candidates) for candidates in self.space_map.values()]

    @property
    def range_length(self) -> int:
        """One more than the largest index."""
        return math.prod(self.dims)

    space_length = range_length

    def get(self, index: int) -> ConfigEntity:
        """The config of an index.

        Raises
        ------
        IndexError
            It is not in the space, or a filter refuses it.
        """
        config = self._at(index)
        if not self._accepts(config):
            raise IndexError(f"config {index} is refused by the template's filter")
        return config

    def _at(self, index: int) -> ConfigEntity:
        if not 0 <= index < self.range_length:
            raise IndexError(f"config {index} of a space of {self.range_length}")
        point = self.knobs_of(index)
        knobs = {
            name: candidates[place]
            for (name, candidates), place in zip(self.space_map.items(), point)
        }
        return ConfigEntity(knobs, f"topi:space:{index}", False, index=index)

    def knobs_of(self, index: int) -> tuple[int, ...]:
        """Place of each knob's candidate in the config of that index."""
        point = []
        for dim in self.dims:
            index, place = divmod(index, dim)
            point.append(place)
        return tuple(point)

    def index_of_knobs(self, point: Sequence[int]) -> int:
        """The inverse of `knobs_of`."""
        index = 0
        for place, dim in zip(reversed(point), reversed(self.dims)):
            index = index * dim + place
        return index

    def index_of(self, config: Mapping[str, Knob]) -> int | None:
        """Index of a config, or None if it is not in the space.

        The first factor of a split is never used, so -1 and a quotient are the same.
        """
        point = []
        for name, candidates in self.space_map.items():
            knob = config.get(name)
            found = [p for p, entity in enumerate(candidates) if _same(entity, knob)]
            if not found:
                return None
            point.append(found[0])
        index = self.index_of_knobs(point)
        return index if self.is_index_valid(index) else None

    def is_index_valid(self, index: int) -> bool:
        """Whether an index is in the space and no filter refuses it."""
        return 0 <= index < self.range_length and (
            not self._filters or self._accepts(self._at(index))
        )

    def _accepts(self, config: ConfigEntity) -> bool:
        return all(accept(config) for accept in self._filters)

    def sample_ints(
        self, count: int, rng: random.Random, without: Collection[int] = ()
    ) -> list[int]:
        """At most `count` different valid indices, none of `without`."""
        chosen: dict[int, None] = {}
        for _ in range(MOST_RANDOM_TRIES if self.range_length > 4 * count else 0):
            if len(chosen) == count:
                return list(chosen)
            index = rng.randrange(self.range_length)
            if index not in without and self.is_index_valid(index):
                chosen[index] = None
        if len(chosen) == count:
            return list(chosen)
        if self.range_length > 1_000_000:
            return list(chosen)
        left = [
            index for index in range(self.range_length)
            if index not in chosen and index not in without and self.is_index_valid(index)
        ]  # fmt: skip
        rng.shuffle(left)
        return [*chosen, *left[: count - len(chosen)]]

    def __str__(self) -> str:
        lines = [f"ConfigSpace of {self.range_length}"]
        for name, candidates in self.space_map.items():
            lines.append(f"  {name}: {len(candidates)} of {type(candidates[0]).__name__}")
        return "\n".join(lines)


# --- candidates --------------------------------------------------------------------------

_BLOCKS = ("blockIdx.z", "blockIdx.y", "blockIdx.x")
_THREADS = ("threadIdx.z", "threadIdx.y", "threadIdx.x")
_GPU: dict[int, tuple[str, ...]] = {
    2: (_BLOCKS[2], _THREADS[2]),
    4: (*_BLOCKS[1:], *_THREADS[1:]),
    6: (*_BLOCKS, *_THREADS),
}
_GPU_VIRTUAL: dict[int, tuple[str, ...]] = {
    3: (_BLOCKS[2], "vthread.x", _THREADS[2]),
    6: (*_BLOCKS[1:], "vthread.y", "vthread.x", *_THREADS[1:]),
    9: (*_BLOCKS, "vthread.z", "vthread.y", "vthread.x", *_THREADS),
}


def _axis(extent: Any) -> VirtualAxis:
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


def _factors(extent: int, policy: str, max_factor: int | None) -> list[int]:
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


def _inner_factors(
    extent: int, factors: Sequence[int], count: int, tails: bool
) -> Iterator[tuple[int, ...]]:
    """Lists of inner factors, the innermost first, which varies slowest."""
    for chosen in itertools.product(factors, repeat=count):
        product = math.prod(chosen)
        if extent % product == 0 or (tails and product < extent):
            yield chosen


def _place(axes: Sequence[Any], axis: Any) -> int:
    return next(place for place, each in enumerate(axes) if each is axis or each == axis)


def _interleaved(
    axes: Sequence[Any],
    spatial: Sequence[Sequence[Any]],
    reduce: Sequence[Sequence[Any]],
    for_gpu: bool,
) -> list[Sequence[int]]:
    outer = [chain[0] for chain in spatial] if for_gpu else []
    chains = [chain[1:-1] if for_gpu else chain for chain in spatial]
    inner = [chain[-1] for chain in spatial] if for_gpu else []
    middle = [list(chain) for chain in [*chains, *reduce] if chain]
    orders: list[Sequence[int]] = []
    for merged in _merged(middle):
        orders.append([_place(axes, axis) for axis in (*outer, *merged, *inner)])
    return orders


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


def _same(entity: Knob, other: Any) -> bool:
    if isinstance(entity, SplitEntity) and isinstance(other, SplitEntity):
        return entity.size[1:] == other.size[1:] and len(entity.size) == len(other.size)
    return entity == other


# --- spaces of the library's templates ---------------------------------------------------

Define = Callable[[ConfigSpace, Any, Target], None]
"""Defines the knobs of an implementation for a workload on a target."""

_SPACES: dict[str, Define] = {}


def register_space(name: str, define: Define) -> None:
    """Say which knobs the implementation `name` has; its config must be built from them."""
    _SPACES[name] = define


def has_space(name: str) -> bool:
    """Whether an implementation can be tuned."""
    return name in _SPACES


def space_of(name: str, workload: Any, target: Target) -> ConfigSpace:
    """The configs of an implementation for a workload.

    Raises
    ------
    InstantiationError
        It has no knobs.
    """
    if name not in _SPACES:
        raise InstantiationError(f"{name} has no knobs to tune")
    space = ConfigSpace()
    _SPACES[name](space, workload, target)
    return space
