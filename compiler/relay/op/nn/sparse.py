"""Matmuls and adds with sparse matrices in CSR or BSR format (data, indices, indptr).

A sparse matrix is densified: its entries, or blocks of entries, are scattered to a dense matrix.
For a constant matrix this happens at build time.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te

from ....errors import RelayTypeError
from ...type_infer import type_of
from ..op_def import FUSABLE
from ..registry import builder, operator
from ..shapes import dtype, extents
from ..sparse import rows_of_entries
from ..te_op import kernel
from ..transform import cast_to
from ..typed_relax import op
from .convolution import conv2d


def _dense_matrix(
    data: relax.Expr, indices: relax.Expr, indptr: relax.Expr, columns: int | None
) -> relax.Expr:
    """Dense matrix of a CSR or BSR triple with width `columns`."""
    shape = extents(data)
    rows = extents(indptr)[0] - 1
    row = cast_to(rows_of_entries(indptr, shape[0]), "int64")
    where = op.stack([row, cast_to(indices, "int64")], 1)
    if len(shape) == 1:
        empty = op.zeros([rows, columns], dtype(data))
        return op.scatter_nd(empty, where, data, "update")
    if len(shape) != 3:
        raise RelayTypeError(f"sparse data of type {type_of(data)} are neither CSR nor BSR")
    height, width = shape[1:]
    across = columns // width if columns is not None else None
    empty = op.zeros([rows, across, height, width], dtype(data))
    blocks = op.scatter_nd(empty, where, data, "update")
    order = op.permute_dims(blocks, [0, 2, 1, 3])
    return op.reshape(order, [rows * height, columns])


@builder("nn.sparse_dense")
def sparse_dense(dense_mat: relax.Expr, sparse_mat: Any, sparse_lhs: bool = False) -> relax.Expr:
    """dense * transposed sparse, or sparse * transposed dense with `sparse_lhs`.

    `sparse_mat` is a triple (data, indices, indptr), or a scipy matrix in CSR or BSR format.
    """
    return _sparse_dense_call(dense_mat, *_parts(sparse_mat), sparse_lhs)


def _parts(matrix: Any) -> tuple[Any, Any, Any]:
    if hasattr(matrix, "indptr"):
        parts = (matrix.data, matrix.indices, matrix.indptr)
        made = [relax.const(part, str(part.dtype)) for part in parts]
        return made[0], made[1], made[2]
    data, indices, indptr = matrix
    return data, indices, indptr


@operator("nn.sparse_dense", 4, aliases=("nn.internal.sparse_dense_padded",), pattern=FUSABLE)
def _sparse_dense_call(
    dense_mat: relax.Expr,
    data: relax.Expr,
    indices: relax.Expr,
    indptr: relax.Expr,
    sparse_lhs: bool = False,
) -> relax.Expr:
    """`sparse_dense` with the matrix's three parts as operands."""
    sparse = _dense_matrix(data, indices, indptr, extents(dense_mat)[1])
    left, right = (sparse, dense_mat) if sparse_lhs else (dense_mat, sparse)
    return op.matmul(left, op.permute_dims(right, [1, 0]))


@operator("nn.sparse_add", 4)
def _sparse_add_call(
    dense_mat: relax.Expr, data: relax.Expr, indices: relax.Expr, indptr: relax.Expr
) -> relax.Expr:
    """`sparse_add` with the matrix's three parts as operands."""
    return op.add(dense_mat, _dense_matrix(data, indices, indptr, extents(dense_mat)[1]))


@builder("nn.sparse_add")
def sparse_add(dense_mat: relax.Expr, sparse_mat: Any) -> relax.Expr:
    """Sum of a dense and a sparse matrix."""
    return _sparse_add_call(dense_mat, *_parts(sparse_mat))


def _row_starts(indices: te.Tensor, indptr: te.Tensor) -> te.Tensor:
    """Row pointers: the number of entries with smaller index, for each index up to the count."""
    entry = te.reduce_axis((0, indices.shape[0]), "entry")
    return te.compute(
        indptr.shape,
        lambda row: te.sum(
            (indices(entry).astype("int64") < row.astype("int64")).astype(indptr.dtype), axis=entry
        ),
        name="row_starts",
    )


_row_starts_kernel = kernel("nn.sparse_row_starts", _row_starts)


@operator("nn.sparse_transpose", 3, wraps=True, how="TE", pattern=FUSABLE)
def _sparse_transpose_call(data: relax.Expr, indices: relax.Expr, indptr: relax.Expr) -> relax.Expr:
    """Transposed square matrix in the same format: entries stably sorted by column."""
    order = op.argsort(indices, 0, False, "int32")
    rows = cast_to(rows_of_entries(indptr, extents(data)[0]), dtype(indices))
    values = op.take(data, order, 0, mode="clip")
    if len(extents(data)) == 3:
        values = op.permute_dims(values, [0, 2, 1])
    return relax.Tuple(
        [values, op.take(rows, order, 0, mode="clip"), _row_starts_kernel(indices, indptr)]
    )


@builder("nn.sparse_transpose")
def sparse_transpose(x: Any) -> Any:
    """Transposed square matrix as a triple (data, indices, indptr)."""
    return _sparse_transpose_call(*_parts(x))


@operator("nn.sparse_conv2d", 4, pattern=FUSABLE)
def sparse_conv2d(
    data: relax.Expr,
    weight_data: relax.Expr,
    weight_indices: relax.Expr,
    weight_indptr: relax.Expr,
    layout: str = "NHWC",
    kernel_size: Any = (1, 1),
) -> relax.Expr:
    """Stride-1 convolution with same padding and a sparse weight (O, height * width * I)."""
    if layout not in ("NHWC", "NCHW"):
        raise RelayTypeError(f"layout must be NHWC or NCHW, not {layout!r}")
    height, width = (int(size) for size in kernel_size)
    channels = extents(data)[layout.index("C")]
    matrix = _dense_matrix(weight_data, weight_indices, weight_indptr, height * width * channels)
    weight = op.reshape(matrix, [extents(matrix)[0], height, width, channels])
    pad = [(height - 1) // 2, (width - 1) // 2, height // 2, width // 2]
    return conv2d(data, weight, padding=pad, data_layout=layout, kernel_layout="OHWI")
