"""Pre-activation ResNet: He et al., "Identity Mappings in Deep Residual Networks" (2016)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax

from ...errors import RelayError
from .. import op
from ..expr import var
from ..op import nn
from .init import function_of, workload_of
from .layers import batch_norm_infer, conv2d, conv3d, conv_kernel_layout, dense_add_bias

EPSILON = 2e-5
DEEP = {
    18: [2, 2, 2, 2],
    34: [3, 4, 6, 3],
    50: [3, 4, 6, 3],
    101: [3, 4, 23, 3],
    152: [3, 8, 36, 3],
    200: [3, 24, 36, 3],
    269: [3, 30, 48, 8],
}
"""Maps the depth to units per stage, for images with more than 28 rows."""


def stages(num_layers: int, height: int) -> tuple[list[int], list[int], bool]:
    """Units and filters of the stages, and whether bottlenecks; RelayError for other depths."""
    if height <= 28:
        if num_layers >= 164 and (num_layers - 2) % 9 == 0:
            return [(num_layers - 2) // 9] * 3, [16, 64, 128, 256], True
        if num_layers < 164 and (num_layers - 2) % 6 == 0:
            return [(num_layers - 2) // 6] * 3, [16, 16, 32, 64], False
    elif num_layers in DEEP:
        if num_layers >= 50:
            return DEEP[num_layers], [64, 256, 512, 1024, 2048], True
        return DEEP[num_layers], [64, 64, 128, 256, 512], False
    raise RelayError(f"there is no residual network of {num_layers} layers for {height} rows")


def _convolution(layout: str) -> tuple[Callable[..., relax.Expr], int]:
    """Convolution operator for a data layout, and its number of spatial axes."""
    return (conv3d, 3) if "D" in layout else (conv2d, 2)


def residual_unit(
    data: relax.Expr,
    num_filter: int,
    stride: Sequence[int],
    dim_match: bool,
    name: str,
    bottle_neck: bool = True,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
) -> relax.Expr:
    """Residual unit: normalize, activate, convolve, two or three times, and add the input.

    With `dim_match`, the input has the result's shape; otherwise a convolution projects it.
    """
    layouts = {"data_layout": data_layout, "kernel_layout": kernel_layout}
    convolve, rank = _convolution(data_layout)
    inner, ones = int(num_filter * 0.25), (1,) * rank
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
        value = convolve(
            data=active,
            channels=channels,
            kernel_size=(size,) * rank,
            strides=strides,
            padding=(size // 2,) * rank,
            name=f"{name}_conv{index}",
            **layouts,
        )
    if dim_match:
        shortcut = data
    else:
        shortcut = convolve(
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
    layout: str = "NCHW",
    dtype: str = "float32",
) -> relax.Function:
    """Build a network with the given stages; the stem preserves the depth of video inputs."""
    convolve, rank = _convolution(layout)
    axis, height = layout.index("C"), data_shape[layout.index("H")]
    layouts = {"data_layout": layout, "kernel_layout": conv_kernel_layout(layout)}
    data = var("data", shape=data_shape, dtype=dtype)
    body = batch_norm_infer(data, epsilon=EPSILON, axis=axis, scale=False, name="bn_data")
    if height <= 32:
        body = convolve(
            body, channels=filter_list[0], kernel_size=(3,) * rank, strides=(1,) * rank,
            padding=(1,) * rank, name="conv0", **layouts,
        )  # fmt: skip
    else:
        depth = rank - 2
        body = convolve(
            body, channels=filter_list[0], kernel_size=(3,) * depth + (7, 7),
            strides=(1,) * depth + (2, 2), padding=(1,) * depth + (3, 3), name="conv0", **layouts,
        )  # fmt: skip
        body = nn.relu(batch_norm_infer(body, epsilon=EPSILON, axis=axis, name="bn0"))
        if rank == 2:
            body = nn.max_pool2d(
                body, pool_size=(3, 3), strides=(2, 2), padding=(1, 1), layout=layout
            )
    for stage in range(num_stages):
        for unit in range(units[stage]):
            halve = unit == 0 and stage > 0
            body = residual_unit(
                body,
                filter_list[stage + 1],
                ((2,) if halve else (1,)) * rank,
                unit > 0,
                f"stage{stage + 1}_unit{unit + 1}",
                bottle_neck,
                layout,
                layouts["kernel_layout"],
            )
    body = nn.relu(batch_norm_infer(body, epsilon=EPSILON, axis=axis, name="bn1"))
    if rank == 2:
        pooled = nn.global_avg_pool2d(body, layout=layout)
    else:
        pooled = nn.adaptive_avg_pool3d(body, (1, 1, 1), layout=layout)
    net = nn.softmax(dense_add_bias(nn.batch_flatten(pooled), units=num_classes, name="fc1"))
    return function_of(net)


def get_net(
    batch_size: int,
    num_classes: int,
    num_layers: int = 50,
    image_shape: Sequence[int] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
    **kwargs: Any,
) -> relax.Function:
    """Build a network of `num_layers` layers for images or video, in the layout's order."""
    del kwargs
    data_shape = (batch_size, *image_shape)
    units, filters, bottle_neck = stages(num_layers, data_shape[layout.index("H")])
    return resnet(units, len(units), filters, num_classes, data_shape, bottle_neck, layout, dtype)


get_workload = workload_of(get_net, batch_size=1, num_classes=1000, num_layers=18)
