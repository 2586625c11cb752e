"""MXNet symbols and parameter files, read and written with numpy alone."""

from ..lazy import lazy_attributes

__getattr__ = lazy_attributes(
    __name__,
    {
        "Entry": ".graph",
        "Graph": ".graph",
        "Node": ".graph",
        "SparseArray": ".params",
        "Symbol": ".symbol",
        "load": ".symbol",
        "load_checkpoint": ".symbol",
        "load_params": ".params",
        "loads": ".symbol",
        "save_params": ".params",
        "to_onnx": ".to_onnx",
        "var": ".symbol",
    },
)
