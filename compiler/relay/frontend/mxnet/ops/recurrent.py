"""The fused recurrent layer."""

from __future__ import annotations

import numpy as np
from tvm import relax

from compiler.errors import FrontendError
from compiler.ir.constants import constant
from compiler.relay.op.nn.recurrent import recurrent as all_steps

from ..node import SymbolNode

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
    if node.flag("lstm_state_clip_nan", False):
        raise node.unsupported("lstm_state_clip_nan")
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
    sequence = node[0]
    last_states, last_cells = [], []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            which = layer * directions + direction
            state = [first[which], *(cells[which : which + 1])]
            made = _direction(
                node,
                mode,
                sequence,
                state,
                weights[layer][direction],
                biases[layer][direction],
                backward=direction == 1,
            )
            outputs.append(made[0])
            ends = op.strided_slice(
                made[0], [0], *(([0], [1]) if direction else ([time - 1], [time]))
            )
            last_states.append(node.emit(op.squeeze(node.emit(ends), [0])))
            last_cells += made[1:]
        sequence = node.emit(op.concat(outputs, 2)) if directions > 1 else outputs[0]
    results = [sequence]
    if node.flag("state_outputs", False):
        results += [node.stack(last_states)]
        results += [node.stack(last_cells)] if last_cells else []
    return results


def _initial_states(node: SymbolNode, index: int, shape: tuple[int, int, int]) -> list[relax.Expr]:
    """States before the first step; an array of unknown batch, as `zeros` makes it, is zero."""
    if index >= node.count or node.try_get(index) is None or 0 in node.shape(index):
        return [constant(np.zeros(shape[1:], node.dtype(0)))] * shape[0]
    states = node.emit(op.broadcast_to(node[index], shape))
    parts = [op.strided_slice(states, [0], [i], [i + 1]) for i in range(shape[0])]
    return [node.emit(op.squeeze(node.emit(part), [0])) for part in parts]


_ORDER = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2)}
"""The gates of `nn.recurrent`, i, o, f, c and z, r, n, by their numbers here."""


def _direction(
    node: SymbolNode,
    mode: str,
    sequence: relax.Expr,
    state: list[relax.Expr],
    weights: tuple[relax.Expr, relax.Expr],
    biases: tuple[relax.Expr, relax.Expr],
    backward: bool,
) -> list[relax.Expr]:
    """The states of all steps, for an LSTM also the last cell."""
    (ours, theirs), (bias, state_bias) = (
        [_reordered(node, mode, value) for value in pair] for pair in (weights, biases)
    )
    inputs = node.emit(op.add(op.matmul(sequence, node.emit(op.permute_dims(ours))), bias))
    others: list[relax.Expr] = []
    if mode == "gru":
        hidden = int(state_bias.ty.shape.values[0]) // 3
        gates = node.emit(op.strided_slice(state_bias, [0], [0], [2 * hidden]))
        last = node.emit(op.strided_slice(state_bias, [0], [2 * hidden], [3 * hidden]))
        zeros = constant(np.zeros(hidden, node.dtype(0)))
        state_bias, others = node.emit(op.concat([gates, zeros], 0)), [last]
    inputs = node.emit(op.add(inputs, state_bias))
    recurrent = node.emit(op.permute_dims(theirs))
    result = node.emit(all_steps(inputs, recurrent, *state, *others, cell=mode, backward=backward))
    if mode != "lstm":
        return [result]
    return [node.emit(relax.TupleGetItem(result, index)) for index in range(2)]


def _reordered(node: SymbolNode, mode: str, value: relax.Expr) -> relax.Expr:
    """A weight or bias with the gates in the order of `nn.recurrent`."""
    order = _ORDER.get(mode)
    if order is None:
        return value
    parts = node.emit(op.split(value, len(order), 0))
    chosen = [node.emit(relax.TupleGetItem(parts, gate)) for gate in order]
    return node.emit(op.concat(chosen, 0))


def rnn_param_concat(node: SymbolNode) -> relax.Expr:
    """The flat parameter vector from its parts."""
    values = [node.emit(op.reshape(value, (-1,))) for value in node.all()]
    return op.concat(values, 0) if len(values) > 1 else values[0]


CONVERTERS = {"RNN": rnn, "_npx_rnn": rnn, "_rnn_param_concat": rnn_param_concat}
