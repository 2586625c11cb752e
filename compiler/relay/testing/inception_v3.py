"""Inception v3.

Szegedy, Vanhoucke, Ioffe, Shlens and Wojna, "Rethinking the Inception Architecture for Computer
Vision" (2015).
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from .. import op
from ..expr import var
from ..op import nn
from .init import function_of, workload_of
from .layers import batch_norm_infer, conv2d

_Step = tuple[int, tuple[int, int]]
"""Channels and kernel size of a convolution that preserves the image size."""


def _conv(
    data: relax.Expr,
    channels: int,
    kernel: Sequence[int] = (1, 1),
    name: str = "",
    stride: Sequence[int] = (1, 1),
    pad: Sequence[int] = (0, 0),
) -> relax.Expr:
    """Convolution, batch normalization without scale, ReLU."""
    value = conv2d(
        data=data, channels=channels, kernel_size=kernel, strides=stride, padding=pad,
        name=f"{name}_conv1",
    )  # fmt: skip
    return nn.relu(data=batch_norm_infer(data=value, epsilon=2e-5, scale=False, name=f"{name}_bn"))


def _tower(data: relax.Expr, name: str, steps: Sequence[_Step]) -> relax.Expr:
    """Chain of convolutions named conv, conv_1, ..."""
    for index, (channels, kernel) in enumerate(steps):
        suffix = f"_{index}" if index else ""
        pad = (kernel[0] // 2, kernel[1] // 2)
        data = _conv(data, channels, kernel, f"{name}_conv{suffix}", pad=pad)
    return data


def _pooled(data: relax.Expr, kind: str) -> relax.Expr:
    """3 x 3 pooling that preserves the image size."""
    if kind == "max":
        return nn.max_pool2d(data, pool_size=(3, 3), strides=(1, 1), padding=(1, 1))
    return nn.avg_pool2d(
        data, pool_size=(3, 3), strides=(1, 1), padding=(1, 1), count_include_pad=True
    )


def _halved(data: relax.Expr) -> relax.Expr:
    return nn.max_pool2d(data, pool_size=(3, 3), strides=(2, 2), padding=(0, 0))


def _mixed_35(data: relax.Expr, projected: int, name: str) -> relax.Expr:
    """Inception block at 35 x 35 with branches 1x1, 5x5, two 3x3, pooling."""
    return op.concatenate(
        (
            _tower(data, name, [(64, (1, 1))]),
            _tower(data, f"{name}_tower", [(48, (1, 1)), (64, (5, 5))]),
            _tower(data, f"{name}_tower_1", [(64, (1, 1)), (96, (3, 3)), (96, (3, 3))]),
            _tower(_pooled(data, "avg"), f"{name}_tower_2", [(projected, (1, 1))]),
        ),
        axis=1,
    )


def _to_17(data: relax.Expr, name: str) -> relax.Expr:
    """Reduction block from 35 x 35 to 17 x 17."""
    left = _conv(data, 384, (3, 3), f"{name}_conv", stride=(2, 2))
    right = _tower(data, f"{name}_tower", [(64, (1, 1)), (96, (3, 3))])
    right = _conv(right, 96, (3, 3), f"{name}_tower_conv_2", stride=(2, 2))
    return op.concatenate((left, right, _halved(data)), axis=1)


def _mixed_17(data: relax.Expr, inner: int, name: str) -> relax.Expr:
    """Inception block at 17 x 17 with branches 1x1, factored 7x7, two factored 7x7, pooling."""
    row, column = (1, 7), (7, 1)
    return op.concatenate(
        (
            _tower(data, name, [(192, (1, 1))]),
            _tower(data, f"{name}_tower", [(inner, (1, 1)), (inner, row), (192, column)]),
            _tower(
                data,
                f"{name}_tower_1",
                [(inner, (1, 1)), (inner, column), (inner, row), (inner, column), (192, row)],
            ),
            _tower(_pooled(data, "avg"), f"{name}_tower_2", [(192, (1, 1))]),
        ),
        axis=1,
    )


def _to_8(data: relax.Expr, name: str) -> relax.Expr:
    """Reduction block from 17 x 17 to 8 x 8."""
    left = _tower(data, f"{name}_tower", [(192, (1, 1))])
    left = _conv(left, 320, (3, 3), f"{name}_tower_conv_1", stride=(2, 2))
    right = _tower(data, f"{name}_tower_1", [(192, (1, 1)), (192, (1, 7)), (192, (7, 1))])
    right = _conv(right, 192, (3, 3), f"{name}_tower_1_conv_3", stride=(2, 2))
    return op.concatenate((left, right, _halved(data)), axis=1)


def _mixed_8(data: relax.Expr, pooling: str, name: str) -> relax.Expr:
    """Inception block at 8 x 8 with branches 1x1, split 3x3, 3x3 and split 3x3, pooling."""

    def split(value: relax.Expr, tower: str) -> list[relax.Expr]:
        wide = _conv(value, 384, (1, 3), f"{tower}_mixed_conv", pad=(0, 1))
        return [wide, _conv(value, 384, (3, 1), f"{tower}_mixed_conv_1", pad=(1, 0))]

    first = _tower(data, name, [(320, (1, 1))])
    second = split(_tower(data, f"{name}_tower", [(384, (1, 1))]), f"{name}_tower")
    third = split(
        _tower(data, f"{name}_tower_1", [(448, (1, 1)), (384, (3, 3))]), f"{name}_tower_1"
    )
    last = _tower(_pooled(data, pooling), f"{name}_tower_2", [(192, (1, 1))])
    return op.concatenate((first, *second, *third, last), axis=1)


def get_net(
    batch_size: int, num_classes: int, image_shape: Sequence[int], dtype: str
) -> relax.Function:
    """Build the network for images of 3 x 299 x 299."""
    value: relax.Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    value = _conv(value, 32, (3, 3), "conv", stride=(2, 2))
    value = _conv(value, 32, (3, 3), "conv_1")
    value = _conv(value, 64, (3, 3), "conv_2", pad=(1, 1))
    value = _halved(value)
    value = _conv(value, 80, (1, 1), "conv_3")
    value = _conv(value, 192, (3, 3), "conv_4")
    value = _halved(value)
    for name, projected in (("mixed", 32), ("mixed_1", 64), ("mixed_2", 64)):
        value = _mixed_35(value, projected, name)
    value = _to_17(value, "mixed_3")
    for index, inner in enumerate((128, 160, 160, 192), 4):
        value = _mixed_17(value, inner, f"mixed_{index}")
    value = _to_8(value, "mixed_8")
    value = _mixed_8(value, "avg", "mixed_9")
    value = _mixed_8(value, "max", "mixed_10")
    value = nn.avg_pool2d(
        value, pool_size=(8, 8), strides=(1, 1), padding=(0, 0), count_include_pad=True
    )
    fc = nn.dense(nn.batch_flatten(value), var("fc1_weight"), units=num_classes)
    net = nn.softmax(data=nn.bias_add(fc, var("fc2_bias"), axis=-1))
    return function_of(net)


get_workload = workload_of(
    get_net, batch_size=1, num_classes=1000, image_shape=(3, 299, 299), dtype="float32"
)
