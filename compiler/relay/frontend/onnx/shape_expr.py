"""Arithmetic on extents that only running the model tells: arrays of integers and TIR expressions.

Exporters compute shapes by nodes: Shape, Gather, Concat, a quotient. Done here, on symbols, the
results stay shapes that every operator behind them knows.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from tvm import relax, tirx

from compiler.ir.dynamic_shape import as_extent, simplified

if TYPE_CHECKING:
    from .node import Node

LARGEST = 64
"""Elements of the largest array that is computed on symbols."""


def smaller(left: Any, right: Any) -> Any:
    """The minimum of two extents."""
    both = isinstance(left, int) and isinstance(right, int)
    return min(left, right) if both else simplified(tirx.min(left, right))


def larger(left: Any, right: Any) -> Any:
    """The maximum of two extents."""
    both = isinstance(left, int) and isinstance(right, int)
    return max(left, right) if both else simplified(tirx.max(left, right))


def shape_of(expr: relax.Expr) -> list[Any] | None:
    """The extents of a tensor, numbers and expressions; None where they are not known so."""
    ty = expr.ty
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return None
    return [int(each) if isinstance(each, tirx.IntImm) else each for each in ty.shape.values]


def is_symbolic(values: np.ndarray) -> bool:
    """Whether an array has an element that is not a number."""
    return values.dtype == object and any(isinstance(each, tvm.ir.Expr) for each in values.flat)


def evaluate(node: Node, operands: Sequence[np.ndarray | None]) -> list[np.ndarray] | None:
    """The results of a node on arrays of extents; None where it is not such arithmetic.

    Operands are arrays of integers, or of objects that are integers and TIR expressions; None is an
    omitted operand.
    """
    kind = node.proto.op_type
    if kind in _PAIRWISE and len(operands) == 2 and _are_integers(operands):
        left, right = (_as_objects(each) for each in operands)
        if max(left.size, right.size) > LARGEST:
            return None
        made = np.frompyfunc(_PAIRWISE[kind], 2, 1)(left, right)
        return None if any(each is None for each in np.ravel(made)) else [_as_array(made)]
    rule = _RULES.get(kind)
    if rule is None or operands[0] is None or not _are_integers(operands):
        return None
    result = rule(node, *operands)
    if result is None:
        return None
    results = result if isinstance(result, list) else [result]
    return None if sum(each.size for each in results) > LARGEST else results


def dtype_of_result(node: Node) -> str:
    """The dtype of integers that such arithmetic makes: int32 where the model casts to that."""
    from .model import tensor_dtype

    kind = node.proto.op_type
    if kind == "Cast":
        return tensor_dtype(node.attr("to"), "the result of Cast")
    operand = node.get(1 if kind == "Where" else 0)
    ty = None if operand is None or kind in ("Shape", "Size") else operand.ty
    is_narrow = isinstance(ty, relax.TensorType) and str(ty.dtype) == "int32"
    return "int32" if is_narrow else "int64"


def _are_integers(operands: Sequence[np.ndarray | None]) -> bool:
    return all(each is None or each.dtype.kind in "iubO" for each in operands)


def _as_objects(values: np.ndarray | None) -> np.ndarray:
    assert values is not None
    return values if values.dtype == object else values.astype(object)


def _as_array(values: Any) -> np.ndarray:
    result = np.empty(np.shape(values), object)
    result[...] = values
    for index in np.ndindex(result.shape):
        each = result[index]
        result[index] = each if isinstance(each, (bool, np.bool_)) else simplified(each)
    return result


def _quotient(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        return None if right == 0 else int(left / right) if abs(left) < 1 << 52 else left // right
    if isinstance(right, int) and right > 0 and _is_natural(left):
        return tirx.floordiv(left, right)
    return tirx.truncdiv(left, right)


def _remainder(left: Any, right: Any) -> Any:
    if isinstance(right, int) and right == 0:
        return None
    both = isinstance(left, int) and isinstance(right, int)
    return left % right if both else tirx.floormod(left, right)


def _is_natural(extent: Any) -> bool:
    """Whether an extent is known to be at least 0."""
    if isinstance(extent, int):
        return extent >= 0
    known = simplified(extent >= 0)
    return isinstance(known, int) and bool(known)


def _compare(name: str) -> Callable[[Any, Any], bool | None]:
    """Comparison of two extents; None where it depends on the symbols."""

    def decide(left: Any, right: Any) -> bool | None:
        if not isinstance(left, tvm.ir.Expr) and not isinstance(right, tvm.ir.Expr):
            return bool(getattr(np, name)(left, right))
        known = simplified(getattr(tirx, _COMPARISONS[name])(as_extent(left), as_extent(right)))
        return bool(known) if isinstance(known, int) else None

    return decide


_COMPARISONS = {"equal": "EQ", "less": "LT", "greater": "GT"}

_PAIRWISE: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": _quotient,
    "Mod": _remainder,
    "Min": smaller,
    "Max": larger,
    "Equal": _compare("equal"),
    "Less": _compare("less"),
    "Greater": _compare("greater"),
}


def _axis_list(node: Node, axes: np.ndarray | None) -> list[int] | None:
    if axes is not None:
        return None if is_symbolic(axes) else [int(axis) for axis in np.ravel(axes)]
    given = node.attr("axes")
    return None if given is None else [int(axis) for axis in given]


def _gather(node: Node, data: np.ndarray, indices: np.ndarray | None) -> np.ndarray | None:
    if indices is None or is_symbolic(indices):
        return None
    return np.asarray(np.take(data, indices.astype("int64"), node.attr("axis", 0)), object)


def _concat(node: Node, *parts: np.ndarray) -> np.ndarray:
    return np.concatenate([_as_objects(part) for part in parts], node.attr("axis"))


def _unsqueeze(node: Node, data: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray | None:
    along = _axis_list(node, axes)
    return None if along is None else np.expand_dims(data, tuple(along))


def _squeeze(node: Node, data: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray | None:
    along = _axis_list(node, axes)
    if along is None:
        return np.squeeze(data) if axes is None else None
    return np.squeeze(data, tuple(along))


def _reshape(_: Node, data: np.ndarray, shape: np.ndarray) -> np.ndarray | None:
    wanted = None if is_symbolic(shape) else [int(extent) for extent in shape]
    return None if wanted is None or 0 in wanted else data.reshape(wanted)


def _slice(node: Node, data: np.ndarray, *bounds: np.ndarray | None) -> np.ndarray | None:
    if node.opset < 10 or any(each is not None and is_symbolic(each) for each in bounds):
        return None
    starts, ends, axes, steps = ([*bounds, None, None])[:4]
    if starts is None or ends is None:
        return None
    count = starts.size
    along = range(count) if axes is None else [int(axis) for axis in axes]
    strides = [1] * count if steps is None else [int(step) for step in steps]
    box: list[Any] = [slice(None)] * data.ndim
    for axis, start, end, step in zip(along, starts, ends, strides):
        stop = None if step < 0 and int(end) < -(1 << 30) else int(end)
        box[axis] = slice(int(start), stop, step)
    return data[tuple(box)]


def _split(node: Node, data: np.ndarray, sizes: np.ndarray | None = None) -> Any:
    axis, parts = node.attr("axis", 0), len(node.proto.output)
    if sizes is None:
        return None if data.shape[axis] % parts else list(np.split(data, parts, axis))
    return None if is_symbolic(sizes) else np.split(data, np.cumsum(sizes)[:-1].tolist(), axis)


def _cast(node: Node, data: np.ndarray) -> np.ndarray | None:
    from .model import tensor_dtype

    dtype = tensor_dtype(node.attr("to"), "the result of Cast")
    return data if dtype in ("int64", "int32") else None


def _product(node: Node, data: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray | None:
    along = _axis_list(node, axes)
    if data.ndim != 1 or along not in (None, [0], [-1]):
        return None
    whole = _as_array(functools.reduce(operator.mul, _as_objects(data), 1))
    return whole.reshape(1) if node.attr("keepdims", 1) else whole


def _where(_: Node, condition: np.ndarray, yes: np.ndarray, no: np.ndarray) -> np.ndarray | None:
    if is_symbolic(condition):
        return None
    return np.where(condition.astype(bool), _as_objects(yes), _as_objects(no))


def _range(_: Node, *bounds: np.ndarray) -> np.ndarray | None:
    if any(is_symbolic(each) for each in bounds):
        return None
    return np.arange(*(int(np.ravel(each)[0]) for each in bounds)).astype(object)


def _expand(_: Node, data: np.ndarray, shape: np.ndarray) -> np.ndarray | None:
    if is_symbolic(shape):
        return None
    wanted = np.broadcast_shapes(data.shape, tuple(int(extent) for extent in shape))
    return np.broadcast_to(data, wanted)


_RULES: dict[str, Callable[..., Any]] = {
    "Cast": _cast,
    "Concat": _concat,
    "Expand": _expand,
    "Gather": _gather,
    "Identity": lambda _, data: data,
    "Neg": lambda _, data: _as_array(-_as_objects(data)),
    "Range": _range,
    "ReduceProd": _product,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
