"""`tvm.contrib.sparse`: matrices in compressed row form, as arrays and as inputs of TE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import te

from ...errors import InputError

__all__ = ["CSRNDArray", "CSRPlaceholderOp", "array", "placeholder"]

_INDEX = "int32"


class CSRNDArray:
    """A matrix in compressed row form.

    `arg1`: a dense matrix, or the tensors (data, indices, indptr). `shape`: with a tuple: (rows,
    columns). `data`, `indices`, `indptr`: (entries,), (entries,) and (rows + 1,).
    Raises InputError: it is neither a matrix nor three tensors with a shape.
    """

    stype = "csr"

    def __init__(self, arg1: Any, device: Any = None, shape: Sequence[int] | None = None) -> None:
        if isinstance(arg1, np.ndarray) and arg1.ndim == 2:
            rows, columns = np.nonzero(arg1)
            starts = np.searchsorted(rows, np.arange(arg1.shape[0] + 1))
            parts = (arg1[rows, columns], columns.astype(_INDEX), starts.astype(_INDEX))
            self.data, self.indices, self.indptr = (
                tvm.runtime.tensor(part, device) for part in parts
            )
            self.shape = tuple(arg1.shape)
        elif isinstance(arg1, tuple) and len(arg1) == 3 and shape is not None:
            self.data, self.indices, self.indptr = arg1
            self.shape = tuple(shape)
        else:
            raise InputError(
                "a sparse array is made of a numpy matrix, or of the tensors "
                f"(data, indices, indptr) and a shape, not of a {type(arg1).__name__}"
            )

    @property
    def dtype(self) -> Any:
        return self.data.dtype

    def numpy(self) -> np.ndarray:
        """The whole matrix."""
        full = np.zeros(self.shape, str(self.dtype))
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr.numpy()))
        full[rows, self.indices.numpy()] = self.data.numpy()
        return full

    asnumpy = numpy


def array(
    source_array: Any,
    device: Any = None,
    shape: Sequence[int] | None = None,
    stype: str = "csr",
) -> CSRNDArray:
    """A sparse array; see `CSRNDArray`."""
    _check(stype)
    return CSRNDArray(source_array, device, shape)


class CSRPlaceholderOp:
    """A sparse input: three tensors of TE."""

    stype = "csr"

    def __init__(self, shape: Sequence[Any], nonzeros: Any, dtype: str, name: str) -> None:
        self.shape, self.dtype, self.name = shape, dtype, name
        self.data = te.placeholder((nonzeros,), dtype, f"{name}_data")
        self.indices = te.placeholder((nonzeros,), _INDEX, f"{name}_indices")
        self.indptr = te.placeholder((shape[0] + 1,), _INDEX, f"{name}_indptr")


def placeholder(
    shape: Sequence[Any],
    nonzeros: Any = None,
    dtype: str | None = None,
    name: str = "placeholder",
    stype: str | None = None,
) -> CSRPlaceholderOp:
    """A sparse input of a shape with that many entries.

    Raises InputError: the form is not "csr".
    """
    _check(stype or "csr")
    return CSRPlaceholderOp(shape, 0 if nonzeros is None else nonzeros, dtype or "float32", name)


def _check(stype: str) -> None:
    if stype != "csr":
        raise InputError(f"sparse arrays have the form 'csr', not {stype!r}")
