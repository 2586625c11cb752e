"""The fused recurrent layer, unrolled over time."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from compiler.errors import FrontendError
from compiler.graph.constants import constant, dtype_of

from ..mxnet_node import SymbolNode

op = relax.op

_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}


class _Parameters:
    """Takes weights, then biases, off the front of the flat parameter vector."""

    def __init__(self, node: SymbolNode):
        self.node = node
        self.offset = 0

    def take(self, *shape: int) -> relax.Expr:
        size = int(np.prod(shape))
        if self.offset + size > self.node.shape(1)[0]:
            raise FrontendError(f"{self.node.describe()}: the parameters {self.node.shape(1)} end")
        start, self.offset = self.offset, self.offset + size
        part = op.strided_slice(self.node[1], [0], [start], [start + size])
        return self.node.emit(op.reshape(self.node.emit(part), shape))


def rnn(node: SymbolNode) -> list[relax.Expr]:
    """Layers of LSTM, GRU or plain cells on data of (time, batch, features).

    The parameters are, layer by layer and direction by direction, the weights of input and state,
    then in the same order the biases; gates are in the order i, f, c, o (LSTM) or r, z, n (GRU).
    """
    mode, hidden = node.text("mode"), node.integer("state_size")
    if mode not in _GATES or node.has("projection_size"):
        raise node.unsupported(f"mode {mode!r} with projection_size {node.has('projection_size')}")
    if node.flag("use_sequence_length", False):
        raise node.unsupported("use_sequence_length")
    layers = node.integer("num_layers", 1)
    directions = 2 if node.flag("bidirectional", False) else 1
    time, batch, features = node.shape(0)
    gates = _GATES[mode] * hidden
    flat = _Parameters(node)
    sizes = [features] + [hidden * directions] * (layers - 1)
    weights = [
        [(flat.take(gates, size), flat.take(gates, hidden)) for _ in range(directions)]
        for size in sizes
    ]
    biases = [[(flat.take(gates), flat.take(gates)) for _ in range(directions)] for _ in sizes]
    first = _initial_states(node, 2, (layers * directions, batch, hidden))
    cells = _initial_states(node, 3, (layers * directions, batch, hidden)) if mode == "lstm" else []
    steps = op.split(node[0], time, 0) if time > 1 else None
    split = None if steps is None else node.emit(steps)
    sequence = [
        node.emit(op.squeeze(node[0] if split is None else node.emit(split[i]), [0]))
        for i in range(time)
    ]
    last_states, last_cells = [], []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            which = layer * directions + direction
            state = [first[which], *(cells[which : which + 1])]
            order = list(reversed(sequence)) if direction else sequence
            made = []
            for value in order:
                state = _cell(
                    node, mode, value, state, weights[layer][direction], (biases[layer][direction])
                )
                made.append(state[0])
            outputs.append(list(reversed(made)) if direction else made)
            last_states.append(state[0])
            last_cells += state[1:]
        sequence = [
            node.emit(op.concat(list(parts), 1)) if directions > 1 else parts[0]
            for parts in zip(*outputs)
        ]
    results = [_stacked(node, sequence)]
    if node.flag("state_outputs", False):
        results += [_stacked(node, last_states)]
        results += [_stacked(node, last_cells)] if last_cells else []
    return results


def _stacked(node: SymbolNode, values: list[relax.Expr]) -> relax.Expr:
    grown = [node.emit(op.expand_dims(value, 0)) for value in values]
    return op.concat(grown, 0) if len(grown) > 1 else grown[0]


def _initial_states(node: SymbolNode, index: int, shape: tuple[int, int, int]) -> list[relax.Expr]:
    """States before the first step; an array of unknown batch, as `zeros` makes it, is zero."""
    if index >= node.count or node.try_get(index) is None or 0 in node.shape(index):
        return [constant(np.zeros(shape[1:], node.dtype(0)))] * shape[0]
    states = node.emit(op.broadcast_to(node[index], shape))
    parts = [op.strided_slice(states, [0], [i], [i + 1]) for i in range(shape[0])]
    return [node.emit(op.squeeze(node.emit(part), [0])) for part in parts]


def _cell(
    node: SymbolNode,
    mode: str,
    value: relax.Expr,
    state: list[relax.Expr],
    weights: tuple[relax.Expr, relax.Expr],
    biases: tuple[relax.Expr, relax.Expr],
) -> list[relax.Expr]:
    """One step; returns the new state, for an LSTM also the cell."""
    ours, theirs = (
        node.emit(op.add(op.matmul(data, node.emit(op.permute_dims(weight))), bias))
        for data, weight, bias in zip((value, state[0]), weights, biases)
    )
    if mode.startswith("rnn"):
        activate: Any = op.nn.relu if mode == "rnn_relu" else op.tanh
        return [node.emit(activate(op.add(ours, theirs)))]
    if mode == "lstm":
        i, f, c, o = _gates(node, node.emit(op.add(ours, theirs)), 4)
        kept = op.multiply(op.sigmoid(f), state[1])
        cell = node.emit(op.add(kept, op.multiply(op.sigmoid(i), op.tanh(c))))
        return [node.emit(op.multiply(op.sigmoid(o), op.tanh(cell))), cell]
    (r, z, n), (r_state, z_state, n_state) = _gates(node, ours, 3), _gates(node, theirs, 3)
    reset = op.sigmoid(op.add(r, r_state))
    update = node.emit(op.sigmoid(op.add(z, z_state)))
    fresh = op.tanh(op.add(n, op.multiply(reset, n_state)))
    left = op.subtract(relax.const(1.0, dtype_of(update)), update)
    return [node.emit(op.add(op.multiply(left, fresh), op.multiply(update, state[0])))]


def _gates(node: SymbolNode, value: relax.Expr, count: int) -> list[relax.Expr]:
    parts = node.emit(op.split(value, count, 1))
    return [node.emit(relax.TupleGetItem(parts, i)) for i in range(count)]


def rnn_param_concat(node: SymbolNode) -> relax.Expr:
    """The flat parameter vector from its parts."""
    values = [node.emit(op.reshape(value, (-1,))) for value in node.all()]
    return op.concat(values, 0) if len(values) > 1 else values[0]


CONVERTERS = {"RNN": rnn, "_npx_rnn": rnn, "_rnn_param_concat": rnn_param_concat}
