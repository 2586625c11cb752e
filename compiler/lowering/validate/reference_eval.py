"""Numpy evaluation of sampled elements of a plan's results, in double precision.

A check needs no more elements. A record of another compute, or a weight packed in another order,
gives wrong numbers nearly everywhere. Errors at partial tiles are at an end of some axis. Compiler
bugs in one lane or loop step repeat along the axis. So the sample has every index of each axis of
up to `MOST` elements, both ends of longer axes, all corners of the result, and random others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

FEWEST, MOST = 256, 512
_EDGE = 32  # places at either end of an axis longer than the sample
_WHOLE = 4096  # results of at most this number of elements are evaluated as a whole
_AT_ONCE = 1 << 21  # steps of a reduction that are evaluated in one go

Array = np.ndarray
Expr = Sequence[Any]


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=["float64"])(x) if np.size(x) else np.asarray(x)


def _fdiv(a: Array, b: Array) -> Array:
    return np.floor_divide(a, np.where(b == 0, 1, b))


def _fmod(a: Array, b: Array) -> Array:
    return np.mod(a, np.where(b == 0, 1, b))


def _truncdiv(a: Array, b: Array) -> Array:
    if np.issubdtype(np.result_type(a, b), np.floating):
        return np.divide(a, b)
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(np.where(b == 0, 1, b)))


def _round(x: Array) -> Array:
    return np.trunc(x + np.copysign(0.5, x))


OPERATORS: Mapping[str, Callable[..., Array]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": _truncdiv,
    "FloorDiv": _fdiv, "FloorMod": _fmod, "Min": np.minimum, "Max": np.maximum,
    "EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal,
    "GT": np.greater, "GE": np.greater_equal, "And": np.logical_and, "Or": np.logical_or,
    "Not": np.logical_not, "if_then_else": np.where, "likely": np.asarray,
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "erf": _erf, "fabs": np.abs,
    "pow": np.power, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": _round,
    "nearbyint": np.rint, "sin": np.sin, "cos": np.cos, "atan": np.arctan, "exp2": np.exp2,
    "log2": np.log2, "isnan": np.isnan, "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor, "shift_left": np.left_shift,
    "shift_right": np.right_shift,
}  # fmt: skip
COMBINERS: Mapping[str, np.ufunc] = {
    "Add": np.add, "Max": np.maximum, "Min": np.minimum, "Mul": np.multiply,
}  # fmt: skip


def wider(dtype: str) -> str:
    """The type in which numbers of a TVM data type are computed here."""
    return "float64" if dtype.startswith(("float", "bfloat")) else dtype


def places(shape: Sequence[int], seed: int = 0) -> tuple[Array, ...]:
    """Indices of the sampled elements of a tensor, one array for each axis."""
    if math.prod(shape) <= _WHOLE:
        return tuple(axis.ravel() for axis in np.indices(shape)) if shape else ()
    rng = np.random.default_rng(seed)
    count = min(max(FEWEST, *shape), MOST)
    columns = []
    for extent in shape:
        if extent <= count:
            column = np.arange(count) % extent
        else:
            edges = np.r_[np.arange(_EDGE), np.arange(extent - _EDGE, extent)]
            column = np.r_[edges, rng.integers(0, extent, count - len(edges))]
        columns.append(rng.permutation(column))
    corners = np.array([*itertools.product(*({0, extent - 1} for extent in shape))]).T
    return tuple(np.r_[column, corner] for column, corner in zip(columns, corners))


def evaluate(
    plan: Mapping[str, Any], inputs: Sequence[Array], at: Mapping[int, tuple[Array, ...]]
) -> dict[int, Array]:
    """Elements of results, by their number among the tensors, `at` the wanted indices."""
    evaluator = _Evaluator(plan, inputs)
    with np.errstate(all="ignore"):
        return {tensor: evaluator.elements(tensor, indices) for tensor, indices in at.items()}


class _Evaluator:
    def __init__(self, plan: Mapping[str, Any], inputs: Sequence[Array]) -> None:
        self.tensors = plan["tensors"]
        self.stages = {stage["tensor"]: stage for stage in plan["stages"]}
        self.whole: dict[int, Array] = {
            number: values.astype(wider(self.tensors[number]["dtype"]), copy=False)
            for number, values in enumerate(inputs)
        }

    def elements(self, tensor: int, indices: Sequence[Array]) -> Array:
        """Elements of any tensor; a stage that is wanted more than once over is kept whole."""
        shape = self.tensors[tensor]["shape"]
        shapes = np.broadcast_shapes(*(np.shape(index) for index in indices))
        if tensor not in self.whole and math.prod(shapes) >= math.prod(shape):
            self.whole[tensor] = self._stage(tensor, tuple(_axes(shape, 0, len(shape))), shape)
        if tensor not in self.whole:
            return self._stage(tensor, tuple(indices), shapes)
        # Padding is read only where a condition holds; what is read elsewhere is not used.
        inside = [np.clip(index, 0, extent - 1) for index, extent in zip(indices, shape)]
        return self.whole[tensor][tuple(inside)]

    def _stage(self, tensor: int, indices: tuple[Array, ...], shape: Sequence[int]) -> Array:
        """Elements of a computed tensor at places of the given shape."""
        stage = self.stages[tensor]
        dtype = wider(self.tensors[tensor]["dtype"])
        summed = stage["extents"][stage["spatial"] :]
        if not summed:
            values = self._value(stage["value"], indices)
            return np.broadcast_to(np.asarray(values).astype(dtype, copy=False), tuple(shape))
        flat = [np.broadcast_to(index, tuple(shape)).ravel() for index in indices]
        count, steps = math.prod(shape), math.prod(summed)
        own = _axes(summed, 1, 1 + len(summed))
        combine = COMBINERS[stage["combine"]]
        parts = []
        chunk = max(1, _AT_ONCE // steps)
        for start in range(0, count, chunk):
            here = [index[start : start + chunk].reshape(-1, *[1] * len(summed)) for index in flat]
            size = min(chunk, count - start)
            values = np.broadcast_to(self._value(stage["value"], (*here, *own)), (size, *summed))
            parts.append(combine.reduce(values.reshape(size, steps), axis=1, dtype=dtype))
        reduced = np.concatenate(parts)
        init = np.broadcast_to(self._value(stage["init"], tuple(flat)), reduced.shape)
        return combine(reduced, init).astype(dtype, copy=False).reshape(tuple(shape))

    def _value(self, expr: Expr, axes: tuple[Array, ...]) -> Any:
        kind = expr[0]
        if kind == "axis":
            return axes[expr[1]]
        if kind == "int":
            return np.asarray(expr[2], expr[1])
        if kind == "float":
            return np.asarray(expr[1], "float64")
        if kind == "load":
            return self.elements(expr[1], [self._value(index, axes) for index in expr[2]])
        if kind == "cast":
            return np.asarray(self._value(expr[2], axes)).astype(wider(expr[1]))
        operands = [self._value(operand, axes) for operand in expr[2:]]
        return np.asarray(OPERATORS[kind](*operands)).astype(wider(expr[1]), copy=False)


def _axes(extents: Sequence[int], first: int, rank: int) -> list[Array]:
    """Index arrays of axes that broadcast against each other, from dimension `first` on."""
    return [
        np.arange(extent).reshape([-1 if dim == first + number else 1 for dim in range(rank)])
        for number, extent in enumerate(extents)
    ]
