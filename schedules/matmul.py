"""Workloads of matrix products, shared by every target's implementations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx

from .strategy import register

Reader = Callable[[Any, Any, Any], Any]
"""An element of a matrix by the flat index of its stack, None where there is none, row, column."""


@dataclass(frozen=True)
class Operand:
    """A stack of matrices, read in place from a tensor whose axes may be permuted."""

    stored: tuple[int, ...]  # shape of the tensor in memory
    # The matrices are `permute_dims(tensor, axes)`: batch dimensions, then rows and columns
    axes: tuple[int, ...]

    @staticmethod
    def plain(shape: Sequence[int]) -> Operand:
        """An operand that lies in memory as it is read."""
        return Operand(tuple(shape), tuple(range(len(shape))))

    @property
    def shape(self) -> tuple[int, ...]:
        """(*batch, rows, columns)"""
        return tuple(self.stored[axis] for axis in self.axes)

    @property
    def batch(self) -> tuple[int, ...]:
        return self.shape[:-2]

    @property
    def contiguous_columns(self) -> bool:
        """Whether neighbors in a row are neighbors in memory."""
        return self.axes[-1] == len(self.axes) - 1

    @property
    def contiguous_rows(self) -> bool:
        """Whether neighbors in a column are neighbors in memory: a transposed matrix."""
        return self.axes[-2] == len(self.axes) - 1

    def index(self, batch: Sequence[Any], row: Any, column: Any) -> tuple[Any, ...]:
        """Index into the stored tensor.

        `batch`: indices of the product's batch dimensions, aligned at the right with this
        operand's. Dimensions that one of both lacks, or that have extent 1 here, have index 0.
        """
        own = len(self.axes) - 2
        aligned = ([0] * own + list(batch))[len(batch) :]
        logical = [
            0 if isinstance(d, int) and d == 1 else i for d, i in zip(self.batch, aligned)
        ] + [row, column]
        stored: list[Any] = [0] * len(self.axes)
        for position, axis in enumerate(self.axes):
            stored[axis] = logical[position]
        return tuple(stored)


@dataclass(frozen=True)
class DenseWorkload:
    """x (*lead, k) times one matrix (k, n), giving (*lead, n)."""

    lead: tuple[int, ...]  # leading dimensions of x, at least one; their product is m
    n: int
    k: int
    dtype: str = "float32"
    out_dtype: str = "float32"
    # How a weight that is computed at run time lies in memory; None for a constant, which is packed
    # as the implementation likes
    weight: Operand | None = None
    rhs_dtype: str = ""  # element type of the weight; empty where it is that of x
    # Steps of a dot product of bytes by this weight that fit int16 (`x86.dot_product.narrow_steps`)
    narrow: int = 0

    @property
    def m(self) -> int:
        return math.prod(self.lead)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return (*self.lead, self.n)

    @property
    def extents(self) -> tuple[int | None, int, int, int]:
        """(None, m, n, k): there is no stack."""
        return None, self.m, self.n, self.k

    @property
    def right(self) -> Operand | None:
        """How the right operand lies in memory; None for a constant."""
        return self.weight

    def read_left(self, x: Any) -> Reader:
        """Reads x as the matrix (m, k)."""

        def element(_: Any, row: Any, k: Any) -> Any:
            index = (*unravel(row, self.lead), k)
            return x[index]

        return element

    def read_right(self, weight: Any) -> Reader:
        """Reads a weight that is stored as `self.weight` says as the matrix (k, n)."""
        assert self.weight is not None
        index = self.weight.index
        return lambda _, k, column: weight[index((), k, column)]

    def autotvm_args(self) -> tuple[Any, ...]:
        """Arguments of AutoTVM's x86 dense templates: data, weight (n, k), no bias, dtype."""
        data = ("TENSOR", (self.m, self.k), self.dtype)
        weight = ("TENSOR", (self.n, self.k), self.rhs_dtype or self.dtype)
        return (data, weight, None, self.out_dtype)

    def stored_args(self) -> tuple[Any, ...]:
        """Arguments that also say how a weight computed at run time lies in memory."""
        if self.weight is None:
            return self.autotvm_args()
        data = ("TENSOR", (self.m, self.k), self.dtype)
        weight = ("TENSOR", self.weight.stored, self.dtype)
        return (data, weight, self.weight.axes, self.out_dtype)


@dataclass(frozen=True)
class BatchMatmulWorkload:
    """lhs (*batch, m, k) times rhs (*batch, k, n), with broadcast; empty `rhs_dtype` is lhs's."""

    lhs: Operand
    rhs: Operand
    dtype: str = "float32"
    out_dtype: str = "float32"
    rhs_dtype: str = ""

    @property
    def m(self) -> int:
        return self.lhs.shape[-2]

    @property
    def k(self) -> int:
        return self.lhs.shape[-1]

    @property
    def n(self) -> int:
        return self.rhs.shape[-1]

    @property
    def batch(self) -> tuple[int, ...]:
        return broadcast(self.lhs.batch, self.rhs.batch)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return (*self.batch, self.m, self.n)

    @property
    def extents(self) -> tuple[int | None, int, int, int]:
        """(matrices of the stack, m, n, k)"""
        return math.prod(self.batch), self.m, self.n, self.k

    @property
    def right(self) -> Operand:
        """How the right operand lies in memory."""
        return self.rhs

    def read_left(self, lhs: Any) -> Reader:
        """Reads lhs as stored as a stack of matrices (m, k)."""
        return lambda b, row, k: lhs[self.lhs.index(unravel(b, self.batch), row, k)]

    def read_right(self, rhs: Any) -> Reader:
        """Reads rhs as stored as a stack of matrices (k, n)."""
        return lambda b, k, column: rhs[self.rhs.index(unravel(b, self.batch), k, column)]

    def autotvm_args(self) -> tuple[Any, ...]:
        """Arguments of AutoTVM's batch_matmul.x86.

        Relay's importers wrote every product as (b, m, k) times (b, n, k) with the second
        operand transposed, and flattened the batch dimensions; the records say the same.
        """
        lhs = ("TENSOR", (math.prod(self.lhs.batch), self.m, self.k), self.dtype)
        dtype = self.rhs_dtype or self.dtype
        rhs = ("TENSOR", (math.prod(self.rhs.batch), self.n, self.k), dtype)
        out = (math.prod(self.batch), self.m, self.n)
        return (lhs, rhs, out, self.out_dtype, False, True)

    def stored_args(self) -> tuple[Any, ...]:
        """Arguments that say how the operands lie in memory."""
        lhs = ("TENSOR", self.lhs.stored, self.dtype)
        rhs = ("TENSOR", self.rhs.stored, self.dtype)
        return (lhs, rhs, self.lhs.axes, self.rhs.axes, self.out_dtype)


Product = DenseWorkload | BatchMatmulWorkload


def broadcast(a: Sequence[Any], b: Sequence[Any]) -> tuple[Any, ...]:
    """Shape of two broadcast batch shapes that are known to fit, aligned at the right."""
    rank = max(len(a), len(b))
    padded = zip((1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(b)) + tuple(b))
    return tuple(right if isinstance(left, int) and left == 1 else left for left, right in padded)


register_dense = partial(register, "nn.dense", "cpu", task_args=DenseWorkload.stored_args)
"""Add an implementation of dense on CPUs, a template of AutoTVM unless `task_args` is None."""
register_batch_matmul = partial(
    register, "nn.batch_matmul", "cpu", task_args=BatchMatmulWorkload.stored_args
)
"""Add an implementation of batch_matmul on CPUs, likewise."""


@dataclass(frozen=True)
class BitsWorkload:
    """x (*lead, k) times weights (n, k) of a few bits each, giving (*lead, n)."""

    lead: tuple[int, ...]
    n: int
    k: int
    block: int  # neighbors along k that share a scale and a zero point
    bits: int  # bits of a weight: 1, 2, 4 or 8
    dtype: str = "float32"
    zero: int | None = None  # zero point of all blocks; None where each has its own
    rounds: bool = False  # whether the rows of x may be rounded to int8, block by block

    @property
    def m(self) -> int:
        return math.prod(self.lead)


def unravel(position: Any, shape: Sequence[int]) -> list[Any]:
    """Multi-index of a row-major position."""
    index: list[Any] = []
    for extent in reversed(shape):
        single = isinstance(extent, (int, tirx.IntImm)) and int(extent) <= 1
        index.insert(0, tirx.const(0, "int32") if single else position % extent)
        position = position // extent
    return index
