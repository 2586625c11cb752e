"""Rewriting a Symbol by a registered partitioner or graph pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from compiler.backends import GraphPass, get_partitioner
from compiler.backends import graph as neutral
from compiler.errors import FrontendError, PartitionCallbackError
from compiler.mxnet_format.graph import Graph
from compiler.mxnet_format.json_format import read_json, write_json
from compiler.partition.candidates import Partitioning, Selection
from compiler.partition.options import Limits
from compiler.partition.strategy_run import StrategyRun, check_names, check_options, run_pass
from compiler.support.gc_pause import paused_collection

from .partition_adapter import OutputType, SymbolAdapter, type_attrs

if TYPE_CHECKING:
    import numpy as np

    from .symbol import Symbol


@dataclass(frozen=True)
class KnownValues:
    """Known values, shapes and dtypes of a symbol's variables."""

    # `args` and `aux`: values; callbacks see those of the variables they ask about
    args: Mapping[str, np.ndarray]
    aux: Mapping[str, np.ndarray]
    shapes: Mapping[str, tuple[int, ...]]  # shapes, those of values included
    dtypes: Mapping[str, str]
    infer: bool  # whether to infer and to annotate shapes and dtypes of all nodes

    def types(self, symbol: Symbol) -> list[list[OutputType]] | None:
        """Shape and dtype of every output of every node; None without inference."""
        if not self.infer:
            return None
        from compiler.relay.frontend.mxnet import infer_types

        names = set(symbol.list_inputs())
        shapes = {name: shape for name, shape in self.shapes.items() if name in names}
        return infer_types(symbol, shapes, self.dtypes)


NOTHING_KNOWN = KnownValues({}, {}, {}, {}, False)


def partition_symbol(
    symbol: Symbol,
    backend: str,
    known: KnownValues = NOTHING_KNOWN,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Partitioning:
    """Let a partitioner select subgraphs of a symbol; the symbol is not changed.

    `options` are those of `compiler.partition.partition`. Raises UnknownBackendError: no
    partitioner of that name is registered. Raises PartitionCallbackError: a callback raised,
    returned nonsense or took too long. Raises PartitionError: an option is not understood or
    rejected, or the symbol has control dependencies. Raises FrontendError: shapes contradict each
    other.
    """
    chosen = get_partitioner(backend)
    texts = {key: str(value) for key, value in options.items()}
    limits = Limits.from_options(texts)
    check_names([chosen], texts)
    check_options(chosen, texts, limits.callback_timeout)
    first: neutral.Graph | None = None
    selections: list[Selection] = []
    with paused_collection():
        for strategy in chosen.strategies:
            run = StrategyRun(backend, strategy, texts, limits)
            adapter = SymbolAdapter(symbol.graph, run, known.args, known.aux, known.types(symbol))
            first = first or adapter.graph
            selections.append(run.select(adapter))
            symbol = type(symbol)(adapter.result())
    assert first is not None, "a partitioner has a strategy"
    candidates = [candidate for each in selections for candidate in each.candidates]
    return Partitioning(symbol, first, candidates, tuple(selections))


def rewrite_symbol(
    symbol: Symbol, chosen: GraphPass, known: KnownValues, options: Mapping[str, Any]
) -> tuple[Symbol, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Run a graph pass; return the symbol and added values; PartitionCallbackError if it fails."""
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
