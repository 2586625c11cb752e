"""Operators on sparse tensors in COO format."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx, topi

from ...ir.op_facts import index_rules
from ..expr import Tuple
from .op_def import INJECTIVE
from .registry import builder, dynamic_form, operator
from .shapes import dtype, extents, number, shaped, tuple_fields, with_shape
from .te_op import kernel
from .transform import cast, cast_to
from .typed_relax import op

_sparse_to_dense = kernel(
    "sparse_to_dense",
    lambda indices, values, default, shape: topi.sparse_to_dense(indices, shape, values, default()),
    indices=index_rules.dense_coordinates,
)


@operator("sparse_to_dense", ["sparse_indices", "sparse_values", "default_value"], how="TOPI")
def sparse_to_dense(
    sparse_indices: relax.Expr, output_shape: Any, sparse_values: relax.Expr, default_value: Any = 0
) -> relax.Expr:
    """Convert sparse values to a dense tensor with a default value."""
    default = default_value
    if not isinstance(default, relax.Expr):
        default = number(default, dtype(sparse_values))
    return shaped(
        output_shape,
        lambda dims: _sparse_to_dense(
            sparse_indices, sparse_values, default, relax.ShapeExpr(dims)
        ),
    )


dynamic_form(
    "sparse_to_dense",
    sparse_to_dense,
    ["sparse_indices", "sparse_values", "default_value", "output_shape"],
)


def _row_counts(indices: te.Tensor, rows: list[Any]) -> te.Tensor:
    """Number of entries per row; 0 without entries, where a reduction would write nothing."""
    if isinstance(indices.shape[0], tirx.IntImm) and int(indices.shape[0]) == 0:
        return te.compute(rows, lambda row: tirx.const(0, "int64"), name="row_counts")
    entry = te.reduce_axis((0, indices.shape[0]), "entry")
    return te.compute(
        rows,
        lambda row: te.sum(
            (indices(entry, 0).astype("int64") == row.astype("int64")).astype("int64"), axis=entry
        ),
        name="row_counts",
    )


def _row_of(starts: te.Tensor, count: list[Any]) -> te.Tensor:
    """Last row that starts at or before each position."""
    row = te.reduce_axis((0, starts.shape[0]), "row")
    passed = te.compute(
        count,
        lambda at: te.sum(
            (starts(row).astype("int64") <= at.astype("int64")).astype("int64"), axis=row
        ),
        name="rows_passed",
    )
    return te.compute(count, lambda at: passed(at) - 1, name="row_of")


def _filled_rows(
    indices: te.Tensor,
    values: te.Tensor,
    default: te.Tensor,
    row_of: te.Tensor,
    counts: te.Tensor,
    empty_before: te.Tensor,
) -> list[te.Tensor]:
    """Entries in their new order; an empty row gets the default value at column 0."""
    width = indices.shape[1]

    def source(at: Any) -> Any:
        last = tirx.Cast("int64", indices.shape[0]) - 1
        return tirx.max(tirx.min(at - empty_before(row_of(at)), last), tirx.const(0, "int64"))

    def index(at: Any, column: Any) -> Any:
        made = tirx.Select(
            column == 0, row_of(at).astype(indices.dtype), tirx.const(0, indices.dtype)
        )
        return tirx.if_then_else(counts(row_of(at)) == 0, made, indices(source(at), column))

    def value(at: Any) -> Any:
        return tirx.if_then_else(counts(row_of(at)) == 0, default(0), values(source(at)))

    return [
        te.compute((row_of.shape[0], width), index, name="new_indices"),
        te.compute((row_of.shape[0],), value, name="new_values"),
    ]


_row_counts_kernel = kernel("sparse_row_counts", _row_counts)
row_of_kernel = kernel("sparse_row_of", _row_of)
_filled_rows_kernel = kernel("sparse_filled_rows", _filled_rows)


@operator("sparse_fill_empty_rows", 4, wraps=True, how="TE")
def _fill_empty_rows(
    sparse_indices: relax.Expr,
    sparse_values: relax.Expr,
    dense_shape: relax.Expr,
    default_value: relax.Expr,
) -> relax.Expr:
    """Insert a default entry into every empty row; also returns which rows were empty.

    All results are integers.
    """
    first = op.take(dense_shape, relax.const([0], "int64"), 0, mode="clip")
    default = op.reshape(default_value, [1])

    def fill(rows: list[Any]) -> relax.Expr:
        counts = _row_counts_kernel(sparse_indices, relax.ShapeExpr(rows))
        empty = cast_to(op.equal(counts, number(0, "int64")), "int64")
        empty_before = op.cumsum(empty, 0, "int64", exclusive=True)
        starts = op.add(op.cumsum(counts, 0, "int64", exclusive=True), empty_before)
        size = op.sum(op.add(counts, empty), [0], True)

        def place(count: list[Any]) -> relax.Expr:
            row_of = row_of_kernel(starts, relax.ShapeExpr(count))
            filled = _filled_rows_kernel(
                sparse_indices, sparse_values, default, row_of, counts, empty_before
            )
            parts = tuple_fields(filled)
            return relax.Tuple([*parts, cast_to(empty, dtype(sparse_indices))])

        return with_shape(size, place)

    return with_shape(first, fill)


@builder("sparse_fill_empty_rows")
def sparse_fill_empty_rows(
    sparse_indices: relax.Expr,
    sparse_values: relax.Expr,
    dense_shape: relax.Expr,
    default_value: relax.Expr,
) -> relax.Expr:
    """Insert a default entry into every empty row; also returns which rows were empty.

    The entries must be grouped by row, in ascending order of the rows. The last result is bool.
    """
    filled = _fill_empty_rows(sparse_indices, sparse_values, dense_shape, default_value)
    indices, values, is_empty = filled
    return Tuple([indices, values, cast(is_empty, "bool")])


def _steps(sizes: relax.Expr) -> relax.Expr:
    """Row-major strides of a tensor with these extents."""
    return op.flip(op.cumprod(op.flip(sizes, 0), 0, "int64", exclusive=True), 0)


@operator("sparse_reshape", 3, wraps=True, pattern=INJECTIVE)
def sparse_reshape(
    sparse_indices: relax.Expr, prev_shape: relax.Expr, new_shape: relax.Expr
) -> relax.Expr:
    """Reshape sparse coordinates; also returns the new shape with -1 resolved."""
    one = relax.const(1, "int64")
    old, wanted = cast(prev_shape, "int64"), cast(new_shape, "int64")
    is_open = op.less(wanted, relax.const(0, "int64"))
    known = op.prod(op.where(is_open, one, wanted))
    left = op.floor_divide(op.prod(old), op.maximum(known, one))
    sizes = op.where(is_open, left, wanted)
    by_axis = op.multiply(cast(sparse_indices, "int64"), _steps(old))
    flat = op.sum(by_axis, 1, keepdims=True)
    steps, limits = (op.maximum(each, one) for each in (_steps(sizes), sizes))
    places = op.floor_mod(op.floor_divide(flat, steps), limits)
    results = cast(places, dtype(sparse_indices)), cast(sizes, dtype(new_shape))
    return Tuple(list(results))


def rows_of_entries(indptr: relax.Expr, entries: Any) -> relax.Expr:
    """Row index of each entry of a CSR matrix, as int64."""
    (count,) = extents(indptr)
    starts = op.strided_slice(indptr, [0], [0], [count - 1], [1])
    return row_of_kernel(starts, relax.ShapeExpr([entries]))
