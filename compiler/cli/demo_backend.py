"""A small example of a partitioner: it claims the classifier at the end of a network.

What a backend with an accelerator for matrix products would do, on the CPU: `_claim` marks the
operators that it could take, `_accept` looks at the weights and takes the subgraph or not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

NAME = "classifier"

_OPERATORS = frozenset({"nn.dense", "nn.bias_add", "add", "nn.softmax", "nn.log_softmax"})


def register() -> None:
    """Register the partitioner under `NAME`; once more has no effect."""
    from compiler import partition

    if NAME not in partition.list_partitioners():
        partition.register(NAME, partition.Strategy("dense", _claim, _accept))


def _claim(graph_json: str, ids: list[int], options: dict[str, str]) -> None:
    """Mark the operators of `_OPERATORS` whose results go to the outputs and nowhere else."""
    graph = json.loads(graph_json)
    nodes: list[dict[str, Any]] = graph["nodes"]
    readers: dict[int, set[int]] = {index: set() for index in range(len(nodes))}
    for index, node in enumerate(nodes):
        for producer, _, _ in node["inputs"]:
            readers[producer].add(index)
    outputs = {producer for producer, _, _ in graph["heads"]}
    for index in reversed(range(len(nodes))):
        ends_here = index in outputs or bool(readers[index])
        claimed = all(ids[reader] == -1 for reader in readers[index])
        if nodes[index]["op"] in _OPERATORS and ends_here and claimed:
            ids[index] = -1


def _accept(
    graph_json: str,
    subgraph_id: int,
    options: dict[str, str],
    attrs: dict[str, str],
    args: Mapping[str, np.ndarray],
    aux: Mapping[str, np.ndarray],
) -> bool:
    """Take a subgraph that multiplies by a matrix of weights, and note their number."""
    nodes: list[dict[str, Any]] = json.loads(graph_json)["nodes"]
    if not any(node["op"] == "nn.dense" for node in nodes):
        return False
    named = [node["attrs"]["argName"] for node in nodes if "argName" in node["attrs"]]
    matrices = [args[name] for name in named if name in args and args[name].ndim == 2]
    attrs["weights"] = str(sum(matrix.size for matrix in matrices))
    return bool(matrices)
