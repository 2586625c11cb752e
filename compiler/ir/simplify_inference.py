"""Inference forms of operators that behave differently in training: batch norm and dropout."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from .constants import array_of, constant, dtype_of
from .op_dialect import SharedRule
from .rewrite import call_pass


class InferenceRule(SharedRule):
    """Rewrite batch norm and dropout for inference.

    1. `nn.batch_norm` becomes one multiply and one add: with s = gamma / sqrt(var + epsilon), its
       first result is x * s + (beta - mean * s). If the four parameters are constants, so are
       scale and shift (computed in float64). Its other results are the moving mean and variance
       as they were given.
    2. `nn.dropout` becomes its input and a mask of ones.

    A batch norm in training mode is left alone: it normalizes by the batch's own statistics.

        before   lv = nn.batch_norm(x, gamma, beta, mean, var, axis=1, epsilon=1e-5); lv1 = lv[0]
        after    lv = multiply(x, const[1, C, 1, 1]); lv1 = add(lv, const[1, C, 1, 1])
    """

    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        data = call.args[0]
        if name == "nn.batch_norm" and not getattr(call.attrs, "training", False):
            scale, shift = self._scale_and_shift(call, dtype_of(data))
            result = self.vocabulary.make("multiply", data, self.along(scale, call, data))
            result = self.vocabulary.make("add", result, self.along(shift, call, data))
            return relax.Tuple([result, *call.args[3:]])
        if name == "nn.dropout":
            is_tuple = isinstance(call.ty, relax.TupleType)
            return (
                relax.Tuple([data, self.vocabulary.make("ones_like", data)]) if is_tuple else data
            )
        return None

    def _scale_and_shift(self, call: relax.Call, dtype: str) -> tuple[Any, Any]:
        """Scale and shift of an inference batch norm, of shape (C,); constants where possible."""
        make, (gamma, beta, mean, var) = self.vocabulary.make, call.args[1:]
        epsilon, scales, shifts = (call.attrs[key] for key in ("epsilon", "scale", "center"))
        arrays = [array_of(value) for value in (gamma, beta, mean, var)]
        if all(array is not None for array in arrays):
            g, b, m, v = (np.asarray(array, "float64") for array in arrays)
            s = (g if scales else 1) / np.sqrt(v + epsilon)
            return constant(s.astype(dtype)), constant(((b if shifts else 0) - m * s).astype(dtype))
        root = make("sqrt", make("add", var, constant(np.array(epsilon, dtype))))
        scale = make("divide", constant(np.array(1, dtype)), root)
        scale = self.scope.emit(make("multiply", scale, gamma) if scales else scale)
        shift = make("negative", make("multiply", mean, scale))
        return scale, make("add", shift, beta) if shifts else shift

    def along(self, vector: Any, norm: relax.Call, data: Any) -> relax.Expr:
        """A vector along the axis of a norm."""
        axis = int(norm.attrs["axis"]) % data.ty.ndim
        after, array = data.ty.ndim - 1 - axis, array_of(vector)
        if array is not None:
            return constant(array.reshape([1] * axis + [-1] + [1] * after))
        if not after:
            return vector
        return self.vocabulary.make("expand_dims", vector, axis=1, num_newaxis=after)


SimplifyInference = call_pass("SimplifyInference", 0, InferenceRule)
