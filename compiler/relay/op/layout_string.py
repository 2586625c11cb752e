"""Layout strings of Relay: "NHWC", "NCHW16c", "OIHW16i"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import tvm

from ...errors import RelayError


@dataclass(frozen=True)
class Axis:
    """An axis: an upper-case letter, or the lower-case letter of a block split from it."""

    letter: str
    factor: int = 0  # block size; 0 for an unsplit or outer axis

    @property
    def is_whole(self) -> bool:
        return self.letter.isupper()

    def __str__(self) -> str:
        return self.letter if self.is_whole else f"{self.factor}{self.letter}"


class Layout:
    """Axes of a tensor by letter; RelayError if one occurs twice or a block has no outer axis."""

    def __init__(self, axes: str | Sequence[Axis]) -> None:
        if isinstance(axes, str):
            axes = [
                Axis(letter, int(factor or 0))
                for factor, letter in re.findall(r"(\d*)([A-Za-z])", axes)
            ]
        self.axes = tuple(axes)
        whole = [axis.letter for axis in self.axes if axis.is_whole]
        blocks = [axis.letter.upper() for axis in self.axes if not axis.is_whole]
        if len(whole) != len(set(whole)) or not set(blocks) <= set(whole):
            raise RelayError(f"{str(self)!r} is not a layout")

    def __str__(self) -> str:
        return "".join(map(str, self.axes))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.axes == other.axes

    def __hash__(self) -> int:
        return hash(self.axes)

    def __len__(self) -> int:
        return len(self.axes)

    def __getitem__(self, index: int) -> Axis:
        return self.axes[index]

    @property
    def rank(self) -> int:
        """Number of upper-case axes."""
        return sum(axis.is_whole for axis in self.axes)

    def index(self, letter: str) -> int:
        """Index of an axis; -1 if it is missing."""
        return next((i for i, axis in enumerate(self.axes) if axis.letter == letter), -1)

    def factor(self, letter: str) -> int:
        """Block size of an axis, 0 if it is not split."""
        sizes = [axis.factor for axis in self.axes if axis.letter == letter.lower()]
        product = 1
        for size in sizes:
            product *= size
        return product if sizes else 0

    def last(self, count: int) -> Layout | None:
        """Layout of the last `count` axes; None if it contains a block without its outer axis."""
        try:
            return Layout(self.axes[len(self.axes) - count :])
        except RelayError:
            return None

    def widened(self, other: Layout) -> Layout:
        """Prepend the axes of another layout that this layout lacks."""
        missing = [axis for axis in other.axes if axis.is_whole and self.index(axis.letter) < 0]
        return Layout([*missing, *self.axes])

    def same_axes(self, other: Layout) -> bool:
        """Whether tensors can be converted between the two layouts."""
        return {axis.letter for axis in self.axes if axis.is_whole} == {
            axis.letter for axis in other.axes if axis.is_whole
        }


def like(old: Layout, before: Layout, after: Layout) -> Layout | None:
    """Apply the change `before` -> `after` to `old`, aligned at the last axis; or None."""
    large, small = (before, old) if len(before) > len(old) else (old, before)
    tail, rest = large.last(len(small)), large.axes[: len(large) - len(small)]
    if tail is None or any(tail.index(letter) >= 0 for each in rest for letter in _both(each)):
        return None
    if not _corresponding(tail, small):
        return None
    if len(old) == 0:
        return old
    names = {
        b.letter.upper(): a.letter.upper()
        for a, b in zip(reversed(old.axes), reversed(before.axes))
    }
    used = {axis.letter.upper() for axis in old.axes}
    for axis in reversed(before.axes):
        letter = axis.letter.upper()
        if letter not in names:
            free = [letter, *map(chr, range(ord("A"), ord("Z") + 1))]
            names[letter] = next(each for each in free if each not in used)
            used.add(names[letter])
    if any(axis.letter.upper() not in names for axis in after.axes):
        return None
    return Layout(
        [
            Axis(names[axis.letter.upper()], 0)
            if axis.is_whole
            else Axis(names[axis.letter.upper()].lower(), axis.factor)
            for axis in after.axes
        ]
    )


def _both(axis: Axis) -> tuple[str, str]:
    return axis.letter.upper(), axis.letter.lower()


def _corresponding(first: Layout, second: Layout) -> bool:
    """Whether two layouts are equal up to renaming of letters."""
    forth: dict[str, str] = {}
    back: dict[str, str] = {}
    for a, b in zip(first.axes, second.axes):
        if a.is_whole != b.is_whole or a.factor != b.factor:
            return False
        if forth.setdefault(a.letter, b.letter) != b.letter:
            return False
        if back.setdefault(b.letter, a.letter) != a.letter:
            return False
    return len(first) == len(second)


def without_blocks_of_one(layout: Layout, old: Layout, shape: Sequence[object]) -> Layout:
    """Blocks of 1 where the tensor is broadcast: (1, 1, 28, 28) in NCHW, NCHW16c -> NCHW1c."""
    axes = []
    for axis in layout.axes:
        if axis.is_whole:
            axes.append(axis)
            continue
        place = old.index(axis.letter.upper())
        one = place < 0 or (is_one(shape[place]) and old.index(axis.letter) < 0)
        axes.append(Axis(axis.letter, 1 if one else layout.factor(axis.letter)))
    return Layout(axes)


def is_one(extent: object) -> bool:
    """Whether an extent is statically 1."""
    return isinstance(extent, (int, tvm.tirx.IntImm)) and int(extent) == 1
