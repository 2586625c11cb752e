"""Networks for images: `get_model("resnet50_v1")`, or by their functions.

Parameters have the names that MXNet's networks give them, so that `load_parameters` reads the
files that MXNet's model zoo published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler.errors import BlockArgumentError

from ...hybrid_block import HybridBlock
from .alexnet import AlexNet
from .classifier import MODELS
from .densenet import DenseNet
from .inception import Inception3
from .mobilenet import MobileNet, MobileNetV2
from .resnet import ResNetV1, ResNetV2, get_resnet
from .squeezenet import SqueezeNet
from .vgg import VGG

globals().update((make.__name__, make) for make in MODELS.values())
if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


def get_model(name: str, **kwargs: Any) -> HybridBlock:
    """A network by its name.

    Parameters
    ----------
    name : str
        One of `MODELS`, in any case.
    **kwargs
        `classes` (1000), and what the network's class takes.

    Raises
    ------
    BlockArgumentError
        An unknown name.
    """
    found = MODELS.get(name.lower())
    if found is None:
        raise BlockArgumentError(f"there is no network {name!r}; there are {sorted(MODELS)}")
    return found(**kwargs)
