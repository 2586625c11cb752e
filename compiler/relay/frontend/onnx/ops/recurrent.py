"""RNN, GRU and LSTM.

Formulas, gate orders and defaults are those of the ONNX operator documentation. The products of
the inputs with W are one matmul for the whole sequence. The steps are one `nn.recurrent` for the
layers that exporters write; those with peepholes, clipping or other activations are unrolled, or
become a Scan if their length is dynamic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper
from tvm import relax

from compiler.ir.constants import constant
from compiler.relay.op.nn.recurrent import recurrent as all_steps
from compiler.relay.op.transform import reverse_sequence_kernel

from ..node import CALLED_OPSET, Node, Scope, constant_value
from ..shape_expr import shape_of
from .control_flow import MAX_ITERATIONS, step_of
from .elementwise import number

Activation = Callable[[relax.Expr], relax.Expr]

_PLAIN: dict[str, Activation] = {
    "sigmoid": relax.op.sigmoid,
    "tanh": relax.op.tanh,
    "relu": relax.op.nn.relu,
    "softplus": relax.op.nn.softplus,
    "softsign": lambda x: relax.op.divide(x, relax.op.add(relax.op.abs(x), number(1.0, x))),
}


@dataclass
class Direction:
    """One direction of a layer: its weights, in ONNX's layout, and its activations."""

    node: Node
    hidden: int
    recurrent: relax.Expr  # transposed R, [hidden, gates * hidden]
    bias: relax.Expr | None  # recurrent bias, [gates * hidden]; None where W's sum has it
    peepholes: relax.Expr | None
    activations: list[Activation]

    def gate(self, values: relax.Expr, index: int) -> relax.Expr:
        """Columns of gate `index` of [batch, gates * hidden]."""
        begin = index * self.hidden
        return relax.op.strided_slice(values, [1], [begin], [begin + self.hidden])

    def clipped(self, value: relax.Expr) -> relax.Expr:
        """`value` bound to a variable, and within the attribute `clip`, if there is one."""
        limit = self.node.attr("clip")
        return self.node.emit(value if limit is None else relax.op.clip(value, -limit, limit))


State = tuple[relax.Expr, ...]
Step = Callable[[Direction, relax.Expr, State], State]


def _rnn_step(layer: Direction, inputs: relax.Expr, state: State) -> State:
    product = relax.op.add(inputs, relax.op.matmul(state[0], layer.recurrent))
    return (layer.node.emit(layer.activations[0](layer.clipped(product))),)


def _gru_step(layer: Direction, inputs: relax.Expr, state: State) -> State:
    """Gates z, r, h."""
    node, hidden = layer.node, state[0]
    f, g = layer.activations[:2]
    split = 2 * layer.hidden
    weights = layer.recurrent
    first = node.emit(relax.op.strided_slice(weights, [1], [0], [split]))
    last = node.emit(relax.op.strided_slice(weights, [1], [split], [3 * layer.hidden]))
    gates = relax.op.add(
        relax.op.strided_slice(inputs, [1], [0], [split]), relax.op.matmul(hidden, first)
    )
    gates = node.emit(f(layer.clipped(gates)))
    update, reset = node.emit(layer.gate(gates, 0)), layer.gate(gates, 1)
    candidate = layer.gate(inputs, 2)
    if layer.bias is not None:  # linear_before_reset: the bias is within the reset product
        product = relax.op.add(relax.op.matmul(hidden, last), layer.bias)
        product = relax.op.multiply(reset, product)
    else:
        product = relax.op.matmul(relax.op.multiply(reset, hidden), last)
    candidate = node.emit(g(layer.clipped(relax.op.add(candidate, product))))
    # (1 - z) * h' + z * h
    difference = relax.op.multiply(update, relax.op.subtract(hidden, candidate))
    return (node.emit(relax.op.add(candidate, difference)),)


def _lstm_step(layer: Direction, inputs: relax.Expr, state: State) -> State:
    """Gates i, o, f, c."""
    node, (hidden, cell) = layer.node, state
    f, g, h = layer.activations[:3]
    gates = node.emit(relax.op.add(inputs, relax.op.matmul(hidden, layer.recurrent)))

    def gate(index: int, peephole: int, seen: relax.Expr) -> relax.Expr:
        value = layer.gate(gates, index)
        if layer.peepholes is not None:
            begin = peephole * layer.hidden
            weight = relax.op.strided_slice(layer.peepholes, [0], [begin], [begin + layer.hidden])
            value = relax.op.add(value, relax.op.multiply(weight, seen))
        return node.emit(f(layer.clipped(value)))

    write = gate(0, 0, cell)
    if node.attr("input_forget", 0):
        forget = relax.op.subtract(number(1.0, write), write)
    else:
        forget = gate(2, 2, cell)
    candidate = g(layer.clipped(layer.gate(gates, 3)))
    cell = node.emit(
        relax.op.add(relax.op.multiply(forget, cell), relax.op.multiply(write, candidate))
    )
    output = gate(1, 1, cell)
    return node.emit(relax.op.multiply(output, h(cell))), cell


_KINDS: dict[str, tuple[int, int, list[str], Step]] = {
    "RNN": (1, 1, ["Tanh"], _rnn_step),
    "GRU": (3, 1, ["Sigmoid", "Tanh"], _gru_step),
    "LSTM": (4, 2, ["Sigmoid", "Tanh", "Tanh"], _lstm_step),
}
"""Operator: gates, state tensors, default activations, one step."""


def recurrent(node: Node) -> list[relax.Expr]:
    """All directions of one recurrent layer: Y, Y_h and, for LSTM, Y_c."""
    gates, states, _, step = _KINDS[node.proto.op_type]
    batch_first = bool(node.attr("layout", 0))
    data = node.emit(relax.op.permute_dims(node[0], [1, 0, 2])) if batch_first else node[0]
    length, batch = (shape_of(data) or node.extents(0))[:2]
    directions, width = node.shape(1)[:2]
    hidden = width // gates
    lengths = _lengths(node, length)
    reverse = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    sequences, finals = [], []
    for index, backward in enumerate(reverse[node.attr("direction", "forward")]):
        layer, inputs = _direction(node, index, hidden, gates, data)
        inputs = node.emit(relax.op.reshape(inputs, (length, batch, gates * hidden)))
        state = tuple(_initial(node, 5 + i, index, batch, hidden) for i in range(states))
        cell = _cell(layer, index)
        if not cell and lengths is None and not isinstance(length, int):
            sequence, state = _scan(node, index, data, state, backward)
        elif cell and lengths is None:
            sequence, state = _whole(layer, cell, inputs, state, backward)
        else:
            inputs = _reversed(node, inputs, lengths) if backward else inputs
            if cell:
                sequence, state = _whole_of_lengths(layer, cell, inputs, state, lengths)
            else:
                sequence, state = _unroll(layer, inputs, state, length, step, lengths)
            sequence = _reversed(node, sequence, lengths) if backward else sequence
        sequences.append(node.emit(relax.op.expand_dims(sequence, 1)))
        finals.append(state)
    result = sequences[0] if directions == 1 else relax.op.concat(sequences, 1)
    last = [
        [node.emit(relax.op.expand_dims(state[i], 0)) for state in finals] for i in range(states)
    ]
    ends = [column[0] if directions == 1 else relax.op.concat(column, 0) for column in last]
    if batch_first:
        result = relax.op.permute_dims(result, [2, 0, 1, 3])
        ends = [relax.op.permute_dims(end, [1, 0, 2]) for end in ends]
    return [result, *ends]


def _direction(
    node: Node, index: int, hidden: int, gates: int, data: relax.Expr
) -> tuple[Direction, relax.Expr]:
    """Weights of one direction, and the products of the whole sequence with W, biases added."""
    weights, recurrent_weights = (step_of(node, node[i], 0, index) for i in (1, 2))
    inputs = relax.op.matmul(data, relax.op.permute_dims(weights, [1, 0]))
    inner = None
    if node.get(3) is not None:
        both = step_of(node, node[3], 0, index)
        parts = [
            relax.op.strided_slice(both, [0], [i * gates * hidden], [(i + 1) * gates * hidden])
            for i in (0, 1)
        ]
        if node.proto.op_type == "GRU" and node.attr("linear_before_reset", 0):
            split = 2 * hidden
            inner = node.emit(relax.op.strided_slice(parts[1], [0], [split], [3 * hidden]))
            outer = relax.op.strided_slice(parts[1], [0], [0], [split])
            zeros = constant(np.zeros(hidden, node.dtype(0)))
            parts[1] = relax.op.concat([outer, zeros], 0)
        inputs = relax.op.add(inputs, relax.op.add(*parts))
    elif node.proto.op_type == "GRU" and node.attr("linear_before_reset", 0):
        inner = constant(np.zeros(hidden, node.dtype(0)))
    peepholes = step_of(node, node[7], 0, index) if node.get(7) is not None else None
    transposed = node.emit(relax.op.permute_dims(recurrent_weights, [1, 0]))
    layer = Direction(node, hidden, transposed, inner, peepholes, _activations(node, index))
    return layer, node.emit(inputs)


def _cell(layer: Direction, index: int) -> str:
    """Name of the cell in `nn.recurrent`; empty if there is no such cell."""
    node, kind = layer.node, layer.node.proto.op_type
    names = [name.decode().lower() for name in node.attrs.get("activations", ())]
    count = len(_KINDS[kind][2])
    names = names[index * count : (index + 1) * count]
    defaults = [name.lower() for name in _KINDS[kind][2]]
    is_plain = layer.peepholes is None and node.attr("clip") is None
    if not is_plain or node.attr("input_forget", 0) or node.dtype(0) not in ("float32", "float64"):
        return ""
    if kind == "RNN":
        name = (names or defaults)[0]
        return f"rnn_{name}" if name in ("tanh", "relu") else ""
    if (names or defaults) != defaults or (kind == "GRU" and layer.bias is None):
        return ""
    return kind.lower()


def _whole(
    layer: Direction, cell: str, inputs: relax.Expr, state: State, backward: bool
) -> tuple[relax.Expr, State]:
    """All steps as one operator: the states of every step and the last state."""
    node = layer.node
    biases = () if cell != "gru" else (layer.bias,)
    operands = (inputs, layer.recurrent, *state, *biases)
    result = node.emit(all_steps(*operands, cell=cell, backward=backward))
    cells: State = ()
    if cell == "lstm":
        result, last = (node.emit(relax.TupleGetItem(result, i)) for i in range(2))
        cells = (last,)
    return result, (step_of(node, result, 0, 0 if backward else -1), *cells)


_CLOSED = 1e4
"""Gate input whose sigmoid is 1; its negative has a sigmoid of 0."""


def _whole_of_lengths(
    layer: Direction, cell: str, inputs: relax.Expr, state: State, lengths: relax.Expr
) -> tuple[relax.Expr, State]:
    """Run sequences of different lengths: zeros after their ends, final states at their ends.

    Behind the end of its sequence a cell of an LSTM forgets nothing and takes nothing in.
    """
    node = layer.node
    runs = _runs(node, inputs, lengths)
    if cell == "lstm":
        gates = np.repeat(np.array([-_CLOSED, 0, _CLOSED, 0], node.dtype(0)), layer.hidden)
        inputs = node.emit(relax.op.where(runs, inputs, constant(gates)))
    result, (_, *cells) = _whole(layer, cell, inputs, state, backward=False)
    batch, hidden = state[0].ty.shape.values
    last = relax.op.maximum(relax.op.subtract(lengths, relax.const(1, "int64")), _zero("int64"))
    places = relax.op.broadcast_to(relax.op.reshape(last, (1, batch, 1)), (1, batch, hidden))
    final = relax.op.squeeze(relax.op.gather_elements(result, node.emit(places), 0), [0])
    some = relax.op.greater(relax.op.reshape(lengths, (batch, 1)), _zero("int64"))
    final = node.emit(relax.op.where(some, final, state[0]))
    return node.emit(relax.op.where(runs, result, _zero(node.dtype(0)))), (final, *cells)


def _zero(dtype: str) -> relax.Expr:
    return relax.const(0, dtype)


def _lengths(node: Node, length: Any) -> relax.Expr | None:
    """The length of each sequence, (batch,) of int64; None where all are whole."""
    known = constant_value(node.get(4))
    if node.get(4) is None or (
        known is not None and isinstance(length, int) and (known == length).all()
    ):
        return None
    return node.emit(relax.op.astype(node[4], "int64"))


def _runs(node: Node, data: relax.Expr, lengths: relax.Expr) -> relax.Expr:
    """Which steps (length, batch, 1) are within their sequences."""
    length, batch = data.ty.shape.values[:2]
    steps = relax.op.reshape(relax.op.arange(0, length, 1, "int64"), (length, 1, 1))
    return node.emit(relax.op.less(node.emit(steps), relax.op.reshape(lengths, (1, batch, 1))))


def _unroll(
    layer: Direction,
    inputs: relax.Expr,
    state: State,
    length: Any,
    step: Step,
    lengths: relax.Expr | None,
) -> tuple[relax.Expr, State]:
    """Outputs of every step and the last state; entries shorter than the sequence stand still."""
    node = layer.node
    if not isinstance(length, int):
        raise node.unsupported("a cell of this form over a sequence of a symbolic extent")
    if length > MAX_ITERATIONS:
        raise node.unsupported(f"the sequence has {length} steps, more than {MAX_ITERATIONS}")
    outputs = []
    runs = None if lengths is None else _runs(node, inputs, lengths)
    for index in range(length):
        after = step(layer, step_of(node, inputs, 0, index), state)
        if runs is None:
            state = after
            outputs.append(state[0])
            continue
        going = step_of(node, runs, 0, index)
        pairs = zip(after, state, strict=True)
        state = tuple(node.emit(relax.op.where(going, new, old)) for new, old in pairs)
        outputs.append(node.emit(relax.op.where(going, state[0], _zero(node.dtype(0)))))
    return _stacked(node, outputs), state


def _scan(
    node: Node, index: int, data: relax.Expr, state: State, backward: bool
) -> tuple[relax.Expr, State]:
    """Outputs of every step and the last state, by a Scan over a layer of one step."""
    make, names = helper.make_node, ["h", "c"][: len(state)]
    weights = {
        name: node.emit(relax.op.strided_slice(node[i], [0], [index], [index + 1]))
        for name, i in zip("WRBP", (1, 2, 3, 7))
        if node.get(i) is not None
    }
    given = [name if name in weights else "" for name in "WRB"]
    last = ["P"] if "P" in weights else []
    operands = ["steps", *given, "", *(f"{name}_first" for name in names), *last]
    kept = {
        each.name: helper.get_attribute_value(each)
        for each in node.proto.attribute
        if each.name not in ("direction", "layout")
    }
    if "activations" in kept:
        count = len(_KINDS[node.proto.op_type][2])
        kept["activations"] = kept["activations"][index * count :][:count]
    nodes = [make("Unsqueeze", ["step", "zero"], ["steps"])]
    nodes += [make("Unsqueeze", [f"{name}_in", "zero"], [f"{name}_first"]) for name in names]
    ends = [f"{name}_last" for name in names]
    nodes.append(make(node.proto.op_type, operands, ["every", *ends], **kept))
    nodes += [make("Squeeze", [f"{name}_last", "zero"], [f"{name}_out"]) for name in names]
    nodes.append(make("Identity", ["h_out"], ["y"]))
    element = helper.np_dtype_to_tensor_dtype(np.dtype(node.dtype(0)))
    info = [helper.make_tensor_value_info(f"{name}_in", element, None) for name in names]
    body = helper.make_graph(
        nodes,
        "step",
        [*info, helper.make_tensor_value_info("step", element, None)],
        [onnx.ValueInfoProto(name=name) for name in (*(f"{each}_out" for each in names), "y")],
    )
    results = [*(f"{name}_end" for name in names), "all"]
    scan = make("Scan", [*names, "data"], results, node.proto.name, body=body, num_scan_inputs=1)
    for name in ("scan_input_directions", "scan_output_directions"):
        scan.attribute.append(helper.make_attribute(name, [int(backward)]))
    zero = constant(np.zeros(1, "int64"))
    scope: Scope = {**weights, "zero": zero, "data": data, **dict(zip(names, state))}
    *ended, sequence = node.importer.convert_node(scan, scope, CALLED_OPSET)
    return sequence, tuple(ended)


def _initial(node: Node, position: int, index: int, batch: Any, hidden: int) -> relax.Expr:
    if node.get(position) is None:
        if not isinstance(batch, int):
            return node.emit(relax.op.zeros([batch, hidden], node.dtype(0)))
        return constant(np.zeros((batch, hidden), node.dtype(0)))
    value = node[position]
    if node.attr("layout", 0):
        value = node.emit(relax.op.permute_dims(value, [1, 0, 2]))
    return step_of(node, value, 0, index)


def _stacked(node: Node, steps: list[relax.Expr]) -> relax.Expr:
    """[length, batch, hidden] of the states of each step."""
    wide = [node.emit(relax.op.expand_dims(value, 0)) for value in steps]
    return wide[0] if len(wide) == 1 else node.emit(relax.op.concat(wide, 0))


def _reversed(node: Node, data: relax.Expr, lengths: relax.Expr | None) -> relax.Expr:
    """Steps from the last to the first one; those of each sequence, if they have lengths."""
    if lengths is None:
        return node.emit(relax.op.flip(data, 0))
    return node.emit(reverse_sequence_kernel(data, lengths, seq_axis=0, batch_axis=1))


def _activations(node: Node, direction: int) -> list[Activation]:
    names = [name.decode() for name in node.attrs.get("activations", ())]
    defaults = _KINDS[node.proto.op_type][2]
    if not names:
        return [_PLAIN[name.lower()] for name in defaults]
    alphas = list(node.attrs.get("activation_alpha", ()))
    betas = list(node.attrs.get("activation_beta", ()))
    found = [_activation(node, name, alphas, betas) for name in names]
    return found[direction * len(defaults) : (direction + 1) * len(defaults)]


def _activation(node: Node, name: str, alphas: list[float], betas: list[float]) -> Activation:
    """One activation; takes its parameters from the front of the lists."""
    if name.lower() in _PLAIN:
        return _PLAIN[name.lower()]
    if name == "LeakyRelu":
        slope = alphas.pop(0) if alphas else 0.01
        return lambda x: relax.op.nn.leakyrelu(x, slope)
    if name in ("Affine", "HardSigmoid", "ScaledTanh"):
        defaults = {"Affine": (1.0, 0.0), "HardSigmoid": (0.2, 0.5), "ScaledTanh": (1.0, 1.0)}
        alpha = alphas.pop(0) if alphas else defaults[name][0]
        beta = betas.pop(0) if betas else defaults[name][1]
        return _linear(node, name, alpha, beta)
    raise node.unsupported(f"the activation {name} is not supported")


def _linear(node: Node, name: str, alpha: float, beta: float) -> Activation:
    a, b = (relax.const(value, node.dtype(0)) for value in (alpha, beta))

    def apply(x: relax.Expr) -> relax.Expr:
        if name == "ScaledTanh":
            return relax.op.multiply(a, relax.op.tanh(relax.op.multiply(b, x)))
        line = relax.op.add(relax.op.multiply(a, x), b)
        return relax.op.clip(line, 0, 1) if name == "HardSigmoid" else line

    return apply


CONVERTERS = dict.fromkeys(_KINDS, recurrent)
