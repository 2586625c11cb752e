"""Inference forms of operators that behave differently in training: batch norm and dropout."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from .constants import array_of, constant, dtype_of, static_shape
from .rewrite import CallRule, rewrite_calls


@tvm.transform.module_pass(opt_level=0, name="SimplifyInference")
class SimplifyInference:
    """Rewrite batch norm and dropout for inference.

    1. `nn.batch_norm` becomes one multiply and one add: with s = gamma / sqrt(var + epsilon), its
       first result is x * s + (beta - mean * s). If the four parameters are constants, so are
       scale and shift (computed in float64). Its other results are the moving mean and variance
       as they were given.
    2. `nn.dropout` becomes its input and a mask of ones.

    A batch norm in training mode is left alone: it normalizes by the batch's own statistics.

    Before::

        lv = nn.batch_norm(x, gamma, beta, mean, var, axis=1, epsilon=1e-5)
        lv1 = lv[0]

    After::

        lv = multiply(x, const[1, C, 1, 1])
        lv1 = add(lv, const[1, C, 1, 1])
    """

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function."""
        return rewrite_calls(mod, _Inference)


class _Inference(CallRule):
    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if name == "nn.batch_norm":
            return self._batch_norm(call)
        if name == "nn.dropout":
            shape = static_shape(call.args[0])
            if shape is None:
                return None
            return relax.Tuple([call.args[0], relax.op.ones(shape, dtype_of(call.args[0]))])
        return None

    def _batch_norm(self, call: relax.Call) -> relax.Expr | None:
        data, mean, var = call.args[0], call.args[3], call.args[4]
        shape = static_shape(data)
        if shape is None or bool(call.attrs.training):
            return None
        axis = int(call.attrs.axis) % len(shape)
        along = [1] * len(shape)
        along[axis] = shape[axis]
        scale, shift = scale_and_shift(call, dtype_of(data))
        result = relax.op.multiply(data, _reshape(scale, along))
        result = relax.op.add(result, _reshape(shift, along))
        return relax.Tuple([result, mean, var])


def scale_and_shift(call: relax.Call, dtype: str) -> tuple[Any, Any]:
    """Scale and shift of an inference batch norm, of shape (C,): constants if they can be."""
    gamma, beta, mean, var = call.args[1:]
    epsilon = float(call.attrs.epsilon)
    arrays = [array_of(value) for value in (gamma, beta, mean, var)]
    if all(array is not None for array in arrays):
        g, b, m, v = (np.asarray(array, "float64") for array in arrays)
        s = 1 / np.sqrt(v + epsilon)
        if bool(call.attrs.scale):
            s = s * g
        t = -m * s
        if bool(call.attrs.center):
            t = t + b
        return constant(s.astype(dtype)), constant(t.astype(dtype))
    scale = relax.op.rsqrt(relax.op.add(var, relax.const(epsilon, dtype)))
    if bool(call.attrs.scale):
        scale = relax.op.multiply(scale, gamma)
    shift = relax.op.negative(relax.op.multiply(mean, scale))
    if bool(call.attrs.center):
        shift = relax.op.add(shift, beta)
    return scale, shift


def _reshape(value: Any, shape: list[int]) -> relax.Expr:
    array = array_of(value)
    return relax.op.reshape(value, shape) if array is None else constant(array.reshape(shape))
