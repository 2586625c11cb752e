"""SimplifyInference: expand operators that differ between training and inference."""

from __future__ import annotations

from typing import Any

from tvm import relax

from ...ir.simplify_inference import InferenceRule
from .. import dialect
from .base import rule_wise
from .build import constant, dtype, op, shape


def SimplifyInference() -> Any:
    """Expand batch_norm to a scale and a shift, remove dropout, expand other norms."""
    return rule_wise("SimplifyInference", 0, _Inference)


class _Inference(InferenceRule):
    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if name == "nn.layer_norm":
            return self._normalized(call, [int(call.attrs["axis"])])
        if name == "nn.instance_norm":
            axis = int(call.attrs["axis"]) % call.ty.ndim
            return self._normalized(call, [i for i in range(1, call.ty.ndim) if i != axis])
        return _l2(call) if name == "nn.l2_normalize" else super().rewrite(call, name)

    def _normalized(self, call: relax.Call, axes: list[int]) -> relax.Expr:
        data, gamma, beta = call.args
        attrs = dialect.attributes(call)
        mean = op("mean", data, axis=axes, keepdims=True)
        variance = op("variance", data, mean, axis=axes, keepdims=True)
        root = op("sqrt", op("add", variance, constant(attrs["epsilon"], dtype(data))))
        result = op("divide", op("subtract", data, mean), root)
        if attrs["scale"]:
            result = op("multiply", result, self.along(gamma, call, data))
        if attrs["center"]:
            result = op("add", result, self.along(beta, call, data))
        return result


def _l2(call: relax.Call) -> relax.Expr:
    data = call.args[0]
    attrs = dialect.attributes(call)
    axes = attrs["axis"] or list(range(len(shape(data) or [0] * data.ty.ndim)))
    squares = op("sum", op("multiply", data, data), axis=axes, keepdims=True)
    floor = op("maximum", squares, constant(attrs["eps"], dtype(data)))
    return op("divide", data, op("sqrt", floor))
