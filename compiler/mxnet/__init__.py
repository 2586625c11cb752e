"""MXNet's API for inference, under MXNet's names.

    from compiler import mxnet as mx

    net = mx.gluon.model_zoo.vision.resnet18_v1()
    net.initialize(mx.init.Xavier(), ctx=mx.cpu())
    scores = net(mx.np.ones((1, 3, 224, 224)))

`docs/gluon.md` is the guide. `baton run script.py` lets `import mxnet` import this package.
"""

import sys
from typing import Any

from ..errors import LegacyImportError
from ..support.lazy_import import by_module, lazy_attributes

# Modules that MXNet knows by two names.
ALIASES = {
    "context": "device",
    "init": "initializer",
    "mod": "module",
    "ndarray": "nd",
    "numpy": "np",
    "numpy_extension": "npx",
    "sym": "symbol",
    "viz": "visualization",
}

GONE = {
    "io": "give arrays to a block, or batches with `data` and `pad` to Module.predict",
    "kvstore": "it belongs to training",
    "operator": "write the operator with mx.np in a block, or in C++ for mx.library.load",
    "rnn": "import a trained network; symbols and blocks run its RNN operators",
}
"""Modules of MXNet that are not supported, and what to use instead."""


def _by_alias(name: str) -> Any:
    if name in GONE:
        raise LegacyImportError(f"mxnet.{name} is not supported: {GONE[name]}", name=__name__)
    if name not in ALIASES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(sys.modules[__name__], ALIASES[name])


_MODULES = (
    "autograd base device gluon initializer library model module name nd np npx random runtime "
    "symbol test_utils util visualization"
)

__getattr__ = lazy_attributes(
    __name__,
    {
        **{name: f".{name}" for name in _MODULES.split()},
        **by_module(
            {
                ".device": "Context Device cpu current_context current_device gpu num_gpus",
                ".array.deferred": (
                    "clear deferred deferred_compute get_symbol is_deferred_compute "
                    "set_deferred_compute set_variable"
                ),
                ".base": "MXNetError",
                ".array.engine": "engine",
                ".util": "np_shape",
                ".array.ndarray": "waitall",
            }
        ),
    },
    _by_alias,
)
