"""Unrolled LSTM, weights per step (Hochreiter, Schmidhuber, "Long Short-Term Memory", 1997)."""

from __future__ import annotations

from tvm import relax

from .. import op
from ..expr import var
from .init import function_of, workload_of
from .layers import dense_add_bias


def lstm_cell(
    inputs: relax.Expr, hidden: relax.Expr, cell: relax.Expr, num_hidden: int, name: str
) -> tuple[relax.Expr, relax.Expr]:
    """Compute the next hidden and cell states; gates are input, forget, transform and output."""
    from_input = dense_add_bias(data=inputs, units=num_hidden * 4, name=f"i2h_{name}")
    from_hidden = dense_add_bias(data=hidden, units=num_hidden * 4, name=f"h2h_{name}")
    gates = op.split(op.add(from_input, from_hidden), indices_or_sections=4, axis=1)
    in_gate, forget_gate = op.sigmoid(gates[0]), op.sigmoid(gates[1])
    in_transform, out_gate = op.tanh(gates[2]), op.sigmoid(gates[3])
    next_cell = op.add(op.multiply(forget_gate, cell), op.multiply(in_gate, in_transform))
    return op.multiply(out_gate, op.tanh(next_cell)), next_cell


def get_net(
    iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32"
) -> relax.Function:
    """Build `iterations` steps, each with an input named data; returns the last hidden state."""
    zeros = op.zeros((batch_size, num_hidden), dtype)
    hidden, cell = zeros, zeros
    for index in range(iterations):
        data = var("data", shape=(batch_size, num_hidden), dtype=dtype)
        hidden, cell = lstm_cell(data, hidden, cell, num_hidden, str(index))
    return function_of(hidden)


get_workload = workload_of(get_net)
