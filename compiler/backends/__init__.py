"""Back ends by name, their graphs, and the built-in ones; below Relay and lowering, their users."""

from .built_in import register_built_in
from .reasons import Unsupported
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

register_built_in()
