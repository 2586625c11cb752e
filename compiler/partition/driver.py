"""Partitioning a module by registered partitioners."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from tvm import IRModule, relax

from compiler.backends import compiled_attrs, subgraph_name
from compiler.backends.graph import Graph, SubgraphExtractor
from compiler.backends.relax_graph import RelaxGraph
from compiler.errors import PartitionError
from compiler.ir.dataflow_graph import RelaxFunction
from compiler.ir.outline import ON_COMPILE_ERROR, Group, outline
from compiler.ir.rewrite import with_functions
from compiler.ir.scopes import map_scopes
from compiler.lowering.offloaded_functions import BACKEND, operators_of
from compiler.relay.adt_eval import evaluated, only_needed
from compiler.relay.calling_convention import as_main
from compiler.relay.function import OpenFunction
from compiler.relay.relax_to_relay import as_relay, to_relax
from compiler.support.gc_pause import paused_collection

from .candidates import Claims, Partitioning, Selection
from .costs import Rates
from .explanation import Explanation, explain_partitioning, show_summary
from .options import Limits
from .pattern_tables import chain_of, is_table, prepared
from .placement import Fastest, fastest
from .regions import UNMARKED
from .strategy_run import StrategyRun, check_names, check_options
from .vocabulary import knows_relax, knows_relay, with_arranged_parameters


def partition(
    mod: IRModule | relax.Function | OpenFunction,
    backend: str | Sequence[str],
    params: Mapping[str, Any] | None = None,
    *,
    placement: str | Fastest | None = None,
    **options: Any,
) -> IRModule:
    """Let partitioners select subgraphs of `main` and of the functions that it calls.

    Each accepted subgraph becomes a private function of the module that its caller calls, with the
    attributes that docs/internals.md lists under "Accepted subgraphs". Everything else, rejected
    subgraphs included, stays as it was. Subgraphs accepted before, in this call or in an earlier
    one, are never taken apart.

    Writes two lines to stderr: the share of each back end, and the operators left to the build.
    `logging.getLogger("baton").setLevel(logging.ERROR)` silences them.

    Callbacks get one graph after another: `main`, each branch of a condition, each loop body.
    A subgraph never leaves the branch or the body that it is in. Ids of subgraphs and the option
    `max_subgraphs` count over all graphs of a strategy.

    All of it is in Relay's operators: those of a Relax module are raised first, as
    `relay.from_relax` does. `relay.to_relax` gives the plain Relax module of the result.

    Parameters
    ----------
    mod : IRModule or function
        Has a function `main` over operators, Relay's or Relax's; a function is `main` of a new
        module. It is not changed.
    backend : str or sequence of str
        Registered partitioners, or pattern tables (`compiler.partition.pattern_tables`); several
        run one after the other.
    params : mapping of str to numpy.ndarray or tvm.runtime.Tensor, optional
        Values of parameters of `main`, for the callbacks to look at. Names that `main` does not
        have are ignored. The parameters stay parameters.
    placement : "fastest" or Fastest, optional
        Measure what each back end and the build itself take, and let each part of the model go
        where it is fastest; see `compiler.partition.placement`. By default all back ends run one
        after the other. A `PlacementLog` keeps and replays the measurements.
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
        A callback raised, returned an invalid value or timed out; names backend, strategy and
        subgraph.
    PartitionError
        The module has no Relax function `main`, a value in `params` does not fit, or an option is
        unknown or rejected by the partitioner.
    """
    done = partition_with_report(mod, backend, params, placement=placement, **options)
    show_summary(done)
    return done.module


def partition_with_report(
    mod: IRModule | relax.Function | OpenFunction,
    backend: str | Sequence[str],
    params: Mapping[str, Any] | None = None,
    *,
    placement: str | Fastest | None = None,
    **options: Any,
) -> Partitioning:
    """Like `partition`; also returns the outcome of every candidate and the reasons.

    Returns
    -------
    Partitioning
        The module, the candidates of all strategies, the graph before the first of them, and the
        measurements if the fastest engine was asked for.
    """
    if isinstance(mod, (relax.Function, OpenFunction)):
        mod = as_main(mod)
    if not hasattr(type(mod), "get_global_vars"):
        hint = "; call its optimize_for" if hasattr(mod, "optimize_for") else ""
        raise PartitionError(f"partition takes an IRModule, not {type(mod).__name__}{hint}")
    names = [backend] if isinstance(backend, str) else list(backend)
    chain = chain_of(names)
    for name in filter(is_table, names):
        mod = prepared(mod, params, name)
    texts = {key: str(value) for key, value in options.items()}
    limits = Limits.from_options(texts)
    check_names(chain, texts)
    for each in chain:
        check_options(each, texts, limits.callback_timeout)

    def partitioned(
        mod: IRModule,
        params: Mapping[str, Any],
        wanted: Collection[str],
        owners: Mapping[int, str] | None = None,
    ) -> Partitioning:
        walk = _Walk(mod, params)
        with paused_collection():
            selections = [
                selection
                for each in chain
                if each.name in wanted
                for strategy in each.strategies
                for selection in walk.run(StrategyRun(each.name, strategy, texts, limits, owners))
            ]
        first = walk.first or RelaxGraph(RelaxFunction(walk.module), params).graph
        candidates = [candidate for each in selections for candidate in each.candidates]
        return Partitioning(walk.module, first, candidates, tuple(selections))

    if placement is None:
        return partitioned(mod, params or {}, names)
    how = Fastest() if placement == "fastest" else placement
    if not isinstance(how, Fastest):
        raise PartitionError(f"placement is {placement!r}; it must be 'fastest' or a Fastest(...)")
    if tables := ", ".join(filter(is_table, names)):
        raise PartitionError(f"{tables}: a pattern table has no engine that could be measured")
    return fastest(as_relay(evaluated(mod)), params or {}, names, texts, how, partitioned)


def explain(
    mod: IRModule | relax.Function | OpenFunction,
    backend: str | Sequence[str],
    params: Mapping[str, Any] | None = None,
    *,
    what_if: Sequence[str | Sequence[str]] | None = None,
    rates: Rates | None = None,
    **options: Any,
) -> Explanation:
    """Partition a module and explain the result; arguments and errors are those of `partition`.

    Parameters
    ----------
    what_if : sequence of str or of sequences of str, optional
        Counterfactuals to compute: operators, or operators together. By default each operator
        that stays behind, and the combinations of the four most expensive ones.
    rates : Rates, optional
        Of the machine to predict for; by default this one's, measured in about 50 ms.

    Raises
    ------
    PartitionError
        No operator of a name in `what_if` stays behind.
    """
    done = partition_with_report(mod, backend, params, **options)
    return explain_partitioning(done, what_if=what_if, rates=rates)


class _Walk:
    """A module whose functions, with the scopes in them, strategies partition one by one."""

    def __init__(self, mod: IRModule, params: Mapping[str, Any]) -> None:
        self._plain = evaluated(mod)  # in the caller's operators, until something is accepted
        self.module = as_relay(self._plain)
        self.first: Graph | None = None  # `main` before the first strategy
        self._params = params
        main = RelaxFunction(self.module).function
        self._inputs = {hash(variable): variable.name for variable in main.params}

    def run(self, run: StrategyRun) -> list[Selection]:
        """Partition `main` and the functions that it needs by one strategy."""
        selections: list[Selection] = []
        needed = [str(gvar.name_hint) for gvar in only_needed(self.module, "main").functions]
        for name in sorted(needed, key=lambda name: (name != "main", name)):
            function = self.module[name]
            attrs = function.attrs or {} if isinstance(function, relax.Function) else None
            if attrs is not None and BACKEND not in attrs and "Compiler" not in attrs:
                change = partial(self._partitioned, name, run, selections)
                self._replace(name, map_scopes(function, change))
        return selections

    def _replace(self, name: str, function: relax.Function) -> None:
        if not function.same_as(self.module[name]):
            gvar = self.module.get_global_var(name)
            self.module = self._plain = with_functions(self.module, {gvar: function})

    def _partitioned(
        self, name: str, run: StrategyRun, selections: list[Selection], function: relax.Function
    ) -> relax.Function:
        """Partition one scope, which takes the place of the function that it is in."""
        whole = self.module[name]
        if function.same_as(whole):
            module, plain = self.module, self._plain
        else:
            gvar = self.module.get_global_var(name)
            module = plain = with_functions(self.module, {gvar: function})
        adapter = _ModuleAdapter(module, name, run, self._params, self._inputs)
        if self.first is not None and all(domain is None for domain in adapter.domains):
            return function
        claims = run.claims(adapter)
        in_relax = None
        if not knows_relay(adapter.claimed(claims.marks)):
            in_relax = _query_strategy_in_relax(plain, name, run, self._params, self._inputs)
            adapter, claims = in_relax or (adapter, claims)
        self.first = self.first or adapter.graph
        candidates = [candidate for each in selections for candidate in each.candidates]
        if run.limits.max_subgraphs is not None:
            left = run.limits.max_subgraphs - sum(each.accepted for each in candidates)
            run = replace(run, limits=replace(run.limits, max_subgraphs=left))
        is_main = function.same_as(whole) and name == "main"
        selection = run.select(adapter, claims, len(candidates))
        selections.append(replace(selection, is_main=is_main))
        if not adapter.has_accepted:
            return function
        result = adapter.result() if in_relax is None else as_relay(adapter.result())
        self.module = self._plain = result
        return result[name]


def _query_strategy_in_relax(
    mod: IRModule, name: str, run: StrategyRun, params: Mapping[str, Any], inputs: Mapping[int, str]
) -> tuple[_ModuleAdapter, Claims] | None:
    """The module in Relax's operators, with the claims; None if the strategy knows none."""
    names = operators_of(mod[name])
    if not (knows_relay(names) or knows_relax(names)):
        return None  # the names are the same in both
    adapter = _ModuleAdapter(to_relax(mod), name, run, params, inputs)
    claims = run.claims(adapter)
    if not knows_relax(adapter.claimed(claims.marks)):
        return None
    marks = with_arranged_parameters(adapter.graph, claims.marks)
    reasons = {node: each for node, each in claims.reasons.items() if marks[node] == UNMARKED}
    return adapter, Claims(marks, reasons)


class _ModuleAdapter:
    """A function of a module for one strategy; see `Adapter`.

    `inputs`: names of the parameters of `main`, by address.
    """

    def __init__(
        self,
        mod: IRModule,
        name: str,
        run: StrategyRun,
        params: Mapping[str, Any],
        inputs: Mapping[int, str],
    ) -> None:
        self._run = run
        self._main = RelaxFunction(mod, name)
        self._inputs = [each for each in self._main.parameters if hash(each) in inputs]
        names = {variable.name for variable in self._inputs}
        known = {key: value for key, value in params.items() if key in names}
        self._source = RelaxGraph(self._main, known)
        self.graph = self._source.graph
        self.function, self.bindings = self._main.function, self._source.binding_of
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
            **compiled_attrs(backend, strategy.name, self._run.options),
        }
        if self._run.limits.on_compile_error != "raise":
            own[ON_COMPILE_ERROR] = self._run.limits.on_compile_error
        name = subgraph_name(backend, strategy.name, number)
        bindings = (self._source.binding_of[node] for node in members)
        found = [binding for binding in bindings if binding is not None]
        self._groups.append(Group(found, name, {**attrs, **own}, self._inputs))

    def result(self) -> IRModule:
        """The module with the accepted subgraphs as functions."""
        return outline(self._main, self._groups, share=self._run.limits.dedup_subgraph)
