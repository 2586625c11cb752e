"""DenseNet: Huang et al. (2016)."""

from __future__ import annotations

from collections.abc import Sequence

from ... import nn
from ...hybrid_block import HybridBlock
from .classifier import Classifier, variant

_LAYERS = {
    121: (64, 32, (6, 12, 24, 16)),
    161: (96, 48, (6, 12, 36, 24)),
    169: (64, 32, (6, 12, 32, 32)),
    201: (64, 32, (6, 12, 48, 32)),
}


def _layer(growth: int, widen: int, dropout: float) -> HybridBlock:
    """Concatenation of the input and the output of a bottleneck."""
    new = nn.HybridSequential(
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.Conv2D(widen * growth, 1, use_bias=False),
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.Conv2D(growth, 3, padding=1, use_bias=False),
    )
    if dropout:
        new.add(nn.Dropout(dropout))
    both = nn.HybridConcatenate(axis=1)
    both.add(nn.Identity(), new)
    return both


def _transition(channels: int) -> HybridBlock:
    return nn.HybridSequential(
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.Conv2D(channels, 1, use_bias=False),
        nn.AvgPool2D(2, 2),
    )


class DenseNet(Classifier):
    """DenseNet.

    `num_init_features`: channels of the stem. `growth_rate`: channels that each layer adds.
    `block_config`: layers of each block. `bn_size`: width of the bottleneck, in growth rates.
    """

    def __init__(
        self,
        num_init_features: int,
        growth_rate: int,
        block_config: Sequence[int],
        bn_size: int = 4,
        dropout: float = 0,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.features = nn.HybridSequential(
            nn.Conv2D(num_init_features, 7, 2, 3, use_bias=False),
            nn.BatchNorm(),
            nn.Activation("relu"),
            nn.MaxPool2D(3, 2, 1),
        )
        channels = num_init_features
        for index, count in enumerate(block_config):
            layers = (_layer(growth_rate, bn_size, dropout) for _ in range(count))
            self.features.add(nn.HybridSequential(*layers))
            channels += count * growth_rate
            if index != len(block_config) - 1:
                channels //= 2
                self.features.add(_transition(channels))
        self.features.add(nn.BatchNorm(), nn.Activation("relu"), nn.GlobalAvgPool2D(), nn.Flatten())
        self.output = nn.Dense(classes)


for _layers, _settings in _LAYERS.items():
    variant(DenseNet, f"densenet{_layers}", *_settings)
