"""Products with matrices in compressed row form as tensor expressions, as TOPI had them.

A row's entries are summed by a loop whose extent is read from `indptr`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import te, topi

from ...errors import InputError, ScheduleError


def sparse_dense(
    dense_data: te.Tensor,
    sparse_data: te.Tensor,
    sparse_indices: te.Tensor,
    sparse_indptr: te.Tensor,
    sparse_lhs: bool = False,
) -> te.Tensor:
    """dense * transposed sparse: (m, k) and the triple of an (n, k) matrix to (m, n).

    `dense_data`: (m, k). `sparse_data`: (entries,) of a CSR matrix, or (blocks, height, width) of a
    BSR matrix. `sparse_indices`: (entries,) or (blocks,): the columns. `sparse_indptr`: (rows +
    1,): where each row, or row of blocks, begins. `sparse_lhs`: sparse * transposed dense instead,
    (n, m).
    Raises ScheduleError: the data have neither one dimension nor three.
    """
    rank = len(sparse_data.shape)
    if rank not in (1, 3):
        raise ScheduleError(
            f"sparse_dense: data of {rank} dimensions are neither CSR's (1) nor BSR's (3)"
        )
    height, width = (1, 1) if rank == 1 else sparse_data.shape[1:]
    side, form = ("lhs" if sparse_lhs else "rhs"), ("csr" if rank == 1 else "bsr")
    tag = f"sparse_dense_sp_{side}_{form}mm"
    samples, rows = dense_data.shape[0], sparse_indptr.shape[0] - 1

    def product(sample: Any, row: Any, inner: Any) -> Any:
        count = sparse_indptr[row + 1] - sparse_indptr[row]
        entry = te.reduce_axis((0, count), "elem_idx")
        across = te.reduce_axis((0, width), "c")
        place = sparse_indptr[row] + entry
        weight = sparse_data[place] if rank == 1 else sparse_data[place, inner, across]
        column = sparse_indices[place] * width + across
        return te.sum(dense_data[sample, column] * weight, axis=[entry, across])

    if sparse_lhs:
        blocks = te.compute(
            (rows, height, samples), lambda r, i, s: product(s, r, i),
            name=f"{tag}_block", tag=f"{tag}_block",
        )  # fmt: skip
        return te.compute(
            (rows * height, samples), lambda r, s: blocks[r // height, r % height, s],
            name=tag, tag=tag,
        )  # fmt: skip
    blocks = te.compute(
        (samples, rows, height), product, name=f"{tag}_block", tag=f"{tag}_block"
    )  # fmt: skip
    return te.compute(
        (samples, rows * height), lambda s, r: blocks[s, r // height, r % height],
        name=tag, tag=tag,
    )  # fmt: skip


def csrmv(a: Any, x: te.Tensor, y: te.Tensor | None = None) -> te.Tensor:
    """Sparse matrix times vector: (m, k) and (k, 1) to (m, 1).

    `a`: of `placeholder`, or whatever has `data`, `indices` and `indptr`. `y`: (m,), added.
    """
    return _csr_product(a, x, y, "csrmv")


def csrmm(a: Any, b: te.Tensor, c: te.Tensor | None = None) -> te.Tensor:
    """Sparse matrix times dense one: (m, k) and (k, n) to (m, n), with `c`, (m,), added to columns.

    See `csrmv`.
    """
    return _csr_product(a, b, c, "csrmm")


def _csr_product(a: Any, b: te.Tensor, bias: te.Tensor | None, name: str) -> te.Tensor:
    def element(row: Any, column: Any) -> Any:
        entry = te.reduce_axis((0, a.indptr[row + 1] - a.indptr[row]), "elem_idx")
        place = a.indptr[row] + entry
        return te.sum(a.data[place] * b[a.indices[place], column], axis=entry)

    shape = (a.indptr.shape[0] - 1, b.shape[1])
    product = te.compute(shape, element, name=name, tag=name)
    if bias is None:
        return product
    return te.compute(shape, lambda i, j: product[i, j] + bias[i], tag=topi.tag.BROADCAST)


def dense(data: Any, weight: Any, bias: te.Tensor | None = None) -> te.Tensor:
    """data * transposed weight, one of which is sparse: (m, k) and (n, k) to (m, n).

    `data`, `weight`: see `csrmv`. `bias`: (n,).
    Raises ScheduleError: both are sparse, or neither.
    """
    if isinstance(data, te.Tensor) == isinstance(weight, te.Tensor):
        raise ScheduleError("sparse.dense: one of data and weight is a matrix in CSR form")
    if isinstance(data, te.Tensor):
        product = sparse_dense(data, weight.data, weight.indices, weight.indptr)
    else:
        product = sparse_dense(weight, data.data, data.indices, data.indptr, sparse_lhs=True)
    if bias is None:
        return product
    return te.compute(product.shape, lambda i, j: product[i, j] + bias[j], tag=topi.tag.BROADCAST)


def random_bsr_matrix(
    M: int, N: int, BS_R: int, BS_C: int, density: float, dtype: Any = "float32"
) -> Any:
    """A random (M, N) matrix of blocks (BS_R, BS_C), in scipy's BSR form.

    `density`: the share of entries in blocks that are not zero, 0 to 1.
    """
    scipy_sparse: Any = importlib.import_module("scipy.sparse")

    if M % BS_R or N % BS_C:
        raise ScheduleError(f"blocks of {BS_R} x {BS_C} do not divide a matrix of {M} x {N}")
    generator = np.random.default_rng()
    across = N // BS_C
    all_blocks = M // BS_R * across
    blocks = int(density * all_blocks)
    chosen = np.sort(generator.choice(all_blocks, size=blocks, replace=False))
    starts = np.searchsorted(chosen // across, np.arange(M // BS_R + 1))
    data = generator.standard_normal((blocks, BS_R, BS_C)).astype(dtype)
    indices, indptr = (chosen % across).astype("int32"), starts.astype("int32")
    return scipy_sparse.bsr_matrix((data, indices, indptr), shape=(M, N))


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
    source_array: Any, device: Any = None, shape: Sequence[int] | None = None, stype: str = "csr"
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
