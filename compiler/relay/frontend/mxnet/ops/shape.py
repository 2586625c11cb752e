"""Operators that only move elements: reshape, transpose, concat, split, pad, repeat."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax

from compiler.errors import FrontendError
from compiler.relay import dialect

from ..node import SymbolNode

op = relax.op


def reshape(node: SymbolNode) -> relax.Expr:
    """The codes: 0 copy, -1 infer, -2 copy the rest, -3 merge two, -4 split by the next two."""
    source, codes = node.shape(0), node.integers("shape", ())
    if not codes:
        codes = node.integers("target_shape", ())  # of before 0.9
    node.without_effect("target_shape")  # beside a shape
    if node.flag("keep_highest", False):
        raise node.unsupported("keep_highest")
    if node.flag("reverse", False):
        codes = _reversed_codes(codes)
        return _reshaped(node, _expand(node, source[::-1], codes, _CODES, "shape")[::-1])
    return _reshaped(node, _expand(node, source, codes, _CODES, "shape"))


def _reversed_codes(codes: Sequence[int]) -> tuple[int, ...]:
    """The codes from the right; the two numbers after -4 stay behind it, exchanged."""
    result: list[int] = []
    position = 0
    while position < len(codes):
        step = 3 if codes[position] == -4 else 1
        group = list(codes[position : position + step])
        result[:0] = [group[0], *group[:0:-1]] if step == 3 else group
        position += step
    return tuple(result)


_CODES = {0: "copy", -1: "infer", -2: "rest", -3: "merge", -4: "split"}
_NUMPY_CODES = {-1: "infer", -2: "copy", -3: "drop", -4: "rest", -5: "merge", -6: "split"}


def _expand(
    node: SymbolNode,
    source: Sequence[int],
    codes: Sequence[int],
    actions: dict[int, str],
    attribute: str,
) -> list[int]:
    """The shape that `codes` make of `source`; `actions` is what codes mean."""
    target: list[int] = []
    rest, pending = list(source), list(codes)
    while pending:
        code = pending.pop(0)
        action = actions.get(code)
        if action is None and code < 0:
            raise FrontendError(f"{node.describe()}: the code {code} in {attribute} {tuple(codes)}")
        if action in (None, "infer"):
            target.append(code)
            rest = rest[1:]
        elif action == "rest":
            target += rest
            rest = []
        elif action == "drop":
            if _take(node, rest) != 1:
                raise FrontendError(
                    f"{node.describe()}: {code} drops an axis that is not 1: {source}"
                )
        elif action == "split":
            if len(pending) < 2:
                raise FrontendError(
                    f"{node.describe()}: two numbers must follow {code} in {tuple(codes)}"
                )
            target += _split(node, _take(node, rest), pending.pop(0), pending.pop(0))
        else:
            target.append(_take(node, rest) * (_take(node, rest) if action == "merge" else 1))
    return _infer(node, source, target)


def numpy_reshape(node: SymbolNode) -> relax.Expr:
    """The codes: -1 infer, -2 copy, -3 drop a 1, -4 copy the rest, -5 merge two, -6 split."""
    _refuse_order(node)
    if node.flag("reverse", False):
        raise node.unsupported("reverse")
    codes = node.integers("newshape")
    return _reshaped(node, _expand(node, node.shape(0), codes, _NUMPY_CODES, "newshape"))


def plain_reshape(node: SymbolNode) -> relax.Expr:
    """numpy's reshape: -1 alone is special."""
    _refuse_order(node)
    name = "newshape" if node.has("newshape") else "newshape_"
    return _reshaped(node, _infer(node, node.shape(0), list(node.integers(name))))


def _reshaped(node: SymbolNode, shape: Sequence[int]) -> relax.Expr:
    if 0 in shape:  # for Relax's reshape that means "as in the input"; here nothing is in it
        return op.zeros(relax.ShapeExpr(list(shape)), node.dtype(0))
    return op.reshape(node[0], list(shape))


def _refuse_order(node: SymbolNode) -> None:
    if node.text("order", "C") != "C":
        raise node.unsupported(f"order {node.text('order')!r}")


def _take(node: SymbolNode, rest: list[int]) -> int:
    if not rest:
        raise FrontendError(f"{node.describe()}: the codes want more axes than {node.shape(0)} has")
    return rest.pop(0)


def _split(node: SymbolNode, extent: int, first: int, second: int) -> list[int]:
    if first == -1 and second > 0:
        first = extent // second
    elif second == -1 and first > 0:
        second = extent // first
    if first * second != extent or first < 0:
        raise FrontendError(f"{node.describe()}: {extent} can't be split into {first}, {second}")
    return [first, second]


def _infer(node: SymbolNode, source: Sequence[int], target: list[int]) -> list[int]:
    """The shape with its -1 replaced."""
    if target.count(-1) == 1:
        known = -math.prod(target)
        if known > 0 and math.prod(source) % known == 0:
            target[target.index(-1)] = math.prod(source) // known
    if any(extent < 0 for extent in target) or math.prod(source) != math.prod(target):
        raise FrontendError(f"{node.describe()}: {tuple(source)} can't be shaped as {target}")
    return target


def reshape_like(node: SymbolNode) -> relax.Expr:
    if any(node.has(f"{side}_{end}") for side in ("lhs", "rhs") for end in ("begin", "end")):
        raise node.unsupported("a range of axes")
    return op.reshape(node[0], node.shape(1))


def transpose(node: SymbolNode) -> relax.Expr:
    """Axes in the given order, or reversed."""
    rank = len(node.shape(0))
    axes = [node.axis(axis, rank) for axis in node.integers("axes", ())]
    return op.permute_dims(node[0], axes or list(range(rank))[::-1])


def swap_axes(node: SymbolNode) -> relax.Expr:
    rank = len(node.shape(0))
    axes = list(range(rank))
    a, b = (node.axis(node.integer(name, 0), rank) for name in ("dim1", "dim2"))
    axes[a], axes[b] = b, a
    return op.permute_dims(node[0], axes)


def squeeze(node: SymbolNode) -> relax.Expr:
    axes = node.integers("axis", ())
    result = op.squeeze(node[0], list(axes)) if axes else op.squeeze(node[0])
    if all(extent == 1 for extent in node.shape(0)) and not axes:
        return result if node.importer.numpy_semantics else op.reshape(node[0], (1,))
    return result


def broadcast_to(node: SymbolNode) -> relax.Expr:
    """To a shape in which 0 stands for the input's own extent."""
    source = node.shape(0)
    shape = node.integers("shape")
    padded = (1,) * (len(shape) - len(source)) + source
    return op.broadcast_to(node[0], [want or have for want, have in zip(shape, padded)])


def broadcast_like(node: SymbolNode) -> relax.Expr:
    """To the shape of the second input, or along some axes of it."""
    target = list(node.shape(1))
    if node.has("lhs_axes"):
        target = list(node.shape(0))
        pairs = zip(node.integers("lhs_axes"), node.integers("rhs_axes"))
        for left, right in pairs:
            target[node.axis(left, len(target))] = node.shape(1)[right]
    return op.broadcast_to(node[0], target)


def broadcast_axis(node: SymbolNode) -> relax.Expr:
    """Axes of one grow to the given sizes."""
    shape = list(node.shape(0))
    for axis, size in zip(node.integers("axis", ()), node.integers("size", ())):
        shape[node.axis(axis, len(shape))] = size
    return op.broadcast_to(node[0], shape)


def concat(node: SymbolNode) -> relax.Expr:
    """One after the other along an axis; where it is None, of the flattened arrays."""
    name, default = ("dim", 1) if node.op.lower() == "concat" else ("axis", 0)
    if name == "axis" and name in node.node.attrs and not node.has(name):
        return op.concat([node.emit(op.reshape(value, (-1,))) for value in node.all()], 0)
    return op.concat(node.all(), node.axis(node.integer(name, default), len(node.shape(0))))


def stack(node: SymbolNode) -> relax.Expr:
    axis = node.axis(node.integer("axis", 0), len(node.shape(0)) + 1)
    return op.concat([node.emit(op.expand_dims(value, axis)) for value in node.all()], axis)


def split_channels(node: SymbolNode) -> list[relax.Expr]:
    """Equal parts along an axis."""
    count = node.integer("num_outputs")
    axis = node.axis(node.integer("axis", 1), len(node.shape(0)))
    if count < 1 or node.shape(0)[axis] % count:
        raise FrontendError(f"{node.describe()}: {count} parts of axis {axis} of {node.shape(0)}")
    return _split_axis(node, count, axis)


def split_v2(node: SymbolNode) -> list[relax.Expr]:
    """Equal sections, or parts that start at the given indices."""
    axis = node.axis(node.integer("axis", 0), len(node.shape(0)))
    sections = node.integer("sections", 0)
    node.without_effect("indices")  # beside sections
    if sections > 0:
        return _split_axis(node, sections, axis)
    indices = node.integers("indices", ())
    starts = list(indices[1:] if indices[:1] == (0,) else indices)
    return _split_axis(node, starts, axis)


def _split_axis(node: SymbolNode, where: int | list[int], axis: int) -> list[relax.Expr]:
    count = where if isinstance(where, int) else len(where) + 1
    parts = [node[0]]
    if count > 1:
        whole = node.emit(op.split(node[0], where, axis))
        parts = [node.emit(relax.TupleGetItem(whole, i)) for i in range(count)]
    if node.flag("squeeze_axis", False):
        return [op.squeeze(part, [axis]) for part in parts]
    return list(parts)


def repeat(node: SymbolNode) -> relax.Expr:
    """Repetitions of each element, along an axis or of the flattened array."""
    axis, count = node.integer("axis", None), node.integer("repeats")
    if axis is None:
        flat = node.emit(op.reshape(node[0], (math.prod(node.shape(0)),)))
        return op.repeat(flat, count, 0)
    return op.repeat(node[0], count, node.axis(axis, len(node.shape(0))))


def pad(node: SymbolNode) -> relax.Expr:
    """Pad with a constant, with the edge, or with a reflection."""
    mode, width = node.text("mode", "constant"), node.integers("pad_width")
    node.without_effect("constant_value")  # but for "constant"
    if len(width) != 2 * len(node.shape(0)) or mode not in ("constant", "edge", "reflect"):
        raise node.unsupported(f"mode {mode!r} with pad_width {width}")
    if mode == "constant":
        return op.nn.pad(node[0], list(width), pad_value=node.number("constant_value", 0.0))
    result = node[0]
    for axis in range(len(node.shape(0))):
        before, after = width[2 * axis : 2 * axis + 2]
        if before or after:
            result = _pad_axis(node, result, axis, (before, after), mode)
    return result


def _pad_axis(
    node: SymbolNode, data: relax.Expr, axis: int, width: tuple[int, int], mode: str
) -> relax.Expr:
    """Take the padded positions of one axis."""
    extent = node.shape_of(data)[axis]
    positions = []
    for position in range(-width[0], extent + width[1]):
        if mode == "edge":
            position = min(max(position, 0), extent - 1)
        else:
            position = abs(position)
            position = position if position < extent else 2 * (extent - 1) - position
        if not 0 <= position < extent:
            raise FrontendError(f"{node.describe()}: a reflection of {width} in {extent} elements")
        positions.append(position)
    return node.emit(op.take(data, relax.const(positions, "int32"), axis))


def reverse(node: SymbolNode) -> relax.Expr:
    result = node[0]
    for axis in node.integers("axis"):
        result = node.emit(op.flip(result, node.axis(axis, len(node.shape(0)))))
    return result


def _blocks(to_depth: bool) -> Callable[[SymbolNode], relax.Expr]:
    """Blocks of pixels become channels, or channels blocks of pixels."""

    def convert(node: SymbolNode) -> relax.Expr:
        size, shape = node.integer("block_size"), node.shape(0)
        if len(shape) != 4 or size < 1:
            raise node.unsupported(f"block_size {size} on data of shape {shape}")
        batch, depth, height, width = shape
        if to_depth:
            inner = (batch, depth, height // size, size, width // size, size)
            order, result = [0, 3, 5, 1, 2, 4], (depth * size**2, height // size, width // size)
        else:
            inner = (batch, size, size, depth // size**2, height, width)
            order, result = [0, 3, 4, 1, 5, 2], (depth // size**2, height * size, width * size)
        return op.reshape(
            node.emit(op.permute_dims(op.reshape(node[0], inner), order)), (batch, *result)
        )

    return convert


CONVERTERS: dict[str, Callable[[SymbolNode], Any]] = {
    **dict.fromkeys(("Reshape", "reshape"), reshape),
    "_npx_reshape": numpy_reshape,
    **dict.fromkeys(("_np_reshape", "_npi_reshape"), plain_reshape),
    **dict.fromkeys(
        ("Flatten", "flatten"), lambda node: dialect.call("nn.batch_flatten", [node[0]])
    ),
    "reshape_like": reshape_like,
    **dict.fromkeys(("transpose", "_np_transpose", "_npi_transpose"), transpose),
    **dict.fromkeys(("SwapAxis", "swapaxes", "_npi_swapaxes"), swap_axes),
    **dict.fromkeys(
        ("expand_dims", "_npi_expand_dims"),
        lambda node: op.expand_dims(node[0], node.integer("axis")),
    ),
    **dict.fromkeys(("squeeze", "_np_squeeze", "_npi_squeeze"), squeeze),
    **dict.fromkeys(("broadcast_to", "_np_broadcast_to", "_npi_broadcast_to"), broadcast_to),
    "broadcast_like": broadcast_like,
    **dict.fromkeys(("broadcast_axis", "broadcast_axes"), broadcast_axis),
    **dict.fromkeys(("Concat", "concat", "_npi_concatenate"), concat),
    **dict.fromkeys(("stack", "_npi_stack"), stack),
    **dict.fromkeys(("SliceChannel", "split"), split_channels),
    "_split_v2": split_v2,
    "tile": lambda node: op.tile(node[0], list(node.integers("reps"))),
    "repeat": repeat,
    **dict.fromkeys(("pad", "Pad"), pad),
    **dict.fromkeys(("reverse", "flip"), reverse),
    "depth_to_space": _blocks(to_depth=False),
    "space_to_depth": _blocks(to_depth=True),
}
