"""VGG.

Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition" (2014).
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from ...errors import RelayError
from ..expr import var
from ..op import nn
from .init import function_of, workload_of
from .layers import batch_norm_infer, conv2d, dense_add_bias

FILTERS = (64, 128, 256, 512, 512)
LAYERS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""Maps the depth to convolutions per block."""


def get_feature(
    internal_layer: relax.Expr,
    layers: Sequence[int],
    filters: Sequence[int],
    batch_norm: bool = False,
) -> relax.Expr:
    """Build blocks of convolutions, each followed by a pooling."""
    value = internal_layer
    for block, count in enumerate(layers, 1):
        for index in range(1, count + 1):
            name = f"conv{block}_{index}"
            value = conv2d(
                data=value,
                channels=filters[block - 1],
                kernel_size=(3, 3),
                padding=(1, 1),
                name=name,
            )
            value = nn.bias_add(value, var(f"{name}_bias"))
            if batch_norm:
                value = batch_norm_infer(data=value, name=f"bn{block}_{index}")
            value = nn.relu(data=value)
        value = nn.max_pool2d(data=value, pool_size=(2, 2), strides=(2, 2))
    return value


def get_classifier(input_data: relax.Expr, num_classes: int) -> relax.Expr:
    """Build two layers of 4096 units and one of `num_classes`."""
    value = nn.batch_flatten(data=input_data)
    for name in ("fc6", "fc7"):
        value = nn.relu(data=dense_add_bias(data=value, units=4096, name=name))
        value = nn.dropout(data=value, rate=0.5)
    return dense_add_bias(data=value, units=num_classes, name="fc8")


def get_net(
    batch_size: int,
    image_shape: Sequence[int],
    num_classes: int,
    dtype: str,
    num_layers: int = 11,
    batch_norm: bool = False,
) -> relax.Function:
    """Build a network of `num_layers` layers."""
    if num_layers not in LAYERS:
        raise RelayError(
            f"there is no VGG network of {num_layers} layers; there are {sorted(LAYERS)}"
        )
    data = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    feature = get_feature(data, LAYERS[num_layers], FILTERS, batch_norm)
    net = nn.softmax(data=get_classifier(feature, num_classes))
    return function_of(net)


get_workload = workload_of(
    get_net,
    None,
    "batch_size num_classes image_shape dtype num_layers batch_norm",
    **{"num_classes": 1000, "image_shape": (3, 224, 224), "dtype": "float32"},
)
