"""FLOPs, bytes and predicted time of the operators of a graph.

The prediction is a roofline: an operator takes the longer of computing and moving its operands, at
the rates of this process's machine. It knows nothing of caches and kernels, so it orders operators
and boundaries; it does not replace a measurement.
"""

from __future__ import annotations

import ast
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from compiler.backends.graph import VARIABLE, Graph, Node
from compiler.ir.op_facts import facts_in_relay
from compiler.relay.op import registry

from .options import tensor_bytes

CALL_MICROSECONDS = 15.0
"""Overhead of one call of a subgraph in an engine that `_ENGINES` lacks."""

# Microseconds of a call, and how many times an engine moves a tensor that enters or leaves it: for
# its own layout, and because operators are not fused there. Zen 4, one thread, 2026-11-29: 21 calls
# on 16 numbers; ten models with and without one kind of operator in the engine (19 pairs).
_ENGINES = {"onednn": (7.0, 4), "onnxruntime": (18.0, 4), "openvino": (24.0, 6)}


@dataclass(frozen=True)
class Rates:
    """Peak rates of the machine, per second."""

    gflops: float  # 10^9 floating-point operations of a float32 matmul
    gbytes: float  # 10^9 bytes of a copy, read and written ones counted
    # Overhead of one call of a subgraph, but for engines whose calls were measured
    call_microseconds: float = CALL_MICROSECONDS

    def microseconds(self, flops: int, nbytes: int) -> float:
        """Predicted time of an operator: the longer of computing and moving."""
        return max(flops / self.gflops, nbytes / self.gbytes) / 1e3

    def call(self, engine: str) -> float:
        """Microseconds that one call of a subgraph in an engine takes more than computing."""
        return _ENGINES[engine][0] if engine in _ENGINES else self.call_microseconds

    def crossing(self, nbytes: int, *engines: str) -> float:
        """Microseconds to write a tensor, read it, and move it to the layouts of some engines."""
        moves = sum(_ENGINES[engine][1] for engine in engines if engine in _ENGINES)
        return self.microseconds(0, (2 + moves) * nbytes)


@cache
def measured_rates() -> Rates:
    """Rates of this process, measured once in about 50 ms, with numpy's threads."""
    matrix = np.ones((768, 768), "float32")
    whole = np.ones(8 << 20, "float32")
    flops = 2 * matrix.shape[0] ** 3 / _seconds(lambda: matrix @ matrix)
    copied = np.zeros_like(whole)
    seconds = _seconds(lambda: np.copyto(copied, whole))
    return Rates(flops / 1e9, 2 * whole.nbytes / seconds / 1e9)


def _seconds(run: Callable[[], object]) -> float:
    times = []
    for _ in range(4):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


@dataclass(frozen=True)
class NodeCost:
    """FLOPs of an operator node, and the bytes that it reads and writes."""

    flops: int
    nbytes: int


def costs_of(graph: Graph) -> list[NodeCost]:
    """Costs of each node; dynamic extents count with their bounds or as 1, unknown types as 0."""
    return [_cost(graph, node) for node in graph.nodes]


def entry_bytes(graph: Graph, producer: int, output: int) -> int:
    """Bytes of one output of a node, dynamic extents as in `costs_of`."""
    if output >= len(graph.nodes[producer].types):
        return 0
    shape, dtype = graph.nodes[producer].types[output]
    known = tensor_bytes(shape, dtype, graph.bounds)
    if known is not None:
        return known
    return tensor_bytes(str(list(_shape(shape, graph))), dtype, {}) or 0


def _cost(graph: Graph, node: Node) -> NodeCost:
    if node.op == VARIABLE:
        return NodeCost(0, 0)
    entries = {*node.inputs}
    reads = sum(entry_bytes(graph, *entry) for entry in entries)
    writes = sum(
        tensor_bytes(str(list(_shape(shape, graph))), dtype, {}) or 0 for shape, dtype in node.types
    )
    return NodeCost(_flops(graph, node), reads + writes)


def _flops(graph: Graph, node: Node) -> int:
    if not all(shape for shape, _ in node.types):
        return 0  # a symbol without known shapes
    types = [graph.nodes[source].types[output : output + 1] for source, output in node.inputs]
    inputs = [_shape(shape, graph) for found in types for shape, _ in found]
    outputs = [_shape(shape, graph) for shape, _ in node.types]
    if not registry.is_available(node.op):
        return max([0, *map(math.prod, outputs)])
    macs = registry.lookup(node.op).macs
    if macs is not None and len(inputs) > 1 and outputs:
        attrs = {key: _value(text) for key, text in node.attrs.items()}
        return 2 * macs(attrs, inputs[0], inputs[1], outputs[0])
    if facts_in_relay(node.op).keeps_values:
        return 0
    return max([0, *map(math.prod, [*inputs, *outputs])])


def _shape(text: str, graph: Graph) -> tuple[int, ...]:
    parts = [part.strip() for part in text.strip("[]").split(",") if part.strip()]
    return tuple(int(part) if part.isdigit() else graph.bounds.get(part, 1) for part in parts)


def _value(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
