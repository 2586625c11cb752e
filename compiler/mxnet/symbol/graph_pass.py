"""Rewriting a Symbol by a registered graph pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from compiler.backends import GraphPass
from compiler.errors import FrontendError, PartitionCallbackError
from compiler.mxnet_format.graph import Graph
from compiler.mxnet_format.json_format import read_json, write_json
from compiler.partition.callbacks import run_pass
from compiler.partition.options import Limits

from .partition import KnownValues
from .partition_adapter import type_attrs

if TYPE_CHECKING:
    import numpy as np

    from .symbol import Symbol


def rewrite_symbol(
    symbol: Symbol, chosen: GraphPass, known: KnownValues, options: Mapping[str, Any]
) -> tuple[Symbol, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Run a graph pass; return the new symbol and the arguments and states that it adds.

    Raises PartitionCallbackError: the pass raised, took too long, or made what is not a symbol.
    """
    texts = {key: str(value) for key, value in options.items()}
    graph = symbol.graph
    types = known.types(symbol)
    if types is not None:
        nodes = [
            replace(node, attrs={**node.attrs, **type_attrs(types[index])})
            for index, node in enumerate(graph.nodes)
        ]
        graph = Graph(nodes, graph.heads, graph.attrs)
    timeout = Limits.from_options(texts).callback_timeout
    text, args, aux = run_pass(chosen, write_json(graph), texts, known.args, known.aux, timeout)
    try:
        made = read_json(text, "the graph")
    except FrontendError as error:
        raise PartitionCallbackError(
            f"graph pass {chosen.name!r} made what is not a symbol: {error}"
        ) from error
    return type(symbol)(made), args, aux
