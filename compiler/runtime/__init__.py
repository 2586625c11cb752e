"""Run a built library: factory module, executor, export and load.

Needs only what a runtime-only installation of TVM has. Attributes load on first use, so that
importing the package costs nothing. Import `graph_executor` or `load_module` from here before TVM
where memory or the time of a start matters (`type_lookup`).
"""

from typing import TYPE_CHECKING

from compiler.support.lazy_import import lazy_attributes

if TYPE_CHECKING:
    from compiler.runtime import graph_executor
    from compiler.runtime.executor import GraphExecutor
    from compiler.runtime.export import export_library
    from compiler.runtime.factory import FactoryModule
    from compiler.runtime.kv_cache import KVCache
    from compiler.runtime.load import load_module
    from compiler.runtime.metadata import Metadata, ParamInfo, TensorInfo
    from compiler.runtime.partitioner_library import load_engines

__getattr__ = lazy_attributes(
    __name__,
    {
        "FactoryModule": ".factory",
        "GraphExecutor": ".executor",
        "KVCache": ".kv_cache",
        "Metadata": ".metadata",
        "ParamInfo": ".metadata",
        "TensorInfo": ".metadata",
        "export_library": ".export",
        "graph_executor": ".graph_executor",
        "load_engines": ".partitioner_library",
        "load_module": ".load",
    },
)
