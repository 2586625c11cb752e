"""Arithmetic on symbolic extents: arrays of integers and TIR expressions.

Exporters compute shapes with nodes: Shape, Gather, Concat, Div. This module evaluates them on
symbols, so that later operators know the shapes.
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
from compiler.ir.op_facts import BINARY, CONCAT, PREDICATE, facts_of
from compiler.relay.op.shapes import joined_extents, joint_shape, proven_joint, same_extent

from .evaluate import evaluate as evaluate_constants

if TYPE_CHECKING:
    from .node import Node

LARGEST = 64
"""Elements of the largest array that is computed on symbols."""


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
    if kind in (*_PAIRWISE, "Div") and len(operands) == 2 and _are_integers(operands):
        left, right = (_as_objects(each) for each in operands)
        if max(left.size, right.size) > LARGEST:
            return None
        quotient = functools.partial(_quotient, node.importer.is_natural)
        rule = quotient if kind == "Div" else _PAIRWISE[kind]
        made = np.frompyfunc(rule, 2, 1)(left, right)
        return None if any(each is None for each in np.ravel(made)) else [_as_array(made)]
    if operands[0] is None or not _are_integers(operands):
        return None
    if kind in _RULES:
        result = _RULES[kind](node, *operands)
        results = None if result is None else [result]
    else:
        results = _move(node, operands) if kind in MOVED else None
    return None if results is None or sum(each.size for each in results) > LARGEST else results


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


def _quotient(is_natural: Callable[[Any], bool], left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        return None if right == 0 else int(left / right) if abs(left) < 1 << 52 else left // right
    if isinstance(right, int) and right > 0 and is_natural(left):
        return tirx.floordiv(left, right)
    return tirx.truncdiv(left, right)


def _remainder(left: Any, right: Any) -> Any:
    if isinstance(right, int) and right == 0:
        return None
    both = isinstance(left, int) and isinstance(right, int)
    return left % right if both else tirx.floormod(left, right)


def _extreme(of_numbers: Callable[..., int], of_extents: Callable[..., Any]) -> Callable[..., Any]:
    """The minimum or maximum of two extents."""

    def choose(left: Any, right: Any) -> Any:
        both = isinstance(left, int) and isinstance(right, int)
        return of_numbers(left, right) if both else simplified(of_extents(left, right))

    return choose


def named_extents(known: Sequence[Any]) -> list[Any]:
    """Replace each None in a shape by a new symbolic dimension."""
    return [
        tirx.Var(f"extent_{axis}", "int64") if each is None else as_extent(each)
        for axis, each in enumerate(known)
    ]


def joint_extents(shapes: Sequence[Sequence[Any]]) -> list[Any]:
    """Common broadcast shape; None for an extent that is known only at run time.

    None among the given extents means the same.
    """
    rank = max(map(len, shapes))
    padded = [[1] * (rank - len(shape)) + list(shape) for shape in shapes]
    return [_joint_extent(every) for every in zip(*padded)]


def _joint_extent(every: Sequence[Any]) -> Any:
    others = [each for each in every if each is None or not same_extent(each, 1)]
    known = next((each for each in others if isinstance(each, int)), None)
    if known is not None or not others:
        return 1 if known is None else known
    if any(each is None for each in others):
        return None
    return functools.reduce(lambda a, b: a if a is None else proven_joint(a, b), others)


def result_extents(call: relax.Expr) -> list[Any] | None:
    """Extents of a concatenation whose shape TVM does not infer; None for those known only at run
    time, and for other calls."""
    shapes = _shapes(call) if facts_of(call).kind == CONCAT else None
    if shapes is None or len({len(shape) for shape in shapes}) > 1:
        return None
    return joined_extents(shapes, int(call.attrs.axis) % len(shapes[0]))


def broadcast_shapes(call: relax.Expr) -> list[list[Any]] | None:
    """Shapes to which the operands of a call broadcast; None for calls that do not broadcast.

    Of matrix products, all axes but the last two broadcast.
    """
    facts = facts_of(call)
    own = 2 if facts.name == "matmul" else 0
    broadcasts = own or facts.kind in (BINARY, PREDICATE) or facts.name == "where"
    shapes = _shapes(call) if broadcasts else None
    if shapes is None or min(map(len, shapes)) < own:
        return None
    counts = [len(shape) - own for shape in shapes]
    joint = joint_shape([shape[:count] for shape, count in zip(shapes, counts)])
    return [[*joint, *shape[count:]] for shape, count in zip(shapes, counts)]


def _shapes(call: relax.Expr) -> list[list[Any]] | None:
    operands = list(call.args) if isinstance(call, tvm.ir.Call) else []
    if len(operands) == 1 and isinstance(operands[0], relax.Tuple):
        operands = list(operands[0].fields)
    shapes = [shape_of(each) for each in operands]
    known = [shape for shape in shapes if shape is not None]
    return known if operands and len(known) == len(shapes) else None


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
    "Mod": _remainder,
    "Min": _extreme(min, tirx.min),
    "Max": _extreme(max, tirx.max),
    "Equal": _compare("equal"),
    "Less": _compare("less"),
    "Greater": _compare("greater"),
}


def _move(node: Node, operands: Sequence[np.ndarray | None]) -> list[np.ndarray] | None:
    """The results of an operator that moves elements: ONNX's evaluator moves their numbers."""
    elements: list[Any] = []
    numbers: list[np.ndarray | None] = []
    for index, operand in enumerate(operands):
        if operand is not None and index in MOVED[node.proto.op_type]:
            first = len(elements)
            elements += operand.ravel().tolist()
            operand = np.arange(first, len(elements)).reshape(operand.shape)
        elif operand is not None and operand.dtype == object:
            if is_symbolic(operand):
                return None
            operand = np.array(operand.tolist(), None if operand.size else "int64")
        numbers.append(operand)
    results = evaluate_constants(node.proto, node.opset, numbers)
    if results is None:
        return None
    table = np.empty(len(elements), object)
    table[:] = elements
    return [table[result.ravel()].reshape(result.shape) for result in results]


def _cast(node: Node, data: np.ndarray) -> np.ndarray | None:
    from .model import tensor_dtype

    dtype = tensor_dtype(node.attr("to"), "the result of Cast")
    return data if dtype in ("int64", "int32") else None


def _product(node: Node, data: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray | None:
    if axes is not None and is_symbolic(axes):
        return None
    along = node.attr("axes") if axes is None else axes.ravel().tolist()
    if data.ndim != 1 or (along is not None and list(along) not in ([0], [-1])):
        return None
    whole = _as_array(functools.reduce(operator.mul, _as_objects(data), 1))
    return whole.reshape(1) if node.attr("keepdims", 1) else whole


MOVED = {
    **dict.fromkeys(("Cast", "Expand", "Gather", "Identity", "Reshape"), range(1)),
    **dict.fromkeys(("Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"), range(1)),
    "Concat": range(LARGEST),
    "Where": range(1, 3),
}
"""Operators that move elements, and the operands whose elements they move."""

_RULES: dict[str, Callable[..., Any]] = {
    "Cast": _cast,
    "Neg": lambda _, data: _as_array(-_as_objects(data)),
    "ReduceProd": _product,
}
