"""Matrix products, bias and flattening."""

from __future__ import annotations

from typing import Any

from tvm import relax

from ....errors import RelayTypeError
from ...infer import type_of, typed
from ..registry import operator
from ..reshaping import reshaped
from ..shapes import (
    Extent,
    assign_type,
    axis_of,
    broadcast_extents,
    dtype,
    extents,
    joint_shape,
    rank,
    same_extent,
)
from ..tensor import broadcasting
from ..transform import cast_to
from .layouts import spread

op = relax.op


def _check_inner(a: Extent, b: Extent, left: relax.Expr, right: relax.Expr, what: str) -> None:
    if isinstance(a, int) and isinstance(b, int) and a != b:
        raise RelayTypeError(
            f"argument {what} of type {type_of(right)} has {b} rows to multiply with the {a} "
            f"columns of type {type_of(left)}"
        )


def _swapped(data: relax.Expr, swap: bool) -> relax.Expr:
    """The last two axes exchanged if `swap`."""
    if not swap:
        return data
    axes = list(range(rank(data)))
    axes[-2:] = [axes[-1], axes[-2]]
    return typed(op.permute_dims(data, axes))


def product(left: relax.Expr, right: relax.Expr, out_dtype: str) -> relax.Expr:
    """Matrix product of Relax, accumulated in `out_dtype`."""
    name = str(out_dtype or "") or dtype(left)
    if dtype(left) != dtype(right):
        left, right = cast_to(left, name), cast_to(right, name)
    inner = extents(left)[-1], extents(right)[-2 if rank(right) > 1 else 0]
    if not same_extent(*inner) and not all(isinstance(each, int) for each in inner):
        size = next((each for each in inner if isinstance(each, int)), inner[0])
        left = _with_extent(left, rank(left) - 1, size)
        right = _with_extent(right, rank(right) - 2, size)
    return typed(op.matmul(left, right, None if name == dtype(left) else name))


def _with_extent(data: relax.Expr, axis: int, size: Extent) -> relax.Expr:
    """`data` whose symbolic extent along `axis` is said to be `size`."""
    shape = extents(data)
    if same_extent(shape[axis], size):
        return data
    shape[axis] = size
    return broadcast_extents(data, shape)


@operator(
    "nn.matmul", 2, ignored=("auto_scheduler_rewritten_layout", "meta_schedule_original_shape")
)
def matmul(
    tensor_a: relax.Expr,
    tensor_b: relax.Expr,
    units: int | None = None,
    out_dtype: str = "",
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> relax.Expr:
    """Product of two matrices; either may be given transposed."""
    inner = extents(tensor_a)[-2 if transpose_a else -1]
    if tensor_b.ty.is_missing():
        if units is None:
            raise RelayTypeError("argument tensor_b has no type; give it one, or give units")
        shape = [int(units), inner] if transpose_b else [inner, int(units)]
        assign_type(tensor_b, shape, dtype(tensor_a))
    other = extents(tensor_b)[-1 if transpose_b else -2]
    _check_inner(inner, other, tensor_a, tensor_b, "tensor_b")
    return product(_swapped(tensor_a, transpose_a), _swapped(tensor_b, transpose_b), out_dtype)


@operator(
    "nn.dense", 2, ignored=("auto_scheduler_rewritten_layout", "meta_schedule_original_shape")
)
def dense(
    data: relax.Expr, weight: relax.Expr, units: int | None = None, out_dtype: str = ""
) -> relax.Expr:
    """data * transposed weight; the weight has the shape (units, inner)."""
    inner = extents(data)[-1]
    if weight.ty.is_missing():
        if units is None:
            raise RelayTypeError("argument weight has no type; give it one, or give units")
        assign_type(weight, [int(units), inner], dtype(data))
    if rank(weight) != 2:
        raise RelayTypeError(f"argument weight of type {type_of(weight)} must be a matrix")
    _check_inner(inner, extents(weight)[1], data, weight, "weight")
    rows = extents(weight)[0]
    if units is not None and isinstance(rows, int) and rows != int(units):
        raise RelayTypeError(
            f"argument weight of type {type_of(weight)} makes {rows} units, the attribute units "
            f"says {int(units)}"
        )
    return product(data, _swapped(weight, True), out_dtype)


@operator(
    "nn.batch_matmul",
    2,
    defaults={"transpose_b": False},
    ignored=("auto_scheduler_rewritten_layout", "meta_schedule_original_shape"),
)
def batch_matmul(
    tensor_a: relax.Expr,
    tensor_b: relax.Expr,
    out_dtype: str = "",
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> relax.Expr:
    """Products of batches of matrices; a batch of 1 serves for all."""
    inner = extents(tensor_a)[-2 if transpose_a else -1]
    other = extents(tensor_b)[-1 if transpose_b else -2]
    _check_inner(inner, other, tensor_a, tensor_b, "tensor_b")
    left, right = _swapped(tensor_a, transpose_a), _swapped(tensor_b, transpose_b)
    first, second = extents(left)[0], extents(right)[0]
    if isinstance(first, int) and isinstance(second, int):
        if first != second and 1 not in (first, second):
            raise RelayTypeError(
                f"argument tensor_b of type {type_of(tensor_b)} has {second} matrices for "
                f"tensor_a's {first}: {type_of(tensor_a)}"
            )
    elif not same_extent(first, second) and not (first == 1 or second == 1):
        left, right = (
            _with_extent(each, 0, joint_shape([[first], [second]])[0]) for each in (left, right)
        )
    return product(left, right, out_dtype)


@operator("nn.bias_add", 2)
def bias_add(data: relax.Expr, bias: relax.Expr, axis: int = 1) -> relax.Expr:
    """A vector added along an axis; one of a single element is repeated."""
    where = axis_of(axis, rank(data))
    assign_type(bias, [extents(data)[where]], dtype(data))
    size, own = extents(bias), extents(data)[where]
    if len(size) != 1 or (isinstance(own, int) and size[0] not in (own, 1)):
        raise RelayTypeError(
            f"argument bias of type {type_of(bias)} must be a vector of {own} elements for axis "
            f"{axis} of data of type {type_of(data)}"
        )
    return broadcasting(op.add, data, spread(bias, where, rank(data)))


@operator("nn.batch_flatten", how="direct")
def batch_flatten(data: relax.Expr) -> relax.Expr:
    """All axes but the first one joined."""
    first, *rest = extents(data)
    size: Any = 1
    for each in rest:
        size = each if isinstance(size, int) and size == 1 else size * each
    return reshaped(data, [first, size])
