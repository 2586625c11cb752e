"""`relay.random`: random numbers from explicit single-use keys.

The generator is Threefry-4x64 with 20 rounds (Salmon, Moraes, Dror and Shaw, "Parallel Random
Numbers: As Easy as 1, 2, 3", 2011). A key has ten words: four words of the cipher key, four counter
words, one bit that marks the split depth, and one unused word.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ...errors import RelayTypeError
from ...ir.dynamic_shape import as_extent, simplified
from ..ty import Any as AnyExtent
from ..type_infer import type_of
from .registry import builder, operator
from .shapes import Extent, dtype, extents, integers, shape_values, tuple_fields
from .te_op import kernel
from .transform import cast_to
from .typed_relax import op

_ROTATIONS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
_PARITY = 0x1BD11BDAA9FC1A22
_ROUNDS = 20
KEY_WORDS = 10
_TOP_BIT = 63


def _word(value: int) -> Any:
    return tirx.const(value, "uint64")


def _sequence() -> Any:
    """Scope of a kernel's statements: a builder accepts only one at its top level."""
    return T.serial(0, 1)


def _local(count: int) -> Any:
    return T.buffer_proxy(T.alloc_buffer((count,), "uint64", scope="local"))


def _encrypt(key: Sequence[Any], state: Any, schedule: Any) -> None:
    """Encrypt the four words of `state` in place; `schedule` is a buffer of five words."""
    parity: Any = _word(_PARITY)
    for index, word in enumerate(key):
        schedule[index] = word
        parity = parity ^ word
    schedule[4] = parity
    for index in range(4):
        state[index] = state[index] + schedule[index]
    order = [0, 1, 2, 3]
    for step in range(_ROUNDS):
        for half, bits in enumerate(_ROTATIONS[step % 8]):
            left, right = order[2 * half], order[2 * half + 1]
            state[left] = state[left] + state[right]
            turned = (state[right] << _word(bits)) | (state[right] >> _word(64 - bits))
            state[right] = turned ^ state[left]
        order = [order[0], order[3], order[2], order[1]]
        if step % 4 == 3:
            number = (step + 1) // 4
            for index in range(4):
                added = schedule[(number + index) % 5]
                if index == 3:
                    added = added + _word(number)
                state[order[index]] = state[order[index]] + added
    if order != [0, 1, 2, 3]:
        raise AssertionError("an even number of rounds leaves the words in order")


def _generate_compute(key: te.Tensor, counts: Sequence[Any]) -> list[te.Tensor]:
    """Advance the key's counter and generate that many blocks of four random words."""
    (count,) = counts

    def build(ins: Any, outs: Any) -> Any:
        with IRBuilder() as builder:
            with _sequence():
                given = T.buffer_proxy(ins[0])
                moved, words = (T.buffer_proxy(each) for each in outs)
                with T.serial(0, KEY_WORDS) as index:
                    moved[index] = given[index]
                moved[7] = moved[7] + tirx.Cast("uint64", count)
                state, schedule = _local(4), _local(5)
                with T.serial(0, count) as block:
                    for index in range(4):
                        state[index] = given[4 + index]
                    state[3] = state[3] + tirx.Cast("uint64", block)
                    _encrypt([given[index] for index in range(4)], state, schedule)
                    for index in range(4):
                        words[block * 4 + index] = state[index]
            return builder.get()

    return te.extern(
        [(KEY_WORDS,), (4 * count,)],
        [key],
        build,
        dtype=["uint64", "uint64"],
        name="threefry_generate",
    )


def _split_compute(key: te.Tensor) -> list[te.Tensor]:
    """Split a key: one bit of the counter's first word per split, until all bits are used."""

    def build(ins: Any, outs: Any) -> Any:
        with IRBuilder() as builder:
            with _sequence():
                given = T.buffer_proxy(ins[0])
                sides = [T.buffer_proxy(each) for each in outs]
                state, schedule = _local(4), _local(5)
                for side, made in enumerate(sides):
                    with T.serial(0, KEY_WORDS) as index:
                        made[index] = given[index]
                    if side:
                        made[4] = made[4] | given[8]
                    made[8] = given[8] >> _word(1)
                    with T.If(made[8] == _word(0)), T.Then():
                        for index in range(4):
                            state[index] = made[4 + index]
                        _encrypt([given[index] for index in range(4)], state, schedule)
                        for index in range(4):
                            made[index] = state[index]
                            made[4 + index] = _word(0)
                        made[8] = _word(1) << _word(_TOP_BIT)
            return builder.get()

    shapes = [(KEY_WORDS,), (KEY_WORDS,)]
    return te.extern(shapes, [key], build, dtype=["uint64", "uint64"], name="threefry_split")


_generate_kernel = kernel("random.threefry_generate", _generate_compute)
_split_kernel = kernel("random.threefry_split", _split_compute)


def _fractions_compute(words: te.Tensor, shape: Sequence[Any], dtype: str) -> te.Tensor:
    """Convert the high bits of the first words to floats in [0, 1)."""
    bits = {"float64": 52, "float16": 10}.get(dtype, 23)
    wide = "float64" if dtype == "float64" else "float32"
    scale = tirx.const(2.0**-bits, wide)

    def value(*where: Any) -> Any:
        at: Any = 0
        for extent, index in zip(shape, where):
            at = at * extent + index
        return ((words(at) >> _word(64 - bits)).astype(wide) * scale).astype(dtype)

    return te.compute(shape, value, name="fractions", tag=topi.tag.INJECTIVE)


_fractions_kernel = kernel("random.fractions", _fractions_compute)


@builder("random.threefry_key")
def threefry_key(seed: int) -> relax.Expr:
    """Create a key from a seed of up to 256 bits."""
    words = np.zeros(KEY_WORDS, "uint64")
    for index in range(4):
        words[index] = (int(seed) >> (64 * index)) & (2**64 - 1)
    words[8] = 1 << _TOP_BIT
    return relax.const(words, "uint64")


def _checked_key(key: relax.Expr) -> relax.Expr:
    if dtype(key) != "uint64" or extents(key) != [KEY_WORDS]:
        raise RelayTypeError(f"argument key of type {type_of(key)} must be uint64[{KEY_WORDS}]")
    return key


def _sizes(shape: Any) -> list[Extent]:
    """Extents of the result, which may be symbolic."""
    sizes = shape_values(shape)
    if isinstance(sizes, relax.Expr) or any(isinstance(each, AnyExtent) for each in sizes):
        raise RelayTypeError(f"shape {shape} of random numbers must be numbers or named symbols")
    return sizes


def _words(key: relax.Expr, count: Extent) -> tuple[relax.Expr, relax.Expr]:
    """Next key and at least `count` random words."""
    blocks = simplified(tirx.max(as_extent(count + 3) // 4, 1))
    made = _generate_kernel(_checked_key(key), relax.ShapeExpr([blocks]))
    following, words = tuple_fields(made)
    return following, words


def _fractions(
    key: relax.Expr, name: str, shape: Sequence[Extent]
) -> tuple[relax.Expr, relax.Expr]:
    following, words = _words(key, math.prod(shape))
    return following, _fractions_kernel(words, relax.ShapeExpr(list(shape)), dtype=name)


@operator("random.threefry_generate", wraps=True, renamed={"out_shape": "shape"}, how="TE")
def threefry_generate(key: relax.Expr, shape: Any) -> relax.Expr:
    """Next key and random 64-bit words."""
    size, count = integers(shape), math.prod(integers(shape))
    following, words = _words(key, count)
    words = op.strided_slice(words, [0], [0], [count], [1])
    return relax.Tuple([following, op.reshape(words, size)])


@operator("random.threefry_split", wraps=True, how="TE")
def threefry_split(key: relax.Expr) -> relax.Expr:
    """Split a key into two keys with independent streams."""
    return _split_kernel(_checked_key(key))


def _number(value: Any, name: str) -> relax.Expr:
    return cast_to(value, name) if isinstance(value, relax.Expr) else relax.const(value, name)


_RENAMED = {"out_shape": "shape", "out_dtype": "dtype"}


@operator("random.uniform", ["key", "low", "high"], wraps=True, renamed=_RENAMED, how="TE")
def uniform(
    key: relax.Expr, shape: Any, dtype: str = "float32", low: Any = 0.0, high: Any = 1.0
) -> relax.Expr:
    """Next key and uniformly distributed numbers in [low, high)."""
    following, values = _fractions(key, name := dtype or "float32", _sizes(shape))
    bounds = [_number(bound, name) for bound in (low, high)]
    span = op.subtract(bounds[1], bounds[0])
    return relax.Tuple([following, op.add(op.multiply(values, span), bounds[0])])


@operator("random.normal", ["key", "mean", "scale"], wraps=True, renamed=_RENAMED, how="TE")
def normal(
    key: relax.Expr, shape: Any, dtype: str = "float32", mean: Any = 0.0, scale: Any = 1.0
) -> relax.Expr:
    """Next key and normally distributed numbers (Box and Muller, 1958)."""
    following, values = _fractions(key, name := dtype or "float32", [2, *_sizes(shape)])
    first, second = (
        op.squeeze(op.strided_slice(values, [0], [at], [at + 1], [1]), [0]) for at in range(2)
    )
    rest = op.subtract(relax.const(1.0, name), first)
    radius = op.sqrt(op.multiply(op.log(rest), relax.const(-2.0, name)))
    angle = op.multiply(second, relax.const(2 * math.pi, name))
    scaled = op.multiply(op.multiply(radius, op.cos(angle)), _number(scale, name))
    return relax.Tuple([following, op.add(scaled, _number(mean, name))])


def _choose_compute(shares: te.Tensor, fractions: te.Tensor) -> te.Tensor:
    """Inverse CDF: count the cumulative probabilities up to each fraction of their total."""
    classes = shares.shape[-1]
    at = te.reduce_axis((0, classes), "at")

    def value(*where: Any) -> Any:
        row = where[:-1]
        reached = shares(*row, at) <= fractions(*where) * shares(*row, classes - 1)
        return te.sum(reached.astype("int32"), axis=at)

    return te.compute(fractions.shape, value, name="choose")


_choose_kernel = kernel("random.choose", _choose_compute)


@operator("random.multinomial", 2, wraps=True, defaults={"num_samples": 1}, how="TE")
def multinomial(key: relax.Expr, probs: relax.Expr, num_samples: int) -> relax.Expr:
    """Next key and classes sampled with the given probabilities along the last axis.

    Negative probabilities count as 0.
    """
    lead = extents(probs)[:-1]
    following, fractions = _fractions(key, "float32", [*lead, int(num_samples)])
    weights = op.maximum(cast_to(probs, "float32"), relax.const(0.0, "float32"))
    shares = op.cumsum(weights, len(lead))
    return relax.Tuple([following, _choose_kernel(shares, fractions)])
