"""Unroll recurrent layers into steps, for targets without a kernel for a whole sequence."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from .constants import integers, static_shape
from .rewrite import CallRule, rewrite_calls

NAME = "relay.nn.recurrent"

op = relax.op


def unroll_recurrent(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """Replace every `relay.nn.recurrent` in function `name` by the operators of its steps.

    before       y, c = nn.recurrent(x, r, h0, c0, cell="lstm", backward=False)
    each step    s = add(take(x, step), matmul(h, r))
                 c = add(multiply(sigmoid(s[f]), c), multiply(sigmoid(s[i]), tanh(s[c])))
                 h = multiply(sigmoid(s[o]), tanh(c))
    """
    return rewrite_calls(mod, _Unroll, [name])


class _Unroll(CallRule):
    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        is_known = name == NAME and integers(call.args[0].ty.shape.values[:1]) is not None
        return self._steps(call) if is_known else None

    def _steps(self, call: relax.Call) -> relax.Expr:
        inputs, weight, *state = call.args
        cell = str(call.attrs["cell"])
        bias = state.pop() if cell == "gru" else None
        hidden = static_shape(weight)
        assert hidden is not None
        order = range(int(inputs.ty.shape.values[0]))
        made: dict[int, relax.Expr] = {}
        for step in reversed(order) if bool(call.attrs["backward"]) else order:
            given = self.scope.emit(op.take(inputs, relax.const(step, "int64"), axis=0))
            state = self._step(cell, hidden[0], given, weight, state, bias)
            made[step] = self.scope.emit(op.expand_dims(state[0], 0))
        sequence = self.scope.emit(op.concat([made[step] for step in order], 0))
        return relax.Tuple([sequence, state[1]]) if cell == "lstm" else sequence

    def _step(
        self, cell: str, hidden: int, given: Any, weight: Any, state: list[Any], bias: Any
    ) -> list[Any]:
        product = self.scope.emit(op.matmul(state[0], weight))
        if cell == "gru":
            return self._gru_step(hidden, given, product, state[0], bias)
        sums = self.scope.emit(op.add(given, product))
        if cell == "lstm":
            i, o, f, c = (self._gate(sums, gate, hidden) for gate in range(4))
            kept = op.multiply(op.sigmoid(f), state[1])
            new = self.scope.emit(op.add(kept, op.multiply(op.sigmoid(i), op.tanh(c))))
            return [self.scope.emit(op.multiply(op.sigmoid(o), op.tanh(new))), new]
        return [self.scope.emit(op.tanh(sums) if cell == "rnn_tanh" else op.nn.relu(sums))]

    def _gru_step(self, hidden: int, given: Any, product: Any, old: Any, bias: Any) -> list[Any]:
        parts = [[self._gate(sums, gate, hidden) for gate in range(3)] for sums in (given, product)]
        z, r = (self.scope.emit(op.sigmoid(op.add(parts[0][i], parts[1][i]))) for i in range(2))
        last = op.multiply(r, op.add(parts[1][2], bias))
        fresh = self.scope.emit(op.tanh(op.add(parts[0][2], last)))
        return [self.scope.emit(op.add(fresh, op.multiply(z, op.subtract(old, fresh))))]

    def _gate(self, sums: Any, gate: int, hidden: int) -> relax.Var:
        return self.scope.emit(op.strided_slice(sums, [1], [gate * hidden], [(gate + 1) * hidden]))
