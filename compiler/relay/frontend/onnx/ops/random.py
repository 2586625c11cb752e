"""Operators that draw random numbers: those of `relay.random`, from a key fixed at import.

A library draws the same numbers in every run. A node without a seed has one made of its first
output's name, so that nodes differ and an import can be repeated.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax

from compiler.relay.op import random

from ..node import Node, constant_value


def _key(node: Node) -> relax.Expr:
    seed = node.attr("seed")
    if seed is None:
        return random.threefry_key(zlib.crc32(node.proto.output[0].encode()))
    whole = float(seed).is_integer() and seed >= 0
    return random.threefry_key(int(seed) if whole else int(np.float32(seed).view("uint32")))


def _dtype(node: Node, default: str) -> str:
    from ..model import tensor_dtype

    target = node.attr("dtype")
    return default if target is None else tensor_dtype(target, "the result")


def _drawn(node: Node, made: Any) -> relax.Expr:
    """The numbers, of the next key and them."""
    return node.emit(made[1])


Draw = Callable[..., Any]


def _uniform(node: Node, shape: Sequence[Any], dtype: str) -> relax.Expr:
    low, high = node.attr("low", 0.0), node.attr("high", 1.0)
    return _drawn(node, random.uniform(_key(node), shape, dtype, low, high))


def _normal(node: Node, shape: Sequence[Any], dtype: str) -> relax.Expr:
    mean, scale = node.attr("mean", 0.0), node.attr("scale", 1.0)
    return _drawn(node, random.normal(_key(node), shape, dtype, mean, scale))


def _of_shape(draw: Draw) -> Callable[[Node], relax.Expr]:
    return lambda node: draw(node, node.required("shape"), _dtype(node, "float32"))


def _like(draw: Draw) -> Callable[[Node], relax.Expr]:
    return lambda node: draw(node, node.extents(0), _dtype(node, node.dtype(0)))


def bernoulli(node: Node) -> relax.Expr:
    """1 with the probability that the operand has there, else 0."""
    values = _drawn(node, random.uniform(_key(node), node.extents(0), node.dtype(0)))
    return relax.op.astype(relax.op.less(values, node[0]), _dtype(node, node.dtype(0)))


def multinomial(node: Node) -> relax.Expr:
    """Classes drawn with the probabilities whose logarithms, up to a constant, a row has."""
    shares = node.emit(relax.op.nn.softmax(node[0], -1))
    drawn = _drawn(node, random.multinomial(_key(node), shares, node.attr("sample_size", 1)))
    return relax.op.astype(drawn, _dtype(node, "int32"))


def dropout(node: Node) -> list[relax.Expr]:
    """The operand and a mask of ones, of zeros before opset 12; in training some are dropped.

    Whether it is training, and the share that is dropped, may be told by running.
    """
    training = constant_value(node.get(2)) if node.get(2) is not None else np.array(False)
    ratio = constant_value(node.get(1)) if node.get(1) is not None else np.array(0.5)
    never = training is not None and not bool(training)
    if not never and (ratio is None or float(ratio) != 0.0):
        return _dropped(node)
    outputs = [node[0]]
    if any(node.proto.output[1:]):
        dtype = "bool" if node.opset >= 10 else node.dtype(0)
        kept = relax.const(node.opset >= 12, dtype)
        outputs.append(relax.op.full(node.extents(0), kept, dtype))
    return outputs


def _dropped(node: Node) -> list[relax.Expr]:
    """Elements dropped by chance while it is training, the others scaled to make up for them."""
    data, kind = node[0], node.dtype(0)
    share = relax.const(0.5, "float32")
    if node.get(1) is not None:
        share = node.emit(relax.op.reshape(relax.op.astype(node[1], "float32"), []))
    training = node.emit(relax.op.reshape(node[2], []))
    drawn = _drawn(node, random.uniform(_key(node), node.extents(0), "float32"))
    kept = relax.op.logical_or(relax.op.greater_equal(drawn, share), relax.op.logical_not(training))
    kept = node.emit(kept)
    one = relax.const(1.0, "float32")
    factor = relax.op.where(training, relax.op.divide(one, relax.op.subtract(one, share)), one)
    scaled = relax.op.multiply(data, relax.op.astype(node.emit(factor), kind))
    return [relax.op.where(kept, node.emit(scaled), relax.const(0.0, kind)), kept]


CONVERTERS = {
    "Bernoulli": bernoulli,
    "Dropout": dropout,
    "Multinomial": multinomial,
    "RandomNormal": _of_shape(_normal),
    "RandomNormalLike": _like(_normal),
    "RandomUniform": _of_shape(_uniform),
    "RandomUniformLike": _like(_uniform),
}
