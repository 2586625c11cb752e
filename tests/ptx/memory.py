"""Memory of a device whose accesses are checked: bounds, alignment, first use, races."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

POISON = 0xFF  # a NaN in every type of float
_NOBODY, _EVERYBODY = -1, np.iinfo(np.int32).max

NO_WRITER = -2  # even and no thread's: no write that `fence.proxy.async` must follow

_WIDEST = 1024  # greatest alignment that matters: that of swizzled matrices
Report = Callable[[str, str, np.ndarray], None]
"""What is wrong (a kind and a text), and the threads concerned."""


class Accessors:
    """Who read and who wrote each granule of a memory since these were forgotten."""

    def __init__(self, count: int) -> None:
        self.writer = np.full(count, _NOBODY, np.int32)
        self.atomic = np.zeros(count, bool)
        self.first = np.full(count, _EVERYBODY, np.int32)  # of the readers, the smallest
        self.last = np.full(count, _NOBODY, np.int32)  # and the greatest

    def read(self, granules: np.ndarray, who: np.ndarray) -> np.ndarray:
        """Note readers, in ascending order, of granules (both of one shape); which race."""
        writer = self.writer[granules]
        self.last[granules] = np.maximum(self.last[granules], who)
        back = granules[::-1]  # of equal indices the last one is stored: the smallest reader
        self.first[back] = np.minimum(self.first[back], who[::-1])
        return (writer != _NOBODY) & (writer != who)

    def write(self, granules: np.ndarray, who: np.ndarray, atomic: bool = False) -> np.ndarray:
        """Note writers likewise; which race, also with one another."""
        writer = self.writer[granules]
        race = (writer != _NOBODY) & (writer != who)
        if atomic:
            race &= ~self.atomic[granules]
        race |= (self.last[granules] > who) | (self.first[granules] < who)
        self.writer[granules] = who
        self.atomic[granules] = atomic
        return race if atomic else race | (self.writer[granules] != who)

    def forget(self, which: slice | np.ndarray) -> None:
        """A barrier: nobody has read or written these."""
        self.writer[which] = self.last[which] = _NOBODY
        self.first[which] = _EVERYBODY

    def forget_groups(self, part: slice, size: int, met: np.ndarray) -> None:
        """A barrier of some groups of `size` neighbors, for what only one of them used."""
        writer, first, last = self.writer[part], self.first[part], self.last[part]
        group = np.where(writer == _NOBODY, last, writer) // size
        alone = (group >= 0) & met[np.clip(group, 0, len(met) - 1)]
        alone &= (first == _EVERYBODY) | (first // size == group)
        alone &= (last == _NOBODY) | (last // size == group)
        self.forget(np.flatnonzero(alone) + part.start)


@dataclass(frozen=True)
class Region:
    """A piece of memory that belongs together: an argument or an array."""

    name: str
    start: int
    size: int


class Memory:
    """Bytes in regions with gaps between them.

    Parameters
    ----------
    sizes : list of (name, bytes) or (name, bytes, alignment)
        Of the regions. One with an alignment below 1024 has no greater one by chance.
    granule : int
        Bytes that are looked after together: no access is smaller.
    copies : int
        So many instances, one after another: shared memory has one for each block.
    report : callable
        Gets what is wrong.
    races : bool
        Whether to keep account of who accesses what.
    gap : int
        Bytes at least between two regions, so that an access beyond one is not of the next.

    Attributes
    ----------
    stride : int
        Bytes from one instance to the next.
    read_only : set of str
        Regions that no kernel may write, which need no account of readers.
    """

    def __init__(
        self,
        sizes: Sequence[tuple[str, int] | tuple[str, int, int]],
        granule: int,
        copies: int,
        report: Report,
        races: bool,
        gap: int = 4096,
    ) -> None:
        self.granule, self.copies, self._report = granule, copies, report
        self.regions, at = [], 0
        for name, size, *aligned in sizes:
            if aligned:
                at = -(-at // _WIDEST) * _WIDEST + (0 if aligned[0] >= _WIDEST else 256)
            self.regions.append(Region(name, at, size))
            at += -(-(size + gap) // 256) * 256
        unit = _WIDEST if any(len(each) == 3 for each in sizes) else 256
        self.stride = -(-(at + 256) // unit) * unit
        self._words = np.empty(self.stride * copies // 8, np.uint64)
        self.data = self._words.view(np.uint8)
        granules = self.stride // granule
        self._region = np.full(granules, -1, np.int16)
        for number, region in enumerate(self.regions):
            end = -(-(region.start + region.size) // granule)
            self._region[region.start // granule : end] = number
        self.read_only: set[str] = set()
        self.valid = np.zeros(granules * copies, bool)
        self.pending = np.zeros(granules * copies, bool)
        self.races = races
        accounts = granules * copies if races else 0
        self.accessors = Accessors(accounts)
        # The same by groups of threads, for barriers of one group alone: by warps in shared
        # memory, by blocks in global memory.
        self.groups = Accessors(accounts)
        # Where `wgmma` is used: how many read each granule now, and of each granule that ordinary
        # instructions wrote twice the number of the thread, plus 1 behind its fence.
        self.reading: np.ndarray | None = None
        self.proxy: np.ndarray | None = None
        # The number of the bulk copy that wrote a granule, and which threads may read each copy.
        self.landed: np.ndarray | None = None
        self.observers: dict[int, np.ndarray] = {}
        self.poison()

    def follow_proxies(self) -> None:
        """Keep account of what `wgmma` reads, and of what bulk copies write."""
        self.reading = np.zeros(len(self.valid), np.int16)
        self.proxy = np.full(len(self.valid), NO_WRITER, np.int32)
        self.landed = np.full(len(self.valid), -1, np.int32)

    def land(self, granules: np.ndarray, number: int, threads: int) -> None:
        """A bulk copy of this number is there; only threads that wait for it may read it."""
        assert self.landed is not None
        self.pending[granules] = False
        self.landed[granules] = number
        self.observers.setdefault(number, np.zeros(threads, bool))
        if self.races:
            self.accessors.writer[granules] = self.groups.writer[granules] = _NOBODY

    def met(self, part: slice) -> None:
        """All threads of a block, this part of the threads, have met at a barrier."""
        for seen in self.observers.values():
            seen[part] |= seen[part].any()

    def note_proxy(self, granules: np.ndarray, threads: np.ndarray) -> None:
        """Ordinary instructions of threads, or their `cp.async`, have written."""
        if self.proxy is not None:
            self.proxy[granules] = 2 * threads[:, None]

    def fence_proxy(self, mask: np.ndarray) -> None:
        """`fence.proxy.async` of some threads: what they have written may be read by `wgmma`."""
        if self.proxy is not None:
            written = np.flatnonzero(self.proxy >= 0)
            fenced = written[mask[self.proxy[written] >> 1]]
            self.proxy[fenced] |= 1

    def poison(self) -> None:
        """Nobody has written anything yet."""
        self.data[:] = POISON
        self.valid[:] = False
        self.pending[:] = False
        self.accessors.forget(slice(None))
        self.groups.forget(slice(None))
        if self.reading is not None and self.proxy is not None:
            self.reading[:] = 0
            self.proxy[:] = NO_WRITER
        if self.landed is not None:
            self.landed[:] = -1
            self.observers.clear()

    def region(self, name: str) -> Region:
        """The region of this name."""
        return next(region for region in self.regions if region.name == name)

    def fill(self, name: str, values: np.ndarray) -> None:
        """Write a region of the only instance from outside."""
        region = self.region(name)
        content = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        self.data[region.start : region.start + len(content)] = content
        end = region.start + len(content)
        self.valid[region.start // self.granule : -(-end // self.granule)] = True

    def place(
        self, at: np.ndarray, bytes_: int, threads: np.ndarray, copy: np.ndarray | int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Check addresses: which are right, and those as places in `data`."""
        inside = (at >= 0) & (at < self.stride - bytes_)
        start = np.where(inside, at, 0) // self.granule
        end = (np.where(inside, at, 0) + bytes_ - 1) // self.granule
        number = self._region[start]
        inside &= (number >= 0) & (self._region[end] == number)
        if not inside.all():
            self._report("bounds", self._where(at[~inside][0]), threads[~inside])
        aligned = at % bytes_ == 0
        if not aligned.all():
            self._report("alignment", f"{bytes_} bytes at {at[~aligned][0]}", threads[~aligned])
        right = inside & aligned
        return right, (at + self.stride * copy)[right]

    def _where(self, at: int) -> str:
        before = [region for region in self.regions if region.start <= at]
        if not before:
            return f"address {at} is before all memory"
        region = before[-1]
        return f"byte {at - region.start} of {region.name}, which has {region.size}"

    def granules_of(self, places: np.ndarray, bytes_: int) -> np.ndarray:
        """(threads, granules) of accesses."""
        count = max(1, bytes_ // self.granule)
        return places[:, None] // self.granule + np.arange(count)

    def tracked(self, places: np.ndarray) -> bool:
        """Whether accesses there must be followed: not so where all is read-only."""
        if not self.races or not self.read_only:
            return self.races
        numbers = np.unique(self._region[places // self.granule])
        return any(self.regions[number].name not in self.read_only for number in numbers)

    def check_read(self, granules: np.ndarray, threads: np.ndarray) -> None:
        """Whether what is read was written and has arrived."""
        flying = self.pending[granules].any(1)
        if flying.any():
            self._report("in flight", "read before cp.async was waited for", threads[flying])
        unwritten = ~self.valid[granules].all(1) & ~flying
        if unwritten.any():
            self._report("uninitialized", "read before anyone wrote it", threads[unwritten])
        if self.observers and self.landed is not None:
            numbers = self.landed[granules]
            for number in np.unique(numbers[numbers >= 0]):
                early = (numbers == number).any(1) & ~self.observers[int(number)][threads]
                if early.any():
                    text = "read by a thread that has not waited for the copy's mbarrier"
                    self._report("race", text, threads[early])

    def check_write(self, places: np.ndarray, granules: np.ndarray, threads: np.ndarray) -> None:
        """Whether this may be written; it counts as written from here on."""
        if self.read_only:
            protected = np.array([region.name in self.read_only for region in self.regions])
            wrong = protected[self._region[places // self.granule]]
            if wrong.any():
                self._report("input", "an input is written", threads[wrong])
        flying = self.pending[granules].any(1)
        if flying.any():
            self._report("in flight", "written before cp.async was waited for", threads[flying])
        if self.reading is not None:
            read = (self.reading[granules] > 0).any(1)
            if read.any():
                text = "written while a wgmma that reads it is in flight"
                self._report("in flight", text, threads[read])
            self.note_proxy(granules, threads)
        if self.landed is not None:
            self.landed[granules] = -1
        self.valid[granules] = True

    def load(self, places: np.ndarray, width: int, index: int) -> np.ndarray:
        """Elements of `width` bytes, the `index`-th behind each place, as unsigned integers."""
        return self.data.view(f"u{width}")[places // width + index]

    def store(self, places: np.ndarray, width: int, index: int, values: np.ndarray) -> None:
        """The reverse."""
        self.data.view(f"u{width}")[places // width + index] = values
