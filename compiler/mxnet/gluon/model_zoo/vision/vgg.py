"""VGG: Simonyan & Zisserman, "Very deep convolutional networks" (2014)."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.mxnet.initializer import Normal, Xavier

from ... import nn
from .classifier import Classifier, variant

_LAYERS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
_FILTERS = (64, 128, 256, 512, 512)


class VGG(Classifier):
    """VGG; `layers` are the convolutions of each stage, `filters` their channels."""

    def __init__(
        self,
        layers: Sequence[int],
        filters: Sequence[int] = _FILTERS,
        classes: int = 1000,
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        self.features = nn.HybridSequential()
        init = Xavier("gaussian", "out", 2)
        for count, channels in zip(layers, filters):
            for _ in range(count):
                self.features.add(nn.Conv2D(channels, 3, padding=1, weight_initializer=init))
                if batch_norm:
                    self.features.add(nn.BatchNorm())
                self.features.add(nn.Activation("relu"))
            self.features.add(nn.MaxPool2D(strides=2))
        for _ in range(2):
            dense = nn.Dense(4096, activation="relu", weight_initializer=Normal())
            self.features.add(dense, nn.Dropout(0.5))
        self.output = nn.Dense(classes, weight_initializer=Normal())


for _depth, _stages in _LAYERS.items():
    variant(VGG, f"vgg{_depth}", _stages)
    variant(VGG, f"vgg{_depth}_bn", _stages, batch_norm=True)
