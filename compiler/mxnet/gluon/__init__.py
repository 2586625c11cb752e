"""Blocks written in plain Python, traced once, partitioned and compiled.

    from compiler.mxnet import np, npx
    from compiler.mxnet.gluon import HybridBlock, nn

`docs/gluon.md` is the guide.
"""

from typing import Any

from ...errors import LegacyImportError
from ...support.lazy_import import lazy_attributes


def _unsupported(name: str) -> Any:
    if name == "rnn":
        raise LegacyImportError(
            "mxnet.gluon.rnn is not supported: call mx.nd.RNN in a block's forward, or import the "
            "exported network with SymbolBlock.imports",
            name=__name__,
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__getattr__ = lazy_attributes(
    __name__,
    {
        "Block": ".block",
        "CachedOp": ".cached_op",
        "Constant": ".parameter",
        "HybridBlock": ".hybrid_block",
        "Parameter": ".parameter",
        "ParameterDict": ".parameter_dict",
        "SymbolBlock": ".symbol_block",
        "Trainer": "..autograd",
        "contrib": ".contrib",
        "loss": "..autograd",
        "model_zoo": ".model_zoo",
        "nn": ".nn",
        "utils": ".utils",
    },
    _unsupported,
)
