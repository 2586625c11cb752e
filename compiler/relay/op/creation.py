"""Operators that create tensors from shapes and scalars."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from ...errors import RelayTypeError
from ...ir.dynamic_shape import as_extent, simplified
from ...ir.op_facts import Forbidden
from ...ir.rewrite import operator_name
from ..type_infer import infer_type
from . import layout_rules
from .op_def import BROADCAST, ELEMENTWISE, FOLLOW, FUSABLE, INJECTIVE, NEVER
from .raising import (
    Definitions,
    equivalent_call,
    from_relax,
    int_list,
    renamed,
    same_name,
    static_ints,
)
from .registry import builder, dynamic_form, operator
from .shapes import (
    Extent,
    broadcast_extents,
    constant_value,
    dtype,
    extents,
    integers,
    is_float,
    same_extent,
    shape_tensor,
    shaped,
    with_shape,
)
from .te_op import kernel
from .typed_relax import op


@operator("zeros", 0, how="direct", pattern=ELEMENTWISE, precision=FOLLOW, dtype_attribute="dtype")
def zeros(shape: Any, dtype: str) -> relax.Expr:
    """Tensor filled with zeros."""
    return shaped(shape, lambda dims: op.zeros(dims, dtype or "float32"))


@operator("ones", 0, how="direct", pattern=ELEMENTWISE, dtype_attribute="dtype")
def ones(shape: Any, dtype: str) -> relax.Expr:
    """Tensor filled with ones."""
    return shaped(shape, lambda dims: op.ones(dims, dtype or "float32"))


dynamic_form("zeros", zeros, ["shape"])
dynamic_form("ones", ones, ["shape"])


@operator("zeros_like", how="direct", pattern=ELEMENTWISE, layout=layout_rules.elementwise)
def zeros_like(data: relax.Expr) -> relax.Expr:
    """Zeros with the shape and dtype of `data`."""
    return op.zeros(extents(data), dtype(data))


@operator("ones_like", how="direct", pattern=ELEMENTWISE, layout=layout_rules.elementwise)
def ones_like(data: relax.Expr) -> relax.Expr:
    """Ones with the shape and dtype of `data`."""
    return op.ones(extents(data), dtype(data))


@operator("full", how="direct", pattern=ELEMENTWISE, precision=FOLLOW, dtype_attribute="dtype")
def full(fill_value: relax.Expr, shape: Any = (), dtype: str = "") -> relax.Expr:
    """Tensor filled with a scalar expression."""
    value = _cast(fill_value, dtype)
    return shaped(shape, lambda dims: _filled(value, dims))


dynamic_form("full", full, ["fill_value", "shape"])


@operator("full_like", 2, how="direct", pattern=ELEMENTWISE)
def full_like(data: relax.Expr, fill_value: relax.Expr) -> relax.Expr:
    """Tensor with the shape and dtype of `data`, filled with a scalar."""
    return _filled(_cast(fill_value, dtype(data)), extents(data))


def _cast(value: relax.Expr, name: str) -> relax.Expr:
    if not name or dtype(value) == name:
        return value
    array = constant_value(value)
    if array is not None:
        return relax.const(array.astype(name), name)
    return op.astype(value, name)


def _filled(value: relax.Expr, dims: list[Any]) -> relax.Expr:
    if extents(value):
        return broadcast_extents(value, dims)
    return op.full(dims, value, dtype(value))


def _arange(start: te.Tensor, step: te.Tensor, shape: list[Any]) -> te.Tensor:
    """start + i * step."""
    return te.compute(shape, lambda i: start() + i.astype(start.dtype) * step(), name="arange")


def _arange_length(start: te.Tensor, stop: te.Tensor, step: te.Tensor) -> te.Tensor:
    """ceil((stop - start) / step), at least 0, as a shape."""

    def value(_index: Any) -> Any:
        span, stride = stop() - start(), step()
        if is_float(str(start.dtype)):
            count = tirx.ceil(span.astype("float64") / stride.astype("float64")).astype("int64")
        else:
            span, stride = span.astype("int64"), stride.astype("int64")
            down = stride < 0
            span = tirx.Select(down, -span, span)
            stride = tirx.Select(down, -stride, stride)
            count = tirx.floordiv(span + stride - 1, stride)
        return tirx.max(count, tirx.const(0, "int64"))

    return te.compute((1,), value, name="arange_length")


_arange_kernel = kernel("arange", _arange)
_arange_length_kernel = kernel(
    "arange_length", _arange_length, forbidden=Forbidden(2, (0,), "arange: the step is 0")
)


@builder("arange")
def arange(start: Any, stop: Any = None, step: Any = None, dtype: str = "float32") -> relax.Expr:
    """Evenly spaced numbers in [start, stop); a single argument is `stop`."""
    if stop is None:
        start, stop = 0, start
    bounds = (start, stop, 1 if step is None else step)
    first, last, by = (_scalar(each, dtype or "float32") for each in bounds)
    return _range(first, last, by, dtype)


@operator("arange", ["start", "stop", "step"], ignored=("start", "stop", "step"), precision=NEVER)
def _range(start: Any, stop: Any, step: Any, dtype: str = "float32") -> relax.Expr:
    """Evenly spaced numbers in [start, stop)."""
    name = dtype or "float32"
    bounds = [_cast(_scalar(each, name), name) for each in (start, stop, step)]
    arrays = [constant_value(each) for each in bounds]
    if all(array is not None for array in arrays):
        first, last, by = (array.item() for array in arrays if array is not None)
        count = max(0, math.ceil((last - first) / by))
        return relax.const((first + np.arange(count) * by).astype(name), name)
    length = _arange_length_kernel(*bounds)
    return with_shape(
        length, lambda dims: _arange_kernel(bounds[0], bounds[2], relax.ShapeExpr(dims))
    )


def _arange_of_extents(first: list[Any], shape: list[Any], step: int, dtype: str) -> te.Tensor:
    """first + i * step."""
    return te.compute(shape, lambda i: (first[0] + i.astype("int64") * step).astype(dtype))


_arange_of_extents_kernel = kernel("arange_of_extents", _arange_of_extents)


def arange_of_extents(first: Extent, last: Extent, step: Extent, name: str) -> relax.Expr:
    """Evenly spaced numbers in [first, last), of int64 expressions."""
    if isinstance(step, tvm.ir.Expr):
        return op.arange(first, last, step, dtype=name)
    step = int(step)
    span = last - first if step > 0 else first - last
    count = simplified(tirx.max(as_extent(span + abs(step) - 1) // abs(step), 0))
    if step == 1 and same_extent(count, simplified(as_extent(span))):
        return op.arange(first, last, step, dtype=name)
    # TVM infers wrong extents of falling and of empty ranges.
    shapes = (relax.ShapeExpr([each]) for each in (first, count))
    return _arange_of_extents_kernel(*shapes, step=step, dtype=name)


def _scalar(value: Any, name: str) -> relax.Expr:
    if not isinstance(value, relax.Expr):
        return relax.const(value, name)
    return op.reshape(value, []) if extents(value) else value


@operator("meshgrid", wraps=True, how="direct", pattern=INJECTIVE)
def meshgrid(data: Any, indexing: str = "ij") -> relax.Expr:
    """Coordinate tensors of the grid spanned by vectors, one per vector."""
    if indexing not in ("ij", "xy"):
        raise RelayTypeError(f"indexing must be 'ij' or 'xy', not {indexing!r}")
    count = len(data.ty.fields)
    fields = [infer_type(relax.TupleGetItem(data, index)) for index in range(count)]
    if any(not extents(field) for field in fields):
        fields = [op.reshape(f, [1]) if not extents(f) else f for f in fields]
    swap = indexing == "xy" and count > 1
    dims = [extents(field)[0] for field in fields]
    if swap:
        dims[0], dims[1] = dims[1], dims[0]
    grids = []
    for index, field in enumerate(fields):
        place = 1 - index if swap and index < 2 else index
        along = [1] * count
        along[place] = extents(field)[0]
        grids.append(broadcast_extents(op.reshape(field, along), dims))
    return relax.Tuple(grids)


def _one_hot(
    indices: te.Tensor, on_value: te.Tensor, off_value: te.Tensor, depth: list[Any], axis: int
) -> te.Tensor:
    """on_value where the position along `axis` equals the index, off_value elsewhere."""
    place = len(indices.shape) if axis < 0 else axis
    shape = [*indices.shape[:place], depth[0], *indices.shape[place:]]

    def value(*at: Any) -> Any:
        index = indices(*at[:place], *at[place + 1 :])
        hit = index.astype("int64") == at[place].astype("int64")
        return tirx.Select(hit, on_value(), off_value())

    return te.compute(shape, value, name="one_hot")


_one_hot_kernel = kernel("one_hot", _one_hot)


@operator("one_hot", 3, how="TE", pattern=FUSABLE)
def one_hot(
    indices: relax.Expr, on_value: Any, off_value: Any, depth: Any, axis: int = -1, dtype: str = ""
) -> relax.Expr:
    """Insert an axis of extent `depth` with `on_value` at the index and `off_value` elsewhere."""
    values = [_scalar(value, dtype or "float32") for value in (on_value, off_value)]
    on, off = (_cast(value, dtype) for value in values)
    if isinstance(depth, relax.Expr) and extents(depth) == []:
        depth = op.reshape(depth, [1]) if constant_value(depth) is None else depth
        depth = infer_type(depth)
    return shaped(
        depth, lambda dims: _one_hot_kernel(indices, on, off, relax.ShapeExpr(dims), axis=int(axis))
    )


dynamic_form("one_hot", one_hot, ["indices", "on_value", "off_value", "depth"])


@operator("shape_of", how="composed", precision=FOLLOW)
def shape_of(data: relax.Expr, dtype: str = "int32") -> relax.Expr:
    """Shape as a tensor."""
    return shape_tensor(data, dtype or "int32")


@operator("ndarray_size", how="composed", pattern=INJECTIVE, layout=layout_rules.elementwise)
def ndarray_size(data: relax.Expr, dtype: str = "int32") -> relax.Expr:
    """Number of elements as a scalar."""
    name = dtype or "int32"
    dims = extents(data)
    if all(isinstance(value, int) for value in dims):
        return relax.const(math.prod(dims), name)
    return op.prod(shape_tensor(data, name))


@operator("tile", how="direct", pattern=BROADCAST, precision=FOLLOW)
def tile(data: relax.Expr, reps: Any) -> relax.Expr:
    """Tile `data` along each axis; a longer `reps` adds leading axes."""
    return shaped(reps, lambda counts: _tile(data, counts))


dynamic_form("tile", tile, ["data", "reps"], pattern=INJECTIVE)


def _tile_at_run_time(data: te.Tensor, counts: list[Any]) -> te.Tensor:
    """Tile axis i counts[i] times; the rank of `data` must equal the number of counts."""
    shape = [size * count for size, count in zip(data.shape, counts)]
    return te.compute(
        shape,
        lambda *at: data(*(tirx.floormod(i, size) for i, size in zip(at, data.shape))),
        name="tile",
    )


_tile_kernel = kernel("tile", _tile_at_run_time)


def _tile(data: relax.Expr, counts: list[Any]) -> relax.Expr:
    if all(isinstance(value, int) for value in [*counts, *extents(data)]):
        return op.tile(data, integers(counts))
    size = max(len(counts), len(extents(data)))
    counts = [1] * (size - len(counts)) + list(counts)
    shape = [1] * (size - len(extents(data))) + extents(data)
    if len(shape) != len(extents(data)):
        data = op.reshape(data, shape)
    return _tile_kernel(data, relax.ShapeExpr(counts))


same_name("zeros_like", "ones_like")
renamed("tile", "tile", reps=lambda call: int_list(call.attrs.repeats))


@from_relax("zeros", "ones", "full")
def _filled_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    shape, name = static_ints(call.args[0]), str(call.ty.dtype)
    if shape is None:
        return None
    return equivalent_call(operator_name(call), call.args[1:], call, shape=shape, dtype=name)
