"""SqueezeNet.

Iandola et al., "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters and <0.5MB model size"
(2016).
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from ...errors import RelayError
from .. import op
from ..expr import var
from ..op import nn
from .init import function_of, workload_of
from .layers import conv2d

_FIRES = [(16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256)]
_VERSIONS = {"1.0": (96, 7, (0, 3, 7)), "1.1": (64, 3, (0, 2, 4))}
"""Maps a version to channels and size of the first kernel, and fire modules after a pooling."""


def _convolution(data: relax.Expr, channels: int, size: int, padding: int, name: str) -> relax.Expr:
    value = conv2d(
        data,
        channels=channels,
        kernel_size=(size, size),
        padding=(padding, padding),
        name=f"{name}_conv",
    )
    return nn.relu(nn.bias_add(value, var(f"{name}_conv_bias")))


def _fire(data: relax.Expr, squeeze: int, expand: int, name: str) -> relax.Expr:
    value = _convolution(data, squeeze, 1, 0, f"{name}_input")
    left = _convolution(value, expand, 1, 0, f"{name}_left")
    right = _convolution(value, expand, 3, 1, f"{name}_right")
    return op.concatenate((left, right), axis=1)


def get_net(
    batch_size: int, image_shape: Sequence[int], num_classes: int, version: str, dtype: str
) -> relax.Function:
    """Build version "1.0" or "1.1" of the network."""
    if version not in _VERSIONS:
        raise RelayError(f"version must be 1.0 or 1.1, not {version!r}")
    channels, size, pooled = _VERSIONS[version]
    value: relax.Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    value = conv2d(
        value,
        channels=channels,
        kernel_size=(size, size),
        strides=(2, 2),
        padding=(size // 2, size // 2),
        name="conv1",
    )
    value = nn.relu(nn.bias_add(value, var("conv1_bias")))
    for index, (squeeze, expand) in enumerate(_FIRES):
        if index in pooled:
            value = nn.max_pool2d(value, pool_size=(3, 3), strides=(2, 2))
        value = _fire(value, squeeze, expand, f"fire{index + 1}")
    value = nn.dropout(value, rate=0.5)
    value = conv2d(value, channels=num_classes, kernel_size=(1, 1), name="conv_final")
    value = nn.relu(nn.bias_add(value, var("conv_final_bias")))
    net = nn.softmax(nn.batch_flatten(nn.global_avg_pool2d(value)))
    return function_of(net)


get_workload = workload_of(
    get_net,
    None,
    "batch_size num_classes version image_shape dtype",
    **{"batch_size": 1, "num_classes": 1000, "version": "1.0"},
    **{"image_shape": (3, 224, 224), "dtype": "float32"},
)
