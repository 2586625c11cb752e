"""Shape constraints: extents that operands must have so that kernels stay in bounds.

Broadcasting operands are checked where they are broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tvm import relax, tirx

from ..constants import array_of


@dataclass(frozen=True)
class ShapeConstraint:
    operand: int  # number of the argument
    axis: int
    extent: Any
    relation: str = "not"  # "not", "more than" or "less than" `extent`
    field: int | None = None  # of the operand, if that is a tuple
    is_window: bool = False  # whether a window has to fit, so that results have positive extents


Rule = Callable[[relax.Call], Iterator[ShapeConstraint]]


def extents_of(expr: Any) -> list[Any] | None:
    """The extents of a tensor; None where its rank is not known."""
    shape = getattr(expr.ty, "shape", None)
    return list(shape.values) if isinstance(shape, relax.ShapeExpr) else None


def _shapes(call: relax.Call, *operands: int) -> list[list[Any]] | None:
    """The extents of these operands; None if one is not a tensor of known rank."""
    found = [extents_of(call.args[each]) for each in operands if each < len(call.args)]
    whole = [each for each in found if each is not None]
    return whole if len(whole) == len(operands) else None


def _attribute(call: relax.Call, name: str, default: int) -> int:
    """An attribute that not every operator of this kind has."""
    found = getattr(call.attrs, name, None)
    return default if found is None else int(found)


def _is_one(extent: Any) -> bool:
    return isinstance(extent, tirx.IntImm) and int(extent) == 1


def _equal(
    first: tuple[int, int], second: tuple[int, int], shapes: list[list[Any]]
) -> ShapeConstraint:
    """Two extents must be equal; a static one is the reference."""
    (i, axis), (j, other) = first, second
    given, wanted = shapes[j][other], shapes[i][axis]
    if isinstance(given, tirx.IntImm):
        return ShapeConstraint(i, axis % len(shapes[i]), given)
    return ShapeConstraint(j, other % len(shapes[j]), wanted)


def same_extent(operand: int, axis: int, of: int, of_axis: int) -> Rule:
    """Require an axis of `operand` to have the extent of an axis of `of`."""

    def rule(call: relax.Call) -> Iterator[ShapeConstraint]:
        shapes = _shapes(call, of, operand)
        if shapes is not None:
            yield _equal((of, of_axis), (operand, axis), shapes)

    return rule


def matmul_extents(call: relax.Call) -> Iterator[ShapeConstraint]:
    shapes = _shapes(call, 0, 1)
    if shapes is None:
        return
    a, b = shapes
    yield _equal((0, -1), (1, max(len(b) - 2, 0)), shapes)
    for i in range(3, min(len(a), len(b)) + 1):
        if not _is_one(a[-i]) and not _is_one(b[-i]):
            yield _equal((0, -i), (1, -i), shapes)


def _fields(call: relax.Call) -> list[list[Any]] | None:
    """The extents of the tensors of a tuple; None if one is not of known rank."""
    ty = call.args[0].ty
    shapes = [each.shape for each in ty.fields] if isinstance(ty, relax.TupleType) else []
    if not shapes or not all(isinstance(shape, relax.ShapeExpr) for shape in shapes):
        return None
    return [list(shape.values) for shape in shapes]


def _alike(places: list[tuple[int, int]], shapes: list[list[Any]]) -> Iterator[ShapeConstraint]:
    """Fields of a tuple must share an extent; a static one is the reference."""
    extents = [shapes[field][axis] for field, axis in places]
    wanted = next((each for each in extents if isinstance(each, tirx.IntImm)), extents[0])
    for (field, axis), extent in zip(places, extents):
        if not extent.same_as(wanted):
            yield ShapeConstraint(0, axis, wanted, field=field)


def concat_extents(call: relax.Call) -> Iterator[ShapeConstraint]:
    shapes = _fields(call)
    if shapes is None:
        return
    along = int(call.attrs.axis or 0) % len(shapes[0])
    for axis in range(len(shapes[0])):
        if axis != along:
            yield from _alike([(field, axis) for field in range(len(shapes))], shapes)


def index_extents(call: relax.Call) -> Iterator[ShapeConstraint]:
    """Indices of a gather or scatter fit the data; updates have the shape of the indices."""
    shapes = _shapes(call, 0, 1)
    if shapes is None or len(shapes[0]) != len(shapes[1]):
        return
    axis = int(call.attrs["axis"] or 0) % len(shapes[0])
    for i, extent in enumerate(shapes[0]):
        if i != axis:
            yield ShapeConstraint(1, i, extent, "more than")
    if "scatter" in str(call.op.name):
        for i, extent in enumerate(shapes[1]):
            yield ShapeConstraint(2, i, extent)


def coordinates(last: bool) -> Rule:
    """Coordinates of the first axes, stored along the last or the first axis of the indices."""

    def rule(call: relax.Call) -> Iterator[ShapeConstraint]:
        shapes = _shapes(call, 0, 1)
        if shapes is None:
            return
        data, indices = shapes
        batch = _attribute(call, "batch_dims", 0)
        if "gather" in str(call.op.name):
            for i in range(batch):
                yield ShapeConstraint(1, i if last else i + 1, data[i])
            return
        count = indices[-1] if last else indices[0]
        updates = extents_of(call.args[2])
        if not isinstance(count, tirx.IntImm) or updates is None:
            return
        whole = [*(indices[:-1] if last else indices[1:]), *data[int(count) :]]
        for i, extent in enumerate(whole[: len(updates)]):
            yield ShapeConstraint(2, i, extent)

    return rule


def take_batches(call: relax.Call) -> Iterator[ShapeConstraint]:
    shapes = _shapes(call, 0, 1)
    if shapes is not None:
        for i in range(_attribute(call, "batch_dims", 0)):
            yield ShapeConstraint(1, i, shapes[0][i])


def sequence_lengths(lengths: int) -> Rule:
    def rule(call: relax.Call) -> Iterator[ShapeConstraint]:
        shapes = _shapes(call, 0, lengths)
        if shapes is not None:
            axis = _attribute(call, "batch_axis", 1) % len(shapes[0])
            yield ShapeConstraint(lengths, 0, shapes[0][axis])

    return rule


def convolution_channels(transposed: bool) -> Rule:
    def rule(call: relax.Call) -> Iterator[ShapeConstraint]:
        shapes = _shapes(call, 0, 1)
        if shapes is None:
            return
        layout, kernel = str(call.attrs.data_layout), str(call.attrs.kernel_layout)
        if not layout.isalpha() or not kernel.isalpha():
            return  # blocks, of extents that are known
        groups = 1 if transposed else int(call.attrs.groups)
        yield ShapeConstraint(0, layout.index("C"), shapes[1][kernel.index("I")] * groups)

    return rule


def windows(call: relax.Call) -> Iterator[ShapeConstraint]:
    """The padded extents of a convolution or pool hold at least one window.

    An empty input gives an empty result, as elsewhere. It is an error for a pool whose window fits
    into the padding alone, and for a transposed convolution whose result would be empty.
    """
    attrs, shapes = call.attrs, _shapes(call, 0)
    layout = str(getattr(attrs, "data_layout", None) or attrs.layout)
    is_pool = not hasattr(attrs, "data_layout")
    sizes = attrs.pool_size if is_pool else _kernel_sizes(call)
    if shapes is None or not layout.isalpha() or sizes is None:
        return
    axes = [layout.index(name) for name in "DHW" if name in layout]
    pads = [int(width) for width in attrs.padding]
    grows = hasattr(attrs, "output_padding")  # to (n - 1) * stride + reach - pads
    for i, axis in enumerate(axes):
        reach = (int(sizes[i]) - 1) * int(attrs.dilation[i]) + 1
        least = reach - pads[i] - pads[i + len(axes)]
        if grows:
            least = -(-(1 - least - int(attrs.output_padding[i])) // int(attrs.strides[i])) + 1
        if least > (0 if grows else 1) or (least <= 0 and is_pool):
            least = max(least, 1)
            yield ShapeConstraint(0, axis, tirx.IntImm("int64", least), "less than", is_window=True)


def _kernel_sizes(call: relax.Call) -> list[Any] | None:
    weights, layout = _shapes(call, 1), str(call.attrs.kernel_layout)
    if weights is None or not layout.isalpha():
        return None
    sizes = [weights[0][layout.index(name)] for name in "DHW" if name in layout]
    return sizes if all(isinstance(size, tirx.IntImm) for size in sizes) else None


def norm_parameters(count: int, axes_of: Callable[[relax.Call], list[int]]) -> Rule:
    """Parameters have the extents of the normalized axes."""

    def rule(call: relax.Call) -> Iterator[ShapeConstraint]:
        shapes, axes = _shapes(call, *range(1 + count)), axes_of(call)
        for operand in range(1, 1 + count) if shapes is not None else ():
            if shapes is not None and len(shapes[operand]) == len(axes):
                for i, axis in enumerate(axes):
                    yield _equal((0, axis), (operand, i), shapes)

    return rule


def einsum_extents(call: relax.Call) -> Iterator[ShapeConstraint]:
    equation, shapes = str(call.attrs.subscripts).replace(" ", ""), _fields(call)
    terms = equation.split("->")[0].split(",")
    if shapes is None or "." in equation or list(map(len, terms)) != list(map(len, shapes)):
        return
    places: dict[str, list[tuple[int, int]]] = {}
    for field, term in enumerate(terms):
        for axis, label in enumerate(term):
            if not _is_one(shapes[field][axis]):
                places.setdefault(label, []).append((field, axis))
    for each in places.values():
        yield from _alike(each, shapes)


def attention_extents(call: relax.Call) -> Iterator[ShapeConstraint]:
    shapes = _shapes(call, 0, 1, 2)
    if shapes is None:
        return
    for operand in (1, 2):
        yield _equal((0, 0), (operand, 0), shapes)
        yield _equal((0, 2), (operand, 2), shapes)
    yield _equal((0, 3), (1, 3), shapes)
    yield _equal((1, 1), (2, 1), shapes)


def slice_ends(call: relax.Call) -> Iterator[ShapeConstraint]:
    """The end of a slice with constant begins and steps of 1."""
    shape, begin, steps = extents_of(call.args[0]), array_of(call.args[1]), array_of(call.args[2])
    if shape is None or begin is None or steps is None or (steps != 1).any():
        return
    for axis, extent in enumerate(call.args[3].values):
        yield ShapeConstraint(0, axis, extent + int(begin[axis]), "less than")


def topk_count(call: relax.Call) -> Iterator[ShapeConstraint]:
    """The axis has at least the k elements that are chosen."""
    shape, count = extents_of(call.args[0]), int(call.attrs.k)
    if shape is not None and count > 0:
        axis = int(call.attrs.axis) % len(shape)
        yield ShapeConstraint(0, axis, tirx.IntImm("int64", count), "less than")


def recurrent_states(call: relax.Call) -> Iterator[ShapeConstraint]:
    """States (batch, hidden) follow the steps (length, batch, gates) and the weights."""
    biases = int(str(call.attrs["cell"]) == "gru")
    operands = [0, *range(2, len(call.args) - biases)]
    shapes = _shapes(call, *operands)
    for place in range(1, len(operands)) if shapes is not None else ():
        if shapes is not None:
            need = _equal((0, 1), (place, 0), shapes)
            yield replace(need, operand=operands[need.operand])


def axes_attribute(call: relax.Call) -> list[int]:
    return [int(each) for each in call.attrs.axes]


def axis_attribute(call: relax.Call) -> list[int]:
    return [int(call.attrs.axis)]


def channel_axis(call: relax.Call) -> list[int]:
    return [int(call.attrs.channel_axis)]


def nonempty(axes: Callable[[relax.Call, int], list[int]]) -> Rule:
    """Require at least one element along some axes of the first operand."""

    def rule(call: relax.Call) -> Iterator[ShapeConstraint]:
        shape = extents_of(call.args[0])
        for axis in axes(call, len(shape)) if shape is not None else ():
            yield ShapeConstraint(0, axis, tirx.IntImm("int64", 1), "less than")

    return rule


def reduced_axes(call: relax.Call, rank: int) -> list[int]:
    return list(range(rank)) if call.attrs.axis is None else [int(call.attrs.axis) % rank]


def mirror_extents(call: relax.Call) -> Iterator[ShapeConstraint]:
    """An axis padded with the tensor's own elements has enough of them.

    A reflection needs one more than the padding is wide; edges and other ends need one.
    """
    mode, shape = str(call.attrs.pad_mode), extents_of(call.args[0])
    widths = [int(width) for width in call.attrs.pad_width]
    for axis in range(len(shape or ())):
        widest = max(widths[2 * axis : 2 * axis + 2])
        if mode == "constant" or widest <= 0:
            continue
        least = widest + 1 if mode == "reflect" else 1
        yield ShapeConstraint(0, axis, tirx.IntImm("int64", least), "less than", is_window=True)


def spatial_axes(call: relax.Call, rank: int) -> list[int]:
    layout = str(call.attrs.layout)
    return [axis for axis in range(rank) if layout[axis : axis + 1] in ("D", "H", "W")]


def all_of(*rules: Rule) -> Rule:
    def rule(call: relax.Call) -> Iterator[ShapeConstraint]:
        for each in rules:
            yield from each(call)

    return rule
