"""FoldScaleAxis: multiplications along the channels become part of constant weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from .. import dialect
from ..nest import handle, operands, post_order, rewrite
from .base import body_wise
from .build import again, array, constant, is_op, op, shape

_ANCHORS = ("nn.conv2d", "nn.conv3d", "nn.dense")


def BackwardFoldScaleAxis() -> Any:
    """A scale of a convolution's or dense layer's result, perhaps after a bias, is folded."""
    return body_wise("BackwardFoldScaleAxis", 3, _backward)


def ForwardFoldScaleAxis() -> Any:
    """A scale of a convolution's or dense layer's input is folded; relu passes positive ones."""
    return body_wise("ForwardFoldScaleAxis", 3, lambda body: rewrite(body, _forward))


def FoldScaleAxis() -> Any:
    """BackwardFoldScaleAxis, then ForwardFoldScaleAxis."""
    return body_wise("FoldScaleAxis", 3, lambda body: rewrite(_backward(body), _forward))


def _backward(body: relax.Expr) -> relax.Expr:
    readers: dict[int, int] = {}
    for node in post_order(body):
        for below in operands(node):
            readers[handle(below)] = readers.get(handle(below), 0) + 1

    def change(old: relax.Expr, new: relax.Expr) -> relax.Expr:
        if not is_op(old, "multiply"):
            return new
        for value, scale, before in (
            (new.args[0], new.args[1], old.args[0]),
            (new.args[1], new.args[0], old.args[1]),
        ):
            factor = array(scale)
            if factor is not None and readers.get(handle(before)) == 1:
                folded = _scaled_result(value, factor, before, readers)
                if folded is not None:
                    return folded
        return new

    return rewrite(body, change)


def _scaled_result(
    value: relax.Expr, factor: np.ndarray, before: relax.Expr, readers: dict[int, int]
) -> relax.Expr | None:
    """`value * factor` with the factor inside, if it can go there."""
    if is_op(value, *_ANCHORS):
        vector = _per_channel(factor, value.ty.ndim, _channel_axis(value))
        weight = array(value.args[1])
        extent = None if shape(value) is None else value.ty.shape.values[_channel_axis(value)]
        if vector is None or weight is None or extent is None:
            return None
        axis = _weight_axis(value)
        if vector.size not in (1, weight.shape[axis]):
            return None
        scaled = weight * _broadcast(vector, weight.ndim, axis)
        return again(value, [value.args[0], constant(scaled, str(weight.dtype))])
    if is_op(value, "add", "nn.bias_add"):
        inner, shift = value.args
        constant_shift = array(shift)
        if constant_shift is None or readers.get(handle(before.args[0])) != 1:
            return None
        folded = _scaled_result(inner, factor, before.args[0], readers)
        if folded is None:
            return None
        if is_op(value, "nn.bias_add"):
            vector = _per_channel(factor, inner.ty.ndim, int(value.attrs["axis"]) % inner.ty.ndim)
            if vector is None:
                return None
            new_shift = constant_shift * vector
        else:
            new_shift = constant_shift * factor
        return again(value, [folded, constant(new_shift, str(constant_shift.dtype))])
    return None


def _forward(_old: relax.Expr, new: relax.Expr) -> relax.Expr:
    if not is_op(new, *_ANCHORS):
        return new
    weight = array(new.args[1])
    if weight is None or int(dialect.attributes(new).get("groups", 1)) != 1:
        return new
    data, through = new.args[0], []
    if is_op(data, "nn.relu"):
        through, data = [data], data.args[0]
    if not is_op(data, "multiply"):
        return new
    for value, scale in ((data.args[0], data.args[1]), (data.args[1], data.args[0])):
        factor = array(scale)
        if factor is None or shape(value) != shape(data) or (through and (factor <= 0).any()):
            continue
        vector = _per_channel(factor, data.ty.ndim, _input_axis(new))
        if vector is None:
            continue
        axis = _weight_input_axis(new)
        scaled = weight * _broadcast(vector, weight.ndim, axis)
        inner = op("nn.relu", value) if through else value
        return again(new, [inner, constant(scaled, str(weight.dtype))])
    return new


def _per_channel(factor: np.ndarray, rank: int, axis: int) -> np.ndarray | None:
    """The factor as a vector along an axis; None if it varies along another."""
    if factor.ndim > rank:
        return None
    wide = (1,) * (rank - factor.ndim) + tuple(factor.shape)
    if any(extent != 1 for i, extent in enumerate(wide) if i != axis):
        return None
    return factor.reshape(-1)


def _broadcast(vector: np.ndarray, rank: int, axis: int) -> np.ndarray:
    return vector.reshape([-1 if i == axis else 1 for i in range(rank)])


def _channel_axis(call: relax.Call) -> int:
    if is_op(call, "nn.dense"):
        return int(call.ty.ndim) - 1
    return str(call.attrs["out_layout"] or call.attrs["data_layout"]).index("C")


def _input_axis(call: relax.Call) -> int:
    if is_op(call, "nn.dense"):
        return int(call.args[0].ty.ndim) - 1
    return str(call.attrs["data_layout"]).index("C")


def _weight_axis(call: relax.Call) -> int:
    return 0 if is_op(call, "nn.dense") else str(call.attrs["kernel_layout"]).index("O")


def _weight_input_axis(call: relax.Call) -> int:
    return 1 if is_op(call, "nn.dense") else str(call.attrs["kernel_layout"]).index("I")
