"""Base class of the networks: features, then an output layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler.errors import BlockArgumentError
from compiler.mxnet.array.ndarray import ndarray

from ...hybrid_block import HybridBlock


class Classifier(HybridBlock):
    """`features` on an image, then `output` on the features."""

    features: HybridBlock
    output: HybridBlock

    def forward(self, x: ndarray) -> ndarray:
        return self.output(self.features(x))


def reject_pretrained(pretrained: bool, name: str) -> None:
    """Raise BlockArgumentError if weights are to be downloaded."""
    if pretrained:
        raise BlockArgumentError(
            f"{name}: weights can't be downloaded; load a file with load_parameters"
        )


MODELS: dict[str, Callable[..., HybridBlock]] = {}
"""Functions that make the networks, by the names that `get_model` takes."""


def variant(
    factory: Callable[..., Classifier], name: str, *fixed: Any, function: str = "", **settings: Any
) -> None:
    """Add one variant of a network to `MODELS`; its function takes what its class takes."""

    def make(
        pretrained: bool = False, device: Any = None, root: Any = None, ctx: Any = None, **more: Any
    ) -> Any:
        reject_pretrained(pretrained, make.__name__)
        return factory(*fixed, **{**settings, **more})

    make.__name__ = (function or name).replace(".", "_")
    make.__doc__ = f"The network {name}; takes what `{factory.__name__}` takes."
    MODELS[name] = make
