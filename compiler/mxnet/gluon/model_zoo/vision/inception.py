"""Inception v3: Szegedy et al., "Rethinking the Inception architecture" (2015)."""

from __future__ import annotations

from typing import Any

from compiler.mxnet import np
from compiler.mxnet.array.ndarray import ndarray

from ... import nn
from ...hybrid_block import HybridBlock
from .classifier import Classifier, variant

Settings = tuple[int, Any, Any, Any]
"""Channels, kernel, strides, padding of a convolution."""


def _conv(channels: int, kernel: Any, strides: Any = 1, padding: Any = 0) -> nn.HybridSequential:
    return nn.HybridSequential(
        nn.Conv2D(channels, kernel, strides, padding, use_bias=False),
        nn.BatchNorm(epsilon=0.001),
        nn.Activation("relu"),
    )


def _branch(pool: str | None, *settings: Settings) -> nn.HybridSequential:
    out = nn.HybridSequential()
    if pool == "avg":
        out.add(nn.AvgPool2D(3, 1, 1))
    elif pool == "max":
        out.add(nn.MaxPool2D(3, 2))
    out.add(*(_conv(*each) for each in settings))
    return out


def _beside(*branches: HybridBlock) -> nn.HybridConcatenate:
    out = nn.HybridConcatenate(axis=1)
    out.add(*branches)
    return out


def _make_a(pool_features: int) -> HybridBlock:
    return _beside(
        _branch(None, (64, 1, 1, 0)),
        _branch(None, (48, 1, 1, 0), (64, 5, 1, 2)),
        _branch(None, (64, 1, 1, 0), (96, 3, 1, 1), (96, 3, 1, 1)),
        _branch("avg", (pool_features, 1, 1, 0)),
    )


def _make_b() -> HybridBlock:
    return _beside(
        _branch(None, (384, 3, 2, 0)),
        _branch(None, (64, 1, 1, 0), (96, 3, 1, 1), (96, 3, 2, 0)),
        _branch("max"),
    )


def _make_c(width: int) -> HybridBlock:
    across: Settings = (width, (1, 7), 1, (0, 3))
    down: Settings = (width, (7, 1), 1, (3, 0))
    return _beside(
        _branch(None, (192, 1, 1, 0)),
        _branch(None, (width, 1, 1, 0), across, (192, (7, 1), 1, (3, 0))),
        _branch(None, (width, 1, 1, 0), down, across, down, (192, (1, 7), 1, (0, 3))),
        _branch("avg", (192, 1, 1, 0)),
    )


def _make_d() -> HybridBlock:
    return _beside(
        _branch(None, (192, 1, 1, 0), (320, 3, 2, 0)),
        _branch(
            None, (192, 1, 1, 0), (192, (1, 7), 1, (0, 3)), (192, (7, 1), 1, (3, 0)), (192, 3, 2, 0)
        ),
        _branch("max"),
    )


class _Fork(HybridBlock):
    """A branch whose end forks into a row and a column."""

    def __init__(self, *settings: Settings) -> None:
        super().__init__()
        self.head = _branch(None, *settings)
        self.row = _branch(None, (384, (1, 3), 1, (0, 1)))
        self.column = _branch(None, (384, (3, 1), 1, (1, 0)))

    def forward(self, x: ndarray) -> ndarray:
        x = self.head(x)
        return np.concatenate([self.row(x), self.column(x)], axis=1)


def _make_e() -> HybridBlock:
    return _beside(
        _branch(None, (320, 1, 1, 0)),
        _Fork((384, 1, 1, 0)),
        _Fork((448, 1, 1, 0), (384, 3, 1, 1)),
        _branch("avg", (192, 1, 1, 0)),
    )


class Inception3(Classifier):
    """Inception v3, for images of 299 x 299."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.features = nn.HybridSequential(
            _conv(32, 3, 2),
            _conv(32, 3),
            _conv(64, 3, padding=1),
            nn.MaxPool2D(3, 2),
            _conv(80, 1),
            _conv(192, 3),
            nn.MaxPool2D(3, 2),
            _make_a(32),
            _make_a(64),
            _make_a(64),
            _make_b(),
            _make_c(128),
            _make_c(160),
            _make_c(160),
            _make_c(192),
            _make_d(),
            _make_e(),
            _make_e(),
            nn.AvgPool2D(8),
            nn.Dropout(0.5),
        )
        self.output = nn.Dense(classes)


variant(Inception3, "inceptionv3", function="inception_v3")
