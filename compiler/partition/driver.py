"""Partitioning a module by registered partitioners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tvm import IRModule

from compiler.backends import compiled_attrs, get_partitioner, subgraph_name
from compiler.backends.graph import Graph, SubgraphExtractor
from compiler.backends.relax_graph import RelaxGraph
from compiler.ir.dataflow_graph import RelaxFunction
from compiler.ir.outline import ON_COMPILE_ERROR, Group, outline
from compiler.lowering.offloaded_functions import operators_of

from .candidates import Candidate, Partitioning
from .gc_pause import paused_collection
from .options import Limits
from .regions import UNMARKED
from .strategy_run import StrategyRun, check_options
from .vocabulary import knows_relax, knows_relay, with_arranged_parameters


def partition(
    mod: IRModule,
    backend: str | Sequence[str],
    params: Mapping[str, Any] | None = None,
    **options: Any,
) -> IRModule:
    """Let partitioners claim subgraphs of `main`.

    Each accepted subgraph becomes a private function of the module that `main` calls, with the
    attributes that docs/internals.md lists under "Accepted subgraphs". Everything else, rejected
    subgraphs included, stays in `main` as it was. Subgraphs accepted before, in this call or in
    an earlier one, are never taken apart.

    All of it is in Relay's operators: those of a Relax module are raised first, as
    `relay.from_relax` does. `relay.to_relax` gives the plain Relax module of the result.

    Parameters
    ----------
    mod : IRModule
        Has a function `main` over operators, Relay's or Relax's. It is not changed.
    backend : str or sequence of str
        Registered partitioners; several run one after the other.
    params : mapping of str to numpy.ndarray or tvm.runtime.Tensor, optional
        Values of parameters of `main`, for the callbacks to look at. Names that `main` does not
        have are left aside. The parameters stay parameters.
    **options
        Passed to the callbacks, values converted with `str`. Those that every backend has
        (`min_ops`, `max_ops`, `max_bytes`, `max_subgraphs`, `dedup_subgraph`, `on_compile_error`,
        `callback_timeout`) are explained in `compiler.partition.options`.

    Returns
    -------
    IRModule

    Raises
    ------
    UnknownBackendError
        No partitioner of that name is registered.
    PartitionCallbackError
        A callback raised, returned nonsense or took too long; names backend, strategy and
        subgraph.
    PartitionError
        The module has no Relax function `main`, a value in `params` does not fit, or an option is
        not understood or refused by the partitioner.
    """
    return partition_with_report(mod, backend, params, **options).module


def partition_with_report(
    mod: IRModule,
    backend: str | Sequence[str],
    params: Mapping[str, Any] | None = None,
    **options: Any,
) -> Partitioning:
    """Like `partition`; also says what became of every candidate.

    Returns
    -------
    Partitioning
        The module, the candidates of all strategies, and the graph before the first of them.
    """
    names = [backend] if isinstance(backend, str) else list(backend)
    chain = [get_partitioner(name) for name in names]
    texts = {key: str(value) for key, value in options.items()}
    limits = Limits.from_options(texts)
    for each in chain:
        check_options(each, texts, limits.callback_timeout)
    from ..relay.relax_to_relay import as_relay

    module, plain = as_relay(mod), mod
    first: Graph | None = None
    candidates: list[Candidate] = []
    with paused_collection():
        for each in chain:
            for strategy in each.strategies:
                run = StrategyRun(each.name, strategy, texts, limits)
                adapter = _ModuleAdapter(module, run, params)
                marks = run.claims(adapter)
                in_relax = None
                if not knows_relay(adapter.claimed(marks)):
                    in_relax = _query_strategy_in_relax(plain, run, params)
                    adapter, marks = in_relax or (adapter, marks)
                first = first or adapter.graph
                candidates += run.select(adapter, marks)
                if adapter.has_accepted:
                    module = plain = (
                        adapter.result() if in_relax is None else as_relay(adapter.result())
                    )
    first = first or RelaxGraph(RelaxFunction(module), params).graph
    return Partitioning(module, first, candidates)


def _query_strategy_in_relax(
    mod: IRModule, run: StrategyRun, params: Mapping[str, Any] | None
) -> tuple[_ModuleAdapter, list[int]] | None:
    """The module in Relax's operators, with the marks; None if the strategy knows none of those."""
    from ..relay.relax_to_relay import to_relax

    names = operators_of(mod["main"])
    if not (knows_relay(names) or knows_relax(names)):
        return None  # the names are the same in both
    adapter = _ModuleAdapter(to_relax(mod), run, params)
    marks = run.claims(adapter)
    if not knows_relax(adapter.claimed(marks)):
        return None
    return adapter, with_arranged_parameters(adapter.graph, marks)


class _ModuleAdapter:
    """`main` of a module for one strategy; see `Adapter`."""

    def __init__(self, mod: IRModule, run: StrategyRun, params: Mapping[str, Any] | None) -> None:
        self._run = run
        self._main = RelaxFunction(mod)
        self._source = RelaxGraph(self._main, params)
        self.graph = self._source.graph
        self.args = self._source.values
        self.aux: Mapping[str, Any] = MappingProxyType({})
        self.domains = [
            self._main.domains[binding]
            if binding is not None and self._main.claimable[binding]
            else None
            for binding in self._source.binding_of
        ]
        self._extractor = SubgraphExtractor(self.graph)
        self._groups: list[Group] = []

    @property
    def has_accepted(self) -> bool:
        """Whether any nodes were made a subgraph."""
        return bool(self._groups)

    def claimed(self, marks: Sequence[int]) -> set[str]:
        """Names of the operators that are marked."""
        return {node.op for node, mark in zip(self.graph.nodes, marks) if mark != UNMARKED}

    def graph_json(self) -> str:
        return self.graph.to_json()

    def subgraph_json(self, members: Sequence[int]) -> str:
        return self._extractor.extract(members).to_json()

    def accept(self, members: Sequence[int], number: int, attrs: Mapping[str, str]) -> None:
        backend, strategy = self._run.backend, self._run.strategy
        own: dict[str, Any] = {
            "baton.backend": backend,
            "baton.strategy": strategy.name,
            "baton.subgraph_op": strategy.subgraph_op,
            "baton.subgraph_id": number,
            **compiled_attrs(backend, self._run.options),
        }
        if self._run.limits.on_compile_error != "raise":
            own[ON_COMPILE_ERROR] = self._run.limits.on_compile_error
        name = subgraph_name(backend, strategy.name, number)
        bindings = (self._source.binding_of[node] for node in members)
        found = [binding for binding in bindings if binding is not None]
        self._groups.append(Group(found, name, {**attrs, **own}, record_inputs=True))

    def result(self) -> IRModule:
        """The module with the accepted subgraphs as functions."""
        return outline(self._main, self._groups, share=self._run.limits.dedup_subgraph)
