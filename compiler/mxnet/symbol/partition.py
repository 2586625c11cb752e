"""Partitioning a Symbol by a registered partitioner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from compiler.backends import get_partitioner
from compiler.backends.graph import Graph
from compiler.partition.callbacks import check_options
from compiler.partition.candidates import Candidate
from compiler.partition.gc_pause import paused_collection
from compiler.partition.options import Limits
from compiler.partition.strategy_run import run_strategy

from .partition_adapter import OutputType, SymbolAdapter

if TYPE_CHECKING:
    import numpy as np

    from .symbol import Symbol


@dataclass(frozen=True)
class KnownValues:
    """Known values, shapes and dtypes of a symbol's variables.

    * `args`, `aux`: values; callbacks see those of the variables they ask about.
    * `shapes`: shapes, those of values included.
    * `infer`: whether to infer and to annotate shapes and dtypes of all nodes.
    """

    args: Mapping[str, np.ndarray]
    aux: Mapping[str, np.ndarray]
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    infer: bool

    def types(self, symbol: Symbol) -> list[list[OutputType]] | None:
        """Shape and dtype of every output of every node; None without inference."""
        if not self.infer:
            return None
        from compiler.relay.frontend.mxnet import infer_types

        names = set(symbol.list_inputs())
        shapes = {name: shape for name, shape in self.shapes.items() if name in names}
        return infer_types(symbol, shapes, self.dtypes)


NOTHING_KNOWN = KnownValues({}, {}, {}, {}, False)


@dataclass(frozen=True)
class SymbolPartitioning:
    """A partitioned symbol with the record of its partitioning.

    * `graph`: the graph before the first strategy.
    * `candidates`: of all strategies, in the order they ran.
    """

    symbol: Symbol
    graph: Graph
    candidates: list[Candidate]


def partition_symbol(
    symbol: Symbol,
    backend: str,
    known: KnownValues = NOTHING_KNOWN,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> SymbolPartitioning:
    """Let a partitioner select subgraphs of a symbol; the symbol is not changed.

    * `backend`: a registered partitioner.
    * `options`: as of `compiler.partition.partition`.
    Raises UnknownBackendError: no partitioner of that name is registered.
    Raises PartitionCallbackError: a callback raised, returned nonsense or took too long.
    Raises PartitionError: an option is not understood or rejected, or the symbol has control
    dependencies.
    Raises FrontendError: shapes contradict each other.
    """
    chosen = get_partitioner(backend)
    texts = {key: str(value) for key, value in options.items()}
    limits = Limits.from_options(texts)
    check_options(chosen, texts, limits.callback_timeout)
    first: Graph | None = None
    candidates: list[Candidate] = []
    with paused_collection():
        for strategy in chosen.strategies:
            types = known.types(symbol)
            adapter = SymbolAdapter(
                symbol.graph, backend, strategy, limits, known.args, known.aux, types, texts
            )
            first = first or adapter.graph
            candidates += run_strategy(adapter, backend, strategy, texts, limits)
            symbol = type(symbol)(adapter.result())
    assert first is not None, "a partitioner has a strategy"
    return SymbolPartitioning(symbol, first, candidates)
