"""Matmuls, bias and flattening."""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import relax

from ....errors import RelayTypeError
from ....ir.rewrite import operator_name
from ...type_infer import type_of
from .. import layout_rules, quantization
from ..op_def import ALWAYS, BROADCAST, FOLLOW, FUSABLE, REARRANGEMENT
from ..raising import Definitions, from_relax, shape_of, swapped_operand, tensor, typed_call
from ..raising import reshaped as spelled
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
from ..typed_relax import op
from .layouts import spread


def _check_inner(a: Extent, b: Extent, left: relax.Expr, right: relax.Expr, what: str) -> None:
    if isinstance(a, int) and isinstance(b, int) and a != b:
        raise RelayTypeError(
            f"argument {what} of type {type_of(right)} has {b} rows to multiply with the {a} "
            f"columns of type {type_of(left)}"
        )


def _swapped(data: relax.Expr, swap: bool) -> relax.Expr:
    """Swap the last two axes if `swap` is set."""
    if not swap:
        return data
    axes = list(range(rank(data)))
    axes[-2:] = [axes[-1], axes[-2]]
    return op.permute_dims(data, axes)


def product(left: relax.Expr, right: relax.Expr, out_dtype: str) -> relax.Expr:
    """Relax matmul with accumulation in `out_dtype`."""
    name = str(out_dtype or "") or dtype(left)
    if dtype(left) != dtype(right):
        left, right = cast_to(left, name), cast_to(right, name)
    inner = extents(left)[-1], extents(right)[-2 if rank(right) > 1 else 0]
    if not same_extent(*inner) and not all(isinstance(each, int) for each in inner):
        size = next((each for each in inner if isinstance(each, int)), inner[0])
        left = _with_extent(left, rank(left) - 1, size)
        right = _with_extent(right, rank(right) - 2, size)
    return op.matmul(left, right, None if name == dtype(left) else name)


def _with_extent(data: relax.Expr, axis: int, size: Extent) -> relax.Expr:
    """Broadcast `data` along `axis` to `size` unless the extents are provably equal."""
    shape = extents(data)
    if same_extent(shape[axis], size):
        return data
    shape[axis] = size
    return broadcast_extents(data, shape)


@operator(
    "nn.matmul",
    2,
    ignored=("auto_scheduler_rewritten_layout", "meta_schedule_original_shape"),
    pattern=FUSABLE,
)
def matmul(
    tensor_a: relax.Expr,
    tensor_b: relax.Expr,
    units: int | None = None,
    out_dtype: str = "",
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> relax.Expr:
    """Product of two matrices, each optionally transposed."""
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
    "nn.dense",
    2,
    ignored=("auto_scheduler_rewritten_layout", "meta_schedule_original_shape"),
    pattern=FUSABLE,
    precision=ALWAYS,
    layout=layout_rules.fixed(["NC", "NC"], "NC"),
    quantized=quantization.dense,
    macs=lambda _attrs, data, _weight, result: math.prod(result) * data[-1],
)
def dense(
    data: relax.Expr, weight: relax.Expr, units: int | None = None, out_dtype: str = ""
) -> relax.Expr:
    """data * transposed weight; the weight has shape (units, inner)."""
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
    pattern=FUSABLE,
    precision=ALWAYS,
    quantized=quantization.batch_matmul,
    macs=lambda attrs, data, _weight, result: (
        math.prod(result) * data[1 if attrs["transpose_a"] else 2]
    ),
)
def batch_matmul(
    tensor_a: relax.Expr,
    tensor_b: relax.Expr,
    out_dtype: str = "",
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> relax.Expr:
    """Batched matmul; a batch of 1 broadcasts."""
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


@operator("nn.bias_add", 2, pattern=BROADCAST, precision=FOLLOW, quantized=quantization.bias_add)
def bias_add(data: relax.Expr, bias: relax.Expr, axis: int = 1) -> relax.Expr:
    """Add a vector along an axis; a single element broadcasts."""
    where = axis_of(axis, rank(data))
    assign_type(bias, [extents(data)[where]], dtype(data))
    size, own = extents(bias), extents(data)[where]
    if len(size) != 1 or (isinstance(own, int) and size[0] not in (own, 1)):
        raise RelayTypeError(
            f"argument bias of type {type_of(bias)} must be a vector of {own} elements for axis "
            f"{axis} of data of type {type_of(data)}"
        )
    return broadcasting(op.add, data, spread(bias, where, rank(data)))


@operator("nn.batch_flatten", **REARRANGEMENT, quantized=quantization.same, keeps_order=True)
def batch_flatten(data: relax.Expr) -> relax.Expr:
    """Flatten all axes but the first."""
    first, *rest = extents(data)
    size: Any = 1
    for each in rest:
        size = each if isinstance(size, int) and size == 1 else size * each
    return reshaped(data, [first, size])


_CONVOLUTIONS = frozenset(
    f"nn.conv{count}d{kind}" for count in (1, 2, 3) for kind in ("", "_transpose")
)


@from_relax("add")
def _bias_add_from_relax(call: relax.Call, definition: Definitions) -> relax.Expr | None:
    """Convert the addition of a channel vector to a convolution or dense to bias_add."""
    for data, other in (tuple(call.args), tuple(call.args)[::-1]):
        bias = _bias_of(data, other, definition)
        if bias is not None:
            vector, axis = bias
            return typed_call("nn.bias_add", [data, vector], call.ty, axis=axis)
    if not all(isinstance(arg.ty, relax.TensorType) for arg in call.args):
        return None
    return typed_call("add", call.args, call.ty)


def _bias_of(
    data: relax.Expr, other: relax.Expr, definition: Definitions
) -> tuple[relax.Expr, int] | None:
    """Vector that is added along an axis of `data`, and the axis; None if there is none."""
    producer = definition(data)
    name = operator_name(producer)
    if name != "matmul" and name not in _CONVOLUTIONS:
        return None
    shape, added = shape_of(data), shape_of(other)
    if shape is None or added is None:
        return None
    if name in _CONVOLUTIONS:
        axis = str(producer.attrs.data_layout).index("C")
    elif name == "matmul" and len(shape) == 2 and _is_weight(producer.args[1], definition):
        axis = 1
    else:
        return None
    spread_vector = [shape[axis]] + [1] * (len(shape) - axis - 1)
    if added not in (spread_vector, [1] * axis + spread_vector):
        return None
    source = definition(other)
    while operator_name(source) in ("reshape", "expand_dims"):
        other = source.args[0]
        source = definition(other)
    return spelled(other, [shape[axis]]), axis


def _is_weight(expr: relax.Expr, definition: Definitions) -> bool:
    """Whether a matrix is a constant or parameter, possibly transposed."""
    source = definition(expr)
    if operator_name(source) == "permute_dims":
        source = definition(source.args[0])
    return isinstance(source, (relax.Var, tvm.ir.GenericConst))


@from_relax("matmul")
def _product_from_relax(call: relax.Call, definition: Definitions) -> relax.Expr | None:
    """Convert matmul: a 2-D right operand to dense over flattened rows, others to batch_matmul."""
    left, right = call.args
    a, b, result = shape_of(left), shape_of(right), shape_of(call)
    name = dtype(call)
    options = {"out_dtype": "" if name == dtype(left) else name}
    if a is None and b is not None and left.ty.ndim == len(b) == 2 and 0 not in b:
        weight = swapped_operand(right, definition)
        return typed_call("nn.dense", [left, weight], call.ty, units=b[1], **options)
    if a is None or b is None or result is None or 0 in (*a, *b):
        return None
    if len(b) == 1:
        right, b = spelled(right, [b[0], 1]), [b[0], 1]
    if len(a) == 1:
        left, a = spelled(left, [1, a[0]]), [1, a[0]]
    if len(b) == 2:
        rows = math.prod(a[:-1])
        weight = swapped_operand(right, definition)
        ty = tensor([rows, b[1]], call)
        flat = spelled(left, [rows, a[-1]])
        product = typed_call("nn.dense", [flat, weight], ty, units=b[1], **options)
        return _with_shape(product, result)
    outer = result[: len(result) - 2] if len(call.args[0].ty.shape.values) > 1 else result[:-1]
    batches = []
    for data, shape in ((left, a), (right, b)):
        if shape[:-2] != outer and math.prod(shape[:-2]) != 1:
            shape = [*outer, *shape[-2:]]
            data = typed_call("broadcast_to", [data], tensor(shape, data), shape=shape)
        shape = [math.prod(shape[:-2]), *shape[-2:]]
        batches.append(spelled(data, shape))
    batches[1] = swapped_operand(batches[1], definition)
    ty = tensor([math.prod(outer), a[-2], b[-1]], call)
    product = typed_call(
        "nn.batch_matmul", batches, ty, transpose_a=False, transpose_b=True, **options
    )
    return _with_shape(product, result)


def _with_shape(product: relax.Call, shape: list[int]) -> relax.Expr:
    return product if shape_of(product) == shape else spelled(product, shape)
