"""Index operands: which operands hold indices or lengths, and their bounds.

An operator without such a fact must not use an operand's values as indices, or must clamp them
itself, as `take` does in the modes "clip" and "wrap".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx

Extents = Sequence[Any]


@dataclass(frozen=True)
class Bounds:
    operand: int  # number of the argument
    extents: tuple[Any, ...]  # or one per coordinate; None: not an index
    axes: tuple[int, ...]  # the axis that each extent is of, for the message
    field: int | None = None  # of the operand, if that is a tuple
    along: int | None = None  # axis of the operand along which the coordinates lie
    from_end: bool = False  # whether negative indices count from the end
    lengths: bool = False  # whether values are counts: the extent itself is valid
    but: int | None = None  # a value that is ignored

    def limits(self, coordinate: int) -> tuple[Any, Any]:
        """The smallest valid value, and one more than the largest."""
        extent = self.extents[coordinate]
        return (-extent if self.from_end else 0), (extent + 1 if self.lengths else extent)


Rule = Callable[[relax.Call], "list[Bounds]"]


def _shape(expr: Any) -> list[Any]:
    """Extents of a tensor, as int where static; empty if the rank is unknown."""
    shape = expr.ty.shape
    if not isinstance(shape, relax.ShapeExpr):
        return []
    return [int(each) if isinstance(each, tirx.IntImm) else each for each in shape.values]


def _axis(call: relax.Call) -> int:
    axis = call.attrs["axis"]
    return 0 if axis is None else int(axis) % max(len(_shape(call.args[0])), 1)


def along_axis(operand: int, from_end: bool) -> Rule:
    """Indices along the attribute `axis` of the first operand."""

    def rule(call: relax.Call) -> list[Bounds]:
        axis, shape = _axis(call), _shape(call.args[0])
        return [Bounds(operand, (shape[axis],), (axis,), from_end=from_end)] if shape else []

    return rule


def take_indices(call: relax.Call) -> list[Bounds]:
    return along_axis(1, from_end=False)(call) if call.attrs["mode"] == "fast" else []


def coordinates(along: int) -> Rule:
    """Coordinates in the first operand, after its `batch_dims` axes."""

    def rule(call: relax.Call) -> list[Bounds]:
        shape, places = _shape(call.args[0]), _shape(call.args[1])
        if not shape or not places:
            return []
        batch = _attribute(call, "batch_dims", 0)
        axes = tuple(range(batch, batch + int(places[along])))
        extents = tuple(shape[axis] for axis in axes)
        return [Bounds(1, extents, axes, along=along % len(places), from_end=True)]

    return rule


def _attribute(call: relax.Call, name: str, default: int) -> int:
    attrs = call.attrs
    known = attrs.keys() if hasattr(attrs, "keys") else dir(attrs)
    return int(attrs[name]) if name in list(known) else default


def advanced_indices(call: relax.Call) -> list[Bounds]:
    """One index tensor for each of the first axes."""
    shape, places = _shape(call.args[0]), call.args[1]
    fields = places.ty.fields if isinstance(places.ty, relax.TupleType) else []
    return [
        Bounds(1, (shape[axis],), (axis,), field=axis, from_end=True)
        for axis, field in enumerate(fields)
        if axis < len(shape) and str(field.dtype) != "bool"
    ]


def region_batches(call: relax.Call) -> list[Bounds]:
    """Image number of each region; the operator clamps the corners."""
    shape = _shape(call.args[0])
    if not shape:
        return []
    return [Bounds(1, (shape[0], None, None, None, None), (0,) * 5, along=1)]


def crop_batches(call: relax.Call) -> list[Bounds]:
    axis = str(call.attrs["layout"]).index("N")
    return [Bounds(2, (_shape(call.args[0])[axis],), (axis,))]


def sequence_lengths(call: relax.Call) -> list[Bounds]:
    shape = _shape(call.args[0])
    axis = int(call.attrs["seq_axis"]) % max(len(shape), 1)
    return [Bounds(1, (shape[axis],), (axis,), lengths=True)] if shape else []


def class_labels(call: relax.Call) -> list[Bounds]:
    shape = _shape(call.args[0])
    axis = min(1, len(shape) - 1)
    ignored = int(call.attrs["ignore_index"])
    return [Bounds(1, (shape[axis],), (axis,), but=ignored)] if shape else []


def first_axis(operand: int) -> Rule:
    return lambda call: [Bounds(operand, (_shape(call.args[0])[0],), (0,))]


def box_counts(operand: int, of: int) -> Rule:
    """Numbers of boxes, at most the extent of axis 1 of the operand `of`."""
    return lambda call: [Bounds(operand, (_shape(call.args[of])[1],), (1,), lengths=True)]


def dense_coordinates(call: relax.Call) -> list[Bounds]:
    extents = [int(v) if isinstance(v, tirx.IntImm) else v for v in call.args[3].values]
    if len(_shape(call.args[0])) < 2:
        return [Bounds(0, (extents[0],), (0,))]
    return [Bounds(0, tuple(extents), tuple(range(len(extents))), along=1)]
