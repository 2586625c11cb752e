"""Gathering, one-hot, sorting and other operators on indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from compiler.ir.constants import constant, integers, static_shape
from compiler.ir.dynamic_shape import as_extent, bound_within, is_natural, simplified
from compiler.relay.op import registry
from compiler.relay.op.creation import arange_of_extents
from compiler.relay.op.shapes import broadcast_extents, same_extent
from compiler.relay.op.slicing import box_from, leading_box, slice_of_symbols
from compiler.relay.op.transform import reverse_sequence_kernel

from ..node import Node, constant_value, dtype_of
from ..shape_expr import is_symbolic, shape_of
from . import dynamic_operands


def in_range(indices: relax.Expr, extent: Any) -> relax.Expr:
    """Make negative indices positive; `extent` is a number, or an expression over symbols."""
    array, dtype = constant_value(indices), dtype_of(indices)
    if array is not None and (isinstance(extent, int) or (array >= 0).all()):
        if isinstance(extent, int):  # one that is out of range stays, for the error to name it
            array = np.where((array < 0) & (array >= -extent), array + extent, array)
        return constant(array.astype(dtype))
    if dtype.startswith("uint"):
        return indices
    if isinstance(extent, int):
        size = relax.const(extent, dtype)
    else:
        size = relax.op.reshape(relax.op.shape_to_tensor(relax.ShapeExpr([extent])), [])
        size = relax.op.astype(size, dtype)
    below = relax.op.less(indices, relax.const(0, dtype))
    return relax.op.where(below, relax.op.add(indices, size), indices)


def gather(node: Node) -> relax.Expr | None:
    """`take` along one axis."""
    shape = shape_of(node[0])
    if shape is None:
        return None
    axis = node.axis(0, len(shape))
    return relax.op.take(node[0], in_range(node[1], shape[axis]), axis, mode="fast")


def gather_elements(node: Node) -> relax.Expr | None:
    """One element for each index."""
    shape, wanted = shape_of(node[0]), static_shape(node[1])
    if shape is None:
        return None
    if wanted is not None and 0 in wanted:
        return constant(np.zeros(wanted, node.dtype(0)))
    axis = node.axis(0, len(shape))
    return relax.op.gather_elements(node[0], in_range(node[1], shape[axis]), axis)


def scatter_elements(node: Node) -> relax.Expr | None:
    """Indices that count from the end made positive."""
    shape = shape_of(node[0])
    if shape is None:
        return None
    axis = node.axis(0, len(shape))
    if _reduces_bits(node):
        return _scatter_bits(node, "ScatterElements", axis=axis)
    reduction = node.attr("reduction", "none").replace("none", "update")
    rows = _repeated_rows(node, shape) if axis == 0 else None
    if rows is not None:
        rows = node.emit(in_range(node.emit(relax.op.reshape(rows, [-1, 1])), shape[0]))
        return relax.op.scatter_nd(node[0], rows, node[2], reduction)
    indices = in_range(node[1], shape[axis])
    return relax.op.scatter_elements(node[0], indices, node[2], axis=axis, reduction=reduction)


def _repeated_rows(node: Node, shape: list[Any]) -> relax.Expr | None:
    """Rows (k,) if all elements of a row have one index (`result[rows] = updates`), else None."""
    call: Any = node[1]
    while isinstance(call, relax.Var):
        call = node.builder.lookup_binding(call)
    if not isinstance(call, relax.Call) or "broadcast" not in getattr(call.op, "name", ""):
        return None
    narrow, whole, updates = (shape_of(each) for each in (call.args[0], node[1], node[2]))
    if narrow is None or whole is None or updates is None or len(narrow) != len(shape):
        return None
    is_column = all(same_extent(extent, 1) for extent in narrow[1:])
    counts = any(same_extent(narrow[0], each[0]) for each in (whole, updates))
    fills = all(same_extent(*pair) for pair in zip(updates[1:], shape[1:]))
    return call.args[0] if is_column and counts and fills else None


def scatter_nd(node: Node) -> relax.Expr | None:
    """Reductions of booleans and no updates; TVM's converter handles the other forms."""
    if 0 in node.extents(1)[:-1]:
        return node[0]
    if not isinstance(node.extents(1)[-1], int):
        raise node.unsupported("the last axis of the indices must have a static extent")
    return _scatter_bits(node, "ScatterND") if _reduces_bits(node) else None


def _reduces_bits(node: Node) -> bool:
    return node.dtype(0) == "bool" and node.attr("reduction", "none") != "none"


def _scatter_bits(node: Node, operator: str, **attributes: int) -> relax.Expr:
    """Sums and products of bits are or and and."""
    reduction = node.attr("reduction")
    reduction = {"add": "max", "mul": "min"}.get(reduction, reduction)
    data, updates = (node.emit(relax.op.astype(node[i], "uint8")) for i in (0, 2))
    made = node.call(operator, data, node[1], updates, reduction=reduction, **attributes)
    return relax.op.astype(node.emit(made), "bool")


def tensor_scatter(node: Node) -> relax.Expr:
    """A part along one axis written into each sample, from a position of its own on."""
    shape, part = node.shape(0), node.shape(1)
    axis = node.axis(-2, len(shape))
    along = [1] * len(shape)
    along[axis] = part[axis]
    places = constant(np.arange(part[axis], dtype="int64").reshape(along))
    if node.get(2) is not None:
        first = relax.op.reshape(node[2], (shape[0], *[1] * (len(shape) - 1)))
        places = relax.op.add(relax.op.astype(first, "int64"), places)
    if node.attr("mode", "linear") == "circular":
        places = relax.op.mod(places, relax.const(shape[axis], "int64"))
    indices = node.emit(relax.op.broadcast_to(places, part))
    return relax.op.scatter_elements(node[0], indices, node[1], axis=axis, reduction="update")


def slices(node: Node) -> relax.Expr | None:
    """Known bounds, before opset 10 from attributes. TVM's converter does the rest.

    TVM's slices take a start in front of the axis for its first place, one that ends in front of
    its start for one of the whole axis, and one that starts behind the axis has fewer than none.
    """
    if node.opset < 10:
        bounds = [node.attrs.pop(name, None) for name in ("starts", "ends", "axes")]
        node.inputs[1:] = [
            None if bound is None else constant(np.array(bound, "int64")) for bound in bounds
        ]
    extents = shape_of(node[0])
    shape = None if extents is None else integers(extents)
    if extents is not None and (shape is None or any(map(_has_symbols(node), range(1, 5)))):
        return _slice_of_symbols(node, extents)
    given = [node.get(index) for index in range(1, 5)]
    known = [None if each is None else constant_value(each) for each in given]
    if shape is None or any(a is not None and b is None for a, b in zip(given, known)):
        return None
    starts, ends, axes, steps = ([] if each is None else each.ravel().tolist() for each in known)
    axes = axes if given[2] else list(range(len(starts)))
    steps = steps if given[3] else [1] * len(starts)
    wanted = list(shape)
    for i, (axis, step) in enumerate(zip(axes, steps)):
        extent = shape[node.axis_of(axis, len(shape))]
        backwards = int(step < 0)
        first, last = (value + extent * (value < 0) for value in (starts[i], ends[i]))
        first = min(max(first, 0), extent - backwards)
        last = min(max(last, -backwards), extent - backwards)
        wanted[axis] = max(0, -((first - last) // step)) if step else 0
        starts[i], ends[i] = first, last if last >= 0 else -extent - 1
    if 0 in steps:
        raise node.unsupported("a step is 0")
    if 0 in wanted:
        return constant(np.zeros(wanted, node.dtype(0)))
    return relax.op.strided_slice(node[0], axes, starts, ends, steps)


def _has_symbols(node: Node) -> Callable[[int], bool]:
    """Whether an input holds extents that are symbols."""

    def look(index: int) -> bool:
        values = node.extents_in(index)
        return values is not None and is_symbolic(values)

    return look


def _slice_of_symbols(node: Node, shape: list[Any]) -> relax.Expr | None:
    """Slice with symbols, None if bounds are unknown; a table bounds an input's symbol."""
    values = [node.extents_in(index) for index in range(1, len(node.inputs))]
    starts, ends, axes, steps = [*values, None, None][:4]
    given = [each for each, value in zip(values, node.inputs[1:]) if value is not None]
    if starts is None or ends is None or any(each is None for each in given):
        return None
    along = range(starts.size) if axes is None else [int(axis) % len(shape) for axis in axes]
    strides = np.ones(starts.size, "int64") if steps is None else steps
    bounds = {}
    box = list(shape)
    for axis, first, last, step in zip(along, starts, ends, strides):
        size = shape[axis]
        if is_symbolic(np.array([step], object)) or step == 0:
            return None
        is_table = isinstance(size, int) and isinstance(last, tvm.ir.Expr)
        most = bound_within(last, size) if is_table and first == 0 and step == 1 else None
        if most is not None and most[0].name in node.importer.input_symbols:
            name, bound = most[0].name, most[1]
            node.importer.bounds[name] = min(node.importer.bounds.get(name, bound), bound)
            box[axis] = last
        else:
            first, last = (
                each if isinstance(each, tvm.ir.Expr) else int(each) for each in (first, last)
            )
            bounds[axis] = (first, last, int(step))
    data = node[0] if box == shape else node.emit(leading_box(node[0], box))
    return slice_of_symbols(data, bounds, node.importer.is_natural) if bounds else data


def one_hot(node: Node) -> relax.Expr:
    """A new axis whose position `indices` says is on, the others off."""
    shape = node.extents(0)
    known = constant_value(node[1])
    if known is None:
        count = node.emit(relax.op.reshape(dynamic_operands.as_int64(node, node[1]), [1]))
        count = node.emit(relax.op.maximum(count, relax.const(0, "int64")))
        (depth,) = dynamic_operands.extents_of(node, count, 1)
    else:
        depth = int(known.reshape(-1)[0])
    axis = node.axis(-1, len(shape) + 1)
    indices = relax.op.expand_dims(
        in_range(node.emit(relax.op.astype(node[0], "int64")), depth), axis
    )
    along = [1] * (len(shape) + 1)
    along[axis] = depth
    if known is None:
        positions = node.emit(relax.op.reshape(relax.op.arange(0, depth, 1, "int64"), along))
    else:
        positions = constant(np.arange(depth, dtype="int64").reshape(along))
    off, on = (
        relax.op.reshape(relax.op.strided_slice(node[2], [0], [i], [i + 1]), []) for i in (0, 1)
    )
    return relax.op.where(relax.op.equal(indices, positions), on, off)


def top_k(node: Node) -> relax.Expr | list[relax.Expr]:
    """The k largest or smallest along an axis and where they were."""
    if node.opset >= 10 and constant_value(node[1]) is None:
        return _top_k_at_run_time(node)
    k = node.attr("k") if node.opset < 10 else int(node.value(1, "k").reshape(-1)[0])
    shape = node.extents(0)
    axis = node.axis(-1, len(shape))
    shape[axis] = int(k)
    if any(same_extent(extent, 0) for extent in shape):
        if integers(shape) is None:
            raise node.unsupported("k is 0, and the shape is known only at run time")
        return [constant(np.zeros(shape, dtype)) for dtype in (node.dtype(0), "int64")]
    return relax.op.topk(
        node[0],
        k=int(k),
        axis=axis,
        ret_type="both",
        largest=bool(node.attr("largest", 1)),
        dtype="int64",
    )


def _top_k_at_run_time(node: Node) -> list[relax.Expr]:
    """All of them in order, cut to the number that is computed while the model runs."""
    shape = node.extents(0)
    axis = node.axis(-1, len(shape))
    order = node.emit(relax.op.argsort(node[0], axis, bool(node.attr("largest", 1)), "int64"))
    wanted = node.emit(relax.op.reshape(node[1], [1]))
    count = dynamic_operands.part_of(node, wanted, axis)
    box = [*shape[:axis], count, *shape[axis + 1 :]]
    first = node.emit(leading_box(order, box))
    return [relax.op.gather_elements(node[0], first, axis), first]


def eye_like(node: Node) -> relax.Expr:
    """Ones on a diagonal of a matrix of the operand's shape."""
    from ..model import tensor_dtype

    rows, columns = node.extents(0)
    target = node.attr("dtype")
    dtype = node.dtype(0) if target is None else tensor_dtype(target, "the result of EyeLike")
    return relax.op.eye(rows, columns, node.attr("k", 0), dtype)


def reverse_sequence(node: Node) -> relax.Expr:
    """The first `sequence_lens` steps of each batch entry reversed."""
    return reverse_sequence_kernel(
        node[0], node[1], seq_axis=node.attr("time_axis", 0), batch_axis=node.attr("batch_axis", 1)
    )


def expand(node: Node) -> relax.Expr | None:
    """Broadcast to the shape that both the operand's and the given one broadcast to."""
    wanted, shape = constant_value(node[1]), static_shape(node[0])
    given, extents = node.extents_in(1), shape_of(node[0])
    if given is not None and extents is not None and (shape is None or is_symbolic(given)):
        joint = _joint(extents, given.tolist())
        return _expand_at_run_time(node) if joint is None else broadcast_extents(node[0], joint)
    if shape is None and wanted is not None and not isinstance(node[1], relax.ShapeExpr):
        node.shape(0)  # raises: TVM's converter takes constants for known shapes alone
    if wanted is None:
        return _expand_at_run_time(node)
    if shape is None:
        return None
    target = np.broadcast_shapes(shape, tuple(int(extent) for extent in wanted))
    return relax.op.broadcast_to(node[0], target)


def _joint(shape: list[Any], wanted: list[Any]) -> list[Any] | None:
    """Broadcast a shape with the target shape; None if symbols make the result ambiguous."""
    rank = max(len(shape), len(wanted))
    padded = ([1] * (rank - len(each)) + each for each in (shape, wanted))
    joint = []
    for own, other in zip(*padded):
        if not (same_extent(own, 1) or same_extent(other, 1) or same_extent(own, other)):
            return None
        joint.append(other if same_extent(own, 1) else own)
    return joint


def _expand_at_run_time(node: Node) -> relax.Expr:
    """Broadcast to a target shape that is computed at run time."""
    own = node.extents(0)
    joint = dynamic_operands.joint_extents(node, 1, max(len(own), node.shape(1)[0]))
    return broadcast_extents(node[0], [simplified(extent) for extent in joint])


def _shape_at_run_time(node: Node, index: int) -> relax.ShapeExpr:
    """The extents that input `index` holds at run time."""
    count, elements = node.shape(index)[0], node.elements(index)
    known = None if elements is None else elements.tolist()
    return relax.ShapeExpr(dynamic_operands.extents_of(node, node[index], count, known))


def constant_of_shape(node: Node) -> relax.Expr:
    """One value everywhere; the shape may be known only at run time."""
    from ..model import tensor_array

    value = node.attrs.get("value")
    single = np.zeros(1, "float32") if value is None else tensor_array(value)
    if single.size != 1:
        raise node.unsupported(f"the value has {single.size} elements instead of one")
    shape = constant_value(node[0])
    fill = constant(single.reshape(()))
    given = node.extents_in(0)
    if given is not None and is_symbolic(given):
        return relax.op.full(relax.ShapeExpr([as_extent(each) for each in given]), fill)
    if shape is None:
        return relax.op.full(_shape_at_run_time(node, 0), fill)
    if shape.size and shape.min() < 0:
        raise node.unsupported(f"the shape {shape.tolist()} has a negative extent")
    return relax.op.full(tuple(shape.tolist()), fill)


def split(node: Node) -> list[relax.Expr] | None:
    """Slices of the given extents along an axis; TVM's `split` takes no empty ones."""
    shape = shape_of(node[0])
    if shape is None or not node.proto.output:
        return None
    axis = node.axis(0, len(shape))
    extents = node.attr("split") if node.opset < 13 else None
    if node.opset >= 13 and node.get(1) is not None:
        given = node.extents_in(1)
        if given is not None and is_symbolic(given):
            sizes = [simplified(as_extent(each)) for each in given.ravel()]
            rest = simplified(as_extent(sum(sizes) - shape[axis]))
            fits = same_extent(rest, 0) and all(is_natural(each) for each in sizes)
            return _pieces(node, axis, sizes) if fits else _split_at_run_time(node, axis)
        if constant_value(node[1]) is None and given is None:
            return _split_at_run_time(node, axis)
        extents = node.value(1, "the extents").tolist()
    if extents is not None and not isinstance(shape[axis], int):
        # A reshape has the extents checked that only running tells.
        shape[axis] = sum(extents)
        node.inputs[0] = node.emit(relax.op.reshape(node[0], shape))
    if extents is None:
        parts = len(node.proto.output)
        node.attr("num_outputs")
        if not isinstance(shape[axis], int):
            return _chunks(node, axis, simplified(tirx.ceildiv(shape[axis], parts)), parts)
        chunk = -(-shape[axis] // parts)
        extents = [min(chunk, shape[axis] - i * chunk) for i in range(parts)]
    if min(extents) > 0:
        cuts = [int(cut) for cut in np.cumsum(extents)[:-1]]
        result = node.emit(relax.op.split(node[0], cuts, axis)) if cuts else node[0]
        return [relax.TupleGetItem(result, i) for i in range(len(extents))] if cuts else [result]
    pieces, begin = [], 0
    for extent in extents:
        if extent:
            pieces.append(relax.op.strided_slice(node[0], [axis], [begin], [begin + extent]))
        else:
            empty = (*shape[:axis], 0, *shape[axis + 1 :])
            pieces.append(relax.op.zeros(empty, node.dtype(0)))
        begin += extent
    return pieces


def _split_at_run_time(node: Node, axis: int) -> list[relax.Expr]:
    """Slices of extents that are computed while the model runs."""
    return _pieces(node, axis, dynamic_operands.parts_of(node, node[1], axis, node.shape(1)[0]))


def _pieces(node: Node, axis: int, sizes: Sequence[Any]) -> list[relax.Expr]:
    """Slices of symbolic extents that add up to that of the axis."""
    shape: list[Any] = node.extents(0)
    pieces, begin = [], tirx.const(0, "int64")
    for size in sizes:
        box = [*shape[:axis], size, *shape[axis + 1 :]]
        pieces.append(box_from(node[0], axis, begin, box))
        begin = begin + size
    return pieces


def _chunks(node: Node, axis: int, chunk: Any, parts: int) -> list[relax.Expr]:
    """Slices of `chunk` places along an axis of a symbolic extent; the last one has the rest."""
    far = np.iinfo("int64").max
    cuts = [simplified(chunk * part) for part in range(parts)]
    return [
        slice_of_symbols(node[0], {axis: (first, last, 1)})
        for first, last in zip(cuts, [*cuts[1:], far])
    ]


def cumulative_product(node: Node) -> relax.Expr:
    """Products of all elements up to each one along an axis."""
    if constant_value(node[1]) is None:
        return _along_each_axis(node, "CumProd")
    axis = int(node.value(1, "the axis").reshape(-1)[0]) % len(node.shape(0))
    data = relax.op.flip(node[0], axis) if node.attr("reverse", 0) else node[0]
    exclusive = bool(node.attr("exclusive", 0))
    product = relax.op.cumprod(data, axis, node.dtype(0), exclusive)
    return relax.op.flip(product, axis) if node.attr("reverse", 0) else product


def numbers(node: Node) -> relax.Expr | None:
    """Relay's `arange` of operands at run time; TVM's converter takes constants and extents."""
    step = constant_value(node[2])
    if step is not None and not step.any():
        raise node.unsupported("the delta is 0")
    operands = [node[i] for i in range(3)]
    bounds = [node.extents_in(index) for index in range(3)]
    if any(each is not None and is_symbolic(each) for each in bounds) and None not in bounds:
        first, last, stride = (each.reshape(-1)[0] for each in bounds if each is not None)
        return arange_of_extents(first, last, stride, node.dtype(0))
    tensors = all(isinstance(value.ty, relax.TensorType) for value in operands)
    if not tensors or all(constant_value(value) is not None for value in operands):
        return None
    result = registry.call("arange", operands, {"dtype": node.dtype(0)})
    return node.emit_sequence(result) if isinstance(result, relax.SeqExpr) else result


def cumulative_sum(node: Node) -> relax.Expr | None:
    """TVM's converter, where the axis is known."""
    if constant_value(node[1]) is None:
        return _along_each_axis(node, "CumSum")
    node.axis_of(int(node.value(1, "axis").reshape(-1)[0]), len(node.extents(0)))
    return None


def _along_each_axis(node: Node, kind: str) -> relax.Expr:
    """The operator along every axis, of which the run-time axis chooses one."""
    rank = len(node.extents(0))
    axis = node.emit(relax.op.reshape(dynamic_operands.as_int64(node, node[1]), []))
    attributes = {name: node.attr(name) for name in ("exclusive", "reverse")}
    result = None
    for each in range(rank):
        made = node.call(kind, node[0], relax.const(each, "int64"), **attributes)
        if result is None:
            result = made
            continue
        chosen = relax.op.logical_or(
            relax.op.equal(axis, relax.const(each, "int64")),
            relax.op.equal(axis, relax.const(each - rank, "int64")),
        )
        result = node.emit(relax.op.where(chosen, made, result))
    if result is None:
        raise node.unsupported("a scalar has no axis")
    return result


def triangle(node: Node) -> relax.Expr | None:
    """A mask where only running tells the diagonal; else TVM's converter."""
    if node.get(1) is None or constant_value(node[1]) is not None:
        return None
    rows, columns = node.shape(0)[-2:]
    diagonals = constant(np.arange(columns)[None, :] - np.arange(rows)[:, None])
    compare = relax.op.greater_equal if node.attr("upper", 1) else relax.op.less_equal
    kept = node.emit(compare(diagonals, node[1]))
    return relax.op.where(kept, node[0], relax.const(0, node.dtype(0)))


def unique(node: Node) -> None:
    """Without an axis, of all elements in a row, so that the inverse has one axis too."""
    if node.attr("axis") is None:
        node.inputs[0] = node.emit(relax.op.reshape(node[0], (-1,)))


def non_zero(node: Node) -> relax.Expr:
    """The coordinates that `argwhere` finds, those of one axis in a row."""
    data = node[0] if node.extents(0) else node.emit(relax.op.reshape(node[0], (1,)))
    places = node.emit_sequence(registry.call("argwhere", [data], {}))
    return relax.op.astype(node.emit(relax.op.permute_dims(places)), "int64")


CONVERTERS = {
    "ConstantOfShape": constant_of_shape,
    "CumProd": cumulative_product,
    "CumSum": cumulative_sum,
    "Expand": expand,
    "EyeLike": eye_like,
    "Gather": gather,
    "GatherElements": gather_elements,
    "NonZero": non_zero,
    "OneHot": one_hot,
    "Range": numbers,
    "ReverseSequence": reverse_sequence,
    "Scatter": scatter_elements,  # its name before opset 11
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "Slice": slices,
    "Split": split,
    "TopK": top_k,
    "Trilu": triangle,
    "Unique": unique,
    "TensorScatter": tensor_scatter,
}
