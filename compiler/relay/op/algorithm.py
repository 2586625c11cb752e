"""Sorting and searching."""

from __future__ import annotations

from typing import Any

from tvm import relax, topi

from ...errors import RelayTypeError
from ..type_infer import infer_type
from . import layout_rules, quantization
from .indexing import positions
from .raising import renamed
from .registry import builder, dynamic_form, operator
from .shapes import axis_of, constant_value, dtype, extents, number, rank, shape_tensor, with_shape
from .slicing import leading_box
from .te_op import kernel
from .transform import cast_to
from .typed_relax import op


@operator("sort", ignored=("dtype",), how="direct")
def sort(data: relax.Expr, axis: int = -1, is_ascend: int = 1) -> relax.Expr:
    """Sort values along an axis."""
    return op.sort(data, axis_of(axis, rank(data)), not is_ascend)


@operator("argsort", how="direct")
def argsort(
    data: relax.Expr, axis: int = -1, is_ascend: int = 1, dtype: str = "int32"
) -> relax.Expr:
    """Indices that stably sort the values along an axis."""
    return op.argsort(data, axis_of(axis, rank(data)), not is_ascend, dtype or "int32")


@operator(
    "topk",
    wraps=lambda values: 2 if values["ret_type"] == "both" else 0,
    how="direct",
    layout=layout_rules.along_axis(twice=True),
    quantized=quantization.topk,
)
def topk(
    data: relax.Expr,
    k: Any = 1,
    axis: int = -1,
    ret_type: str = "both",
    is_ascend: bool = False,
    dtype: str = "int32",
) -> relax.Expr:
    """First k values along an axis in sorted order, their indices, or both; all for k < 1."""
    if ret_type not in ("both", "values", "indices"):
        raise RelayTypeError(f"ret_type must be both, values or indices, not {ret_type!r}")
    where = axis_of(axis, rank(data))
    name = dtype or "int32"
    if isinstance(k, relax.Expr):
        array = constant_value(k)
        if array is None:
            count = _all_below_one(data, k, where)
            return with_shape(count, lambda n: _first(data, n[0], where, ret_type, is_ascend, name))
        k = int(array.ravel()[0])
    size = extents(data)[where]
    limit = size if k is None or int(k) < 1 else int(k)
    if isinstance(limit, int) and isinstance(size, int) and limit <= size:
        return op.topk(data, limit, where, ret_type, not is_ascend, name)
    return _first(data, limit, where, ret_type, is_ascend, name)


dynamic_form("topk", topk, ["data", "k"])


def _all_below_one(data: relax.Expr, k: relax.Expr, axis: int) -> relax.Expr:
    """Convert `k` to a shape, limited to the extent of the axis; the full extent for k < 1."""
    axes = relax.const([axis], "int64")
    size = op.take(shape_tensor(data, "int64"), axes, 0, mode="clip")
    count = cast_to(op.reshape(k, [1]), "int64")
    positive = op.greater(count, number(0, "int64"))
    return op.where(positive, op.minimum(count, size), size)


def _first(
    data: relax.Expr, count: Any, axis: int, ret_type: str, is_ascend: bool, name: str
) -> relax.Expr:
    """First `count` sorted indices or values along an axis; `count` may be symbolic."""
    order = op.argsort(data, axis, not is_ascend, name)
    shape = extents(data)
    shape[axis] = count
    places = leading_box(order, shape)
    if ret_type == "indices":
        return places
    values = leading_box(op.sort(data, axis, not is_ascend), shape)
    return values if ret_type == "values" else infer_type(relax.Tuple([values, places]))


_searchsorted = kernel(
    "searchsorted",
    lambda sorted_sequence, values, right, dtype: topi.searchsorted(
        sorted_sequence, values, right, dtype
    ),
)


@operator("searchsorted", 2, how="TOPI")
def searchsorted(
    sorted_sequence: relax.Expr, values: relax.Expr, right: bool = False, dtype: str = "int32"
) -> relax.Expr:
    """Insertion positions of values that preserve the order of the sorted tensor's last axis."""
    return _searchsorted(sorted_sequence, values, right=bool(right), dtype=dtype or "int32")


@builder("invert_permutation")
def invert_permutation(data: relax.Expr) -> relax.Expr:
    """Inverse of a permutation of 0 to n - 1."""
    return op.argsort(data, -1, False, dtype(data))


@operator(
    "unique",
    wraps=lambda values: 5 if values["return_counts"] else 4,
    renamed={"sorted": "is_sorted"},
)
def unique(data: relax.Expr, is_sorted: bool = True, return_counts: bool = False) -> relax.Expr:
    """Distinct values of a vector, their first positions, and the index of each element's value.

    All three have the length of `data`. They are followed by the number of distinct values and, if
    requested, the counts.

    Implementation: a stable sort makes equal values adjacent; a cumsum of changes numbers them.
    """
    if rank(data) != 1:
        raise RelayTypeError("argument data must be a vector")
    size = extents(data)[0]
    order = op.argsort(data, 0, False, "int32")
    ordered = op.take(data, order, 0, mode="clip")
    places = positions([size], "int32")
    before = op.maximum(op.subtract(places, number(1, "int32")), number(0, "int32"))
    changed = op.not_equal(ordered, op.take(ordered, before, 0, mode="clip"))
    numbers = op.cumsum(cast_to(changed, "int32"), 0, "int32")
    zeros = op.zeros([size], "int32")
    inverse = op.scatter_elements(zeros, order, numbers, 0, "update")
    count = op.add(op.max(numbers, 0, True), number(1, "int32"))
    values = op.scatter_elements(op.zeros([size], dtype(data)), numbers, ordered, 0, "update")
    far = op.full([size], number(2**31 - 1, "int32"), "int32")
    first = op.scatter_elements(far, numbers, order, 0, "min")
    counts = op.scatter_elements(zeros, numbers, op.ones([size], "int32"), 0, "add")
    if not is_sorted:
        by_first = op.argsort(first, 0, False, "int32")
        new_number = op.scatter_elements(zeros, by_first, places, 0, "update")
        inverse = op.take(new_number, inverse, 0, mode="clip")
        values, first, counts = (
            op.take(each, by_first, 0, mode="clip") for each in (values, first, counts)
        )
    parts = [values, first, inverse, count]
    return relax.Tuple([*parts, counts] if return_counts else parts)


@operator("cumsum", how="direct")
def cumsum(
    data: relax.Expr, axis: int | None = None, dtype: str | None = None, exclusive: Any = None
) -> relax.Expr:
    """Cumulative sum along an axis; of the flattened tensor without `axis`."""
    return op.cumsum(data, axis, dtype or None, bool(exclusive))


@operator("cumprod", how="direct")
def cumprod(
    data: relax.Expr, axis: int | None = None, dtype: str | None = None, exclusive: Any = None
) -> relax.Expr:
    """Cumulative product along an axis; of the flattened tensor without `axis`."""
    return op.cumprod(data, axis, dtype or None, bool(exclusive))


def _is_ascending(call: relax.Call) -> int:
    return int(not call.attrs.descending)


renamed("cumsum", "cumsum", dtype=dtype)
renamed("cumprod", "cumprod", dtype=dtype)
renamed("sort", "sort", is_ascend=_is_ascending)
renamed("argsort", "argsort", is_ascend=_is_ascending, dtype=dtype)
renamed("topk", "topk", is_ascend=lambda call: not call.attrs.largest)
