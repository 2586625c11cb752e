"""Blocks written in plain Python, traced once, partitioned and compiled.

    from compiler.mxnet import np, npx
    from compiler.mxnet.gluon import HybridBlock, nn

`docs/gluon.md` is the guide.
"""

from ...support.lazy_import import lazy_attributes

_MODULES = "contrib model_zoo nn rnn utils"

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
        "loss": "..autograd",
        **{name: f".{name}" for name in _MODULES.split()},
    },
)
