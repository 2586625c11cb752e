"""Sparse arrays as parameter files keep them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from compiler.errors import FrontendError

_LARGEST = 1 << 28
"""Bytes of a dense array that any file may ask for."""
_SPARSEST = 1000
"""Times its stored bytes that a larger dense array may take: a damaged shape asks for more."""


class SparseArray(NamedTuple):
    """A sparse array as stored in files; `storage` is "row_sparse" or "csr", `shape` the dense one.

    `indices` are row numbers (row_sparse) or column numbers (csr); `indptr` is where each row
    starts in them, and the end (csr).
    """

    storage: str
    shape: tuple[int, ...]
    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray | None = None

    def dense(self) -> np.ndarray:
        """The dense array; FrontendError for indices outside the shape and excessive shapes."""
        size = math.prod(self.shape) * self.data.dtype.itemsize
        if size > max(_LARGEST, _SPARSEST * (self.data.nbytes + self.indices.nbytes)):
            raise FrontendError(
                f"a {self.storage} array of shape {self.shape} has {self.data.size} values; as a "
                f"dense one it would take {size} bytes"
            )
        try:
            result = np.zeros(self.shape, self.data.dtype)
            if self.storage == "row_sparse":
                _check_within(self.indices, self.shape[0])
                result[self.indices] = self.data.reshape((-1, *self.shape[1:]))
            else:
                pointers = np.zeros(1, "int64") if self.indptr is None else self.indptr
                if len(self.shape) != 2 or pointers.shape != (self.shape[0] + 1,):
                    raise ValueError("the row pointers do not fit the shape")
                _check_within(self.indices, self.shape[1])
                rows = np.repeat(np.arange(self.shape[0]), np.diff(pointers))
                result[rows, self.indices] = self.data
        except (ValueError, IndexError, MemoryError) as error:
            raise FrontendError(
                f"a {self.storage} array of shape {self.shape} is damaged: {error}"
            ) from error
        return result


def _check_within(indices: np.ndarray, extent: int) -> None:
    if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= extent):
        raise ValueError(f"an index lies outside 0..{extent - 1}")
