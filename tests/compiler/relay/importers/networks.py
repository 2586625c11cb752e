"""Three small networks, written once over the layers that every format has.

A writer makes each layer as programs of its format do; `writers.py` has one for Relay's builder and
one for each importer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

RANDOM = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return (RANDOM.normal(size=shape) / 4).astype("float32")


WEIGHTS = {
    "pixels": np.array([0.5, 2.0, 1.5, 1.0], "float32").reshape(4, 1, 1),
    "first": weights(8, 4, 3, 3),
    "gamma": weights(8) + 1,
    "beta": weights(8),
    "mean": weights(8),
    "variance": np.abs(weights(8)) + 1,
    "square": weights(8, 8, 3, 3),
    "point": weights(8, 8, 1, 1),
    "other_point": weights(8, 8, 1, 1),
    "depth": weights(8, 1, 3, 3),
    "bias": weights(8),
    "other_bias": weights(8),
    "scores": weights(5, 8),
    "scores_bias": weights(5),
    "three_scores": weights(5, 24),
    "query": weights(8, 8),
    "key": weights(8, 8),
    "value": weights(8, 8),
    "up": weights(16, 8),
    "up_bias": weights(16),
    "down": weights(8, 16),
}


class Writer(Protocol):
    """Layers of one format. Images are NCHW where a network says axes, whatever the format has."""

    def conv(
        self, data: Any, weight: str, bias: str = "", padding: int = 0, groups: int = 1
    ) -> Any: ...

    def batch_norm(self, data: Any) -> Any:
        """Over `WEIGHTS`' gamma, beta, mean and variance."""

    def scale_channels(self, data: Any, weight: str) -> Any: ...
    def relu(self, data: Any) -> Any: ...
    def sigmoid(self, data: Any) -> Any: ...
    def clip(self, data: Any, low: float, high: float) -> Any: ...
    def pad(self, data: Any, amount: int) -> Any:
        """Zeros around each image."""

    def max_pool(self, data: Any, size: int) -> Any: ...
    def global_pool(self, data: Any) -> Any:
        """One mean for each channel, of extents 1."""

    def flatten(self, data: Any) -> Any: ...
    def concat(self, parts: list[Any]) -> Any:
        """Along the channels."""

    def dense(self, data: Any, weight: str, bias: str = "") -> Any: ...
    def matmul(self, left: Any, right: Any) -> Any:
        """Products of the last two axes of tensors of four."""

    def add(self, left: Any, right: Any) -> Any: ...
    def multiply(self, left: Any, right: Any) -> Any: ...
    def divide(self, data: Any, number: float) -> Any: ...
    def reshape(self, data: Any, shape: tuple[int, ...]) -> Any: ...
    def transpose(self, data: Any, axes: tuple[int, ...]) -> Any: ...
    def softmax(self, data: Any) -> Any: ...
    def layer_norm(self, data: Any) -> Any:
        """Over the last axis, of `WEIGHTS`' gamma and beta."""

    def gelu(self, data: Any) -> Any:
        """The one of the error function."""


def residual(net: Writer, image: Any) -> Any:
    """A scaled image, a stem with a batch norm, a block with a shortcut, a classifier."""
    stem = net.conv(net.scale_channels(image, "pixels"), "first", padding=1)
    stem = net.max_pool(net.relu(net.batch_norm(stem)), 2)
    inner = net.relu(net.conv(stem, "point", "bias"))
    inner = net.conv(inner, "square", "other_bias", padding=1)
    shortcut = net.conv(stem, "other_point", "other_bias")
    block = net.relu(net.add(inner, shortcut))
    return net.dense(net.flatten(net.global_pool(block)), "scores", "scores_bias")


def mobile(net: Writer, image: Any) -> Any:
    """Padding by itself, a depthwise layer, squeeze and excitation, a sum and a concatenation."""
    deep = net.conv(net.pad(image, 1), "depth", "bias", groups=8)
    deep = net.clip(deep, 0.0, 6.0)
    gate = net.sigmoid(net.conv(net.global_pool(deep), "other_point", "other_bias"))
    gated = net.multiply(deep, gate)
    narrow = net.conv(gated, "point", "bias")
    all_three = net.concat([net.add(narrow, image), net.divide(deep, 6.0), gated])
    return net.dense(net.flatten(net.global_pool(all_three)), "three_scores", "scores_bias")


def transformer(net: Writer, words: Any) -> Any:
    """One layer of an encoder: two heads over three words of eight numbers, two samples."""

    def heads(weight: str, axes: tuple[int, ...] = (0, 2, 1, 3)) -> Any:
        return net.transpose(net.reshape(net.dense(words, weight), (2, 3, 2, 4)), axes)

    scores = net.divide(net.matmul(heads("query"), heads("key", (0, 2, 3, 1))), 2.0)
    mixed = net.matmul(net.softmax(scores), heads("value"))
    mixed = net.reshape(net.transpose(mixed, (0, 2, 1, 3)), (2, 3, 8))
    inner = net.layer_norm(net.add(mixed, words))
    return net.add(net.dense(net.gelu(net.dense(inner, "up", "up_bias")), "down", "bias"), inner)


NETWORKS: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "residual": (residual, (1, 4, 8, 8)),
    "mobile": (mobile, (1, 8, 6, 6)),
    "transformer": (transformer, (2, 3, 8)),
}
"""The networks, and the shapes of their inputs."""
