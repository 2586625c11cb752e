"""Operators that only numpy's interface of MXNet 2.0 records."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from compiler.errors import FrontendError
from compiler.ir.constants import constant, dtype_of

from ..node import SymbolNode
from . import elementwise

op = relax.op
Converter = Callable[[SymbolNode], Any]


def _floor_divide(a: relax.Expr, b: relax.Expr) -> relax.Expr:
    if "float" in dtype_of(a):
        return op.floor(op.divide(a, b))
    return op.floor_divide(a, b)


def _bitwise(function: Callable[..., Any], logical: Callable[..., Any]) -> Converter:
    """Bit by bit; truth values by logic."""
    return lambda node: (logical if node.dtype(0) == "bool" else function)(node[0], node[1])


def _always(value: bool, function: Callable[..., Any]) -> Converter:
    """A test that integers need not be put to."""

    def convert(node: SymbolNode) -> relax.Expr:
        if "float" not in node.dtype(0):
            return constant(np.full(node.shape(0), value))
        return function(node[0])

    return convert


def dot(node: SymbolNode) -> relax.Expr:
    """numpy's dot: the last axis with the last but one, no broadcasting of the others."""
    left, right = node[0], node[1]
    a, b = node.shape(0), node.shape(1)
    if not a or not b:
        return op.multiply(left, right)
    if len(b) <= 2:
        return op.matmul(left, right)
    inner = len(b) - 2
    order = [inner, *(axis for axis in range(len(b)) if axis != inner)]
    turned = node.emit(op.permute_dims(right, order))
    flat = node.emit(op.reshape(turned, (b[inner], math.prod(b) // b[inner])))
    rows = op.reshape(left, (math.prod(a[:-1]), a[-1]))
    product = node.emit(op.matmul(node.emit(rows), flat))
    return op.reshape(product, (*a[:-1], *b[:inner], b[-1]))


def tensordot(node: SymbolNode) -> relax.Expr:
    a, b = node.shape(0), node.shape(1)
    left = [node.axis(axis, len(a)) for axis in node.integers("a_axes_summed", ())]
    right = [node.axis(axis, len(b)) for axis in node.integers("b_axes_summed", ())]
    if [a[axis] for axis in left] != [b[axis] for axis in right]:
        raise FrontendError(f"{node.describe()}: axes {left} of {a} against {right} of {b}")
    kept_a = [axis for axis in range(len(a)) if axis not in left]
    kept_b = [axis for axis in range(len(b)) if axis not in right]
    size = math.prod(a[axis] for axis in left)
    rows, columns = ([a[axis] for axis in kept_a], [b[axis] for axis in kept_b])
    first = node.emit(op.permute_dims(node[0], [*kept_a, *left])) if a else node[0]
    second = node.emit(op.permute_dims(node[1], [*right, *kept_b])) if b else node[1]
    first = node.emit(op.reshape(first, (math.prod(rows), size)))
    second = node.emit(op.reshape(second, (size, math.prod(columns))))
    return op.reshape(node.emit(op.matmul(first, second)), (*rows, *columns))


def einsum(node: SymbolNode) -> relax.Expr:
    return op.einsum(tuple(node.all()), node.text("subscripts").replace(" ", ""))


def _variance(node: SymbolNode) -> relax.Expr:
    """Variance with `ddof` degrees of freedom less."""
    rank = len(node.shape(0))
    axes = [node.axis(axis, rank) for axis in node.integers("axis", ())] or list(range(rank))
    keep = node.flag("keepdims", False)
    center = op.subtract(node[0], op.mean(node[0], axes, keepdims=True))
    deviation = node.emit(center)
    total = op.sum(op.multiply(deviation, deviation), axes, keepdims=keep)
    count = math.prod(node.shape(0)[axis] for axis in axes) - node.integer("ddof", 0)
    return op.divide(node.emit(total), node.scalar(float(max(count, 0))))


def _truth_reduction(function: Callable[..., Any], name: str) -> Converter:
    """Whether any, or all, are true: the maximum, or minimum, of 0 and 1."""

    def convert(node: SymbolNode) -> relax.Expr:
        rank = len(node.shape(0))
        axes = [node.axis(axis, rank) for axis in node.integers("axis", ())] or list(range(rank))
        data = node[0]
        if node.dtype(0) != "bool":
            data = op.not_equal(data, node.scalar(0))
        whole = op.astype(node.emit(data), "int8")
        result = function(node.emit(whole), axes, keepdims=node.flag("keepdims", False))
        return op.astype(node.emit(result), "bool")

    convert.__doc__ = f"numpy's {name}."
    return convert


def cumsum(node: SymbolNode) -> relax.Expr:
    """Running sums along an axis, or over the flattened array."""
    axis = node.integer("axis", None)
    data = node[0]
    if axis is None:
        data, axis = node.emit(op.reshape(data, (-1,))), 0
    else:
        axis = node.axis(axis, len(node.shape(0)))
    return op.cumsum(data, axis, node.dtype_attr(node.dtype(0)))


def _triangle(function: Callable[..., Any]) -> Converter:
    return lambda node: function(node[0], node.integer("k", 0))


def diagonal(node: SymbolNode) -> relax.Expr:
    """The k-th diagonal of a matrix, or a matrix with the input on its diagonal."""
    shape, offset = node.shape(0), node.integer("k", 0)
    if len(shape) == 1:
        size = shape[0] + abs(offset)
        here = np.eye(size, k=offset, dtype=bool)
        index = np.where(here, np.arange(size)[:, None] + min(offset, 0), 0).clip(0, shape[0] - 1)
        spread = node.emit(op.take(node[0], constant(index.astype("int32")), 0))
        return op.where(constant(here), spread, node.scalar(0.0))
    if len(shape) != 2:
        raise node.unsupported(f"data of shape {shape}")
    flat = op.reshape(node[0], (-1,))
    found = np.arange(shape[0] * shape[1]).reshape(shape).diagonal(offset)
    return op.take(node.emit(flat), constant(found.astype("int32")), 0)


def eye(node: SymbolNode) -> relax.Expr:
    """1 on the k-th diagonal, 0 elsewhere."""
    rows = node.integer("N")
    columns = node.integer("M", None)
    values = np.eye(rows, columns, node.integer("k", 0), node.dtype_attr("float32"))
    return constant(values)


def linspace(node: SymbolNode) -> relax.Expr:
    """Evenly spaced numbers between two."""
    values = np.linspace(
        node.number("start"), node.number("stop"), node.integer("num"),
        node.flag("endpoint", True),
    )  # fmt: skip
    return constant(values.astype(node.dtype_attr("float32")))


def roll(node: SymbolNode) -> relax.Expr:
    """Elements moved along an axis, those that leave come in at the other end."""
    shape = node.shape(0)
    axis = node.axis(node.integer("axis"), len(shape))
    positions = np.roll(np.arange(shape[axis]), node.integer("shift"))
    return op.take(node[0], constant(positions.astype("int32")), axis)


def around(node: SymbolNode) -> relax.Expr:
    """Halves go to even digits, at the given number of decimals."""
    decimals = node.integer("decimals", 0)
    if "float" not in node.dtype(0):
        if decimals < 0:
            raise node.unsupported(f"decimals {decimals} of integers")
        return node[0]
    if decimals == 0:
        return op.round(node[0])
    unit = node.scalar(10.0**decimals)
    return op.divide(op.round(node.emit(op.multiply(node[0], unit))), unit)


_FLOAT = ("log1p", "expm1", "log2", "log10", "cbrt", "reciprocal", "degrees", "radians")

CONVERTERS: dict[str, Converter] = {
    **{f"_npi_{name}": elementwise.CONVERTERS[name] for name in _FLOAT},
    "_npi_rint": lambda node: op.round(node[0]) if "float" in node.dtype(0) else node[0],
    "_npi_around": around,
    "_npi_isnan": _always(False, op.isnan),
    "_npi_isinf": _always(False, op.isinf),
    "_npi_isfinite": _always(True, op.isfinite),
    **{
        f"_npi_{name}": elementwise.binary(function)
        for name, function in (
            ("floor_divide", _floor_divide),
            ("arctan2", op.atan2),
            ("hypot", elementwise.BINARY["hypot"]),
        )
    },
    **{
        f"_npi_{name}_scalar": elementwise.scalar(function, reverse)
        for name, function, reverse in (
            ("floor_divide", _floor_divide, False),
            ("rfloor_divide", _floor_divide, True),
            ("arctan2", op.atan2, False),
            ("rarctan2", op.atan2, True),
            ("hypot", elementwise.BINARY["hypot"], False),
        )
    },
    "_npi_bitwise_and": _bitwise(op.bitwise_and, op.logical_and),
    "_npi_bitwise_or": _bitwise(op.bitwise_or, op.logical_or),
    "_npi_bitwise_xor": _bitwise(op.bitwise_xor, op.logical_xor),
    **dict.fromkeys(("_np_dot", "_npi_dot"), dot),
    "_npi_tensordot": tensordot,
    "_npi_einsum": einsum,
    "_npi_var": _variance,
    "_npi_std": lambda node: op.sqrt(_variance(node)),
    "_npi_any": _truth_reduction(op.max, "any"),
    "_npi_all": _truth_reduction(op.min, "all"),
    "_npi_cumsum": cumsum,
    "_npi_tril": _triangle(op.tril),
    "_npi_triu": _triangle(op.triu),
    "_npi_diag": diagonal,
    "_npi_eye": eye,
    "_npi_linspace": linspace,
    "_npi_roll": roll,
}
