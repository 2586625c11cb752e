"""A failing case made small: fewer outputs, fewer nodes, then smaller shapes.

A node is removed by making what it computes an input, with the value it had. Every smaller case
is tried in a worker, and kept if it fails in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from .evaluate import (
    EvaluationError,
    NodeRunner,
    Value,
    constants_of,
    free_names,
    make_model,
    nodes_for,
    opset_of,
)

Fails = Callable[["Small"], bool]


@dataclass
class Small:
    """A model and one set of inputs."""

    model: onnx.ModelProto
    feed: Mapping[str, np.ndarray]


def alone(case: Small, fails: Fails) -> Small:
    """One of the nodes, if it fails by itself; else the case."""
    return next((single for single in single_nodes(case) if fails(single)), case)


def minimize(case: Small, fails: Fails, seconds: float) -> Small:
    """The smallest case found within `seconds` that still fails; `alone` comes first."""
    end = time.monotonic() + seconds
    for candidates in (fewer_outputs, fewer_nodes, smaller_shapes, calmer_values):
        found = True
        while found and time.monotonic() < end:
            found = False
            for candidate in candidates(case):
                if time.monotonic() >= end:
                    break
                if fails(candidate):
                    case, found = candidate, True
                    break
    return case


def part(
    case: Small, nodes: list[onnx.NodeProto], outputs: list[str], known: Mapping[str, Value]
) -> Small | None:
    """The case of some of the nodes: what they read of others is an input with its value."""
    made = {name for node in nodes for name in node.output}
    constants = constants_of(case.model)
    read = dict.fromkeys(name for node in nodes for name in free_names(node) if name not in made)
    if any(isinstance(known[name], list) for name in read) or not outputs:
        return None
    kept = {name: constants[name] for name in read if name in constants}
    feed = {name: np.asarray(known[name]) for name in read if name not in constants}
    return Small(_model(case, nodes, feed, outputs, kept), feed)


def _model(
    case: Small,
    nodes: list[onnx.NodeProto],
    feed: Mapping[str, np.ndarray],
    outputs: list[str],
    constants: Mapping[str, np.ndarray],
) -> onnx.ModelProto:
    return make_model(nodes, feed, outputs, opset_of(case.model), constants)


def _outputs(case: Small) -> list[str]:
    return [value.name for value in case.model.graph.output]


def single_nodes(case: Small) -> Iterator[Small]:
    """Each node by itself."""
    yield from _cuts(case, lambda nodes: ([node] for node in nodes))


def fewer_nodes(case: Small) -> Iterator[Small]:
    """Without the first nodes, without the last ones, and without each one."""

    def choices(nodes: list[onnx.NodeProto]) -> Iterator[list[onnx.NodeProto]]:
        step = len(nodes) // 2
        while step:
            yield nodes[step:]
            yield nodes[:-step]
            step //= 2
        for i in range(len(nodes)):
            yield nodes[:i] + nodes[i + 1 :]

    yield from _cuts(case, choices)


def _cuts(
    case: Small, choices: Callable[[list[onnx.NodeProto]], Iterator[list[onnx.NodeProto]]]
) -> Iterator[Small]:
    nodes = list(case.model.graph.node)
    if len(nodes) < 2:
        return
    try:
        known = NodeRunner(opset_of(case.model)).run_all(case.model, case.feed)
    except EvaluationError:
        return
    for kept in choices(nodes):
        read = {name for node in kept for name in free_names(node)}
        made = [name for node in kept for name in node.output if name]
        ends = [n for n in made if n not in read or n in _outputs(case)]
        smaller = part(case, kept, [n for n in ends if not isinstance(known[n], list)], known)
        if kept and smaller is not None:
            yield smaller


def fewer_outputs(case: Small) -> Iterator[Small]:
    """Each output by itself, with the nodes that it needs."""
    outputs = _outputs(case)
    if len(outputs) < 2:
        return
    for name in outputs:
        known = {**constants_of(case.model), **case.feed}
        smaller = part(case, nodes_for(case.model, name), [name], known)
        if smaller is not None:
            yield smaller


def smaller_shapes(case: Small) -> Iterator[Small]:
    """One extent made smaller wherever inputs and constants have it."""
    constants = constants_of(case.model)
    tensors = {**constants, **case.feed}
    extents = sorted({n for array in tensors.values() for n in array.shape if n > 1}, reverse=True)
    for extent in extents:
        for wanted in sorted({1, extent // 2, extent - 1}):
            if wanted >= extent:
                continue
            cut = {name: _cut(array, extent, wanted) for name, array in tensors.items()}
            feed = {name: cut[name] for name in case.feed}
            kept = {name: cut[name] for name in constants}
            nodes = list(case.model.graph.node)
            yield Small(_model(case, nodes, feed, _outputs(case), kept), feed)


def _cut(array: np.ndarray, extent: int, wanted: int) -> np.ndarray:
    return array[tuple(slice(wanted if n == extent else None) for n in array.shape)]


def calmer_values(case: Small) -> Iterator[Small]:
    """Inputs of zeros and ones where they may be."""
    for name, array in case.feed.items():
        for calm in (np.zeros_like(array), np.ones_like(array)):
            if array.size and not np.array_equal(array, calm) and not _is_calm(array):
                yield Small(case.model, {**case.feed, name: calm})


def _is_calm(array: np.ndarray) -> bool:
    return bool((array == array.reshape(-1)[0]).all()) and array.reshape(-1)[0] in (0, 1)
