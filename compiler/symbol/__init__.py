"""MXNet symbols and parameter files, read and written with numpy alone."""

from ..lazy import lazy_attributes

__getattr__ = lazy_attributes(
    __name__,
    {
        "Entry": "..mxnet.graph",
        "Graph": "..mxnet.graph",
        "Node": "..mxnet.graph",
        "SparseArray": "..mxnet.params",
        "Symbol": ".symbol",
        "load": ".symbol",
        "load_checkpoint": ".symbol",
        "load_params": "..mxnet.params",
        "loads": ".symbol",
        "save_params": "..mxnet.params",
        "to_onnx": ".to_onnx",
        "var": ".symbol",
    },
)
