"""Random Relax functions of data movement, arithmetic and reductions, with results in numpy.

Most of them fuse into one kernel or a few, whose indices are the composition of several
operators' index maps: what schedules, TVM's simplifiers and LLVM must get right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

MAX_ELEMENTS = 4096
MAX_MAGNITUDE = 1e3
EXTENTS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 33, 64)

Array = np.ndarray


class Chain:
    """A function `main` of one or two inputs, made of `steps` random operators.

    Attributes
    ----------
    mod : tvm.IRModule
    inputs : dict of str to float32 array
    expected : list of float32 array
        Results of `main`, one or two of them.
    operators : list of str
        What `main` consists of, for messages.
    """

    def __init__(self, random: Random, steps: int) -> None:
        self.random = random
        self.values = np.random.default_rng(0)
        self.builder = relax.BlockBuilder()
        self.operators: list[str] = []
        self.inputs: dict[str, Array] = {}
        self.live: list[tuple[Any, Array]] = []
        shape = self._shape()
        params = []
        for number in range(random.randint(1, 2)):
            params.append(relax.Var(f"x{number}", relax.TensorType(shape, "float32")))
            self.inputs[f"x{number}"] = self.values.normal(size=shape).astype("float32")
            self.live.append((params[-1], self.inputs[f"x{number}"]))
        with self.builder.function("main", params):
            with self.builder.dataflow():
                self._emit_steps(steps)
                results = self.live[-random.randint(1, 2) :]
                results = [pair for pair in results if pair[0] not in params]
                out = self.builder.emit_output(relax.Tuple([var for var, _ in results]))
            self.builder.emit_func_output(out)
        self.mod: tvm.IRModule = self.builder.get()
        self.expected = [array for _, array in results]

    def _shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = ()
        while not 4 <= math.prod(shape) <= MAX_ELEMENTS:
            shape = tuple(self.random.choices(EXTENTS, k=self.random.randint(1, 4)))
        return shape

    def _emit_steps(self, steps: int) -> None:
        while len(self.operators) < steps:
            var, array = self.random.choice(self.live[-3:])
            axis = self.random.randrange(array.ndim)
            self.random.choice(_STEPS)(self, var, array, axis)

    def emit(self, name: str, expression: Any, array: Array) -> None:
        """One more value, with what it must be."""
        if array.size > MAX_ELEMENTS or np.abs(array).max() > MAX_MAGNITUDE:
            return
        var = self.builder.emit(expression)
        assert tuple(map(int, var.ty.shape)) == array.shape, name
        self.operators.append(f"{name} -> {array.shape}")
        self.live.append((var, np.ascontiguousarray(array, dtype="float32")))

    def like(self, array: Array) -> tuple[Any, Array]:
        """A value of that shape."""
        return self.random.choice([pair for pair in self.live if pair[1].shape == array.shape])

    def halves(self, var: Any, array: Array, axis: int, at: int) -> Sequence[tuple[Any, Array]]:
        """The parts of a value before and behind `at`."""
        parts = self.builder.emit(op.split(var, [at], axis))
        return [
            (self.builder.emit(relax.TupleGetItem(parts, number)), part)
            for number, part in enumerate(np.split(array, [at], axis))
        ]


def _reshape(chain: Chain, var: Any, array: Array, axis: int) -> None:
    left, shape = array.size, []
    while left > 1 and len(shape) < 4:
        shape.append(chain.random.choice([d for d in range(1, left + 1) if left % d == 0]))
        left //= shape[-1]
    shape.append(left)
    chain.random.shuffle(shape)
    chain.emit("reshape", op.reshape(var, shape), array.reshape(shape))


def _transpose(chain: Chain, var: Any, array: Array, axis: int) -> None:
    order = list(range(array.ndim))
    chain.random.shuffle(order)
    chain.emit(f"transpose {order}", op.permute_dims(var, order), array.transpose(order))


def _split(chain: Chain, var: Any, array: Array, axis: int) -> None:
    if array.shape[axis] > 1:
        at = chain.random.randint(1, array.shape[axis] - 1)
        for part, values in chain.halves(var, array, axis, at):
            chain.emit(f"split {axis} at {at}", part, values)


def _concat(chain: Chain, var: Any, array: Array, axis: int) -> None:
    other, values = chain.like(array)
    result = np.concatenate([array, values], axis)
    chain.emit(f"concat {axis}", op.concat([var, other], axis), result)


def _rotate(chain: Chain, var: Any, array: Array, axis: int) -> None:
    """(a, b) -> (a c - b, b c + a), as rotary embeddings have it."""
    half, factor = array.shape[axis] // 2, np.float32(0.75)
    if array.shape[axis] % 2:
        return
    (a, x), (b, y) = chain.halves(var, array, axis, half)
    c = relax.const(factor)
    pair = [op.subtract(op.multiply(a, c), b), op.add(op.multiply(b, c), a)]
    result = np.concatenate([x * factor - y, y * factor + x], axis)
    chain.emit(f"rotate {axis}", op.concat(pair, axis), result)


def _slice(chain: Chain, var: Any, array: Array, axis: int) -> None:
    begin = chain.random.randrange(array.shape[axis])
    end = chain.random.randint(begin + 1, array.shape[axis])
    step = chain.random.choice([1, 1, 2, 3])
    part = op.strided_slice(var, [axis], [begin], [end], [step])
    result = np.take(array, range(begin, end, step), axis)
    chain.emit(f"slice {axis} {begin}:{end}:{step}", part, result)


def _pad(chain: Chain, var: Any, array: Array, axis: int) -> None:
    widths = [chain.random.choice([(0, 0), (1, 0), (0, 3), (2, 2)]) for _ in array.shape]
    padded = op.nn.pad(var, [width for pair in widths for width in pair], pad_value=0.5)
    chain.emit(f"pad {widths}", padded, np.pad(array, widths, constant_values=0.5))


def _flip(chain: Chain, var: Any, array: Array, axis: int) -> None:
    chain.emit(f"flip {axis}", op.flip(var, axis), np.flip(array, axis))


def _take(chain: Chain, var: Any, array: Array, axis: int) -> None:
    count = chain.random.randint(1, 8)
    rows = np.array([chain.random.randrange(array.shape[axis]) for _ in range(count)], "int64")
    taken = op.take(var, relax.const(rows), axis)
    chain.emit(f"take {axis} {rows}", taken, np.take(array, rows, axis))


def _repeat(chain: Chain, var: Any, array: Array, axis: int) -> None:
    chain.emit(f"repeat {axis}", op.repeat(var, 2, axis), np.repeat(array, 2, axis))


def _tile(chain: Chain, var: Any, array: Array, axis: int) -> None:
    times = [2 if index == axis else 1 for index in range(array.ndim)]
    chain.emit(f"tile {axis}", op.tile(var, times), np.tile(array, times))


def _unary(chain: Chain, var: Any, array: Array, axis: int) -> None:
    name, make, compute = chain.random.choice(
        [
            ("tanh", op.tanh, np.tanh),
            ("relu", op.nn.relu, lambda x: np.maximum(x, 0)),
            ("negative", op.negative, np.negative),
            ("abs", op.abs, np.abs),
        ]
    )
    chain.emit(name, make(var), compute(array))


def _binary(chain: Chain, var: Any, array: Array, axis: int) -> None:
    other, values = chain.like(array)
    name, make, compute = chain.random.choice(
        [
            ("add", op.add, np.add),
            ("multiply", op.multiply, np.multiply),
            ("maximum", op.maximum, np.maximum),
        ]
    )
    chain.emit(name, make(var, other), compute(array, values))


def _broadcast(chain: Chain, var: Any, array: Array, axis: int) -> None:
    shape = [extent if chain.random.randrange(2) else 1 for extent in array.shape][axis:]
    factor = chain.values.normal(size=shape).astype("float32")
    chain.emit(f"multiply {shape}", op.multiply(var, relax.const(factor)), array * factor)


def _where(chain: Chain, var: Any, array: Array, axis: int) -> None:
    other, values = chain.like(array)
    chosen = op.where(op.greater(var, relax.const(np.float32(0))), other, op.negative(var))
    chain.emit("where", chosen, np.where(array > 0, values, -array))


def _reduce(chain: Chain, var: Any, array: Array, axis: int) -> None:
    name, make, compute = chain.random.choice(
        [("mean", op.mean, np.mean), ("max", op.max, np.max), ("sum", op.sum, np.sum)]
    )
    keep = array.ndim == 1 or chain.random.randrange(2) == 0
    result = compute(array.astype("float64"), axis=axis, keepdims=keep)
    chain.emit(f"{name} {axis}", make(var, axis, keep), result)


def _softmax(chain: Chain, var: Any, array: Array, axis: int) -> None:
    powers = np.exp(array.astype("float64") - array.max(axis, keepdims=True))
    result = powers / powers.sum(axis, keepdims=True)
    chain.emit(f"softmax {axis}", op.nn.softmax(var, axis), result)


_MOVES: tuple[Callable[..., None], ...] = (
    *(_reshape, _transpose, _split, _concat, _rotate, _slice),
    *(_pad, _flip, _take, _repeat, _tile),
)
# Moves come twice: they make the indices.
_STEPS = (*_MOVES, *_MOVES, _unary, _binary, _broadcast, _where, _reduce, _softmax)
