"""SqueezeNet: Iandola et al. (2016)."""

from __future__ import annotations

from typing import Any

from compiler.errors import BlockArgumentError

from ... import nn
from .classifier import Classifier, variant

_FIRES: dict[str, tuple[tuple[int, int], list[Any]]] = {
    "1.0": ((96, 7), [(16, 64), (16, 64), (32, 128), "pool", (32, 128), (48, 192), (48, 192),
                      (64, 256), "pool", (64, 256)]),
    "1.1": ((64, 3), [(16, 64), (16, 64), "pool", (32, 128), (32, 128), "pool", (48, 192),
                      (48, 192), (64, 256), (64, 256)]),
}  # fmt: skip


def _conv(channels: int, kernel: int, padding: int = 0) -> nn.HybridSequential:
    return nn.HybridSequential(nn.Conv2D(channels, kernel, padding=padding), nn.Activation("relu"))


def _fire(squeezed: int, expanded: int) -> nn.HybridSequential:
    paths = nn.HybridConcatenate(axis=1)
    paths.add(_conv(expanded, 1), _conv(expanded, 3, 1))
    return nn.HybridSequential(_conv(squeezed, 1), paths)


class SqueezeNet(Classifier):
    """SqueezeNet of version "1.0" or "1.1"."""

    def __init__(self, version: str, classes: int = 1000) -> None:
        super().__init__()
        if version not in _FIRES:
            raise BlockArgumentError(f"SqueezeNet is {' or '.join(_FIRES)}, not {version!r}")
        (channels, kernel), plan = _FIRES[version]
        self.features = nn.HybridSequential(
            nn.Conv2D(channels, kernel, 2),
            nn.Activation("relu"),
            nn.MaxPool2D(3, 2, ceil_mode=True),
        )
        for step in plan:
            pool = step == "pool"
            self.features.add(nn.MaxPool2D(3, 2, ceil_mode=True) if pool else _fire(*step))
        self.features.add(nn.Dropout(0.5))
        self.output = nn.HybridSequential(
            nn.Conv2D(classes, 1), nn.Activation("relu"), nn.GlobalAvgPool2D(), nn.Flatten()
        )


for _version in _FIRES:
    variant(SqueezeNet, f"squeezenet{_version}", _version)
