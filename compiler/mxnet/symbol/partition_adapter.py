"""A Symbol as the neutral graph, and accepted subgraphs as nodes of it.

Edges, not entries, decide the order of a subgraph's inputs and outputs, as in MXNet: every input
of a node and every output of the graph is a slot, numbered in the order in which a depth-first walk
from the outputs comes back along it. A subgraph node has one input for each slot of its members
that reads something outside, and one output for each slot outside that reads a member, both in the
order of the slots. With `dedup_subgraph`, slots that read the same entry share an input, and
consecutive equal outputs are one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from compiler.backends import graph as neutral
from compiler.errors import PartitionError
from compiler.mxnet_format.attributes import DTYPES
from compiler.mxnet_format.data_dependent import DYNAMIC
from compiler.mxnet_format.graph import VARIABLE, Entry, Node
from compiler.mxnet_format.graph import Graph as SymbolGraph
from compiler.mxnet_format.operators import auxiliary_nodes, input_names, output_name, outputs_of
from compiler.mxnet_format.subgraph_node import SubgraphInfo, visible_attrs, visible_json
from compiler.partition.strategy_run import StrategyRun

if TYPE_CHECKING:
    import numpy as np

OutputType = tuple["tuple[int, ...] | None", "str | None"]
Slot = tuple[int, int]
"""(node, position of the input); `_HEADS` instead of a node for outputs of the graph."""

_HEADS = -1
_SHAPE, _DTYPE = _TYPES = "__ext_shape__", "__ext_dtype__"


class SymbolAdapter:
    """A symbol's graph for one strategy; see `Adapter`.

    * `source`: in the order that `Graph.ordered` gives. It is not changed.
    * `run`: the source of the subgraphs; its options are kept on subgraph nodes, for a backend
      that compiles them itself.
    * `args`, `aux`: known values by the names of variables.
    * `types`: per node shape and dtype of each output, None where unknown; written into the nodes'
      attributes if given.
    Raises PartitionError: a node has control dependencies, for which a subgraph node has no place.
    """

    def __init__(
        self,
        source: SymbolGraph,
        run: StrategyRun,
        args: Mapping[str, np.ndarray],
        aux: Mapping[str, np.ndarray],
        types: Sequence[Sequence[OutputType]] | None = None,
    ) -> None:
        bound = [node.name for node in source.nodes if node.control_deps]
        if bound:
            raise PartitionError(
                f"node {bound[0]!r} has control dependencies; a symbol with those can't be "
                "partitioned"
            )
        self._run = run
        self._options = json.dumps(dict(run.options))
        # Inputs are rewired and attributes added; everything else is shared with the original.
        nodes = [
            Node(
                node.op,
                node.name,
                list(node.inputs),
                node.attrs if types is None else {**node.attrs, **type_attrs(types[index])},
                subgraphs=node.subgraphs,
                num_outputs=node.num_outputs,
            )
            for index, node in enumerate(source.nodes)
        ]
        self._source = SymbolGraph(nodes, source.heads, source.attrs)
        self.args, self.aux = MappingProxyType(dict(args)), MappingProxyType(dict(aux))
        self.function, self.bindings = None, None
        self.graph = _neutral(self._source, {**args, **aux}, types)
        # Operators that run on the host stay outside of subgraphs.
        self.domains = [
            None if node.is_variable or node.op in DYNAMIC else 0 for node in self._source.nodes
        ]
        self._names = Counter(node.name for node in self._source.nodes)  # of nodes still outside
        self._nodes = list(self._source.nodes)
        self._heads = list(self._source.heads)
        self._order = _slot_order(self._source)
        self._slots: list[set[Slot]] = [set() for _ in self._nodes]  # that read each node
        for slot in self._order:
            self._slots[self._read(slot).node].add(slot)
        self._cut: _Cut | None = None

    def _read(self, slot: Slot) -> Entry:
        node, position = slot
        return self._heads[position] if node == _HEADS else self._nodes[node].inputs[position]

    def _write(self, slot: Slot, entry: Entry) -> None:
        node, position = slot
        if node == _HEADS:
            self._heads[position] = entry
        else:
            self._nodes[node].inputs[position] = entry

    def graph_json(self) -> str:
        return visible_json(self._source)

    def subgraph_json(self, members: Sequence[int]) -> str:
        return visible_json(self._cut_of(members).body)

    def accept(self, members: Sequence[int], number: int, attrs: Mapping[str, str]) -> None:
        cut = self._cut_of(members)
        body = cut.body
        lists = [_lists(body.nodes[head.node], head.output) for head in body.heads]
        strategy, limits = self._run.strategy, self._run.limits
        info = SubgraphInfo(
            self._run.backend,
            strategy.name,
            number,
            limits.on_compile_error,
            limits.dedup_subgraph,
            self._options,
            strategy.library,
        )
        known = [texts for texts in lists if texts is not None] if None not in lists else []
        inferred = {
            key: f"[{','.join(texts[position] for texts in known)}]"
            for position, key in enumerate((_SHAPE, _DTYPE))
        }
        op = strategy.subgraph_op
        stem = op if op == "_CachedOp" else "_op"
        new = len(self._nodes)
        self._nodes.append(
            Node(
                op,
                self._free_name(f"{stem}{number}", members),
                [self._read(slot) for slot, _ in cut.inputs],
                {**inferred, **attrs, **info.annotations()},
                subgraphs=[body],
                num_outputs=len(body.heads),
            )
        )
        self._slots.append(set())
        for position, (first, slots) in enumerate(cut.inputs):
            producer = self._read(first).node
            self._slots[producer].difference_update(slots)
            self._slots[producer].add((new, position))
            self._order[new, position] = self._order[first]
        for slot, output in cut.outputs.items():
            self._write(slot, Entry(new, output))
            self._slots[new].add(slot)
        self._cut = None

    def _free_name(self, wanted: str, members: Sequence[int]) -> str:
        """Choose a name for the node that replaces the members; their names are free."""
        for member in members:
            self._names[self._nodes[member].name] -= 1
        name, count = wanted, 0
        while self._names[name] > 0:
            count += 1
            name = f"{wanted}_{count}"
        self._names[name] += 1
        return name

    def result(self) -> SymbolGraph:
        """Return the graph in which a node replaces every accepted subgraph."""
        return SymbolGraph(self._nodes, self._heads, self._source.attrs)

    def _cut_of(self, members: Sequence[int]) -> _Cut:
        """The subgraph of some nodes; the review and the acceptance of one share it."""
        if self._cut is None or self._cut.members != tuple(members):
            self._cut = _Cut(self, tuple(members))
        return self._cut

    def input_slots(self, inside: set[int]) -> list[Slot]:
        """Inputs of members that read something outside, in order."""
        slots = [
            (member, position)
            for member in inside
            for position, (producer, _, _) in enumerate(self._nodes[member].inputs)
            if producer not in inside
        ]
        return sorted(slots, key=self._order.__getitem__)

    def output_slots(self, inside: set[int]) -> list[Slot]:
        """Slots outside that read a member, in order."""
        slots = [slot for member in inside for slot in self._slots[member] if slot[0] not in inside]
        return sorted(slots, key=self._order.__getitem__)

    def variable(self, entry: Entry, names: _Numbered) -> Node:
        """Make the variable of a subgraph for an entry outside."""
        producer = self._nodes[entry.node]
        attrs = {"isArg": str(producer.is_variable)}
        if producer.is_variable:
            attrs["argName"] = producer.name
        for key, text in zip((_SHAPE, _DTYPE), _lists(producer, entry.output) or ()):
            attrs[key] = f"[{text}]"
        return Node(VARIABLE, names.next(_entry_name(producer, entry.output)), attrs=attrs)


class _Cut:
    """The nodes of one subgraph, cut out of the graph as it is now."""

    def __init__(self, adapter: SymbolAdapter, members: tuple[int, ...]) -> None:
        self.members = members
        share = adapter._run.limits.dedup_subgraph
        inside = set(members)
        place = {member: position for position, member in enumerate(members)}
        nodes = [
            Node(
                node.op,
                node.name,
                [Entry(place.get(producer, -1), output) for producer, output, _ in node.inputs],
                dict(node.attrs),
                subgraphs=node.subgraphs,
                num_outputs=node.num_outputs,
            )
            for node in (adapter._nodes[member] for member in members)
        ]
        names = _Numbered(node.name for node in nodes)
        variable_of: dict[Entry | Slot, int] = {}
        replaced: dict[int, list[Slot]] = {}  # by variable
        for slot in adapter.input_slots(inside):
            entry = adapter._read(slot)
            key = Entry(entry.node, entry.output) if share else slot
            if key not in variable_of:
                variable_of[key] = len(nodes)
                nodes.append(adapter.variable(entry, names))
            replaced.setdefault(variable_of[key], []).append(slot)
            nodes[place[slot[0]]].inputs[slot[1]] = Entry(variable_of[key])
        heads: list[Entry] = []
        # which output of the subgraph node each slot outside reads
        self.outputs: dict[Slot, int] = {}
        for slot in adapter.output_slots(inside):
            entry = adapter._read(slot)
            head = Entry(place[entry.node], entry.output)
            if not (share and heads and heads[-1] == head):
                heads.append(head)
            self.outputs[slot] = len(heads) - 1
        order = SymbolGraph(nodes, heads).reachable()
        position = {old: new for new, old in enumerate(order)}
        for node in nodes:
            node.inputs = [Entry(position[producer], output) for producer, output, _ in node.inputs]
        # in depth-first order; its variables, in that order, belong to `inputs`
        self.body = SymbolGraph(
            [nodes[old] for old in order],
            [Entry(position[head.node], head.output) for head in heads],
        )
        # per input of the subgraph node the slot that decides on its order, and all that it
        # replaces
        self.inputs = [(replaced[old][0], replaced[old]) for old in order if old in replaced]
        states = auxiliary_nodes(self.body)
        for index, node in enumerate(self.body.nodes):
            if node.is_variable:
                node.attrs["isAux"] = str(index in states)


class _Numbered:
    """Names of the variables inside a subgraph: the entry's, and a number that counts repeats."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._counts: dict[str, int] = {}

    def next(self, stem: str) -> str:
        count = self._counts.get(stem, 0)
        while f"{stem}{count}" in self._taken:
            count += 1
        self._counts[stem] = count + 1
        self._taken.add(f"{stem}{count}")
        return f"{stem}{count}"


def _slot_order(graph: SymbolGraph) -> dict[Slot, int]:
    """The number of every slot, in the order a depth-first walk from the outputs returns."""
    order: dict[Slot, int] = {}
    seen: set[int] = set()
    for position, head in enumerate(graph.heads):
        path: list[tuple[Slot, int, int]] = [((_HEADS, position), head.node, 0)]
        while path:
            slot, node, done = path.pop()
            inputs = graph.nodes[node].inputs
            if done == 0 and node in seen:
                done = len(inputs)
            seen.add(node)
            if done < len(inputs):
                path += [(slot, node, done + 1), ((node, done), inputs[done].node, 0)]
            else:
                order[slot] = len(order)
    return order


def _neutral(
    source: SymbolGraph,
    values: Mapping[str, np.ndarray],
    types: Sequence[Sequence[OutputType]] | None,
) -> neutral.Graph:
    nodes = []
    parameters = _parameters(source)
    for index, node in enumerate(source.nodes):
        known = types[index] if types is not None else [(None, None)] * outputs_of(node).total
        attrs = {k: v for k, v in visible_attrs(node.attrs).items() if k not in _TYPES}
        if node.is_variable:
            attrs["param"] = str(node.name in values or index in parameters)
        nodes.append(
            neutral.Node(
                node.op,
                node.name,
                [(producer, output) for producer, output, _ in node.inputs],
                attrs,
                [("" if s is None else str(list(s)), dtype or "") for s, dtype in known],
            )
        )
    return neutral.Graph(nodes, [(head.node, head.output) for head in source.heads])


def _parameters(source: SymbolGraph) -> set[int]:
    """Variables that operators take as weights and the like, by the names of their inputs."""
    return {
        entry.node
        for node in source.nodes
        for name, entry in zip(input_names(node), node.inputs)
        if name != "data" and source.nodes[entry.node].is_variable
    }


def _entry_name(node: Node, output: int) -> str:
    """MXNet's name of an output; operators of partitioner libraries number theirs."""
    if node.subgraphs and node.op != "_CachedOp":
        single = len(node.subgraphs[0].heads) == 1
        return f"{node.name}_output" if single else f"{node.name}_output{output}"
    return output_name(node, output)


def type_attrs(types: Sequence[OutputType]) -> dict[str, str]:
    """Shapes and dtype codes of a node's outputs the way MXNet spells them."""
    shapes = ["[None]" if shape is None else f"[{','.join(map(str, shape))}]" for shape, _ in types]
    codes = [str(DTYPES.index(dtype)) if dtype in DTYPES else "-1" for _, dtype in types]
    return {_SHAPE: f"[{','.join(shapes)}]", _DTYPE: f"[{','.join(codes)}]"}


def _lists(node: Node, output: int) -> tuple[str, str] | None:
    """Shape and dtype code of one output from the attributes of its node; None if missing."""
    shapes, codes = node.attrs.get(_SHAPE), node.attrs.get(_DTYPE)
    return None if shapes is None or codes is None else _item(shapes, codes, output)


@lru_cache(maxsize=4096)  # most nodes have one of few shapes
def _item(shapes: str, codes: str, output: int) -> tuple[str, str] | None:
    try:
        shape = json.loads(shapes.replace("None", "null"))[output]
        code = json.loads(codes)[output]
    except (KeyError, ValueError, IndexError, TypeError):
        return None
    text = json.dumps(shape, separators=(",", ":")).replace("null", "None")
    return text, str(code)
