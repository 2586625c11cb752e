"""Workload of attention: softmax(q k * scale + mask) v, shared by every target's schedules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from .matmul import Operand, broadcast

SOFTMAX_FLOPS = 4
"""For each score: it is compared, subtracted, raised and added."""


@dataclass(frozen=True)
class Entry:
    """One entry along an axis of a tensor: (1, S, 3, H, D)[:, :, index] for q, k or v."""

    axis: int
    index: int
    extent: int


@dataclass(frozen=True)
class Heads:
    """A stack of matrices read in place; the tensor may keep its last axes as one."""

    operand: Operand  # how the matrices lie in the tensor after a reshape that splits its last axis
    # How many of those axes the tensor itself has as one: 2 for (B, S, H * D) read as (B, S, H, D),
    # 0 for a tensor that is not reshaped
    joined: int = 0
    entry: Entry | None = None  # the part of a tensor with one axis more
    repeats: int = 1  # number of consecutive query heads that share a head

    @property
    def batch(self) -> tuple[int, ...]:
        """Extents before those of the matrices; some of them are equal."""
        batch = self.operand.batch
        return batch if self.repeats == 1 else (*batch[:-1], batch[-1] * self.repeats)

    @property
    def split_shape(self) -> tuple[int, ...]:
        """Shape of the tensor after the reshape."""
        return self._with_entry(self.operand.stored, lambda entry: entry.extent)

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        """Shape of the tensor in memory."""
        shape = self.split_shape
        if not self.joined:
            return shape
        return (*shape[: -self.joined], math.prod(shape[-self.joined :]))

    def index(self, batch: Sequence[Any], row: Any, column: Any) -> tuple[Any, ...]:
        """Index into the tensor; `batch` as in `Operand.index`."""
        if self.repeats != 1:
            batch = (*batch[:-1], tirx.floordiv(batch[-1], self.repeats))
        stored = self.operand.index(batch, row, column)
        index = self._with_entry(stored, lambda entry: entry.index)
        if not self.joined:
            return index
        shape, position = self.split_shape, index[-self.joined]
        for axis in range(1 - self.joined, 0):
            position = position * shape[axis] + index[axis]
        return (*index[: -self.joined], position)

    def _with_entry(self, parts: tuple[Any, ...], own: Callable[[Entry], int]) -> tuple[Any, ...]:
        if self.entry is None:
            return parts
        return (*parts[: self.entry.axis], own(self.entry), *parts[self.entry.axis :])


@dataclass(frozen=True)
class Mask:
    """Effect of a tensor on the scores (*batch, s, t)."""

    shape: tuple[int, ...]  # tensor shape; broadcasts to that of the scores
    # The tensor has type bool and chooses between the score and this number; None for a tensor of
    # the scores' dtype that is added to them
    fill: float | None = None
    hides: bool = False  # `fill` replaces the score where the tensor is true

    def dtype(self, scores: str) -> str:
        """Dtype of the tensor, given the dtype of the scores."""
        return scores if self.fill is None else "bool"

    def index(self, batch: Sequence[Any], row: Any, column: Any) -> tuple[Any, ...]:
        """Index into the tensor for the score at (*batch, row, column)."""
        full = (*batch, row, column)[len(batch) + 2 - len(self.shape) :]
        return tuple(
            0 if isinstance(extent, int) and extent == 1 else i
            for extent, i in zip(self.shape, full)
        )


@dataclass(frozen=True)
class AttentionWorkload:
    """softmax(masked(q (*batch, s, d) times k (*batch, d, t) * scale)) times v (*batch, t, c)."""

    q: Heads
    k: Heads
    v: Heads
    masks: tuple[Mask, ...] = ()  # applied to the scores in order
    scale: float = 1.0
    # The result is (b, s, h * c) instead of (b, h, s, c), for batch = (b, h)
    heads_last: bool = False
    # Rows whose softmax is not a number, as where a mask of infinities leaves no key, give zeros
    nan_is_zero: bool = False
    dtype: str = "float32"
    # The masks give query i no key after i + diagonal; None where that is not known
    diagonal: int | None = None

    @property
    def batch(self) -> tuple[int, ...]:
        return broadcast(broadcast(self.q.batch, self.k.batch), self.v.batch)

    @property
    def s(self) -> int:
        """Queries."""
        return self.q.operand.shape[-2]

    @property
    def d(self) -> int:
        """Length of a query and of a key."""
        return self.q.operand.shape[-1]

    @property
    def t(self) -> int:
        """Keys."""
        return self.k.operand.shape[-1]

    @property
    def c(self) -> int:
        """Length of a value."""
        return self.v.operand.shape[-1]

    @property
    def out_shape(self) -> tuple[int, ...]:
        if self.heads_last:
            return (self.batch[0], self.s, self.batch[1] * self.c)
        return (*self.batch, self.s, self.c)

    @property
    def flops(self) -> int | None:
        """Operations of both products and of the softmax; None for unknown extents."""
        extents = (*self.batch, self.s, self.t, self.d, self.c)
        if not all(isinstance(extent, int) for extent in extents):
            return None
        each = 2 * (self.d + self.c) + SOFTMAX_FLOPS + len(self.masks) + (self.scale != 1.0)
        return math.prod(self.batch) * self.s * self.t * each

    def masked(
        self,
        score: Any,
        tensors: Sequence[Any],
        batch: Sequence[Any],
        row: Any,
        column: Any,
        dtype: str = "",
    ) -> Any:
        """The score at (*batch, row, column) behind all masks, which `tensors` are.

        `dtype` is that of the score where it is not the tensors'.
        """
        dtype = dtype or self.dtype
        for mask, tensor in zip(self.masks, tensors, strict=True):
            element = tensor[mask.index(batch, row, column)]
            if mask.fill is None:
                score = score + (element if dtype == self.dtype else element.astype(dtype))
            else:
                fill = tirx.const(mask.fill, dtype)
                score = tirx.Select(element, *((fill, score) if mask.hides else (score, fill)))
        return score

    def on_keys(self, score: Any, column: Any) -> Any:
        """The score at a column, -inf after the last key.

        A select evaluates both operands. TVM's simplifier assumes the condition inside of them and
        would remove the bounds of their indices. It concludes nothing about a shifted difference,
        which has the same sign.
        """
        past = column - self.t  # int64 where the number of keys is dynamic
        beyond = tirx.RShift(past, tirx.const(1, past.ty)) >= 0
        return tirx.Select(beyond, tirx.const(-math.inf, self.dtype), score)
