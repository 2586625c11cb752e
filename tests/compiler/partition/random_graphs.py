"""Random graphs of a few operators, as symbol JSON and as a Relax module."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

import tvm
from hypothesis import strategies as st
from tvm import relax

from compiler.partition import Strategy

UNARY, BINARY = ("sin", "cos", "tanh"), ("elemwise_add", "elemwise_mul")
_RELAX = {"elemwise_add": "add", "elemwise_mul": "multiply"}


@dataclass(frozen=True)
class RandomGraph:
    """Variables v0, v1, v2, then operators; every array is 2x2.

    Attributes
    ----------
    nodes : list of (op, inputs)
        Inputs are (node, output); "halves" has two outputs, upper and lower half, which it gets
        from the concatenation of its two inputs, so that both are 2x2 again.
    heads : list of (node, output)
    """

    nodes: list[tuple[str, list[tuple[int, int]]]]
    heads: list[tuple[int, int]]

    def symbol_json(self) -> str:
        """MXNet's symbol JSON."""
        nodes: list[dict] = [{"op": "null", "name": f"v{i}", "inputs": []} for i in range(3)]
        place: list[int] = [0, 1, 2]
        for number, (op, inputs) in enumerate(self.nodes):
            node = {"op": op, "name": f"n{number}", "inputs": self._entries(inputs, place)}
            if op == "halves":
                joined = {**node, "op": "Concat", "name": f"c{number}"}
                nodes.append({**joined, "attrs": {"dim": "0", "num_args": "2"}})
                node = {**node, "op": "SliceChannel", "inputs": [[len(nodes) - 1, 0, 0]]}
                node["attrs"] = {"num_outputs": "2", "axis": "0"}
            place.append(len(nodes))
            nodes.append(node)
        heads = self._entries(self.heads, place)
        return json.dumps({"nodes": nodes, "arg_nodes": [0, 1, 2], "heads": heads})

    @staticmethod
    def _entries(entries: list[tuple[int, int]], place: list[int]) -> list[list[int]]:
        return [[place[node], output, 0] for node, output in entries]

    def relax_module(self) -> tvm.IRModule:
        """A module with one dataflow block."""
        ty = relax.TensorType((2, 2), "float32")
        params = [relax.Var(f"v{i}", ty) for i in range(3)]
        builder = relax.BlockBuilder()
        values: list[list[relax.Expr]] = [[param] for param in params]
        with builder.function("main", params):
            with builder.dataflow():
                for op, inputs in self.nodes:
                    read = [values[node][output] for node, output in inputs]
                    if op == "halves":
                        both = builder.emit(relax.op.concat(read, 0))
                        parts = builder.emit(relax.op.split(both, 2, 0))
                        values.append([builder.emit(parts[0]), builder.emit(parts[1])])
                    else:
                        call = getattr(relax.op, _RELAX.get(op, op))(*read)
                        values.append([builder.emit(call)])
                outputs = [values[node][output] for node, output in self.heads]
                bound = builder.emit_output(relax.Tuple(outputs))
            builder.emit_func_output(bound)
        return builder.get()


@st.composite
def random_graphs(draw: st.DrawFn, most: int = 300) -> RandomGraph:
    """Graphs of up to `most` operators, long chains and wide ones."""
    size = draw(st.one_of(st.integers(1, 40), st.integers(1, most)))
    reach = draw(st.sampled_from([3, 12, most]))
    chance = random.Random(draw(st.integers(0, 2**32)))
    nodes: list[tuple[str, list[tuple[int, int]]]] = []
    entries = [(0, 0), (1, 0), (2, 0)]
    for number in range(size):
        near = entries[-reach:]
        op = chance.choice([*UNARY, *BINARY, "halves"])
        count = 1 if op in UNARY else 2
        nodes.append((op, [chance.choice(near) for _ in range(count)]))
        entries += [(number + 3, 0)] + [(number + 3, 1)] * (op == "halves")
    heads = [chance.choice(entries) for _ in range(chance.randint(1, 3))]
    return RandomGraph(nodes, [*heads, entries[-1]])


@st.composite
def strategies(draw: st.DrawFn) -> tuple[Strategy, dict[str, str]]:
    """A strategy with random claims, and options."""
    seed = draw(st.integers(0, 2**32))
    marks = draw(st.sampled_from([(-1,), (-1, 0, 1), (0, 1, 2), (-1, -3, 4)]))
    share = draw(st.sampled_from([0.3, 0.7, 1.0]))
    rejects = draw(st.booleans())
    options = draw(
        st.sampled_from(
            [
                {},
                {"dedup_subgraph": "True"},
                {"max_ops": "3"},
                {"min_ops": "2", "dedup_subgraph": "True"},
                {"max_subgraphs": "4"},
            ]
        )
    )

    def claim(graph_json: str, ids: list[int], options: dict[str, str]) -> None:
        nodes = json.loads(graph_json)["nodes"]
        for index, node in enumerate(nodes):
            chance = random.Random(f"{seed} {node['name']}")
            if node["op"] in CLAIMABLE and chance.random() < share:
                ids[index] = chance.choice(marks)

    def review(graph_json: str, number: int, *rest: object) -> bool:
        return not rejects or random.Random(f"{seed} {number}").random() < 0.7

    return Strategy("random", claim, review), options


CLAIMABLE = frozenset(
    [*(*UNARY, *BINARY, "Concat", "SliceChannel"), *("add", "multiply", "concatenate", "split")]
)


def claimed_names(strategy: Strategy, graph_json: str) -> set[str]:
    """Names of the nodes that the strategy claims in a graph."""
    nodes = json.loads(graph_json)["nodes"]
    ids = [-2] * len(nodes)
    claim: Callable = strategy.supported_ops  # type: ignore[assignment]
    claim(graph_json, ids, {})
    return {node["name"] for node, mark in zip(nodes, ids) if mark != -2}
