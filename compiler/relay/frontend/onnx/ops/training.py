"""Steps of optimizers, each for any number of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tvm import relax

from ..node import Node

op = relax.op


class _Step(NamedTuple):
    """The node, the rate, the count of updates, a tensor and its gradient."""

    node: Node
    rate: relax.Expr
    updates: relax.Expr
    tensor: relax.Expr
    gradient: relax.Expr


def _optimizer(
    kept: int, update: Callable[..., tuple[relax.Expr, ...]]
) -> Callable[[Node], list[relax.Expr]]:
    """A converter: after rate and count come the tensors, their gradients, and what is kept."""

    def convert(node: Node) -> list[relax.Expr]:
        count = (len(node.inputs) - 2) // (2 + kept)
        groups = [node.inputs[2 + i * count :][:count] for i in range(2 + kept)]
        updates = op.astype(op.reshape(node[1], []), node.dtype(0))
        rate, results = op.reshape(node[0], []), []
        for tensor, gradient, *history in zip(*groups, strict=True):
            regular = node.emit(
                op.add(op.multiply(_number(node, "norm_coefficient"), tensor), gradient)
            )
            results.append(update(_Step(node, rate, updates, tensor, regular), *history))
        return [node.emit(result) for column in zip(*results, strict=True) for result in column]

    return convert


def _number(node: Node, name: str, default: float = 0.0) -> relax.Expr:
    return relax.const(node.attr(name, default), node.dtype(0))


def _mixed(node: Node, name: str, default: float, old: relax.Expr, new: relax.Expr) -> relax.Expr:
    """The share `name` of what was, and the rest of what is new."""
    share = node.attr(name, default)
    rest = relax.const(1 - share, node.dtype(0))
    return node.emit(op.add(op.multiply(_number(node, name, default), old), op.multiply(rest, new)))


def _adagrad(step: _Step, squares: relax.Expr) -> tuple[relax.Expr, ...]:
    node, rate, updates, tensor, gradient = step
    one = relax.const(1.0, node.dtype(0))
    decayed = op.divide(rate, op.add(one, op.multiply(updates, _number(node, "decay_factor"))))
    summed = node.emit(op.add(squares, op.multiply(gradient, gradient)))
    adaptive = op.add(op.sqrt(summed), _number(node, "epsilon", 1e-6))
    return op.subtract(tensor, op.divide(op.multiply(decayed, gradient), adaptive)), summed


def _adam(step: _Step, mean: relax.Expr, square: relax.Expr) -> tuple[relax.Expr, ...]:
    node, rate, updates, tensor, gradient = step
    one = relax.const(1.0, node.dtype(0))
    mean = _mixed(node, "alpha", 0.9, mean, gradient)
    square = _mixed(node, "beta", 0.999, square, op.multiply(gradient, gradient))
    left = {
        name: op.subtract(one, op.power(_number(node, name, default), updates))
        for name, default in (("alpha", 0.9), ("beta", 0.999))
    }
    later = op.greater(updates, relax.const(0.0, node.dtype(0)))
    corrected = op.divide(op.multiply(rate, op.sqrt(left["beta"])), left["alpha"])
    rate = op.where(later, corrected, rate)
    root = op.add(op.sqrt(square), _number(node, "epsilon", 1e-6))
    moved = op.subtract(tensor, op.divide(op.multiply(rate, mean), root))
    shrunk = op.multiply(op.subtract(one, _number(node, "norm_coefficient_post")), moved)
    return shrunk, mean, square


def _momentum(step: _Step, velocity: relax.Expr) -> tuple[relax.Expr, ...]:
    node, rate, updates, tensor, gradient = step
    first = op.equal(updates, relax.const(0.0, node.dtype(0)))
    beta = op.where(first, relax.const(1.0, node.dtype(0)), _number(node, "beta"))
    alpha = _number(node, "alpha")
    velocity = node.emit(op.add(op.multiply(alpha, velocity), op.multiply(beta, gradient)))
    moved = velocity
    if node.attr("mode") == "nesterov":
        moved = op.add(gradient, op.multiply(alpha, velocity))
    return op.subtract(tensor, op.multiply(rate, moved)), velocity


CONVERTERS = {
    "Adagrad": _optimizer(1, _adagrad),
    "Adam": _optimizer(2, _adam),
    "Momentum": _optimizer(1, _momentum),
}
