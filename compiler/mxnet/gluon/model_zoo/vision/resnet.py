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


def _conv3x3(channels: int, stride: int, in_channels: int) -> nn.Conv2D:
    return nn.Conv2D(channels, 3, stride, 1, use_bias=False, in_channels=in_channels)


class BasicBlockV1(HybridBlock):
    """Two convolutions; the activation follows the sum."""

    def __init__(self, channels: int, stride: int, downsample: bool, in_channels: int) -> None:
        super().__init__()
        self.body = nn.HybridSequential(
            _conv3x3(channels, stride, in_channels),
            nn.BatchNorm(),
            nn.Activation("relu"),
            _conv3x3(channels, 1, channels),
            nn.BatchNorm(),
        )
        self.downsample = _shortcut(channels, stride, in_channels) if downsample else None

    def forward(self, x: ndarray) -> ndarray:
        kept = x if self.downsample is None else self.downsample(x)
        return npx.activation(kept + self.body(x), "relu")


def _shortcut(channels: int, stride: int, in_channels: int) -> nn.HybridSequential:
    return nn.HybridSequential(
        nn.Conv2D(channels, 1, stride, use_bias=False, in_channels=in_channels), nn.BatchNorm()
    )


class BottleneckV1(BasicBlockV1):
    """A convolution between two of kernel 1 that narrow and widen."""

    def __init__(self, channels: int, stride: int, downsample: bool, in_channels: int) -> None:
        HybridBlock.__init__(self)
        self.body = nn.HybridSequential(
            nn.Conv2D(channels // 4, 1, stride),
            nn.BatchNorm(),
            nn.Activation("relu"),
            _conv3x3(channels // 4, 1, channels // 4),
            nn.BatchNorm(),
            nn.Activation("relu"),
            nn.Conv2D(channels, 1, 1),
            nn.BatchNorm(),
        )
        self.downsample = _shortcut(channels, stride, in_channels) if downsample else None


class BasicBlockV2(HybridBlock):
    """Two convolutions; activations come before them."""

    def __init__(self, channels: int, stride: int, downsample: bool, in_channels: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm()
        self.conv1 = _conv3x3(channels, stride, in_channels)
        self.bn2 = nn.BatchNorm()
        self.conv2 = _conv3x3(channels, 1, channels)
        self.downsample = (
            nn.Conv2D(channels, 1, stride, use_bias=False, in_channels=in_channels)
            if downsample
            else None
        )

    def forward(self, x: ndarray) -> ndarray:
        kept = x
        x = npx.activation(self.bn1(x), "relu")
        if self.downsample is not None:
            kept = self.downsample(x)
        x = npx.activation(self.bn2(self.conv1(x)), "relu")
        return self.conv2(x) + kept


class BottleneckV2(HybridBlock):
    """A convolution between two of kernel 1; activations come before them."""

    def __init__(self, channels: int, stride: int, downsample: bool, in_channels: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm()
        self.conv1 = nn.Conv2D(channels // 4, 1, 1, use_bias=False)
        self.bn2 = nn.BatchNorm()
        self.conv2 = _conv3x3(channels // 4, stride, channels // 4)
        self.bn3 = nn.BatchNorm()
        self.conv3 = nn.Conv2D(channels, 1, 1, use_bias=False)
        self.downsample = (
            nn.Conv2D(channels, 1, stride, use_bias=False, in_channels=in_channels)
            if downsample
            else None
        )

    def forward(self, x: ndarray) -> ndarray:
        kept = x
        x = npx.activation(self.bn1(x), "relu")
        if self.downsample is not None:
            kept = self.downsample(x)
        x = npx.activation(self.bn2(self.conv1(x)), "relu")
        x = npx.activation(self.bn3(self.conv2(x)), "relu")
        return self.conv3(x) + kept


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

    Parameters
    ----------
    block : callable
        BasicBlockV1 or BottleneckV1.
    layers : sequence of int
        Blocks of each stage.
    channels : sequence of int
        Of the stem, then of each stage.
    classes : int
    thumbnail : bool
        For images of 32 x 32: a stem of one convolution.
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
            *_stem(channels[0], thumbnail),
            *_stages(block, layers, channels),
            nn.GlobalAvgPool2D(),
        )
        self.output = nn.Dense(classes, in_units=channels[-1])


class ResNetV2(Classifier):
    """ResNet with activations before the convolutions; parameters as for `ResNetV1`."""

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
            nn.BatchNorm(scale=False, center=False),
            *_stem(channels[0], thumbnail),
            *_stages(block, layers, channels),
            nn.BatchNorm(),
            nn.Activation("relu"),
            nn.GlobalAvgPool2D(),
            nn.Flatten(),
        )
        self.output = nn.Dense(classes, in_units=channels[-1])


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

    Raises
    ------
    BlockArgumentError
        Another version or number of layers, or pretrained weights, which can't be downloaded.
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


(resnet18_v1, resnet34_v1, resnet50_v1, resnet101_v1, resnet152_v1) = (
    variant(get_resnet, f"resnet{n}_v1", 1, n) for n in _LAYERS
)
(resnet18_v2, resnet34_v2, resnet50_v2, resnet101_v2, resnet152_v2) = (
    variant(get_resnet, f"resnet{n}_v2", 2, n) for n in _LAYERS
)
