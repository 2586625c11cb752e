"""Passes by rules shared with the build: scales, padding, normalizations, dropout."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from ...ir.fold_explicit_padding import PaddingRule, full_padding, neutral
from ...ir.fold_scale_axis import Backward, Forward
from ...ir.simplify_inference import InferenceRule
from .. import dialect
from ..nested_expressions import rewrite
from .base import body_wise, module_pass, rule_wise
from .build import again, constant, dtype, is_op, op, shape
from .constants import FoldConstant


def BackwardFoldScaleAxis() -> Any:
    """Fold the scale of a convolution's or dense layer's result into its weight."""
    return rule_wise("BackwardFoldScaleAxis", 3, Backward)


def ForwardFoldScaleAxis() -> Any:
    """Fold the scale of a convolution's or dense layer's input into its weight."""
    return rule_wise("ForwardFoldScaleAxis", 3, Forward)


def FoldScaleAxis() -> Any:
    """BackwardFoldScaleAxis, then ForwardFoldScaleAxis, then FoldConstant."""

    def run(mod: tvm.IRModule) -> tvm.IRModule:
        made = ForwardFoldScaleAxis()(BackwardFoldScaleAxis()(mod))
        return mod if made.same_as(mod) else FoldConstant()(made)

    return module_pass("FoldScaleAxis", 3, run)


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


def FoldExplicitPadding() -> Any:
    """Fold `nn.pad` into the padding of the convolution or pooling that uses it.

    conv2d(pad(x, [[0, 0], [0, 0], [1, 2], [1, 2]]), w) -> conv2d(x, w, padding=[1, 1, 2, 2])
    """
    return rule_wise("FoldExplicitPadding", 0, PaddingRule)


def FlattenAtrousConv() -> Any:
    """Replace a convolution between space_to_batch_nd and batch_to_space_nd with a dilated one.

    batch_to_space_nd(conv2d(space_to_batch_nd(x, b, p), w), b, c) -> conv2d(x, w, dilation=b)

    The convolution must have stride 1 and no dilation or padding.
    """

    def change(_old: relax.Expr, new: relax.Expr) -> relax.Expr:
        if not is_op(new, "nn.batch_to_space_nd"):
            return new
        conv = new.args[0]
        if not is_op(conv, "nn.conv2d", "qnn.conv2d"):
            return new
        spread = conv.args[0]
        if not is_op(spread, "nn.space_to_batch_nd"):
            return new
        made = _dilated(new, conv, spread)
        return new if made is None else made

    return body_wise("FlattenAtrousConv", 0, lambda body: rewrite(body, change))


def _dilated(gather: relax.Call, conv: relax.Call, spread: relax.Call) -> relax.Expr | None:
    before, attrs = dialect.attributes(spread), dialect.attributes(conv)
    after = dialect.attributes(gather)
    block = [int(each) for each in before["block_shape"]]
    padded_by = float(before.get("pad_value") or 0)
    if len(block) != 2 or block != [int(each) for each in after["block_shape"]]:
        return None
    single = [int(each) for each in attrs["strides"]] == [1, 1]
    dense = [int(each) for each in attrs["dilation"]] == [1, 1]
    if not single or not dense or full_padding(attrs["padding"], 2).any():
        return None
    if attrs["data_layout"] != "NHWC" or not np.all(
        neutral(conv, dialect.relay_name(conv)) == padded_by
    ):
        return None
    sides = [
        int(before["paddings"][axis][side]) - int(after["crops"][axis][side])
        for side in (0, 1)
        for axis in (0, 1)
    ]
    if min(sides) < 0:
        return None
    return again(conv, [spread.args[0], *conv.args[1:]], padding=sides, dilation=block)
