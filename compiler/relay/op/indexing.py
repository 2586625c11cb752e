"""Operators that gather, scatter and select elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from schedules.matmul import unravel

from ...errors import RelayTypeError
from ...ir.constants import constant, static_shape
from ...ir.op_facts import SCATTER, Forbidden, index_rules, shape_rules
from ..type_infer import type_of
from . import quantization
from .op_def import BROADCAST, FOLLOW, INJECTIVE, REARRANGEMENT
from .raising import Definitions, from_relax, renamed, same_name, tensor, typed_call
from .registry import builder, operator
from .shapes import (
    axis_of,
    broadcast_extents,
    constant_value,
    dtype,
    extents,
    is_float,
    joint_shape,
    rank,
    same_extent,
    tuple_fields,
    with_shape,
)
from .te_op import kernel
from .transform import cast_to
from .typed_relax import op


def require_integers(expr: relax.Expr, what: str) -> relax.Expr:
    """Integer `expr` as int32 or int64, which hold every extent; else RelayTypeError."""
    if is_float(dtype(expr)):
        raise RelayTypeError(f"argument {what} must hold integers, it has the type {type_of(expr)}")
    if dtype(expr) in ("int32", "int64"):
        return expr
    return cast_to(expr, "int64" if dtype(expr) in ("uint32", "uint64") else "int32")


_take_batched = kernel(
    "take", topi.take, shapes=shape_rules.take_batches, indices=index_rules.take_indices
)


@operator("take", 2, **REARRANGEMENT, quantized=quantization.same_in_region)
def take(
    data: relax.Expr,
    indices: relax.Expr,
    axis: int | None = None,
    batch_dims: int = 0,
    mode: str = "clip",
) -> relax.Expr:
    """Take slices along an axis, or elements of the flat tensor; modes "clip", "wrap", "fast"."""
    if mode not in ("clip", "wrap", "fast"):
        raise RelayTypeError(f"mode must be 'clip', 'wrap' or 'fast', not {mode!r}")
    indices = require_integers(indices, "indices")
    if axis is None:
        return op.take(op.reshape(data, [-1]), indices, 0, mode=mode)
    where = axis_of(axis, rank(data))
    if batch_dims:
        batch = int(batch_dims)
        batch += rank(indices) if batch < 0 else 0
        return _take_batched(data, indices, axis=where, batch_dims=batch, mode=mode)
    return op.take(data, indices, where, mode=mode)


@operator("gather", ["data", "indices"], how="direct", pattern=INJECTIVE)
def gather(data: relax.Expr, axis: int, indices: relax.Expr) -> relax.Expr:
    """Gather elements by their indices along `axis`, as numpy's take_along_axis."""
    indices = require_integers(indices, "indices")
    return _gather(data, indices, axis=axis_of(axis, rank(data)))


def _gather_compute(data: te.Tensor, indices: te.Tensor, axis: int) -> te.Tensor:
    """data[at..., indices[at], at...]; `indices` may be empty."""

    def value(*at: Any) -> Any:
        return data(*at[:axis], indices(*at), *at[axis + 1 :])

    return te.compute(indices.shape, value, name="gather")


_gather = kernel(
    "gather",
    _gather_compute,
    shapes=shape_rules.index_extents,
    indices=index_rules.along_axis(1, from_end=True),
)


def _gather_nd_compute(data: te.Tensor, indices: te.Tensor, batch_dims: int) -> te.Tensor:
    """data[b..., indices[:, b..., i...], rest...]."""
    depth = int(indices.shape[0])
    spread = indices.shape[1:]
    rest = data.shape[batch_dims + depth :]

    def value(*at: Any) -> Any:
        where = at[: len(spread)]
        picked = [indices(m, *where) for m in range(depth)]
        return data(*at[:batch_dims], *picked, *at[len(spread) :])

    return te.compute([*spread, *rest], value, name="gather_nd")


_gather_nd = kernel(
    "gather_nd",
    _gather_nd_compute,
    shapes=shape_rules.coordinates(last=False),
    indices=index_rules.coordinates(0),
)


@operator("gather_nd", 2, how="TE", pattern=INJECTIVE)
def gather_nd(
    data: relax.Expr, indices: relax.Expr, batch_dims: int = 0, index_rank: int | None = None
) -> relax.Expr:
    """Gather slices at positions whose coordinates lie along the first axis of `indices`."""
    indices = require_integers(indices, "indices")
    depth = extents(indices)[0]
    if not isinstance(depth, int):
        if index_rank is None:
            raise RelayTypeError(
                f"argument indices has the type {type_of(indices)}: the extent of its first axis "
                "must be known, or given as index_rank"
            )
        depth = int(index_rank)
        indices = op.reshape(indices, [depth, *extents(indices)[1:]])
    if int(batch_dims) + depth > rank(data):
        raise RelayTypeError(
            f"argument indices of type {type_of(indices)} has more coordinates than data of type "
            f"{type_of(data)} has dimensions"
        )
    return _gather_nd(data, indices, batch_dims=int(batch_dims))


@operator("adv_index", how="direct", pattern=INJECTIVE)
def adv_index(inputs: relax.Expr) -> relax.Expr:
    """numpy's advanced indexing: the first field indexed by the other fields."""
    data, *indices = tuple_fields(inputs)
    shape = joint_shape([extents(index) for index in indices])
    return _adv_index(data, relax.Tuple([broadcast_extents(index, shape) for index in indices]))


_adv_index = kernel(
    "adv_index",
    lambda data, indices: topi.adv_index(data, indices),
    indices=index_rules.advanced_indices,
)


@operator("where", 3, how="direct", pattern=BROADCAST, precision=FOLLOW)
def where(condition: relax.Expr, x: relax.Expr, y: relax.Expr) -> relax.Expr:
    """x where the condition is not 0, y elsewhere; all three operands broadcast."""
    if dtype(x) != dtype(y):
        raise RelayTypeError(
            f"argument y has the type {type_of(y)}, its dtype must be that of x: {type_of(x)}"
        )
    operands = [cast_to(condition, "bool"), x, y]
    result = op.where(*operands)
    if result.ty.shape is None:
        shape = joint_shape([extents(operand) for operand in operands])
        result = op.where(*(broadcast_extents(operand, shape) for operand in operands))
    return result


_UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "min": tirx.min,
    "max": tirx.max,
}


@operator("scatter_elements", 3, how="direct", precision=FOLLOW)
def scatter_elements(
    data: relax.Expr,
    indices: relax.Expr,
    updates: relax.Expr,
    axis: int = 0,
    reduction: str = "update",
) -> relax.Expr:
    """Copy data with updates written or accumulated at indices along an axis."""
    if reduction not in ("update", "mean", *_UPDATES):
        raise RelayTypeError(f"reduction {reduction!r} is unknown")
    indices = require_integers(indices, "indices")
    where = axis_of(axis, rank(data))
    shapes = [extents(indices), extents(updates)]
    if all(map(same_extent, *shapes)):
        return op.scatter_elements(data, indices, updates, where, reduction)
    joint_shape(shapes)  # static extents must agree
    return _scatter_elements(data, indices, updates, axis=where, reduction=reduction)


_scatter_elements = kernel(
    "scatter_elements",
    topi.scatter_elements,
    SCATTER,
    shapes=shape_rules.index_extents,
    indices=index_rules.along_axis(1, from_end=True),
)


@operator("scatter_nd", 3, precision=FOLLOW)
def scatter_nd(
    data: relax.Expr, indices: relax.Expr, updates: relax.Expr, mode: str = "update"
) -> relax.Expr:
    """Copy data with updates written or accumulated at `gather_nd` positions."""
    if mode not in ("update", *_UPDATES):
        raise RelayTypeError(f"mode {mode!r} is unknown")
    indices = require_integers(indices, "indices")
    return _scatter_nd(data, indices, updates, mode=mode)


_scatter_nd = kernel(
    "scatter_nd",
    topi.scatter_nd,
    SCATTER,
    shapes=shape_rules.coordinates(last=False),
    indices=index_rules.coordinates(0),
)


@builder("segment_sum")
def segment_sum(data: relax.Expr, segment_ids: relax.Expr, num_segments: Any = None) -> relax.Expr:
    """Sum slices along the first axis by segment ID."""
    if num_segments is None:
        last = op.add(op.max(segment_ids), relax.const(1, dtype(segment_ids)))
        return with_shape(op.reshape(last, [1]), lambda n: _segment_sums(data, segment_ids, n[0]))
    if isinstance(num_segments, relax.Expr):
        count = op.reshape(num_segments, [1])
        return with_shape(count, lambda n: _segment_sums(data, segment_ids, n[0]))
    return _segment_sums(data, segment_ids, int(num_segments))


def _segment_sums(data: relax.Expr, ids: relax.Expr, count: Any) -> relax.Expr:
    shape = extents(data)
    start = op.zeros([count, *shape[1:]], dtype(data))
    column = op.reshape(ids, [shape[0]] + [1] * (len(shape) - 1))
    return op.scatter_elements(start, broadcast_extents(column, shape), data, 0, "add")


def _hits(data: te.Tensor) -> list[te.Tensor]:
    """Flat indices of the nonzero elements, and their number as a tensor of one element."""

    def build(ins: Any, outs: Any) -> Any:
        with IRBuilder() as builder:
            with T.seq_scope():
                values = T.buffer_proxy(ins[0])
                places, count = (T.buffer_proxy(each) for each in outs)
                number = T.buffer_proxy(T.alloc_buffer((1,), "int64", scope="local"))
                number[0] = T.int64(0)
                with T.serial(0, size) as place:
                    value = values[tuple(unravel(place, data.shape))]
                    places[number[0]] = place  # overwritten by the next index if this element is 0
                    hit = value if data.dtype == "bool" else value != tirx.const(0, data.dtype)
                    number[0] = number[0] + tirx.Cast("int64", hit)
                count[0] = number[0]
            return builder.get()

    size = math.prod(data.shape, start=tirx.const(1, "int64"))
    return te.extern([(size,), (1,)], [data], build, dtype=["int64", "int64"], name="hits")


def _argwhere(places: te.Tensor, data: te.Tensor, count: list[Any]) -> te.Tensor:
    """Coordinates of flat indices of `data`, one row per index."""

    def value(row: Any, column: Any) -> Any:
        result: Any = tirx.const(0, "int64")
        for axis, coordinate in enumerate(unravel(places(row), data.shape)):
            result = tirx.Select(column == axis, tirx.Cast("int64", coordinate), result)
        return result.astype("int32")

    return te.compute((count[0], len(data.shape)), value, name="argwhere")


_hits_kernel = kernel("hits", _hits)
_argwhere_kernel = kernel("argwhere", _argwhere)


@operator("argwhere", precision=FOLLOW)
def argwhere(condition: relax.Expr) -> relax.Expr:
    """Coordinates of the nonzero elements: (count, rank) of int32."""
    places, count = tuple_fields(_hits_kernel(condition))
    return with_shape(count, lambda n: _argwhere_kernel(places, condition, relax.ShapeExpr(n)))


_unravel = kernel(
    "unravel_index",
    lambda indices, shape: topi.unravel_index(indices, shape),
    forbidden=Forbidden(1, (0,), "unravel_index: an integer is divided by 0"),
)


@operator("unravel_index", 2, how="TOPI", pattern=INJECTIVE)
def unravel_index(indices: relax.Expr, shape: relax.Expr) -> relax.Expr:
    """Coordinates of flat indices in a tensor of `shape`, along a new first axis."""
    return _unravel(indices, cast_to(shape, dtype(indices)))


def positions(like: Sequence[Any], name: str) -> relax.Expr:
    """Vector 0, 1, 2, ... of an extent."""
    return _positions(relax.ShapeExpr(list(like)), dtype=name)


_positions = kernel(
    "positions", lambda shape, dtype: te.compute(shape, lambda i: i.astype(dtype), name="positions")
)


@from_relax("gather_nd")
def _gather_nd_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    """Convert gather_nd: coordinates are on the first axis in Relay, on the last in Relax."""
    data, indices = call.args
    shape = static_shape(indices)
    if shape is None or int(call.attrs.batch_dims):
        return None
    axes = [len(shape) - 1, *range(len(shape) - 1)]
    array = constant_value(indices)
    if array is not None:
        first: relax.Expr = constant(np.ascontiguousarray(array.transpose(axes)))
    else:
        ty = tensor([shape[axis] for axis in axes], indices)
        first = typed_call("transpose", [indices], ty, axes=axes)
    return typed_call("gather_nd", [data, first], call.ty)


same_name("take", "where", "scatter_elements")
renamed("gather_elements", "gather")
