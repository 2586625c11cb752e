"""ResNet: He et al., "Deep residual learning" (2015), and "Identity mappings" (2016)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compiler.errors import BlockArgumentError
from compiler.mxnet import npx
from compiler.mxnet.array.ndarray import ndarray

from ... import nn
from ...hybrid_block import HybridBlock
from .classifier import Classifier, reject_pretrained, variant

_LAYERS = {
    18: ("basic", (2, 2, 2, 2)),
    34: ("basic", (3, 4, 6, 3)),
    50: ("bottleneck", (3, 4, 6, 3)),
    101: ("bottleneck", (3, 4, 23, 3)),
    152: ("bottleneck", (3, 8, 36, 3)),
}
_CHANNELS = {"basic": (64, 64, 128, 256, 512), "bottleneck": (64, 256, 512, 1024, 2048)}


def _conv3x3(channels: int, stride: int, in_channels: int) -> HybridBlock:
    return nn.Conv2D(channels, 3, stride, 1, use_bias=False, in_channels=in_channels)


class BasicBlockV1(HybridBlock):
    """Two convolutions; the activation follows the sum."""

    def __init__(self, channels: int, stride: int, downsample: bool, in_channels: int) -> None:
        super().__init__()
        convs = self._convs(channels, stride, in_channels)
        self.body = nn.HybridSequential(convs[0], nn.BatchNorm())
        for conv in convs[1:]:
            self.body.add(nn.Activation("relu"), conv, nn.BatchNorm())
        self.downsample = None
        if downsample:
            shortcut = nn.Conv2D(channels, 1, stride, use_bias=False, in_channels=in_channels)
            self.downsample = nn.HybridSequential(shortcut, nn.BatchNorm())

    def _convs(self, channels: int, stride: int, in_channels: int) -> list[HybridBlock]:
        return [_conv3x3(channels, stride, in_channels), _conv3x3(channels, 1, channels)]

    def forward(self, x: ndarray) -> ndarray:
        kept = x if self.downsample is None else self.downsample(x)
        return npx.activation(kept + self.body(x), "relu")


class BottleneckV1(BasicBlockV1):
    """A convolution between two of kernel 1 that narrow and widen."""

    def _convs(self, channels: int, stride: int, in_channels: int) -> list[HybridBlock]:
        narrow = channels // 4
        first, last = nn.Conv2D(narrow, 1, stride), nn.Conv2D(channels, 1, 1)
        return [first, _conv3x3(narrow, 1, narrow), last]


class BasicBlockV2(HybridBlock):
    """Two convolutions; activations come before them."""

    def __init__(self, channels: int, stride: int, downsample: bool, in_channels: int) -> None:
        super().__init__()
        convs = self._convs(channels, stride, in_channels)
        for number, conv in enumerate(convs, 1):
            setattr(self, f"bn{number}", nn.BatchNorm())
            setattr(self, f"conv{number}", conv)
        self._count = len(convs)
        self.downsample = None
        if downsample:
            self.downsample = nn.Conv2D(
                channels, 1, stride, use_bias=False, in_channels=in_channels
            )

    def _convs(self, channels: int, stride: int, in_channels: int) -> list[HybridBlock]:
        return [_conv3x3(channels, stride, in_channels), _conv3x3(channels, 1, channels)]

    def forward(self, x: ndarray) -> ndarray:
        kept = x
        for number in range(1, self._count + 1):
            x = npx.activation(getattr(self, f"bn{number}")(x), "relu")
            if number == 1 and self.downsample is not None:
                kept = self.downsample(x)
            x = getattr(self, f"conv{number}")(x)
        return x + kept


class BottleneckV2(BasicBlockV2):
    """A convolution between two of kernel 1; activations come before them."""

    def _convs(self, channels: int, stride: int, in_channels: int) -> list[HybridBlock]:
        narrow = channels // 4
        first, last = (nn.Conv2D(n, 1, 1, use_bias=False) for n in (narrow, channels))
        return [first, _conv3x3(narrow, stride, narrow), last]


def _stages(
    block: Callable[..., HybridBlock], layers: Sequence[int], channels: Sequence[int]
) -> list[Any]:
    stages = []
    for index, count in enumerate(layers):
        before, after = channels[index], channels[index + 1]
        stride = 1 if index == 0 else 2
        stage = nn.HybridSequential(block(after, stride, after != before, before))
        stage.add(*(block(after, 1, False, after) for _ in range(count - 1)))
        stages.append(stage)
    return stages


def _stem(channels: int, thumbnail: bool) -> list[HybridBlock]:
    if thumbnail:
        return [_conv3x3(channels, 1, 0)]
    return [
        nn.Conv2D(channels, 7, 2, 3, use_bias=False),
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.MaxPool2D(3, 2, 1),
    ]


class ResNetV1(Classifier):
    """ResNet with the activation after the sum.

    * `block`: basicBlockV1 or BottleneckV1.
    * `layers`: blocks of each stage.
    * `channels`: of the stem, then of each stage.
    * `thumbnail`: for images of 32 x 32: a stem of one convolution.
    """

    def __init__(
        self,
        block: Callable[..., HybridBlock],
        layers: Sequence[int],
        channels: Sequence[int],
        classes: int = 1000,
        thumbnail: bool = False,
    ) -> None:
        super().__init__()
        self.features = nn.HybridSequential(
            *self._before(),
            *_stem(channels[0], thumbnail),
            *_stages(block, layers, channels),
            *self._after(),
        )
        self.output = nn.Dense(classes, in_units=channels[-1])

    def _before(self) -> list[HybridBlock]:
        return []

    def _after(self) -> list[HybridBlock]:
        return [nn.GlobalAvgPool2D()]


class ResNetV2(ResNetV1):
    """ResNet with activations before the convolutions; parameters as for `ResNetV1`."""

    def _before(self) -> list[HybridBlock]:
        return [nn.BatchNorm(scale=False, center=False)]

    def _after(self) -> list[HybridBlock]:
        return [nn.BatchNorm(), nn.Activation("relu"), nn.GlobalAvgPool2D(), nn.Flatten()]


_BLOCKS: dict[tuple[int, str], Callable[..., HybridBlock]] = {
    (1, "basic"): BasicBlockV1,
    (1, "bottleneck"): BottleneckV1,
    (2, "basic"): BasicBlockV2,
    (2, "bottleneck"): BottleneckV2,
}


def get_resnet(
    version: int,
    num_layers: int,
    pretrained: bool = False,
    device: Any = None,
    root: Any = None,
    ctx: Any = None,
    **kwargs: Any,
) -> Classifier:
    """ResNet of version 1 or 2 with 18, 34, 50, 101 or 152 layers.

    Raises BlockArgumentError: another version or number of layers, or pretrained weights, which
    can't be downloaded.
    """
    reject_pretrained(pretrained, f"resnet{num_layers}_v{version}")
    if version not in (1, 2) or num_layers not in _LAYERS:
        raise BlockArgumentError(
            f"no ResNet v{version} of {num_layers} layers; versions are 1, 2, layers "
            f"{list(_LAYERS)}"
        )
    kind, layers = _LAYERS[num_layers]
    net = ResNetV1 if version == 1 else ResNetV2
    return net(_BLOCKS[version, kind], layers, _CHANNELS[kind], **kwargs)


for _depth in _LAYERS:
    for _version in (1, 2):
        variant(get_resnet, f"resnet{_depth}_v{_version}", _version, _depth)
