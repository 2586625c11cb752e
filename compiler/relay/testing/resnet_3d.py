"""Residual networks over depth, height and width.

Hara, Kataoka and Satoh, "Can Spatiotemporal 3D CNNs Retrace the History of 2D CNNs and ImageNet?"
(2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from .. import op
from ..analysis import free_vars
from ..expr import var
from ..function import Function
from ..op import nn
from .init import create_workload
from .layers import batch_norm_infer, conv3d, conv_kernel_layout, dense_add_bias
from .resnet import EPSILON, stages


def residual_unit(
    data: relax.Expr,
    num_filter: int,
    stride: Sequence[int],
    dim_match: bool,
    name: str,
    bottle_neck: bool = True,
    data_layout: str = "NCDHW",
    kernel_layout: str = "OIDHW",
) -> relax.Expr:
    """As in `resnet`, over three axes."""
    layouts = {"data_layout": data_layout, "kernel_layout": kernel_layout}
    inner, ones = int(num_filter * 0.25), (1, 1, 1)
    if bottle_neck:
        steps = [(inner, 1, stride), (inner, 3, ones), (num_filter, 1, ones)]
    else:
        steps = [(num_filter, 3, stride), (num_filter, 3, ones)]
    value, first = data, data
    for index, (channels, size, strides) in enumerate(steps, 1):
        normal = batch_norm_infer(
            data=value, epsilon=EPSILON, axis=data_layout.index("C"), name=f"{name}_bn{index}"
        )
        active = nn.relu(data=normal)
        if index == 1:
            first = active
        value = conv3d(
            data=active,
            channels=channels,
            kernel_size=(size,) * 3,
            strides=strides,
            padding=(size // 2,) * 3,
            name=f"{name}_conv{index}",
            **layouts,
        )
    if dim_match:
        shortcut = data
    else:
        shortcut = conv3d(
            data=first,
            channels=num_filter,
            kernel_size=ones,
            strides=stride,
            name=f"{name}_sc",
            **layouts,
        )
    return op.add(value, shortcut)


def resnet(
    units: Sequence[int],
    num_stages: int,
    filter_list: Sequence[int],
    num_classes: int,
    data_shape: Sequence[int],
    bottle_neck: bool = True,
    layout: str = "NCDHW",
    dtype: str = "float32",
) -> relax.Function:
    """The network for the given stages."""
    axis, height = layout.index("C"), data_shape[layout.index("H")]
    layouts = {"data_layout": layout, "kernel_layout": conv_kernel_layout(layout)}
    data = var("data", shape=data_shape, dtype=dtype)
    body = batch_norm_infer(data, epsilon=EPSILON, axis=axis, scale=False, name="bn_data")
    if height <= 32:
        body = conv3d(
            body, channels=filter_list[0], kernel_size=(3, 3, 3), strides=(1, 1, 1),
            padding=(1, 1, 1), name="conv0", **layouts,
        )  # fmt: skip
    else:
        body = conv3d(
            body, channels=filter_list[0], kernel_size=(3, 7, 7), strides=(1, 2, 2),
            padding=(1, 3, 3), name="conv0", **layouts,
        )  # fmt: skip
        body = nn.relu(batch_norm_infer(body, epsilon=EPSILON, axis=axis, name="bn0"))
    for stage in range(num_stages):
        for unit in range(units[stage]):
            halve = unit == 0 and stage > 0
            body = residual_unit(
                body,
                filter_list[stage + 1],
                (2, 2, 2) if halve else (1, 1, 1),
                unit > 0,
                f"stage{stage + 1}_unit{unit + 1}",
                bottle_neck,
                layout,
                layouts["kernel_layout"],
            )
    body = nn.relu(batch_norm_infer(body, epsilon=EPSILON, axis=axis, name="bn1"))
    pooled = nn.adaptive_avg_pool3d(body, (1, 1, 1), layout=layout)
    net = nn.softmax(dense_add_bias(nn.batch_flatten(pooled), units=num_classes, name="fc1"))
    return Function(free_vars(net), net)


def get_net(
    batch_size: int,
    num_classes: int,
    num_layers: int = 50,
    image_shape: Sequence[int] = (3, 16, 112, 112),
    layout: str = "NCDHW",
    dtype: str = "float32",
    **kwargs: Any,
) -> relax.Function:
    """The network of `num_layers` layers for clips of `image_shape`, in the layout's order."""
    del kwargs
    data_shape = (batch_size, *image_shape)
    units, filters, bottle_neck = stages(num_layers, data_shape[layout.index("H")])
    return resnet(units, len(units), filters, num_classes, data_shape, bottle_neck, layout, dtype)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: Sequence[int] = (3, 16, 112, 112),
    layout: str = "NCDHW",
    dtype: str = "float32",
    **kwargs: Any,
) -> tuple[tvm.IRModule, dict[str, Any]]:
    """The network as a module, and its parameters."""
    return create_workload(
        get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype, **kwargs)
    )
