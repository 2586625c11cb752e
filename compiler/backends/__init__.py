"""Back ends by name, the graphs that they see, and the built-in ones.

The registry is below Relay and lowering, which compile subgraphs with it. `compiler.partition`
selects the subgraphs.
"""

from __future__ import annotations

from .built_in import register_built_in
from .registry import (
    COMPILE_OPTIONS,
    CheckOptions,
    GraphPass,
    Options,
    Partitioner,
    Strategy,
    compiled_attrs,
    get_partitioner,
    graph_pass,
    list_partitioners,
    register,
    register_pass,
    registered,
    restore,
    subgraph_name,
    unregister,
)

__all__ = [
    "COMPILE_OPTIONS",
    "CheckOptions",
    "GraphPass",
    "Options",
    "Partitioner",
    "Strategy",
    "compiled_attrs",
    "get_partitioner",
    "graph_pass",
    "list_partitioners",
    "register",
    "register_pass",
    "registered",
    "restore",
    "subgraph_name",
    "unregister",
]

register_built_in()
