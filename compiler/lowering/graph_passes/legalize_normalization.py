"""Float64 normalizations, which TVM's computes reject, and group norms without cancellation.

TVM's group norm computes the mean of squares minus the squared mean: at a mean of 1000, a variance
of 1 has no correct digit left in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax, te, tirx, topi

Legalize = Callable[[Any, relax.Call], relax.Expr]
Attributes = Any


def _normal(data: te.Tensor, axes: Sequence[int], epsilon: float) -> te.Tensor:
    """(x - mean) / sqrt(variance + epsilon) over these axes."""
    count = math.prod(data.shape[axis] for axis in axes)
    count = tirx.Cast(data.dtype, count) if isinstance(count, tirx.Expr) else float(count)
    centered = topi.subtract(data, topi.divide(_sum(data, axes), count))
    squares = _sum(topi.multiply(centered, centered), axes)
    return topi.multiply(centered, topi.rsqrt(topi.add(topi.divide(squares, count), epsilon)))


def _sum(data: te.Tensor, axes: Sequence[int]) -> te.Tensor:
    """Sum over these axes; one axis at a time for dynamic shapes."""
    if all(isinstance(extent, tirx.IntImm) for extent in data.shape):
        return topi.sum(data, axes, keepdims=True)
    for axis in sorted(axes, reverse=True):
        data = topi.sum(data, axis, keepdims=True)
    return data


def _scaled(data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, axes: Sequence[int]) -> te.Tensor:
    """x * gamma + beta, broadcast along these axes."""
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


def _of_dtypes(name: str, compute: Callable[..., te.Tensor], dtypes: tuple[str, ...]) -> Legalize:
    """Use the compute for these dtypes and TVM's for others."""

    def legalize(builder: Any, call: relax.Call) -> relax.Expr:
        if str(call.ty.dtype) not in dtypes:
            return tvm.ir.Op.get(name).get_attr("FLegalize")(builder, call)
        return builder.call_te(
            compute, *call.args, call.attrs, primfunc_name_hint=name.removeprefix("relax.nn.")
        )

    return legalize


LEGALIZE: dict[str, Legalize] = {
    name: _of_dtypes(name, compute, dtypes)
    for name, compute, dtypes in (
        ("relax.nn.group_norm", _group_norm, ("float32", "float64")),
        ("relax.nn.instance_norm", _instance_norm, ("float64",)),
        ("relax.nn.layer_norm", _layer_norm, ("float64",)),
    )
}
