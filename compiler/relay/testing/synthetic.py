"""Synthetic network with few small layers."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from .. import op
from ..expr import var
from ..op import nn
from .init import Constant, function_of, workload_of
from .layers import batch_norm_infer


def _layers(value: relax.Expr, shape: Sequence[int], wtype: str, index: str) -> relax.Expr:
    """Sum of a dense layer over the rows and a convolution of the same size."""
    channels, width = shape[1], shape[3]
    weight = var(f"dense{index}_weight", shape=(width, width), dtype=wtype)
    dense = nn.relu(nn.dense(op.reshape(value, [-1, width]), weight))
    weight = var(f"conv{index}_weight", shape=(channels, channels, 3, 3), dtype=wtype)
    conv = nn.softmax(nn.conv2d(value, weight, padding=1, kernel_size=3))
    return op.add(op.reshape_like(dense, conv), conv)


def get_net(
    input_shape: Sequence[int] = (1, 3, 24, 12), dtype: str = "float32", wtype: str | None = None
) -> relax.Function:
    """Network for (batch, channels, height, width); `wtype`: weight dtype, by default `dtype`."""
    wtype = wtype or dtype
    first = _layers(var("data", shape=input_shape, dtype=dtype), input_shape, wtype, "")
    biased = nn.bias_add(first, var("bias", shape=(input_shape[1],), dtype=wtype))
    net = _layers(batch_norm_infer(biased, name="batch_norm"), input_shape, wtype, "2")
    return function_of(net)


get_workload = workload_of(get_net, Constant())
