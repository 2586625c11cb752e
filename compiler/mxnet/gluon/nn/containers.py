"""Blocks of blocks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from compiler.errors import BlockArgumentError

from ... import np
from ...array.ndarray import ndarray
from ..block import Block
from ..hybrid_block import HybridBlock


class _Stack(Block):
    """Base class of sequences of blocks."""

    def add(self, *blocks: Block) -> None:
        """Put blocks at the end."""
        for block in blocks:
            if not isinstance(block, Block):
                raise BlockArgumentError(f"{type(block).__name__} is not a block")
            self.register_child(block)

    def __getitem__(self, key: int | slice) -> Any:
        found = list(self._children.values())[key]
        if not isinstance(found, list):
            return found
        part = type(self)()
        part.add(*found)
        return part

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[Block]:
        return iter(self._children.values())


class Sequential(_Stack):
    """Blocks one after the other; each gets the result of the one before."""

    def __init__(self, *blocks: Block, **names: Any) -> None:
        super().__init__(**names)
        self.add(*blocks)

    def forward(self, x: Any, *args: Any) -> Any:
        for block in self._children.values():
            x = block(x, *args)
            args = ()
            if isinstance(x, (tuple, list)):
                x, args = x[0], tuple(x[1:])
        return (x, *args) if args else x

    def hybridize(self, active: bool = True, **flags: Any) -> None:
        """Hybridize the children, each on its own."""
        if self._children and all(isinstance(c, HybridBlock) for c in self._children.values()):
            warnings.warn(
                "all children of this Sequential are HybridBlocks; with HybridSequential they are "
                "compiled as one",
                stacklevel=2,
            )
        super().hybridize(active, **flags)


class HybridSequential(_Stack, HybridBlock):
    """Hybrid blocks one after the other, compiled as one."""

    def __init__(self, *blocks: HybridBlock, **names: Any) -> None:
        super().__init__(**names)
        self.add(*blocks)

    forward = Sequential.forward


class _SideBySide(_Stack):
    def __init__(self, axis: int = -1, **names: Any) -> None:
        super().__init__(**names)
        self._axis = axis

    def forward(self, x: ndarray) -> ndarray:
        return np.concatenate([block(x) for block in self._children.values()], self._axis)


class Concatenate(_SideBySide, Sequential):
    """All blocks on the same input, their results side by side along an axis."""


class HybridConcatenate(_SideBySide, HybridSequential):
    """All hybrid blocks on the same input, their results side by side along an axis."""
