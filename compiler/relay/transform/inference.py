"""SimplifyInference: operators that training and inference compute differently, as arithmetic."""

from __future__ import annotations

from typing import Any

from tvm import relax

from .. import dialect
from ..nest import rewrite
from .base import body_wise
from .build import constant, dtype, is_op, op, shape


def SimplifyInference() -> Any:
    """batch_norm as one scale and one shift, dropout as its operand, norms as arithmetic."""
    return body_wise("SimplifyInference", 0, lambda body: rewrite(body, _change))


def _change(_old: relax.Expr, new: relax.Expr) -> relax.Expr:
    if isinstance(new, relax.TupleGetItem):
        call = new.tuple_value
        if int(new.index) == 0 and is_op(call, "nn.batch_norm"):
            return _batch_norm(call)
        if int(new.index) == 0 and is_op(call, "nn.dropout"):
            return call.args[0]
    if is_op(new, "nn.dropout") and isinstance(new.ty, relax.TensorType):
        return new.args[0]
    if is_op(new, "nn.layer_norm"):
        return _normalised(new, [int(new.attrs["axis"])])
    if is_op(new, "nn.instance_norm"):
        axis = int(new.attrs["axis"]) % new.ty.ndim
        return _normalised(new, [i for i in range(1, new.ty.ndim) if i != axis])
    if is_op(new, "nn.l2_normalize"):
        return _l2(new)
    return new


def _batch_norm(call: relax.Call) -> relax.Expr:
    data, gamma, beta, mean, variance = call.args
    attrs = dialect.attributes(call)
    kind = dtype(variance)
    root = op("sqrt", op("add", variance, constant(attrs["epsilon"], kind)))
    scale = op("divide", constant(1, kind), root)
    if attrs["scale"]:
        scale = op("multiply", scale, gamma)
    shift = op("multiply", op("negative", mean), scale)
    if attrs["center"]:
        shift = op("add", shift, beta)
    rank = data.ty.ndim
    axis = int(attrs["axis"]) % rank
    return op("add", op("multiply", data, _along(scale, axis, rank)), _along(shift, axis, rank))


def _along(vector: relax.Expr, axis: int, rank: int) -> relax.Expr:
    """A vector along one axis of a tensor of that rank."""
    after = rank - 1 - axis
    return op("expand_dims", vector, axis=1, num_newaxis=after) if after else vector


def _normalised(call: relax.Call, axes: list[int]) -> relax.Expr:
    data, gamma, beta = call.args
    attrs = dialect.attributes(call)
    mean = op("mean", data, axis=axes, keepdims=True)
    variance = op("variance", data, mean, axis=axes, keepdims=True)
    root = op("sqrt", op("add", variance, constant(attrs["epsilon"], dtype(data))))
    result = op("divide", op("subtract", data, mean), root)
    rank = data.ty.ndim
    axis = int(attrs["axis"]) % rank
    if attrs["scale"]:
        result = op("multiply", result, _along(gamma, axis, rank))
    if attrs["center"]:
        result = op("add", result, _along(beta, axis, rank))
    return result


def _l2(call: relax.Call) -> relax.Expr:
    data = call.args[0]
    attrs = dialect.attributes(call)
    axes = attrs["axis"] or list(range(len(shape(data) or [0] * data.ty.ndim)))
    squares = op("sum", op("multiply", data, data), axis=axes, keepdims=True)
    floor = op("maximum", squares, constant(attrs["eps"], dtype(data)))
    return op("divide", data, op("sqrt", floor))
