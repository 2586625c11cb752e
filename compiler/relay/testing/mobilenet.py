"""MobileNet.

Howard et al., "MobileNets: Efficient Convolutional Neural Networks for Mobile Vision Applications"
(2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from ..expr import var
from ..op import nn
from .init import create_workload, function_of
from .layers import batch_norm_infer, conv2d, conv_kernel_layout


def conv_block(
    data: relax.Expr,
    name: str,
    channels: int,
    kernel_size: Sequence[int] = (3, 3),
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (1, 1),
    epsilon: float = 1e-5,
    layout: str = "NCHW",
    number: str = "",
) -> relax.Expr:
    """Convolution, batch normalization, ReLU; `number` distinguishes their parameters."""
    value = conv2d(
        data=data,
        channels=channels,
        kernel_size=kernel_size,
        strides=strides,
        padding=padding,
        data_layout=layout,
        kernel_layout=conv_kernel_layout(layout),
        name=f"{name}_conv{number}",
    )
    value = batch_norm_infer(
        data=value, epsilon=epsilon, axis=layout.index("C"), name=f"{name}_bn{number}"
    )
    return nn.relu(data=value)


def separable_conv_block(
    data: relax.Expr,
    name: str,
    depthwise_channels: int,
    pointwise_channels: int,
    kernel_size: Sequence[int] = (3, 3),
    downsample: bool = False,
    padding: Sequence[int] = (1, 1),
    epsilon: float = 1e-5,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> relax.Expr:
    """Depthwise and pointwise convolution, each with batch normalization and ReLU."""
    axis = layout.index("C")
    if layout == "NCHW":
        shape = (depthwise_channels, 1, *kernel_size)
    else:
        shape = (*kernel_size, depthwise_channels, 1)
    value = conv2d(
        data=data,
        weight=var(f"{name}_weight", shape=shape, dtype=dtype),
        channels=depthwise_channels,
        groups=depthwise_channels,
        kernel_size=kernel_size,
        strides=(2, 2) if downsample else (1, 1),
        padding=padding,
        data_layout=layout,
        kernel_layout=conv_kernel_layout(layout, True),
        name=f"{name}_depthwise_conv1",
    )
    value = nn.relu(
        data=batch_norm_infer(data=value, epsilon=epsilon, axis=axis, name=f"{name}_bn1")
    )
    return conv_block(
        value, name, pointwise_channels, (1, 1), (1, 1), (0, 0), epsilon, layout, number="2"
    )


def mobile_net(
    num_classes: int = 1000,
    data_shape: Sequence[int] = (1, 3, 224, 224),
    dtype: str = "float32",
    alpha: float = 1.0,
    is_shallow: bool = False,
    layout: str = "NCHW",
) -> relax.Function:
    """Build the network; `alpha` scales the channels, `is_shallow` omits five blocks."""
    data = var("data", shape=data_shape, dtype=dtype)
    body = conv_block(data, "conv_block_1", int(32 * alpha), strides=(2, 2), layout=layout)
    blocks = [(32, 64, False), (64, 128, True), (128, 128, False), (128, 256, True)]
    blocks += [(256, 256, False), (256, 512, True)]
    if not is_shallow:
        blocks += [(512, 512, False)] * 5
    blocks += [(512, 1024, True), (1024, 1024, False)]
    for index, (depthwise, pointwise, downsample) in enumerate(blocks, 1):
        body = separable_conv_block(
            body,
            f"separable_conv_block_{index}",
            int(depthwise * alpha),
            int(pointwise * alpha),
            downsample=downsample,
            layout=layout,
            dtype=dtype,
        )
    flat = nn.batch_flatten(data=nn.global_avg_pool2d(data=body, layout=layout))
    fc = nn.dense(data=flat, weight=var("fc_weight"), units=num_classes)
    net = nn.softmax(data=nn.bias_add(fc, var("fc_bias")))
    return function_of(net)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> tuple[tvm.IRModule, dict[str, Any]]:
    """Build the network as a module with parameters."""
    data_shape = (batch_size, *image_shape)
    return create_workload(mobile_net(num_classes, data_shape, dtype, layout=layout))
