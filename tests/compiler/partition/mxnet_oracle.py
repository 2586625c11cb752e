"""What the real MXNet made of graphs, and how Baton's result compares.

As a program it prints the comparison as a table: `python -m tests.compiler.partition.mxnet_oracle`.
"""

from __future__ import annotations

import gzip
import json
import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from compiler.mxnet.symbol import Symbol
from compiler.partition import Strategy, list_partitioners, register, unregister

FOLDER = pathlib.Path(__file__).parents[2] / "oracle" / "mxnet"
Data = dict[str, Any]


def read(name: str) -> Data:
    """A record of the oracle."""
    with gzip.open(FOLDER / name, "rb") as file:
        return json.load(file)


@dataclass(frozen=True)
class Case:
    """One graph, the operators claimed in it, and what MXNet made of it.

    Attributes
    ----------
    runs : dict
        "plain" and "dedup" to status and partitioned symbol.
    inputs, outputs
        Arrays by name, and those that the graph computes from them.
    """

    name: str
    symbol: Data
    op_names: list[str]
    runs: dict[str, Data]
    inputs: dict[str, np.ndarray]
    outputs: list[np.ndarray]

    @property
    def random(self) -> bool:
        """Whether a random generator made the graph."""
        return self.name.startswith("random")

    def partitioned(self, run: str) -> Symbol:
        """Baton's result, by the backend `by_name`."""
        symbol = Symbol.loads(json.dumps(self.symbol))
        options = {"dedup_subgraph": True} if run == "dedup" else {}
        return symbol.optimize_for("by_name", ops=",".join(self.op_names), **options)


@cache
def cases() -> dict[str, Case]:
    """All graphs, the hand-made ones first."""
    arrays: dict[str, dict[str, np.ndarray]] = {}
    with np.load(FOLDER / "partition.npz") as file:
        for key in file:
            name, _, rest = key.partition("/")
            arrays.setdefault(name, {})[rest] = file[key]
    found = {}
    for name, record in read("partition.json.gz").items():
        values = arrays[name]
        outputs = [values[f"out:{i}"] for i in range(sum(k.startswith("out:") for k in values))]
        inputs = {k.removeprefix("in:"): v for k, v in values.items() if k.startswith("in:")}
        found[name] = Case(
            name, record["symbol"], record["op_names"], record["runs"], inputs, outputs
        )
    return found


def register_by_name() -> None:
    """The backend `by_name`: claims the operators of its option `ops`, as MXNet's `default`."""

    def claim(graph_json: str, ids: list[int], options: dict[str, str]) -> None:
        wanted = set(options["ops"].split(","))
        for index, node in enumerate(json.loads(graph_json)["nodes"]):
            if node["op"] in wanted:
                ids[index] = -1

    if "by_name" not in list_partitioners():
        register("by_name", Strategy("by_name", claim, subgraph_op="_CachedOp"))


def unregister_by_name() -> None:
    """Take the backend back."""
    if "by_name" in list_partitioners():
        unregister("by_name")


@dataclass(frozen=True)
class Subgraph:
    """One subgraph node: what is in it, what it reads and yields, in order."""

    members: list[str]
    inputs: list[tuple[str, int]]
    outputs: list[tuple[str, int]]


def subgraphs(symbol: Data) -> dict[str, Subgraph]:
    """The subgraph nodes of symbol JSON, by name."""
    nodes = symbol["nodes"]
    return {
        node["name"]: Subgraph(
            [inner["name"] for inner in body["nodes"] if inner["op"] != "null"],
            [(nodes[entry[0]]["name"], entry[1]) for entry in node["inputs"]],
            [(body["nodes"][head[0]]["name"], head[1]) for head in body["heads"]],
        )
        for node in nodes
        for body in node.get("subgraphs", [])[:1]
    }


def outside(symbol: Data) -> list[tuple[str, str, list[tuple[str, int]]]]:
    """Operator, name and inputs of every node, in order."""
    nodes = symbol["nodes"]
    return [
        (node["op"], node["name"], [(nodes[e[0]]["name"], e[1]) for e in node["inputs"]])
        for node in nodes
    ]


def is_acyclic(symbol: Data) -> bool:
    """Whether the nodes can be put in an order; symbol JSON of a file may be in any."""
    nodes = symbol["nodes"]
    state: dict[int, int] = {}
    for root in range(len(nodes)):
        stack: list[tuple[int, Iterator[Any]]] = [(root, iter(nodes[root]["inputs"]))]
        if root in state:
            continue
        state[root] = 0
        while stack:
            index, inputs = stack[-1]
            entry = next(inputs, None)
            if entry is None:
                state[index] = 1
                stack.pop()
            elif entry[0] not in state:
                state[entry[0]] = 0
                stack.append((entry[0], iter(nodes[entry[0]]["inputs"])))
            elif not state[entry[0]]:
                return False
    return True


def worst_difference(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """Largest difference of an element, as a part of the tolerance |a - b| <= 1e-5 |b| + 1e-6."""
    if [array.shape for array in found] != [array.shape for array in expected]:
        return float("inf")
    return max(
        (float(np.max(np.abs(a - b) / (1e-5 * np.abs(b) + 1e-6))) if b.size else 0.0)
        for a, b in zip(found, expected)
    )


def share_of(symbol: Data, claimed: Mapping[str, Subgraph]) -> float:
    """Part of the original's operators that are in subgraphs."""
    operators = sum(node["op"] != "null" for node in symbol["nodes"])
    return sum(len(each.members) for each in claimed.values()) / max(operators, 1)


def main() -> None:
    """Print the table of all graphs."""
    register_by_name()
    print(
        f"{'graph':34} {'run':5} {'MXNet':7} {'subgraphs':>9} {'same':>5} {'claimed':>8}  error/tol"
    )
    same = total = 0
    for case in cases().values():
        for run, record in case.runs.items():
            result = json.loads(case.partitioned(run).tojson())
            mine = subgraphs(result)
            good = record["status"] == "ok"
            equal = good and mine == subgraphs(record["partitioned_symbol"])
            total, same = total + good, same + equal
            assert is_acyclic(result)
            computed = case.partitioned(run).eval(**case.inputs)
            worst = worst_difference(computed, case.outputs)
            print(
                f"{case.name:34} {run:5} {record['status']:7.7} {len(mine):9} "
                f"{'yes' if equal else '-' if not good else 'NO':>5} "
                f"{share_of(case.symbol, mine):8.0%}  {worst:9.2g}"
            )
    print(f"{same} of {total} graphs with a right MXNet result have the same subgraphs")
    unregister_by_name()


if __name__ == "__main__":
    main()
