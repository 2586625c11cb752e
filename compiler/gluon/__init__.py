"""Blocks written in plain Python, traced once, partitioned and compiled.

    from compiler import gluon, np, npx
    from compiler.gluon import nn

`docs/gluon.md` is the guide.
"""

from ..support.lazy_import import lazy_attributes
from . import methods  # noqa: F401  (gives them to `ndarray`)

__getattr__ = lazy_attributes(
    __name__,
    {
        "Block": ".block",
        "CachedOp": ".cached_op",
        "Constant": ".parameter",
        "Device": ".device",
        "HybridBlock": ".hybrid_block",
        "Parameter": ".parameter",
        "ParameterDict": ".parameter_dict",
        "SymbolBlock": ".symbol_block",
        "Trainer": ".autograd",
        "autograd": ".autograd",
        "clear": ".deferred",
        "context": ".deferred",
        "cpu": ".device",
        "current_device": ".device",
        "deferred": ".deferred",
        "deferred_compute": ".deferred",
        "engine": ".engine",
        "get_symbol": ".deferred",
        "gpu": ".device",
        "initializer": ".initializer",
        "is_deferred_compute": ".deferred",
        "loss": ".autograd",
        "model_zoo": ".model_zoo",
        "nd": ".nd",
        "ndarray": ".ndarray",
        "nn": ".nn",
        "np": ".np",
        "npx": ".npx",
        "set_deferred_compute": ".deferred",
        "set_variable": ".deferred",
        "utils": ".utils",
    },
)
