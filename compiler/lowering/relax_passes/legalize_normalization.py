"""Normalizations of float64, which TVM's computes refuse."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax, te, topi

Legalize = Callable[[Any, relax.Call], relax.Expr]
Attributes = Any


def _normal(data: te.Tensor, axes: Sequence[int], epsilon: float) -> te.Tensor:
    """(x - mean) / sqrt(variance + epsilon) over these axes."""
    count = math.prod(int(data.shape[axis]) for axis in axes)
    mean = topi.divide(topi.sum(data, axes, keepdims=True), float(count))
    centered = topi.subtract(data, mean)
    squares = topi.sum(topi.multiply(centered, centered), axes, keepdims=True)
    return topi.multiply(
        centered, topi.rsqrt(topi.add(topi.divide(squares, float(count)), epsilon))
    )


def _scaled(data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, axes: Sequence[int]) -> te.Tensor:
    """x * gamma + beta; the vectors go along these axes."""
    along = [extent if i in axes else 1 for i, extent in enumerate(data.shape)]
    gamma, beta = (topi.reshape(each, along) for each in (gamma, beta))
    return topi.add(topi.multiply(data, gamma), beta)


def _axes(axes: Sequence[Any], rank: int) -> list[int]:
    return [int(axis) % rank for axis in axes]


def _layer_norm(data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, attrs: Attributes) -> te.Tensor:
    axes = _axes(attrs.axes, len(data.shape))
    return _scaled(_normal(data, axes, float(attrs.epsilon)), gamma, beta, axes)


def _instance_norm(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, attrs: Attributes
) -> te.Tensor:
    axes = _axes(attrs.axes, len(data.shape))
    channel = _axes([attrs.channel_axis], len(data.shape))
    return _scaled(_normal(data, axes, float(attrs.epsilon)), gamma, beta, channel)


def _group_norm(data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, attrs: Attributes) -> te.Tensor:
    shape, groups = list(data.shape), int(attrs.num_groups)
    (channel,) = _axes([attrs.channel_axis], len(shape))
    split = [*shape[:channel], groups, shape[channel] // groups, *shape[channel + 1 :]]
    others = [axis + (axis > channel) for axis in _axes(attrs.axes, len(shape))]
    normal = _normal(topi.reshape(data, split), [channel + 1, *others], float(attrs.epsilon))
    return _scaled(topi.reshape(normal, shape), gamma, beta, [channel])


def _of_doubles(name: str, compute: Callable[..., te.Tensor]) -> Legalize:
    def legalize(builder: Any, call: relax.Call) -> relax.Expr:
        if str(call.ty.dtype) != "float64":
            return tvm.ir.Op.get(name).get_attr("FLegalize")(builder, call)
        return builder.call_te(
            compute, *call.args, call.attrs, primfunc_name_hint=name.removeprefix("relax.nn.")
        )

    return legalize


LEGALIZE: dict[str, Legalize] = {
    name: _of_doubles(name, compute)
    for name, compute in (
        ("relax.nn.group_norm", _group_norm),
        ("relax.nn.instance_norm", _instance_norm),
        ("relax.nn.layer_norm", _layer_norm),
    )
}
