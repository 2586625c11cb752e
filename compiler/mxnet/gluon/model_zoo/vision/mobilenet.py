"""MobileNet: Howard et al. (2017); MobileNetV2: Sandler et al. (2018)."""

from __future__ import annotations

from compiler.mxnet import np
from compiler.mxnet.array.ndarray import ndarray

from ... import nn
from ...hybrid_block import HybridBlock
from .classifier import Classifier, variant


class RELU6(HybridBlock):
    """Between 0 and 6."""

    def forward(self, x: ndarray) -> ndarray:
        return np.clip(x, 0, 6)


def _conv(
    channels: int, kernel: int = 1, stride: int = 1, pad: int = 0, groups: int = 1,
    active: bool = True, six: bool = False,
) -> list[HybridBlock]:  # fmt: skip
    """Convolution, batch norm, activation."""
    layers = [nn.Conv2D(channels, kernel, stride, pad, groups=groups, use_bias=False)]
    act = [RELU6() if six else nn.Activation("relu")] if active else []
    return [*layers, nn.BatchNorm(scale=True), *act]


class MobileNet(Classifier):
    """MobileNet; `multiplier` scales the channels."""

    def __init__(self, multiplier: float = 1.0, classes: int = 1000) -> None:
        super().__init__()
        narrow = [32, 64, *[128] * 2, *[256] * 2, *[512] * 6, 1024]
        wide = [64, *[128] * 2, *[256] * 2, *[512] * 6, *[1024] * 2]
        strides = [1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1]
        self.features = nn.HybridSequential(*_conv(int(32 * multiplier), 3, 2, 1))
        for before, after, stride in zip(narrow, wide, strides):
            channels = int(before * multiplier)
            self.features.add(*_conv(channels, 3, stride, 1, channels))
            self.features.add(*_conv(int(after * multiplier)))
        self.features.add(nn.GlobalAvgPool2D(), nn.Flatten())
        self.output = nn.Dense(classes)


class LinearBottleneck(HybridBlock):
    """Widen, convolve channel by channel, narrow; added to the input where shapes agree."""

    def __init__(self, in_channels: int, channels: int, widen: int, stride: int) -> None:
        super().__init__()
        self._shortcut = stride == 1 and in_channels == channels
        inner = in_channels * widen
        self.out = nn.HybridSequential()
        self.out.add(*_conv(inner, six=True))  # also where it does not widen, as MXNet does
        self.out.add(*_conv(inner, 3, stride, 1, inner, six=True))
        self.out.add(*_conv(channels, active=False))

    def forward(self, x: ndarray) -> ndarray:
        result = self.out(x)
        return result + x if self._shortcut else result


class MobileNetV2(Classifier):
    """MobileNetV2; parameters as for `MobileNet`."""

    def __init__(self, multiplier: float = 1.0, classes: int = 1000) -> None:
        super().__init__()
        plan = [(16, 1, 1, 1), (24, 2, 2, 6), (32, 3, 2, 6), (64, 4, 2, 6), (96, 3, 1, 6),
                (160, 3, 2, 6), (320, 1, 1, 6)]  # fmt: skip
        before = int(32 * multiplier)
        self.features = nn.HybridSequential(*_conv(before, 3, 2, 1, six=True))
        for width, count, first_stride, widen in plan:
            channels = int(width * multiplier)
            for index in range(count):
                stride = first_stride if index == 0 else 1
                self.features.add(LinearBottleneck(before, channels, widen, stride))
                before = channels
        last = int(1280 * multiplier) if multiplier > 1.0 else 1280
        self.features.add(*_conv(last, six=True), nn.GlobalAvgPool2D())
        self.output = nn.HybridSequential(nn.Conv2D(classes, 1, use_bias=False), nn.Flatten())


for _width in (0.25, 0.5, 0.75, 1.0):
    variant(MobileNet, f"mobilenet{_width}", _width)
    variant(MobileNetV2, f"mobilenetv2_{_width}", _width, function=f"mobilenet_v2_{_width}")
