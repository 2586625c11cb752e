"""Partitioning a Relax module by registered partitioners, and outlining bindings by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import IRModule

from compiler.errors import PartitionError

from .callbacks import accept, claim_nodes
from .graph import SubgraphExtractor
from .outline import Group, outline
from .regions import UNMARKED, find_regions
from .registry import Options, Strategy, strategies_of
from .relax_function import PROJECTION, RelaxFunction
from .relax_graph import RelaxGraph


def partition(
    mod: IRModule,
    backend: str | Sequence[str],
    params: Mapping[str, Any] | None = None,
    **options: Any,
) -> IRModule:
    """Let partitioners claim subgraphs of `main`.

    Each accepted subgraph becomes a private function of the module that `main` calls, with the
    attributes that docs/architecture.md lists under "Accepted subgraph". Everything else, rejected
    subgraphs included, stays in `main` as it was. Subgraphs accepted before, in this call or in
    an earlier one, are never taken apart.

    Parameters
    ----------
    mod : IRModule
        Has a Relax function `main` over operators. It is not changed.
    backend : str or sequence of str
        Registered partitioners; several run one after the other.
    params : mapping of str to numpy.ndarray or tvm.runtime.Tensor, optional
        Values of parameters of `main`, for the callbacks to look at. Names that `main` does not
        have are left aside. The parameters stay parameters.
    **options
        Passed to the callbacks, values converted with `str`.

    Returns
    -------
    IRModule

    Raises
    ------
    UnknownBackendError
        No partitioner of that name is registered.
    PartitionCallbackError
        A callback raised or returned nonsense; names backend, strategy and subgraph.
    PartitionError
        The module has no Relax function `main`, or a value in `params` does not fit.
    """
    names = [backend] if isinstance(backend, str) else list(backend)
    chain = [(name, strategy) for name in names for strategy in strategies_of(name)]
    texts = {key: str(value) for key, value in options.items()}
    result = mod.clone()
    for name, strategy in chain:
        result = _run(result, name, strategy, params, texts)
    return result


def _run(
    mod: IRModule,
    backend: str,
    strategy: Strategy,
    params: Mapping[str, Any] | None,
    options: Options,
) -> IRModule:
    main = RelaxFunction(mod)
    source = RelaxGraph(main, params)
    graph = source.graph
    marks = claim_nodes(backend, strategy, graph.to_json(), len(graph.nodes), options)
    domains = [0] * len(marks)
    for node, binding in enumerate(source.binding_of):
        if binding is None or not main.is_claimable(binding):
            marks[node] = UNMARKED
        else:
            domains[node] = main.domains[binding]

    extractor = SubgraphExtractor(graph)
    groups: list[Group] = []
    for number, region in enumerate(find_regions(graph.predecessors(), marks, domains)):
        subgraph_json = ""
        if strategy.accept_subgraph is not None:
            subgraph_json = extractor.extract(region).to_json()
        attrs = accept(backend, strategy, subgraph_json, number, options, source.values)
        if attrs is None:
            continue
        own = {
            "baton.backend": backend,
            "baton.strategy": strategy.name,
            "baton.subgraph_op": strategy.subgraph_op,
            "baton.subgraph_id": number,
        }
        name = re.sub(r"\W", "_", f"subgraph_{backend}_{strategy.name}_{number}")
        members = [binding for node in region if (binding := source.binding_of[node]) is not None]
        groups.append(Group(members, name, {**attrs, **own}, record_inputs=True))
    return outline(main, groups) if groups else mod


def contract(
    mod: IRModule,
    groups: Sequence[Sequence[str]],
    attrs: Sequence[Mapping[str, Any]],
    *,
    names: Sequence[str] | None = None,
    function: str = "main",
) -> IRModule:
    """Outline sets of bindings of a function as private functions.

    Parameters
    ----------
    mod : IRModule
        It is not changed.
    groups : sequence of sequence of str
        Names of the variables that operator calls are bound to, one set for each function.
        Projections (`lv[0]`) may be named along with the call they belong to; they come along
        in any case.
    attrs : sequence of mapping of str to object
        Attributes of each function.
    names : sequence of str, optional
        Wanted name of each new function; `group_<i>` if not given.
    function : str
        The Relax function whose bindings are meant.

    Returns
    -------
    IRModule

    Raises
    ------
    PartitionError
        A name is unknown, ambiguous or in two groups, does not name an operator call in a
        dataflow block, a group is empty or spans blocks, or the groups would feed each other in
        a circle.
    """
    if len(attrs) != len(groups) or (names is not None and len(names) != len(groups)):
        raise PartitionError(f"{len(groups)} groups need as many attribute maps and names")
    main = RelaxFunction(mod, function)
    found = Counter(variable.name for variable in main.index_of)
    index_of = {variable.name: index for variable, index in main.index_of.items()}
    owner: dict[int, int] = {}
    result: list[Group] = []
    for number, group in enumerate(groups):
        members = _members(main, group, found, index_of)
        for index in members:
            if owner.setdefault(index, number) != number:
                name = main.bindings[index].var.name
                raise PartitionError(f"binding {name!r} is in groups {owner[index]} and {number}")
        title = names[number] if names is not None else f"group_{number}"
        result.append(Group(members, title, attrs[number]))
    return outline(main, result) if result else mod.clone()


def _members(
    main: RelaxFunction, group: Sequence[str], found: Counter[str], index_of: Mapping[str, int]
) -> list[int]:
    if not group:
        raise PartitionError("a group to contract is empty")
    for name in group:
        if found[name] != 1:
            problem = "binds no variable" if not found[name] else f"binds {found[name]} variables"
            raise PartitionError(
                f"the function {problem} named {name!r}; a group needs unique names"
            )
    indices = {index_of[name] for name in group}
    members = {index for index in indices if main.kinds[index] != PROJECTION}
    for index in sorted(indices):
        name = main.bindings[index].var.name
        if index in members and not main.is_claimable(index):
            raise PartitionError(
                f"binding {name!r} is no operator call in a dataflow block and can't be outlined"
            )
        if index not in members and main.owner(index) not in members:
            raise PartitionError(f"binding {name!r} is an output of a call outside its group")
    if len({main.domains[index] for index in members}) > 1:
        raise PartitionError(f"the bindings {', '.join(sorted(group))} are in different blocks")
    return sorted(members)
