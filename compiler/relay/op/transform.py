"""Operators that change shape, layout, order or dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx, topi

from ...errors import RelayTypeError
from ...ir.op_facts import index_rules, shape_rules
from ...kernels.scalars import element_at
from ..type_infer import infer_type, type_of, with_extents
from . import layout_rules, quantization, raising
from .op_def import BROADCAST, ELEMENTWISE, FOLLOW, INJECTIVE, REARRANGEMENT, REDUCTION
from .raising import (
    Definitions,
    axes_of,
    equivalent_call,
    from_relax,
    int_list,
    renamed,
    shape_of,
    typed_call,
)
from .registry import builders_of, dynamic_form, operator
from .shapes import (
    Extent,
    axis_of,
    broadcast_extents,
    dtype,
    extents,
    integers,
    joined_extents,
    joint_shape,
    rank,
    shape_values,
    shaped,
    tuple_fields,
    with_shape,
)
from .te_op import kernel
from .typed_relax import op

# Operators that TVM defined in this module, implemented elsewhere.
__getattr__ = builders_of("")[0]


@operator(
    "cast", how="direct", pattern=ELEMENTWISE, precision=FOLLOW, layout=layout_rules.elementwise
)
def cast(data: relax.Expr, dtype: str) -> relax.Expr:
    """Convert to another dtype."""
    return cast_to(data, dtype)


def cast_to(data: relax.Expr, name: str) -> relax.Expr:
    """Convert `data` to the dtype `name` unless it already has it."""
    return data if dtype(data) == name else op.astype(data, name)


@operator("cast_like", 2, pattern=ELEMENTWISE, precision=FOLLOW, layout=layout_rules.elementwise)
def cast_like(data: relax.Expr, dtype_like: relax.Expr) -> relax.Expr:
    """Convert to the dtype of `dtype_like`."""
    return cast_to(data, dtype(dtype_like))


_reinterpret = kernel("reinterpret", lambda data, dtype: topi.reinterpret(data, dtype))


@operator("reinterpret", how="TOPI", pattern=ELEMENTWISE, layout=layout_rules.elementwise)
def reinterpret(data: relax.Expr, dtype: str) -> relax.Expr:
    """Reinterpret bits as another dtype of the same width."""
    return _reinterpret(data, dtype=dtype)


def _inserted(data: te.Tensor, axis: te.Tensor, count: int) -> te.Tensor:
    """Insert `count` ones into the shape before a run-time axis."""
    ndim = len(data.shape) + count
    sizes = [tirx.Cast("int64", size) for size in data.shape]

    def value(at: Any) -> Any:
        where = axis(0).astype("int64")
        where = tirx.Select(where < 0, where + len(data.shape) + 1, where)
        new = tirx.all(at >= where, at < where + count)
        old = tirx.Select(at < where, at.astype("int64"), at.astype("int64") - count)
        return tirx.Select(new, tirx.const(1, "int64"), element_at(old, sizes))

    return te.compute((ndim,), value, name="shape_with_ones")


def _removed(data: te.Tensor, axes: te.Tensor) -> te.Tensor:
    """Remove run-time axes from the shape."""
    ndim, count = len(data.shape), int(axes.shape[0])

    def kept(axis: int) -> Any:
        gone = [
            tirx.any(axes(i) == axis, axes(i).astype("int64") + ndim == axis) for i in range(count)
        ]
        return tirx.Select(tirx.any(*gone), tirx.const(0, "int64"), tirx.const(1, "int64"))

    def value(at: Any) -> Any:
        result: Any = tirx.const(0, "int64")
        before: Any = tirx.const(0, "int64")
        for axis, size in enumerate(data.shape):
            here = tirx.all(kept(axis) == 1, before == at)
            result = tirx.Select(here, tirx.Cast("int64", size), result)
            before = before + kept(axis)
        return result

    return te.compute((ndim - count,), value, name="shape_without_axes")


_inserted_kernel = kernel("expand_dims_shape", _inserted)
_removed_kernel = kernel("squeeze_shape", _removed)


@operator(
    "expand_dims",
    how="direct",
    pattern=BROADCAST,
    precision=FOLLOW,
    quantized=quantization.same,
    keeps_order=True,
)
def expand_dims(data: relax.Expr, axis: Any, num_newaxis: int = 1) -> relax.Expr:
    """Insert `num_newaxis` axes of extent 1 before `axis`."""
    values = shape_values(axis)
    if isinstance(values, relax.Expr):
        shape = _inserted_kernel(data, op.reshape(values, [1]), count=int(num_newaxis))
        return with_shape(infer_type(shape), lambda dims: op.reshape(data, dims))
    (where,) = integers(values)
    where = axis_of(where, rank(data) + 1)
    if num_newaxis == 0:
        return data
    return op.expand_dims(data, [where + i for i in range(int(num_newaxis))])


dynamic_form("expand_dims", expand_dims, ["data", "axis"], pattern=INJECTIVE)


@operator("transpose", **REARRANGEMENT, layout=layout_rules.transpose, quantized=quantization.same)
def transpose(data: relax.Expr, axes: Sequence[int] | None = None) -> relax.Expr:
    """Permute axes; without `axes`, reverse them."""
    order = [axis_of(axis, rank(data)) for axis in axes] if axes else None
    if order is not None and sorted(order) != list(range(rank(data))):
        raise RelayTypeError(f"axes {list(axes or ())} do not name every axis once")
    return data if rank(data) < 2 else op.permute_dims(data, order)


@operator(
    "squeeze",
    **REARRANGEMENT,
    layout=layout_rules.squeeze,
    quantized=quantization.same,
    keeps_order=True,
)
def squeeze(data: relax.Expr, axis: Any = None) -> relax.Expr:
    """Remove axes of extent 1, all of them without `axis`."""
    dims = extents(data)
    if axis is None:
        axes = [i for i, size in enumerate(dims) if isinstance(size, int) and size == 1]
    else:
        values = shape_values(axis)
        if isinstance(values, relax.Expr):
            shape = _removed_kernel(data, op.reshape(values, [-1]))
            return with_shape(shape, lambda dims: op.reshape(data, dims))
        axes = [axis_of(each, len(dims)) for each in values]
    for each in axes:
        if isinstance(dims[each], int) and dims[each] != 1:
            raise RelayTypeError(
                f"argument data of type {type_of(data)}: axis {each} has the extent "
                f"{dims[each]}, only axes of extent 1 can be removed"
            )
    kept = [size for i, size in enumerate(dims) if i not in axes]
    if any(not isinstance(dims[each], int) for each in axes):
        return op.reshape(data, kept)
    return op.squeeze(data, axes) if axes else data


dynamic_form("squeeze", squeeze, ["data", "axis"])


@operator(
    "broadcast_to", how="direct", pattern=BROADCAST, precision=FOLLOW, quantized=quantization.same
)
def broadcast_to(data: relax.Expr, shape: Any, dtype: str = "") -> relax.Expr:
    """Broadcast `data` to a shape."""
    return shaped(shape, lambda dims: _broadcast(data, dims))


dynamic_form("broadcast_to", broadcast_to, ["data", "shape"])


@operator("broadcast_to_like", 2, pattern=BROADCAST, precision=FOLLOW)
def broadcast_to_like(data: relax.Expr, broadcast_type: relax.Expr) -> relax.Expr:
    """Broadcast `data` to the shape of another tensor."""
    return _broadcast(data, extents(broadcast_type))


def _broadcast(data: relax.Expr, shape: Sequence[Extent]) -> relax.Expr:
    joint = joint_shape([extents(data), shape])
    if len(joint) != len(shape) or any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(joint, shape)
    ):
        raise RelayTypeError(
            f"argument data of type {type_of(data)} does not broadcast to {tuple(shape)}"
        )
    return broadcast_extents(data, shape)


@operator("collapse_sum_like", 2, how="direct", pattern=REDUCTION)
def collapse_sum_like(data: relax.Expr, collapse_type: relax.Expr) -> relax.Expr:
    """Sum over the axes along which the other tensor would broadcast to `data`."""
    return op.collapse_sum_to(data, extents(collapse_type))


@operator("collapse_sum_to", 2, ignored=("shape", "dtype"), how="direct", pattern=REDUCTION)
def collapse_sum_to(data: relax.Expr, shape: Any) -> relax.Expr:
    """Sum over the axes along which `shape` would broadcast to `data`."""
    return shaped(shape, lambda dims: op.collapse_sum_to(data, dims))


@operator(
    "concatenate",
    **REARRANGEMENT,
    layout=layout_rules.concatenate,
    quantized=quantization.concatenate,
)
def concatenate(data: relax.Expr, axis: int = 0) -> relax.Expr:
    """Concatenate the fields of a tuple along `axis`."""
    fields = tuple_fields(data)
    where = axis_of(axis, rank(fields[0]))
    for index, field in enumerate(fields[1:], 1):
        _check_alike(fields[0], field, index, where)
    joined = op.concat(fields, where)
    is_open = all(isinstance(field.ty.shape, relax.ShapeExpr) for field in fields)
    if joined.ty.shape is not None or not is_open:
        return joined
    return with_extents(joined, joined_extents([extents(field) for field in fields], where))


def _check_alike(first: relax.Expr, field: relax.Expr, index: int, along: int) -> None:
    """Raise unless two fields have equal dtypes and extents, except along one axis."""
    message = (
        f"field {index} of argument data has the type {type_of(field)}, which does not fit "
        f"that of field 0: {type_of(first)}"
    )
    if dtype(first) != dtype(field) or rank(first) != rank(field):
        raise RelayTypeError(message)
    for axis, (a, b) in enumerate(zip(extents(first), extents(field))):
        if axis != along and isinstance(a, int) and isinstance(b, int) and a != b:
            raise RelayTypeError(message)


@operator("stack", how="direct", pattern=INJECTIVE)
def stack(data: relax.Expr, axis: int = 0) -> relax.Expr:
    """Stack the fields of a tuple along a new axis."""
    fields = tuple_fields(data)
    for index, field in enumerate(fields[1:], 1):
        _check_alike(fields[0], field, index, -1)
    where = axis_of(axis, rank(fields[0]) + 1)
    return op.concat([op.expand_dims(field, where) for field in fields], where)


@operator(
    "split", wraps=True, **REARRANGEMENT, layout=layout_rules.split, quantized=quantization.split
)
def split(data: relax.Expr, indices_or_sections: Any, axis: int = 0) -> relax.Expr:
    """Split into equal sections, or at indices, along an axis; returns a tuple."""
    where = axis_of(axis, rank(data))
    size = extents(data)[where]
    if isinstance(indices_or_sections, (int, tirx.IntImm)):
        count = int(indices_or_sections)
        if isinstance(size, int) and size % count:
            raise RelayTypeError(
                f"argument data of type {type_of(data)}: axis {where} does not divide into "
                f"{count} equal sections"
            )
        if count == 1:
            return relax.Tuple([data])
        return op.split(data, count, where)
    cuts = integers(indices_or_sections)
    return op.split(data, cuts, where) if cuts else relax.Tuple([data])


@operator("repeat", how="direct", pattern=BROADCAST)
def repeat(data: relax.Expr, repeats: int, axis: int) -> relax.Expr:
    """Repeat each slice along `axis`."""
    return op.repeat(data, int(repeats), axis_of(axis, rank(data)))


@operator("reverse", how="direct", pattern=INJECTIVE)
def reverse(data: relax.Expr, axis: int) -> relax.Expr:
    """Reverse along `axis`."""
    return op.flip(data, axis_of(axis, rank(data)))


def _reverse_sequence(
    data: te.Tensor, seq_lengths: te.Tensor, seq_axis: int, batch_axis: int
) -> te.Tensor:
    """Reverse the first seq_lengths[b] slices along `seq_axis`; the rest is unchanged."""

    def value(*at: Any) -> Any:
        length = seq_lengths(at[batch_axis]).astype("int64")
        place = at[seq_axis].astype("int64")
        source = tirx.Select(place < length, length - 1 - place, place)
        where = list(at)
        where[seq_axis] = source
        return data(*where)

    return te.compute(data.shape, value, name="reverse_sequence", tag=topi.tag.INJECTIVE)


reverse_sequence_kernel = kernel(
    "reverse_sequence",
    _reverse_sequence,
    shapes=shape_rules.sequence_lengths(1),
    indices=index_rules.sequence_lengths,
)


@operator("reverse_sequence", 2, how="TE", pattern=INJECTIVE)
def reverse_sequence(
    data: relax.Expr, seq_lengths: relax.Expr, seq_axis: int = 1, batch_axis: int = 0
) -> relax.Expr:
    """Reverse the first seq_lengths[b] slices along `seq_axis`."""
    return reverse_sequence_kernel(
        data,
        seq_lengths,
        seq_axis=axis_of(seq_axis, rank(data)),
        batch_axis=axis_of(batch_axis, rank(data)),
    )


_layout_transform = kernel("layout_transform", topi.layout_transform)


@operator("layout_transform", how="TOPI", pattern=INJECTIVE)
def layout_transform(data: relax.Expr, src_layout: str, dst_layout: str) -> relax.Expr:
    """Convert between layouts, such as NCHW to NHWC or NCHW8c."""
    if src_layout == dst_layout:
        return data
    if sorted(src_layout) == sorted(dst_layout) and src_layout.isalpha() and src_layout.isupper():
        return op.permute_dims(data, [src_layout.index(letter) for letter in dst_layout])
    return _layout_transform(data, src_layout=src_layout, dst_layout=dst_layout)


_sliding_window = kernel("sliding_window", topi.sliding_window)


@operator("sliding_window", how="TOPI")
def sliding_window(
    data: relax.Expr, axis: int, window_shape: Sequence[int], strides: Sequence[int]
) -> relax.Expr:
    """Sliding windows over the dimensions from `axis` on; window extents are the last axes."""
    return _sliding_window(
        data,
        axis=axis_of(axis, rank(data)),
        window_shape=integers(window_shape),
        strides=integers(strides),
    )


renamed("astype", "cast", dtype=dtype)
renamed("permute_dims", "transpose", axes=lambda call: axes_of(call, call.ty.ndim))
renamed("squeeze", "squeeze", axis=lambda call: int_list(call.attrs.axis))
renamed("flip", "reverse", axis=lambda call: int(call.attrs.axis))


@from_relax("expand_dims")
def _expand_dims_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    axes = sorted(int(axis) % call.ty.ndim for axis in call.attrs.axis)
    if axes == list(range(axes[0], axes[-1] + 1)):
        return typed_call("expand_dims", call.args, call.ty, axis=axes[0], num_newaxis=len(axes))
    shape = shape_of(call)
    return None if shape is None else raising.reshaped(call.args[0], shape)


@from_relax("broadcast_to")
def _broadcast_to_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    shape = shape_of(call)
    return (
        None if shape is None else typed_call("broadcast_to", call.args[:1], call.ty, shape=shape)
    )


@from_relax("concat")
def _concatenate_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    if call.attrs.axis is None:
        return None
    return typed_call("concatenate", call.args, call.ty, axis=int(call.attrs.axis))


@from_relax("stack")
def _stack_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    return typed_call("stack", call.args, call.ty, axis=int(call.attrs.axis or 0))


@from_relax("split")
def _split_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    parts = call.attrs.indices_or_sections
    cuts = int_list(parts) if hasattr(parts, "__len__") else int(parts)
    axis = int(call.attrs.axis) % call.args[0].ty.ndim
    size = extents(call.args[0])[axis]
    if isinstance(cuts, int) and not (isinstance(size, int) and cuts > 1 and size % cuts == 0):
        return None
    if not cuts:
        return None
    return typed_call("split", call.args, call.ty, indices_or_sections=cuts, axis=axis)


@from_relax("repeat")
def _repeat_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    if call.attrs.axis is None:
        return None
    repeats, axis = int(call.attrs.repeats), int(call.attrs.axis)
    return typed_call("repeat", call.args, call.ty, repeats=repeats, axis=axis)


@from_relax("collapse_sum_to")
def _collapse_sum_to_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    shape = raising.static_ints(call.args[1])
    if shape is None:
        return None
    return equivalent_call("collapse_sum_to", [call.args[0], relax.const(shape, "int64")], call)
