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
from .knob_candidates import (
    GPU_AXES,
    VIRTUAL_GPU_AXES,
    VirtualAxis,
    axis_of,
    factors_of,
    inner_factors,
    interleaved,
    place_of,
)

MOST_STEPS = 50
"""Random steps that may be refused before a walk stays where it is."""
MOST_RANDOM_TRIES = 10_000
"""Random indices that may be refused by a filter before the space is searched in order."""


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
        self._valid: int | None = None  # number of configs, once counted

    # --- what templates call ---------------------------------------------------------------

    def axis(self, extent: Any) -> VirtualAxis:
        """An axis of some extent: an int, or an iteration variable of TE."""
        return axis_of(extent)

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
        extent = axis_of(axis).length
        if policy == "candidate":
            sizes: list[tuple[int, ...]] = [tuple(size) for size in candidate]
        else:
            factors = factors_of(extent, policy, max_factor)
            tails = policy != "factors" and not no_tail
            sizes = [
                (-1, *reversed(inner)) for inner in inner_factors(
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
            orders = [[place_of(axes, axis) for axis in order] for order in candidate]
        elif policy in ("interleave", "interleave_cuda"):
            orders = interleaved(axes, spatial, reduce, policy == "interleave_cuda")
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
            options = [GPU_AXES[count]] if count in GPU_AXES else []
        elif policy == "bind_gpu_virtual":
            options = [VIRTUAL_GPU_AXES[count]] if count in VIRTUAL_GPU_AXES else []
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

    def multi_filter(self, filter: Callable[[ConfigEntity], bool]) -> None:
        """Keep only the configs that `filter` takes; indices stay as they are."""
        self._filters.append(filter)
        self._valid = None

    def add_flop(self, flop: float) -> None:
        """Say how many operations the kernel does; else they are counted."""
        self.flop += float(flop)

    def raise_error(self, message: str) -> None:
        """Note that the first candidates don't fit together; says nothing about the space."""
        self._errors.append(message)

    def _define(self, name: str, candidates: Sequence[Any], accept: Any) -> None:
        """Define a knob, or define it anew."""
        kept = [entity for entity in candidates if accept is None or accept(entity)]
        if not kept:
            raise IndexError(f"knob {name} has no candidate")
        self.space_map[name] = kept
        self._valid = None

    # --- reading ---------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Knob:
        return self.space_map[name][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.space_map)

    def __contains__(self, name: object) -> bool:
        return name in self.space_map

    def __len__(self) -> int:
        """Number of configs that no filter refuses; with filters, all are looked at once."""
        if self._valid is None:
            self._valid = self.subrange_length(0, self.range_length)
        return self._valid

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
        point = self.point2knob(index)
        knobs = {
            name: candidates[place]
            for (name, candidates), place in zip(self.space_map.items(), point)
        }
        return ConfigEntity(knobs, f"topi:space:{index}", False, index=index)

    def point2knob(self, point: int) -> list[int]:
        """Place of each knob's candidate in the config of an index."""
        places = []
        for dim in self.dims:
            point, place = divmod(point, dim)
            places.append(place)
        return places

    def knob2point(self, knob: Sequence[int]) -> int:
        """The inverse of `point2knob`."""
        index = 0
        for place, dim in zip(reversed(knob), reversed(self.dims)):
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
        index = self.knob2point(point)
        return index if self.is_index_valid(index) else None

    def is_index_valid(self, index: int) -> bool:
        """Whether an index is in the space and no filter refuses it."""
        return 0 <= index < self.range_length and (
            not self._filters or self._accepts(self._at(index))
        )

    def _accepts(self, config: ConfigEntity) -> bool:
        return all(accept(config) for accept in self._filters)

    def subrange_length(self, start: int, end: int) -> int:
        """Number of valid indices from `start` to below `end`.

        Raises
        ------
        IndexError
            They are not in the space, or not in this order.
        """
        if not 0 <= start <= end <= self.range_length:
            raise IndexError(f"indices {start} to {end} of a space of {self.range_length}")
        if not self._filters:
            return end - start
        return sum(self._accepts(self._at(index)) for index in range(start, end))

    def get_next_index(
        self, index: int, n: int = 1, start: int | None = None, end: int | None = None
    ) -> int | None:
        """The n-th valid index behind one, or before it; None where that is no more in the range.

        Parameters
        ----------
        n : int
            Not 0; negative ones go backwards.
        start, end : int, optional
            The range, `end` not included; the whole space by default.
        """
        start, end = start or 0, self.range_length if end is None else end
        step, left = (1, n) if n > 0 else (-1, -n)
        while left:
            index += step
            if not start <= index < end:
                return None
            left -= self.is_index_valid(index)
        return index

    def get_rand_index(
        self, start: int | None = None, end: int | None = None, to_exclude: Collection[int] = ()
    ) -> int | None:
        """A random valid index from `start` to below `end`; None where none is left.

        Parameters
        ----------
        start, end : int, optional
            The whole space by default.
        to_exclude : collection of int
        """
        start, end = start or 0, self.range_length if end is None else end
        found = self.sample_ints(1, random, to_exclude, start, end)
        return found[0] if found else None

    def random_walk(self, point: int, rng: Any = random) -> int:
        """A valid index whose config differs in one knob; the index itself where none is found."""
        movable = [knob for knob, dim in enumerate(self.dims) if dim > 1]
        for _ in range(MOST_STEPS if movable else 0):
            knobs = self.point2knob(point)
            knob = rng.choice(movable)
            knobs[knob] = rng.randrange(self.dims[knob])
            moved = self.knob2point(knobs)
            if moved != point and self.is_index_valid(moved):
                return moved
        return point

    def sample_ints(
        self,
        count: int,
        rng: Any = random,
        without: Collection[int] = (),
        start: int = 0,
        end: int | None = None,
    ) -> list[int]:
        """At most `count` different valid indices, none of `without`.

        Parameters
        ----------
        rng : random.Random, or the module
        start, end : int, optional
            The range that they are of, `end` not included; the whole space by default.
        """
        end = self.range_length if end is None else end
        chosen: dict[int, None] = {}
        for _ in range(MOST_RANDOM_TRIES if end - start > 4 * count else 0):
            if len(chosen) == count:
                return list(chosen)
            index = rng.randrange(start, end)
            if index not in without and self.is_index_valid(index):
                chosen[index] = None
        if len(chosen) == count:
            return list(chosen)
        if end - start > 1_000_000:
            return list(chosen)
        left = [
            index for index in range(start, end)
            if index not in chosen and index not in without and self.is_index_valid(index)
        ]  # fmt: skip
        rng.shuffle(left)
        return [*chosen, *left[: count - len(chosen)]]

    def __str__(self) -> str:
        lines = [f"ConfigSpace of {self.range_length}"]
        for name, candidates in self.space_map.items():
            lines.append(f"  {name}: {len(candidates)} of {type(candidates[0]).__name__}")
        return "\n".join(lines)


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
    """Configs of an implementation for a workload; InstantiationError if it has no knobs."""
    if name not in _SPACES:
        raise InstantiationError(f"{name} has no knobs to tune")
    space = ConfigSpace()
    _SPACES[name](space, workload, target)
    return space
