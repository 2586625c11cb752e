"""Operators with run-time axes, extents or counts: small kernels compute the new symbols."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, tirx

from compiler.ir.dynamic_shape import as_extent, simplified
from compiler.ir.op_facts import nonzero_rejected
from compiler.kernels.mirror_pad import repeating_pad
from compiler.kernels.scalars import by_place
from compiler.relay.op.te_op import kernel
from schedules.generic.inline import KEPT

from .. import shape_expr
from ..node import Node
from ..shape_expr import named_extents

INT = "int64"


def extents_of(
    node: Node, values: relax.Expr, count: int, known: Sequence[Any] | None = None
) -> list[Any]:
    """Extents from the elements of a tensor (count,) of int64.

    Elements of `known` are used and checked at run time; each None is a new symbolic dimension.
    """
    extents = named_extents(known or [None] * count)
    shape = node.emit(relax.op.tensor_to_shape(node.emit(values)))
    node.builder.match_cast(shape, relax.ShapeType(extents))
    return extents


def that_fit(values: te.Tensor, misfits: te.Tensor) -> te.Tensor:
    """Return `values`, checked: all `misfits` are 0. See `graph_passes.insert_division_checks`."""
    none = misfits[tirx.const(0, INT)] == 0
    return te.compute(
        values.shape, lambda *at: tirx.if_then_else(none, values(*at), tirx.const(0, INT))
    )


def _size_misfits(data: te.Tensor, sizes: te.Tensor, axis: int, whole: bool) -> te.Tensor:
    """1 where sizes of parts are negative, or are together more than the axis has, or less."""
    extent = tirx.Cast(INT, data.shape[axis])
    each = [sizes(place) for place in range(int(sizes.shape[0]))]
    total = functools.reduce(operator.add, each)
    wrong = functools.reduce(tirx.Or, [size < 0 for size in each])
    wrong = tirx.Or(wrong, total != extent if whole else total > extent)
    return by_place([tirx.Select(wrong, tirx.const(1, INT), tirx.const(0, INT))])


def _axis_misfits(axes: te.Tensor, rank: int) -> te.Tensor:
    """1 for each axis that a tensor of this rank does not have."""

    def value(at: Any) -> Any:
        wrong = tirx.Or(axes(at) < -rank, axes(at) >= rank)
        return tirx.Select(wrong, tirx.const(1, INT), tirx.const(0, INT))

    return te.compute(axes.shape, value, name="axis_misfits")


def _room_misfits(data: te.Tensor, shape: te.Tensor) -> te.Tensor:
    """1 for each extent of a shape that the data's extent does not fit into."""
    small = [shape(axis) < tirx.Cast(INT, size) for axis, size in enumerate(data.shape)]
    one, zero = tirx.const(1, INT), tirx.const(0, INT)
    return by_place([tirx.Select(each, one, zero) for each in small])


def _checked(name: str, error: str) -> Callable[..., relax.Expr]:
    """The kernel of `that_fit`, which fails with an error."""
    return kernel(name, that_fit, forbidden=nonzero_rejected(error))


_ones_kernel = kernel(
    "ones_of_shape", lambda extents: by_place([tirx.Cast(INT, extent == 1) for extent in extents])
)
_others_kernel = kernel(
    "extents_that_are_not_one",
    lambda extents, ones: that_fit(by_place(extents), ones),
    forbidden=nonzero_rejected(
        "squeeze: the node names no axes, and an extent known at run time is 1; give the node axes"
    ),
)
_room_misfits_kernel = kernel("room_misfits", _room_misfits)
_shape_kernel = _checked(
    "unpooled_shape_that_fits", "unpooling: the shape known at run time is too small"
)
_size_misfits_kernel = kernel("size_misfits", _size_misfits)
_axis_misfits_kernel = kernel("axis_misfits", _axis_misfits)
_sizes_kernel = _checked(
    "split_sizes_that_fit",
    "split: sizes known at run time are negative or do not add up to the extent of the axis",
)
_count_kernel = _checked(
    "top_k_count_that_fits",
    "topk: k, known at run time, is negative or exceeds the extent of the axis",
)
_axes_kernel = _checked(
    "axes_that_fit", "axes: one known at run time is not an axis of the operand"
)


def parts_of(node: Node, sizes: relax.Expr, axis: int, count: int) -> list[tirx.Var]:
    """The sizes (count,) of all parts of an axis of input 0 as new symbolic dimensions."""
    sizes = as_int64(node, sizes)
    misfits = node.emit(_size_misfits_kernel(node[0], sizes, axis=axis, whole=True))
    return extents_of(node, _sizes_kernel(sizes, misfits), count)


def part_of(node: Node, size: relax.Expr, axis: int) -> tirx.Var:
    """The size (1,) of a part of an axis of input 0 as a new symbolic dimension."""
    size = as_int64(node, size)
    misfits = node.emit(_size_misfits_kernel(node[0], size, axis=axis, whole=False))
    return extents_of(node, _count_kernel(size, misfits), 1)[0]


def shape_around(node: Node, data: relax.Expr, shape: relax.Expr) -> list[tirx.Var]:
    """The extents of a shape that must have room for the data, as new symbolic dimensions."""
    shape = as_int64(node, shape)
    misfits = node.emit(_room_misfits_kernel(data, shape))
    return extents_of(node, _shape_kernel(shape, misfits), data.ty.ndim)


def other_than_one(node: Node, extents: Sequence[Any]) -> list[tirx.Var]:
    """Extents that may not be 1 as new symbolic dimensions; where one is, running is an error."""
    values = relax.ShapeExpr(list(extents))
    return extents_of(node, _others_kernel(values, node.emit(_ones_kernel(values))), len(extents))


def axes_of(node: Node, axes: relax.Expr, rank: int) -> relax.Expr:
    """Axes of a tensor of this rank as a tensor of int64; others are an error at run time."""
    axes = as_int64(node, axes)
    misfits = node.emit(_axis_misfits_kernel(axes, rank=rank))
    return node.emit(_axes_kernel(axes, misfits))


def as_int64(node: Node, value: relax.Expr) -> relax.Expr:
    """A tensor of integers as one of int64."""
    return value if str(value.ty.dtype) == INT else node.emit(relax.op.astype(value, INT))


def _joint_extents(data: te.Tensor, wanted: te.Tensor, rank: int) -> te.Tensor:
    own = [1] * (rank - len(data.shape)) + list(data.shape)
    before = rank - int(wanted.shape[0])
    joint = []
    for axis, extent in enumerate(own):
        extent = tirx.Cast(INT, extent)
        if axis >= before:
            other = wanted(axis - before)
            extent = tirx.Select(other == 1, extent, other)
        joint.append(extent)
    return by_place(joint)


_joint_extents_kernel = kernel("joint_extents", _joint_extents)


def joint_extents(node: Node, index: int, rank: int) -> list[Any]:
    """Broadcast the extents of input 0 with the extents that an input holds."""
    data, wanted = node[0], as_int64(node, node[index])
    elements = node.elements(index)
    shapes = [node.extents(0), [None] * rank if elements is None else elements.tolist()]
    known = shape_expr.joint_extents(shapes)
    return extents_of(node, _joint_extents_kernel(data, wanted, rank=rank), rank, known)


def _kept(axes: te.Tensor, rank: int) -> te.Tensor:
    """For each axis 0 where it is among those that a tensor names, from either end, else 1."""

    def value(axis: Any) -> Any:
        named = [
            tirx.Or(axes(place) == axis, axes(place) == axis - rank)
            for place in range(int(axes.shape[0]))
        ]
        zero, one = (tirx.const(each, INT) for each in (0, 1))
        return tirx.Select(functools.reduce(tirx.Or, named), zero, one)

    return te.compute((rank,), value, name="kept", attrs={KEPT: 1})


def _reduced_extents(data: te.Tensor, axes: te.Tensor) -> te.Tensor:
    kept, one = _kept(axes, len(data.shape)), tirx.const(1, INT)
    return by_place(
        [
            tirx.Select(kept(axis) == one, tirx.Cast(INT, size), one)
            for axis, size in enumerate(data.shape)
        ]
    )


def _kept_extents(data: te.Tensor, axes: te.Tensor, count: int) -> te.Tensor:
    """Extents of the axes that are not named, in their order."""
    kept = _kept(axes, len(data.shape))

    def value(at: Any) -> Any:
        result: Any = tirx.const(1, INT)
        before: Any = tirx.const(0, INT)
        for axis, size in enumerate(data.shape):
            here = tirx.And(kept(axis) == 1, before == at.astype(INT))
            result = tirx.Select(here, tirx.Cast(INT, size), result)
            before = before + kept(axis)
        return result

    return te.compute((count,), value, name="kept_extents")


_REDUCERS: dict[str, Callable[..., Any]] = {
    "sum": te.sum,
    "max": te.max,
    "min": te.min,
    "prod": te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype), name="prod"),
}


def _reduce(data: te.Tensor, shape: list[Any], *shift: te.Tensor, kind: str) -> te.Tensor:
    """Each extent of `shape` is that of the data, or 1 where the axis is reduced.

    An element is at the sum of its place in the result and in what is reduced: one of both is 0.
    """
    one = tirx.const(1, INT)
    counts = [
        tirx.floordiv(tirx.Cast(INT, size), tirx.max(extent, one))
        for size, extent in zip(data.shape, shape)
    ]
    if kind == "mean":
        total = _reduce(data, shape, kind="sum")
        count = functools.reduce(operator.mul, counts, one)
        number = tirx.Cast(data.dtype, count)
        if "int" in str(data.dtype):  # cut off; the mean of nothing is 0
            number = tirx.max(number, tirx.const(1, data.dtype))
            return te.compute(shape, lambda *at: tirx.truncdiv(total(*at), number), name="mean")
        return te.compute(shape, lambda *at: total(*at) / number, name="mean")
    along = [te.reduce_axis((0, count), f"r{axis}") for axis, count in enumerate(counts)]

    def value(*at: Any) -> Any:
        element = data(*(place + inner.var for place, inner in zip(at, along)))
        if shift:
            element = te.exp(element - shift[0](*at))
        return _REDUCERS["sum" if shift else kind](element, axis=along)

    return te.compute(shape, value, name=f"reduce_{kind}")


_reduced_extents_kernel = kernel("reduced_extents", _reduced_extents)
_kept_extents_kernel = kernel("kept_extents", _kept_extents)
_reduce_kernel = kernel("reduce_at_run_time", _reduce)


def reduce(
    node: Node, data: relax.Expr, axes: relax.Expr, kind: str, shift: relax.Expr | None = None
) -> relax.Expr:
    """A "sum", "mean", "max", "min" or "prod" along the axes in a tensor (n,), kept with extent 1.

    With `shift`, a result along the same axes, it is the sum of exp(x - shift).
    """
    extents = extents_of(node, _reduced_extents_kernel(data, axes), data.ty.ndim)
    operands = [] if shift is None else [shift]
    if shift is not None:  # its own extents: the same numbers, under other names
        extents = list(shift.ty.shape.values)
    return node.emit(_reduce_kernel(data, relax.ShapeExpr(extents), *operands, kind=kind))


def without_axes(
    node: Node, data: relax.Expr, axes: relax.Expr, like: relax.Expr | None = None
) -> relax.Expr:
    """A tensor without the axes of extent 1 that a tensor of rank 1 names.

    `like` has the extents of the axes that are kept, if `data` has them under other names.
    """
    source = data if like is None else like
    count = source.ty.ndim - int(axes.ty.shape[0])
    if count == 0:
        return relax.op.reshape(data, ())
    extents = extents_of(node, _kept_extents_kernel(source, axes, count=count), count)
    return relax.op.reshape(data, extents)


def _padded_extents(data: te.Tensor, before: te.Tensor, after: te.Tensor, mode: str) -> te.Tensor:
    """At least 0; of an axis without elements, which only a value can pad, 0."""
    zero = tirx.const(0, INT)

    def extent(axis: int, size: Any) -> Any:
        padded = tirx.max(before(axis) + size + after(axis), zero)
        return padded if mode == "constant" else tirx.Select(size == 0, zero, padded)

    sizes = [tirx.Cast(INT, size) for size in data.shape]
    return by_place([extent(axis, size) for axis, size in enumerate(sizes)])


def _pad(
    data: te.Tensor, before: te.Tensor, fill: te.Tensor, shape: list[Any], mode: str
) -> te.Tensor:
    """The data in a frame of a value, of the edges, of reflections or of itself once more."""
    widths = [before(axis) for axis in range(len(shape))]
    if mode != "constant":
        return repeating_pad(data, widths, shape, mode)

    def value(*at: Any) -> Any:
        places = [index - width for index, width in zip(at, widths)]
        inside = [
            condition
            for place, size in zip(places, data.shape)
            for condition in (place >= 0, place < tirx.Cast(INT, size))
        ]
        return tirx.if_then_else(tirx.all(*inside), data(*places), fill())

    return te.compute(shape, value, name="pad")


_padded_extents_kernel = kernel("padded_extents", _padded_extents)
_pad_kernel = kernel("pad_at_run_time", _pad)


def _pads_of_axes(pads: te.Tensor, axes: te.Tensor, rank: int) -> te.Tensor:
    """Pads in front of all axes and behind them, from those of the axes that are named."""
    count = int(axes.shape[0])

    def value(at: Any) -> Any:
        result: Any = tirx.const(0, INT)
        for place in range(count):
            axis = tirx.Select(axes(place) < 0, axes(place) + rank, axes(place))
            for side in (0, 1):
                here = at.astype(INT) == axis + side * rank
                result = tirx.Select(here, pads(place + side * count), result)
        return result

    return te.compute((2 * rank,), value, name="pads")


_pads_of_axes_kernel = kernel("pads_of_axes", _pads_of_axes)


def _known_padded_extents(node: Node, mode: str) -> list[Any] | None:
    """Extents after padding by the widths that input 1 holds; None for each unknown one."""
    elements, extents = node.elements(1), node.extents(0)
    if elements is None:
        return None
    widths = elements.tolist()
    known: list[Any] = []
    for size, before, after in zip(extents, widths[: len(extents)], widths[len(extents) :]):
        if before is None or after is None:
            known.append(None)
        elif isinstance(before, int) and isinstance(after, int) and before == after == 0:
            known.append(size)
        else:
            padded = simplified(tirx.max(as_extent(size + before + after), as_extent(0)))
            known.append(padded if mode == "constant" else None)
    return known


def pad(
    node: Node, pads: relax.Expr, axes: relax.Expr | None, fill: relax.Expr, mode: str
) -> relax.Expr:
    """Padding whose widths a tensor holds: in front of each axis, then behind each one."""
    data, rank = node[0], node[0].ty.ndim
    pads = as_int64(node, pads)
    if axes is not None:
        pads = node.emit(_pads_of_axes_kernel(pads, axes_of(node, axes, rank), rank=rank))
    before, after = (
        node.emit(relax.op.strided_slice(pads, [0], [i * rank], [(i + 1) * rank])) for i in (0, 1)
    )
    known = _known_padded_extents(node, mode) if axes is None else None
    sizes = _padded_extents_kernel(data, before, after, mode=mode)
    extents = extents_of(node, sizes, rank, known)
    return _pad_kernel(data, before, fill, relax.ShapeExpr(extents), mode=mode)
