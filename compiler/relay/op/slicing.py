"""Slicing operators and slice assignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, te, tirx, topi

from ...errors import RelayTypeError
from ...ir.dynamic_shape import as_extent, is_natural, simplified
from ...ir.op_facts import shape_rules
from ...kernels.scalars import by_place
from . import layout_slices, quantization
from .op_def import INJECTIVE, REARRANGEMENT
from .raising import Definitions, from_relax, static_ints, typed_call
from .registry import dynamic_form, operator
from .shapes import (
    Extent,
    axis_of,
    constant_value,
    extents,
    integers,
    rank,
    same_extent,
    shape_values,
    tuple_fields,
    with_shape,
)
from .te_op import kernel
from .typed_relax import op

_FAR = 2**62
"""Exceeds every extent."""


@operator(
    "strided_slice",
    **REARRANGEMENT,
    layout=layout_slices.strided_slice,
    quantized=quantization.same,
)
def strided_slice(
    data: relax.Expr,
    begin: Any,
    end: Any,
    strides: Any = None,
    axes: Sequence[int] | None = None,
    slice_mode: str = "end",
) -> relax.Expr:
    """Slice [begin, end) with strides; `end` contains sizes in mode "size"."""
    if slice_mode not in ("end", "size"):
        raise RelayTypeError(f"slice_mode must be 'end' or 'size', not {slice_mode!r}")
    values = [shape_values(value) if value is not None else [] for value in (begin, end, strides)]
    if any(isinstance(value, relax.Expr) for value in values):
        return _slice_at_run_time(data, values, axes, slice_mode)
    dims = extents(data)
    bounds = _bounds([integers(value) for value in values], axes, dims, slice_mode)
    if any(not isinstance(dims[axis], int) for axis in bounds):
        return slice_of_symbols(data, bounds)
    if not bounds:
        return data
    return op.strided_slice(
        data,
        list(bounds),
        [first for first, _, _ in bounds.values()],
        [last for _, last, _ in bounds.values()],
        [step for _, _, step in bounds.values()],
    )


dynamic_form("strided_slice", strided_slice, ["data", "begin", "end", "strides"])


def _bounds(
    values: list[list[int]], axes: Sequence[int] | None, dims: list[Extent], slice_mode: str
) -> dict[int, tuple[int, int, int]]:
    """Map each axis that is actually sliced to begin, end and stride."""
    begin, end, strides = values
    named = range(max(map(len, values))) if axes is None else axes
    result = {}
    for position, each in enumerate(named):
        axis = axis_of(each, len(dims))
        step = strides[position] if position < len(strides) else (strides[-1:] or [1])[0]
        if len(strides) == 1 and position >= 1:
            step = strides[0]
        if slice_mode == "size":
            step = 1
        if step == 0:
            raise RelayTypeError(f"the stride of axis {axis} is 0")
        first = begin[position] if position < len(begin) else (0 if step > 0 else _FAR)
        last = end[position] if position < len(end) else (_FAR if step > 0 else -_FAR)
        if slice_mode == "size":
            last = _FAR if last < 0 else first + last
        if step == 1 and first == 0 and last >= _FAR // 4:
            continue
        size = dims[axis]
        if isinstance(size, int):
            window = slice(first, None if last <= -_FAR else last, step)
            first, last, step = window.indices(size)
            if not range(first, last, step):
                first, last, step = 0, 0, 1
            elif step < 0 and last < 0:
                last = -size - 1
            if (first, last, step) == (0, size, 1):
                continue
        result[axis] = (first, last, step)
    return result


def _slice_bounds(
    data: te.Tensor,
    begin: te.Tensor,
    end: te.Tensor,
    strides: te.Tensor,
    axes: list[int],
    sizes: bool,
) -> list[te.Tensor]:
    """Normalized begin, stride and extent of a slice for every axis."""

    def bound(index: int) -> tuple[Any, Any, Any]:
        size = tirx.Cast("int64", data.shape[index])
        zero, one = tirx.const(0, "int64"), tirx.const(1, "int64")
        if index not in axes:
            return zero, one, size
        place = axes.index(index)
        step = strides(place).astype("int64") if place < int(strides.shape[0]) else one
        down = step < 0
        if place < int(begin.shape[0]):
            first = begin(place).astype("int64")
            first = tirx.Select(first < 0, first + size, first)
        else:
            first = tirx.Select(down, size - 1, zero)
        first = tirx.Select(
            down, tirx.min(tirx.max(first, -one), size - 1), tirx.min(tirx.max(first, zero), size)
        )
        if place >= int(end.shape[0]):
            last = tirx.Select(down, -one, size)
        else:
            given = end(place).astype("int64")
            if sizes:
                last = tirx.Select(given < 0, size, first + given)
            else:
                last = tirx.Select(given < 0, given + size, given)
            last = tirx.Select(
                down, tirx.min(tirx.max(last, -one), size), tirx.min(tirx.max(last, zero), size)
            )
        length = tirx.Select(
            down,
            tirx.floordiv(first - last - step - 1, tirx.max(-step, one)),
            tirx.floordiv(last - first + step - 1, tirx.max(step, one)),
        )
        return first, step, tirx.max(length, zero)

    bounds = [bound(index) for index in range(len(data.shape))]
    return [
        by_place([each[which] for each in bounds], name)
        for which, name in enumerate(("begin", "stride", "length"))
    ]


def _slice_from(
    data: te.Tensor, begin: te.Tensor, strides: te.Tensor, shape: list[Any]
) -> te.Tensor:
    """data[begin + i * strides] for i in a box of `shape`."""
    return te.compute(
        shape,
        lambda *at: data(*(begin(i) + index * strides(i) for i, index in enumerate(at))),
        name="strided_slice",
    )


def _slice_window(
    data: te.Tensor, begin: list[Any], strides: list[Any], shape: list[Any]
) -> te.Tensor:
    """Slice with begin and strides given as extents."""
    return te.compute(
        shape,
        lambda *at: data(*(first + index * step for first, index, step in zip(begin, at, strides))),
        name="strided_slice",
    )


_slice_window_kernel = kernel("slice_window", _slice_window)


def slice_of_symbols(
    data: relax.Expr,
    bounds: Mapping[int, tuple[Extent, Extent, int]],
    is_natural: Callable[[Extent], bool] = is_natural,
) -> relax.Expr:
    """Slice axes; bounds may be symbolic, negative ones count from the end, all are clipped.

    `is_natural` says which bounds can't be negative.
    """
    dims = extents(data)
    windows = [
        _window(size, *bounds[axis], is_natural) if axis in bounds else (0, 1, size)
        for axis, size in enumerate(dims)
    ]
    begin, strides, shape = (relax.ShapeExpr(list(each)) for each in zip(*windows))
    return _slice_window_kernel(data, begin, strides, shape)


def _window(
    size: Extent, first: Extent, last: Extent, step: int, is_natural: Callable[[Extent], bool]
) -> tuple[Extent, int, Extent]:
    """First index, stride and extent of a slice along an axis."""
    if not isinstance(size, int | tirx.Var):  # algebra on one symbol resolves more
        symbol, simple = tirx.Var("size", "int64"), as_extent(simplified(size))
        first, last = (
            bound if isinstance(bound, int) else _replaced(bound, simple, symbol)
            for bound in (first, last)
        )
        start, step, count = _window(symbol, first, last, step, is_natural)
        start, count = (_replaced(as_extent(each), symbol, size) for each in (start, count))
        return simplified(start), step, simplified(count)
    low, high = (0, size) if step > 0 else (-1, size - 1)
    start, stop = (_clamped(bound, size, low, high, is_natural) for bound in (first, last))
    if step == 1 and same_extent(start, 0):
        return start, step, stop
    count = stop - start + step - 1 if step > 0 else start - stop - step - 1
    count = tirx.floordiv(count, abs(step)) if abs(step) > 1 else count
    return start, step, simplified(tirx.max(as_extent(count), 0))


def _replaced(extent: tvm.ir.Expr, old: tvm.ir.Expr, new: tvm.ir.Expr) -> tvm.ir.Expr:
    """An extent with `new` in each place of `old`."""
    change = (type(old), lambda each: new if tvm_ffi.structural_equal(each, old) else each)
    return tvm_ffi.structural_map(extent, change)


def _clamped(
    bound: Extent, size: Extent, low: int, high: Extent, is_natural: Callable[[Extent], bool]
) -> Extent:
    """Clamp a bound to [low, high]; negative values count from the end."""
    if isinstance(bound, int) and abs(bound) >= _FAR // 4:
        return high if bound > 0 else low
    value = as_extent(bound)
    if is_natural(bound):
        return simplified(tirx.min(value, high))
    if not isinstance(bound, int) and is_natural(simplified(-bound - 1)):
        value = simplified(value + size)
        return value if is_natural(value) else simplified(tirx.max(value, low))
    if not isinstance(bound, int):
        value = tirx.Select(value < 0, value + size, value)
    elif bound < 0:
        value = value + size
    return simplified(tirx.max(tirx.min(value, high), low))


_slice_bounds_kernel = kernel("slice_bounds", _slice_bounds)
_slice_from_kernel = kernel("slice_from", _slice_from, shapes=shape_rules.slice_ends)


def _slice_at_run_time(
    data: relax.Expr, values: list[Any], axes: Sequence[int] | None, slice_mode: str
) -> relax.Expr:
    bounds = [
        value if isinstance(value, relax.Expr) else relax.const(np.array(value, "int64"), "int64")
        for value in values
    ]
    count = max(int(extents(value)[0]) for value in bounds)
    along = range(count) if axes is None else integers(axes)
    computed = _slice_bounds_kernel(
        data,
        *bounds,
        axes=[axis_of(axis, rank(data)) for axis in along],
        sizes=slice_mode == "size",
    )
    begin, stride, length = tuple_fields(computed)
    untouched = set(range(rank(data))) - {axis_of(axis, rank(data)) for axis in along}

    def cut(dims: list[Extent]) -> relax.Expr:
        shape = [extents(data)[i] if i in untouched else dim for i, dim in enumerate(dims)]
        return _slice_from_kernel(data, begin, stride, relax.ShapeExpr(shape))

    return with_shape(length, cut)


@operator("slice_like", 2, pattern=INJECTIVE, layout=layout_slices.slice_like)
def slice_like(
    data: relax.Expr, shape_like: relax.Expr, axes: Sequence[int] | None = None
) -> relax.Expr:
    """Slice `data` to the extents of the other tensor, along `axes` or all its axes."""
    other = extents(shape_like)
    along = [axis_of(axis, rank(data)) for axis in axes] if axes else list(range(len(other)))
    for axis in along:
        own, wanted = extents(data)[axis], other[axis]
        if isinstance(own, int) and isinstance(wanted, int) and wanted > own:
            raise RelayTypeError(f"axis {axis} has {own} slices, {wanted} are wanted")
    known = all(isinstance(extents(data)[axis], int) for axis in along)
    if known and all(isinstance(other[axis], int) for axis in along):
        zeros, ones = [0] * len(along), [1] * len(along)
        return op.strided_slice(data, along, zeros, [other[axis] for axis in along], ones)
    shape = [other[i] if i in along else size for i, size in enumerate(extents(data))]
    return leading_box(data, shape)


def leading_box(data: relax.Expr, shape: Sequence[Extent]) -> relax.Expr:
    """Leading slice of shape `shape`, which may be symbolic."""
    count = rank(data)
    begin, stride = (relax.const(np.full(count, value, "int64"), "int64") for value in (0, 1))
    return _slice_from_kernel(data, begin, stride, relax.ShapeExpr(list(shape)))


def box_from(data: relax.Expr, axis: int, begin: Extent, shape: Sequence[Extent]) -> relax.Expr:
    """Slice of shape `shape` from index `begin` of an axis; both may be symbolic."""
    begins: list[Extent] = [0] * rank(data)
    begins[axis] = begin
    starts, steps = relax.ShapeExpr(begins), relax.ShapeExpr([1] * rank(data))
    return _slice_window_kernel(data, starts, steps, relax.ShapeExpr(list(shape)))


def _strided_set(data: te.Tensor, v: te.Tensor, begin: te.Tensor, strides: te.Tensor) -> te.Tensor:
    """Replace the slice of `data` that starts at `begin` and has the shape of `v` with `v`."""

    def value(*at: Any) -> Any:
        inside: list[Any] = []
        source = []
        for axis, index in enumerate(at):
            step = strides(axis)
            offset = index.astype("int64") - begin(axis)
            offset = tirx.Select(step < 0, -offset, offset)
            size = tirx.Select(step < 0, -step, step)
            place = tirx.floordiv(offset, size)
            inside += [offset >= 0, tirx.floormod(offset, size) == 0, place < v.shape[axis]]
            source.append(place)
        return tirx.if_then_else(tirx.all(*inside), v(*source), data(*at))

    return te.compute(data.shape, value, name="strided_set")


_strided_set_kernel = kernel("strided_set", _strided_set)


@operator("strided_set", 5, how="TE", pattern=INJECTIVE)
def strided_set(
    data: relax.Expr, v: relax.Expr, begin: Any, end: Any, strides: Any = None
) -> relax.Expr:
    """Replace the slice [begin, end) of `data` with `v`."""
    count = rank(data)
    values = []
    for value, default in ((begin, 0), (end, _FAR), (strides, 1)):
        if value is None:
            value = []
        if not isinstance(value, relax.Expr):
            numbers = integers(value)
            numbers += [default] * (count - len(numbers))
            value = relax.const(np.array(numbers, "int64"), "int64")
        elif constant_value(value) is not None:
            numbers = [int(item) for item in constant_value(value).ravel()]  # type: ignore[union-attr]
            numbers += [default] * (count - len(numbers))
            value = relax.const(np.array(numbers, "int64"), "int64")
        values.append(value)
    bounds = _slice_bounds_kernel(data, *values, axes=list(range(count)), sizes=False)
    first, step, _ = tuple_fields(bounds)
    return _strided_set_kernel(data, v, first, step)


@operator("nn.fifo_buffer", 2)
def fifo_buffer(data: relax.Expr, buffer: relax.Expr, axis: int) -> relax.Expr:
    """Last slices of buffer and data concatenated along `axis`, with the buffer's extent."""
    where = axis_of(axis, rank(data))
    whole = op.concat([buffer, data], where)
    extra, total = extents(data)[where], extents(whole)[where]
    return op.strided_slice(whole, [where], [extra], [total], [1])


_sequence_mask = kernel("sequence_mask", topi.sequence_mask)


@operator("sequence_mask", 2, how="TOPI", pattern=INJECTIVE)
def sequence_mask(
    data: relax.Expr, valid_length: relax.Expr, mask_value: float = 0, axis: int = 0
) -> relax.Expr:
    """Replace elements from valid_length[batch] on along the time axis (0 or 1)."""
    return _sequence_mask(data, valid_length, mask_value=float(mask_value), axis=int(axis))


@from_relax("strided_slice")
def _strided_slice_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    data, *operands = call.args
    values = [static_ints(operand) for operand in operands]
    if any(value is None for value in values) or call.ty.shape is None:
        return None
    axes, begin, end, *steps = values
    return typed_call(
        "strided_slice",
        [data],
        call.ty,
        begin=begin,
        end=end,
        strides=steps[0] if steps else [1] * len(begin or ()),
        axes=axes,
        slice_mode="end",
    )
