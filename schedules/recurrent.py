"""Recurrent layers over a whole sequence: the workload, and its loops for a CPU.

for each step
  blocks of the state                    tile_h elements, all gates of them
    for tiles of the batch
      sums = inputs                      rows x gates x tile_h
      for k: sums += state[k] * weight[k]
      state, cell = gates(sums)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

GATES = {"rnn_tanh": 1, "rnn_relu": 1, "gru": 3, "lstm": 4}
"""Cells, and how many gates each has."""

# Steps of k that share the instructions of their loop.
STEPS_TOGETHER = 4
# The gate whose product with the state a GRU multiplies by its reset gate.
LAST_OF_GRU = 2


@dataclass(frozen=True)
class RecurrentWorkload:
    """The steps of one direction of a layer; the products of its inputs are done.

    Operands, with G the gates in ONNX's order (LSTM i, o, f, c; GRU z, r, h):

    inputs (length, batch, G * hidden)
        W x and the biases that are added outside of any product with r.
    weight (hidden, G * hidden)
        R, transposed.
    state (batch, hidden)
        Before the first step.
    cell (batch, hidden), LSTM alone
        Likewise.
    bias (hidden), GRU alone
        What is added to the product of the state and R's last gate, before r multiplies it
        (`linear_before_reset`).

    Results: the states of all steps (length, batch, hidden), at their places in the sequence;
    for LSTM also the last cell (batch, hidden).
    """

    cell: str  # one of `GATES`
    length: int
    batch: int
    hidden: int
    backward: bool = False  # the last entry of the sequence comes first
    dtype: str = "float32"

    @property
    def gates(self) -> int:
        return GATES[self.cell]

    @property
    def has_cell(self) -> bool:
        """Whether a cell goes from step to step in addition to the state."""
        return self.cell == "lstm"


@dataclass(frozen=True)
class Tiles:
    """How the loops of a layer are divided."""

    hidden: int = 1  # elements of the state in a block; a multiple of `lanes`
    rows: int = 1  # entries of the batch whose sums are made together; a divisor of the batch
    lanes: int = 1  # elements of a vector
    parallel: bool = False  # whether threads share the blocks of a step
    # The weight is (blocks, hidden, gates, tile), padded with zeros, so that a block reads it front
    # to back; otherwise it is as the workload says, and blocks are whole
    packed: bool = False


def all_steps(w: RecurrentWorkload, tiles: Tiles, *operands: te.Tensor) -> Any:
    """The results of a workload, of its operands in their order."""
    shapes: list[tuple[int, ...]] = [(w.length, w.batch, w.hidden)]
    if w.has_cell:
        shapes.append((w.batch, w.hidden))
    return te.extern(
        shapes,
        list(operands),
        lambda ins, outs: _Loops(w, tiles, ins, outs).build(),
        name="recurrent",
        dtype=[w.dtype] * len(shapes),
    )


class _Loops:
    """Writes the loops."""

    def __init__(
        self, w: RecurrentWorkload, tiles: Tiles, ins: Sequence[Any], outs: Sequence[Any]
    ) -> None:
        self.w, self.tiles = w, tiles
        self.tile, self.rows, self.lanes = tiles.hidden, tiles.rows, tiles.lanes
        self.blocks = -(-w.hidden // self.tile)
        self.ins, self.outs = ins, outs
        self.cell: Any
        self.bias: Any

    def build(self) -> Any:
        with IRBuilder() as builder:
            with T.serial(0, 1):  # the builder takes one statement
                self._layer()
            return builder.get()

    def _layer(self) -> None:
        w = self.w
        self.inputs, self.weight, self.first, *others = map(T.buffer_proxy, self.ins)
        if w.cell == "gru":
            self.bias = others[0]
        self.outputs, *last = map(T.buffer_proxy, self.outs)
        padded = self.blocks * self.tile
        # The state before a step and after it, in turn.
        self.state = self._allocate((2, w.batch, padded))
        if w.has_cell:
            self.cell = self._allocate((w.batch, padded))
        with T.serial(0, w.batch) as row, T.serial(0, w.hidden) as i:
            self.state[0, row, i] = self.first[row, i]
            if w.has_cell:
                self.cell[row, i] = others[0][row, i]
        with T.serial(0, w.length) as step:
            loop = T.parallel if self.tiles.parallel else T.serial
            with loop(0, self.blocks) as block, T.serial(0, w.batch // self.rows) as tile:
                self._tile(step, block, tile * self.rows)
        if w.has_cell:
            with T.serial(0, w.batch) as row, T.serial(0, w.hidden) as i:
                last[0][row, i] = self.cell[row, i]

    def _allocate(self, shape: tuple[int, ...], scope: str = "global") -> Any:
        return T.buffer_proxy(T.alloc_buffer(shape, self.w.dtype, scope=scope))

    def _tile(self, step: Any, block: Any, first_row: Any) -> None:
        """One step of `rows` rows and `tile_h` elements of the state."""
        w, lanes = self.w, self.lanes
        place = w.length - 1 - step if w.backward else step
        before, behind = tirx.floormod(step, 2), tirx.floormod(step + 1, 2)
        rows, vectors = range(self.rows), range(self.tile // lanes)
        sums = self._allocate((self.rows, w.gates, len(vectors), lanes), "local")
        parts = list(itertools.product(rows, range(w.gates), vectors))

        def given(r: int, g: int, column: Any) -> Any:
            """The inputs' part; what the padding computes is left behind."""
            inside = column if w.hidden % self.tile == 0 else tirx.min(column, w.hidden - 1)
            if w.cell == "gru" and g == LAST_OF_GRU:
                return self.bias[inside]
            return self.inputs[place, first_row + r, g * w.hidden + inside]

        start = block * self.tile
        for r, g, v in parts:
            with T.vectorized(0, lanes) as lane:
                sums[r, g, v, lane] = given(r, g, start + v * lanes + lane)
        together = next(n for n in range(STEPS_TOGETHER, 0, -1) if w.hidden % n == 0)
        with T.serial(0, w.hidden // together) as chunk:
            for n in range(together):
                k = chunk * together + n
                for r, g, v in parts:
                    with T.vectorized(0, lanes) as lane:
                        weight = self._read_weight(k, g, block, v * lanes + lane)
                        old = self.state[before, first_row + r, k]
                        sums[r, g, v, lane] = sums[r, g, v, lane] + old * weight
        for r, v in itertools.product(rows, vectors):
            row, column = first_row + r, start + v * lanes
            for target, value in self._gates(sums, r, v, (place, before, behind, row, column)):
                with T.vectorized(0, lanes) as lane:
                    target(lane, value(lane))
            self._write(place, behind, row, column)

    def _read_weight(self, k: Any, gate: int, block: Any, element: Any) -> Any:
        if self.tiles.packed:
            return self.weight[block, k, gate, element]
        return self.weight[k, gate * self.w.hidden + block * self.tile + element]

    def _gates(self, sums: Any, r: int, v: int, at: tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
        """Assignments of the new state, one function each: LLVM takes minutes for nested ones."""
        w, (place, before, behind, row, column) = self.w, at

        def gate(g: int) -> tuple[Any, Any]:
            def read(lane: Any) -> Any:
                return sums[r, g, v, lane]

            def write(lane: Any, value: Any) -> None:
                sums[r, g, v, lane] = value

            return read, write

        def state(lane: Any) -> Any:
            return self.state[before, row, column + lane]

        def set_state(lane: Any, value: Any) -> None:
            self.state[behind, row, column + lane] = value

        if w.cell == "rnn_relu":
            yield set_state, lambda lane: tirx.max(gate(0)[0](lane), tirx.const(0, w.dtype))
        elif w.cell == "rnn_tanh":
            yield set_state, lambda lane: tirx.tanh(gate(0)[0](lane))
        elif w.cell == "gru":
            (z, set_z), (reset, set_reset), (product, set_product) = (gate(g) for g in range(3))
            last = LAST_OF_GRU * w.hidden
            bound = w.hidden - 1

            def candidate(lane: Any) -> Any:
                inside = tirx.min(column + lane, bound) if w.hidden % self.tile else column + lane
                return self.inputs[place, row, last + inside] + reset(lane) * product(lane)

            yield set_z, lambda lane: tirx.sigmoid(z(lane))
            yield set_reset, lambda lane: tirx.sigmoid(reset(lane))
            yield set_product, candidate
            yield set_product, lambda lane: tirx.tanh(product(lane))
            yield (set_state, lambda lane: product(lane) + z(lane) * (state(lane) - product(lane)))
        else:
            yield from self._lstm(gate, set_state, row, column)

    def _lstm(self, gate: Any, set_state: Any, row: Any, column: Any) -> Iterator[tuple[Any, Any]]:
        (i, set_i), (o, set_o), (f, set_f), (c, set_c) = (gate(g) for g in range(4))

        def cell(lane: Any) -> Any:
            return self.cell[row, column + lane]

        def set_cell(lane: Any, value: Any) -> None:
            self.cell[row, column + lane] = value

        for read, write in ((i, set_i), (o, set_o), (f, set_f)):
            yield write, lambda lane, read=read: tirx.sigmoid(read(lane))
        yield set_c, lambda lane: tirx.tanh(c(lane))
        yield set_cell, lambda lane: f(lane) * cell(lane) + i(lane) * c(lane)
        yield set_c, lambda lane: tirx.tanh(cell(lane))
        yield set_state, lambda lane: o(lane) * c(lane)

    def _write(self, place: Any, behind: Any, row: Any, column: Any) -> None:
        """A vector of the new state as a result."""
        if self.w.hidden % self.tile == 0:
            with T.vectorized(0, self.lanes) as lane:
                new = self.state[behind, row, column + lane]
                self.outputs[place, row, column + lane] = new
            return
        with T.serial(0, self.lanes) as lane, T.If(column + lane < self.w.hidden), T.Then():
            new = self.state[behind, row, column + lane]
            self.outputs[place, row, column + lane] = new
