"""The graph that partitioner callbacks see, whatever it was made from.

A graph is a list of nodes in topological order; a node's id is its position. An entry is one
output of a node. The JSON form has the keys of MXNet's symbol files::

    {"nodes": [{"op": "null", "name": "data", "attrs": {"shape": "[1, 3]", "param": "False"},
                "inputs": []},
               {"op": "exp", "name": "lv", "attrs": {"shape": "[1, 3]", "dtype": "float32"},
                "inputs": [[0, 0, 0]]}],
     "arg_nodes": [0], "heads": [[1, 0, 0]]}

Variables have the operator name "null". Attributes are strings throughout:

* operator parameters, e.g. "strides": "[1, 1]";
* "shape" and "dtype" of the output ("[1, 3]", "float32"), of a node with several outputs a list of
  them ("[[1, 3], [1, 3]]", "[float32, float32]"); missing where unknown, and left out where the
  operator has a parameter of that name. Extents that only running tells are names and expressions
  of these, "[batch, seq * 2, 3]", and the key "bounds" of the graph has the largest extents of
  those for which some were given, {"batch": 16};
* on variables, "param": "True" for parameters and constants whose value is known, else "False";
* on the variables of a subgraph also "isArg": whether the outer producer is a variable, "argName":
  that variable's name (if "isArg" is "True"), and "isAux": always "False".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from compiler.ir.unique_names import Names

VARIABLE = "null"
"""Operator name of a node that computes nothing: a parameter, a constant, an input."""

Entry = tuple[int, int]
"""One output of a node: (node id, output index)."""

OutputType = tuple[str, str]
"""Shape as text, "[1, 3]", and dtype of one output; "" where unknown."""


@dataclass(slots=True)
class Node:
    """One operator or variable."""

    op: str  # operator name, "null" for a variable
    name: str  # unique in the graph
    # inputs in order; every id is smaller than the node's own
    inputs: list[Entry] = field(default_factory=list)
    attrs: dict[str, str] = field(default_factory=dict)  # operator parameters and annotations
    # per output its shape as text, "[1, 3]", and its dtype; "" where unknown
    types: list[OutputType] = field(default_factory=list)
    source: str = ""  # the model's own name of the node that it comes from; not in the JSON

    def all_attrs(self) -> dict[str, str]:
        """Attributes with shape and dtype of the outputs."""
        return _annotations(self.types) | self.attrs


@dataclass
class Graph:
    """Nodes in topological order, and the entries that leave the graph."""

    nodes: list[Node] = field(default_factory=list)
    # outputs of the graph, in order; repeats allowed
    heads: list[Entry] = field(default_factory=list)
    bounds: dict[str, int] = field(default_factory=dict)  # largest extents of symbols, by name

    def predecessors(self) -> list[list[int]]:
        """For each node the ids of the nodes that feed it, as often as they do."""
        return [[producer for producer, _ in node.inputs] for node in self.nodes]

    def to_json(self) -> str:
        """The graph as JSON text; see the module's docstring."""
        return json.dumps(
            {
                "nodes": [
                    {
                        "op": node.op,
                        "name": node.name,
                        "attrs": node.all_attrs(),
                        "inputs": [[producer, output, 0] for producer, output in node.inputs],
                    }
                    for node in self.nodes
                ],
                "arg_nodes": [
                    index for index, node in enumerate(self.nodes) if node.op == VARIABLE
                ],
                "heads": [[producer, output, 0] for producer, output in self.heads],
                **({"bounds": self.bounds} if self.bounds else {}),
            }
        )


class SubgraphExtractor:
    """Cuts subgraphs out of one graph; the set-up is shared between all of them."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._heads = set(graph.heads)

    @cached_property
    def _readers(self) -> dict[Entry, set[int]]:
        """The nodes that read each entry; made when the first subgraph is asked for."""
        readers: dict[Entry, set[int]] = {}
        for index, node in enumerate(self._graph.nodes):
            for entry in node.inputs:
                readers.setdefault(entry, set()).add(index)
        return readers

    def extract(self, members: Iterable[int]) -> Graph:
        """The subgraph of some operator nodes, as the accept callback sees it.

        Every entry that is read from outside becomes one variable, named like its producer, right
        before its first reader. Heads are the member entries that others or the graph's own heads
        read, ordered by node and output; if nobody reads any, the outputs of the last member.
        """
        inside = sorted(members)
        position: dict[Entry, Entry] = {}
        new_id: dict[int, int] = {}
        names = Names(self._graph.nodes[index].name for index in inside)
        result = Graph(bounds=self._graph.bounds)
        for index in inside:
            node = self._graph.nodes[index]
            inputs: list[Entry] = []
            for entry in node.inputs:
                producer, output = entry
                if producer in new_id:
                    inputs.append((new_id[producer], output))
                    continue
                if entry not in position:
                    position[entry] = (len(result.nodes), 0)
                    result.nodes.append(self._variable(entry, names))
                inputs.append(position[entry])
            new_id[index] = len(result.nodes)
            result.nodes.append(
                Node(node.op, node.name, inputs, dict(node.attrs), node.types, node.source)
            )
        for index in inside:
            for output in range(len(self._graph.nodes[index].types)):
                entry = (index, output)
                readers = self._readers.get(entry, set())
                if entry in self._heads or any(reader not in new_id for reader in readers):
                    result.heads.append((new_id[index], output))
        if not result.heads:
            last = inside[-1]
            outputs = range(len(self._graph.nodes[last].types))
            result.heads = [(new_id[last], output) for output in outputs]
        return result

    def _variable(self, entry: Entry, names: Names) -> Node:
        producer, output = self._graph.nodes[entry[0]], entry[1]
        several = len(producer.types) > 1
        name = names.unique(f"{producer.name}_output{output}" if several else producer.name)
        is_argument = producer.op == VARIABLE
        attrs = {"isArg": str(is_argument), "isAux": "False"}
        attrs["param"] = producer.attrs.get("param", "False") if is_argument else "False"
        if is_argument:
            attrs["argName"] = producer.name
        return Node(VARIABLE, name, [], attrs, producer.types[output : output + 1])


def _annotations(types: list[OutputType]) -> dict[str, str]:
    if not types:
        return {}
    shapes, dtypes = zip(*types)
    found = {"shape": _listed(shapes), "dtype": _listed(dtypes)}
    return {key: text for key, text in found.items() if text}


def _listed(texts: Sequence[str]) -> str:
    if not all(texts):
        return ""
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
