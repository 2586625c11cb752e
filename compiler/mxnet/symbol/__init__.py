"""MXNet symbols and parameter files by numpy alone; `compose` has `symbol.exp(x)` and others."""

from typing import Any

from ...support.lazy_import import by_module, lazy_attributes


def _operator(name: str) -> Any:
    from . import creation
    from .symbol import operator

    return getattr(creation, name) if name in creation.__all__ else operator(name)


__getattr__ = lazy_attributes(
    __name__,
    by_module(
        {
            "...mxnet_format.graph": "Entry Graph Node",
            ".symbol": (
                "Group Symbol Variable contrib linalg load load_json load_checkpoint loads var"
            ),
            "..name": "Prefix",
            "...mxnet_format.params": "SparseArray load_params save_params",
            ".onnx_model": "to_onnx",
        }
    ),
    _operator,
)
