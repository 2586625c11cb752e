"""MXNet symbols and parameter files by numpy alone; `compose` has `symbol.exp(x)` and others."""

from typing import Any

from ...support.lazy_import import lazy_attributes


def _operator(name: str) -> Any:
    from . import creation
    from .symbol import operator

    return getattr(creation, name) if name in creation.__all__ else operator(name)


__getattr__ = lazy_attributes(
    __name__,
    {
        "Entry": "...mxnet_format.graph",
        "Graph": "...mxnet_format.graph",
        "Group": ".symbol",
        "Node": "...mxnet_format.graph",
        "Prefix": "..name",
        "SparseArray": "...mxnet_format.params",
        "Symbol": ".symbol",
        "Variable": ".symbol",
        "contrib": ".symbol",
        "linalg": ".symbol",
        "load": ".symbol",
        "load_json": ".symbol",
        "load_checkpoint": ".symbol",
        "load_params": "...mxnet_format.params",
        "loads": ".symbol",
        "save_params": "...mxnet_format.params",
        "to_onnx": ".onnx_model",
        "var": ".symbol",
    },
    _operator,
)
