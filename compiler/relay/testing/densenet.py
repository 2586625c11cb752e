"""DenseNet.

After Huang, Liu, van der Maaten and Weinberger, "Densely Connected Convolutional Networks" (2017).
As in Relay's network, each layer of a block only takes the previous layer's result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from ...errors import RelayError
from .. import op
from ..expr import var
from ..op import nn
from .init import create_workload
from .layers import batch_norm_infer, conv2d, dense_add_bias

_BOTTLENECK = 4
_SPECIFICATIONS = {
    121: (64, 32, (6, 12, 24, 16)),
    161: (96, 48, (6, 12, 36, 24)),
    169: (69, 32, (6, 12, 32, 32)),
    201: (64, 32, (6, 12, 48, 32)),
}
"""Maps the depth to features of the first convolution, growth rate, and layers per block."""


def _layer(data: relax.Expr, growth_rate: int, index: str) -> relax.Expr:
    value = nn.relu(batch_norm_infer(data, name=f"batch_1_{index}"))
    value = conv2d(
        value, channels=_BOTTLENECK * growth_rate, kernel_size=(1, 1), name=f"conv2d_1_{index}"
    )
    value = nn.relu(batch_norm_infer(value, name=f"batch_2_{index}"))
    return conv2d(
        value, channels=growth_rate, kernel_size=(3, 3), padding=(1, 1), name=f"conv2d_2_{index}"
    )


def _block(data: relax.Expr, count: int, growth_rate: int, index: int) -> relax.Expr:
    value, results = data, []
    for layer in range(count):
        value = _layer(value, growth_rate, f"{index}_{layer}")
        results.append(value)
    return op.concatenate(results, 1)


def _transition(data: relax.Expr, features: int, index: int) -> relax.Expr:
    value = nn.relu(batch_norm_infer(data, name=f"batch_t_{index}"))
    value = conv2d(value, channels=features, kernel_size=(1, 1), name=f"conv_t_{index}")
    return nn.avg_pool2d(value, pool_size=(2, 2), strides=(2, 2))


def get_workload(
    densenet_size: int = 121,
    classes: int = 1000,
    batch_size: int = 4,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
) -> tuple[tvm.IRModule, dict[str, Any]]:
    """Build DenseNet-121, 161, 169 or 201 as a module with parameters."""
    if densenet_size not in _SPECIFICATIONS:
        raise RelayError(
            f"densenet_size must be one of {sorted(_SPECIFICATIONS)}, not {densenet_size}"
        )
    features, growth_rate, blocks = _SPECIFICATIONS[densenet_size]
    value: relax.Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    value = conv2d(
        value, channels=features, kernel_size=(7, 7), strides=(2, 2), padding=(3, 3), name="conv1"
    )
    value = nn.relu(batch_norm_infer(value, name="batch1"))
    value = nn.max_pool2d(value, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    for index, count in enumerate(blocks):
        value = _block(value, count, growth_rate, index)
        features += count * growth_rate
        if index != len(blocks) - 1:
            features //= 2
            value = _transition(value, features, index)
    value = nn.relu(batch_norm_infer(value, name="batch2"))
    flat = nn.batch_flatten(nn.avg_pool2d(value, pool_size=(7, 7)))
    return create_workload(dense_add_bias(flat, units=classes, name="dense"))
