"""Normalizations, losses and quantization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..draft import Draft, Operand, Shape
from ..evaluate import EvaluationError
from .spatial import draw_window


def _features(d: Draft, op: str, low: int = 2, batch_low: int = 1) -> str:
    """A tensor of samples and channels, without empty axes."""

    def new() -> Shape:
        return tuple(d.integer(batch_low, 6) for _ in range(d.integer(low, 4)))

    return d.tensor(d.allowed(op), lambda s: len(s) >= low and 0 not in s, new)


def batch_normalization(d: Draft, op: str) -> None:
    x = _features(d, op)
    channels = (d.shape_of(x)[1],)
    dtype = d.dtype_of(x)
    scale, bias = d.new(dtype, channels), d.new(dtype, channels)
    mean, variance = d.new(dtype, channels), d.new(dtype, channels, "positive")
    epsilon = d.one_of([None, 1e-3])
    d.add(op, [x, scale, bias, mean, variance], epsilon=epsilon)


def instance_normalization(d: Draft, op: str) -> None:
    x = _features(d, op, 3)
    channels = (d.shape_of(x)[1],)
    epsilon = d.one_of([None, 1e-3])
    d.add(op, [x, d.like(x, channels), d.like(x, channels)], epsilon=epsilon)


def group_normalization(d: Draft, op: str) -> None:
    groups = d.integer(1, 3)
    per_group = d.integer(1, 3)
    space = [d.integer(1, 4) for _ in range(d.integer(1, 2))]
    x = d.new(d.dtype(d.allowed(op)), (d.integer(1, 2), groups * per_group, *space))
    size = (groups,) if d.opset < 21 else (groups * per_group,)
    d.add(op, [x, d.like(x, size), d.like(x, size)], num_groups=groups)


def layer_normalization(d: Draft, op: str) -> None:
    x = _features(d, op, 1)
    shape = d.shape_of(x)
    axis = d.integer(0, len(shape) - 1)
    scale = d.like(x, shape[axis:])
    at = axis - len(shape) if d.chance(0.5) else axis
    if op == "RMSNormalization":
        d.add(op, [x, scale], axis=at)
        return
    bias = [d.like(x, shape[axis:])] if d.chance(0.6) else []
    outputs = [True, d.chance(0.2), d.chance(0.2)]
    while not outputs[-1]:
        outputs.pop()
    d.add(op, [x, scale, *bias], outputs, axis=at, epsilon=d.one_of([None, 1e-2]))


def local_response(d: Draft, op: str) -> None:
    attributes = {"alpha": d.one_of([None, 0.3]), "bias": d.one_of([None, 2.0])}
    d.add(op, [_features(d, op, 3)], size=d.one_of([1, 3, 5]), **attributes)


def mean_variance(d: Draft, op: str) -> None:
    x = _features(d, op, 4)
    rank = len(d.shape_of(x))
    d.add(op, [x], axes=None if d.chance(0.5) else sorted(a % rank for a in d.axes(rank)))


def loss(d: Draft, op: str) -> None:
    n, classes = d.integer(1, 4), d.integer(1, 5)
    space = tuple(d.integer(1, 3) for _ in range(d.integer(0, 2)))
    dtype = d.dtype(d.allowed(op))
    x = d.new(dtype, (n, classes, *space))
    target = d.index(0, classes - 1, (n, *space))
    weight = [d.new(dtype, (classes,), "positive")] if d.chance(0.4) else []
    d.add(
        op,
        [x, target, *weight],
        reduction=d.one_of([None, "none", "sum", "mean"]),
        ignore_index=d.one_of([None, None, 0]),
    )


def quantize(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op), lambda s: len(s) > 0 and 0 not in s, lambda: d.shape(1, 4))
    shape = d.shape_of(x)
    axis = d.integer(0, len(shape) - 1)
    along = d.opset >= 13 and d.chance(0.4)
    extents = (shape[axis],) if along else ()
    narrow = d.dtype_of(x) if op == "DequantizeLinear" else d.one_of(["uint8", "int8"])
    scale_dtype = "float32" if op == "DequantizeLinear" or d.opset < 19 else d.dtype_of(x)
    scale = _scale(d, extents, scale_dtype)
    zero = []
    if d.chance(0.7) and narrow != "int32":
        low = -3 if narrow.startswith("int") else 0
        zero = [d.fixed(d.rng.integers(low, 4, extents), narrow)]
    d.add(op, [x, scale, *zero], axis=axis if d.opset >= 13 and along else None)


def _scale(d: Draft, shape: Shape = (), dtype: str = "float32") -> str:
    low, high = (0.02, 0.5) if dtype.startswith("float") else (1, 5)
    return d.fixed(d.rng.uniform(low, high, shape), dtype)


def dynamic_quantize(d: Draft, op: str) -> None:
    d.add(op, [d.tensor(("float32",), lambda s: 0 not in s, lambda: d.shape(1, 3))], 3)


def quantized(d: Draft, op: str) -> None:
    """QLinearConv and QLinearMatMul."""
    dtype = d.one_of(["uint8", "int8"])

    def parameters(extents: Shape = ()) -> list[str]:
        zero = np.zeros(extents, dtype) if extents else np.array(d.integer(0, 4), dtype)
        return [_scale(d, extents), d.place(zero, Operand("fixed"), 0.9)]

    if op == "QLinearMatMul":
        m, k, n = (d.integer(1, 6) for _ in range(3))
        x, y = d.new(dtype, (m, k)), d.new(dtype, (k, n))
        d.add(op, [x, *parameters(), y, *parameters(), *parameters()])
        return
    window = draw_window(d, tuple(d.integer(2, 7) for _ in range(2)))
    channels, out = d.integer(1, 4), d.integer(1, 4)
    x = d.new(dtype, (1, channels, *window.space))
    weights = d.new(dtype, (out, channels, *window.kernel), constant=0.9)
    along = (out,) if d.chance(0.3) else ()
    bias = [d.new("int32", (out,))] if d.chance(0.4) else []
    operands = [x, *parameters(), weights, *parameters(along), *parameters(), *bias]
    attributes: dict[str, Any] = window.attributes
    if 0 in d.shape_of(x):
        raise EvaluationError("empty")
    d.add(op, operands, **attributes)


MAKERS: dict[str, Callable[[Draft, str], None]] = {
    **dict.fromkeys(("QLinearConv", "QLinearMatMul"), quantized),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), quantize),
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), loss),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), layer_normalization),
    "BatchNormalization": batch_normalization,
    "DynamicQuantizeLinear": dynamic_quantize,
    "GroupNormalization": group_normalization,
    "InstanceNormalization": instance_normalization,
    "LRN": local_response,
    "MeanVarianceNormalization": mean_variance,
}
