"""Recurrent layers and cells.

    layer = mx.gluon.rnn.LSTM(100, num_layers=2)
    outputs, states = layer(x, layer.begin_state(batch_size=8))  # or outputs = layer(x)

Parameters have the names of MXNet 1.x (`l0_i2h_weight`), gates its order: i, f, c, o and r, z, n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from compiler.errors import BlockArgumentError, OutOfScopeError

from .. import np, npx
from ..array.ndarray import ndarray
from .hybrid_block import HybridBlock
from .parameter import Parameter

States = list[ndarray]
_PARTS = ("i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias")


class _Recurrent(HybridBlock):
    """States and parameters of layers and cells."""

    gates: ClassVar[int] = 1
    states: ClassVar[int] = 1

    def _state_shape(self, batch_size: int) -> tuple[int, ...]:
        raise NotImplementedError

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Shapes of the states, in order."""
        shape = self._state_shape(batch_size)
        return [{"shape": shape, "__layout__": "LNC"[-len(shape) :]} for _ in range(self.states)]

    def begin_state(
        self, batch_size: int = 0, func: Callable[..., ndarray] = np.zeros, **kwargs: Any
    ) -> States:
        """States before the first step: `func(shape=..., **kwargs)` of each, by default zeros."""
        return [func(shape=info["shape"], **kwargs) for info in self.state_info(batch_size)]

    def _declare(
        self, cells: list[tuple[str, int]], hidden: int, dtype: Any, names: dict[str, Any]
    ) -> None:
        """Initialize the block and the parameters of its cells, given as prefix and inputs."""
        zeros = dict.fromkeys(_PARTS[2:], "zeros")
        init = {part: names.pop(f"{part}_initializer", zeros.get(part)) for part in _PARTS}
        super().__init__(**names)
        self._hidden, rows = hidden, self.gates * hidden
        for prefix, inputs in cells:
            for part, shape in zip(_PARTS, ((rows, inputs), (rows, hidden), (rows,), (rows,))):
                made = Parameter(part, "write", shape, dtype, 1, 1, init[part], True)
                setattr(self, prefix + part, made)


class _Layer(_Recurrent):
    """Base class of fused layers.

    Parameters
    ----------
    hidden_size : int
    num_layers : int
    layout : str
        "TNC" or "NTC": time, batch and features of data and outputs.
    dropout : float
        Without effect at inference.
    bidirectional : bool
    input_size : int
        Features; 0 takes them from the first call.

    Raises
    ------
    BlockArgumentError
        Another layout; in a call, data without three axes or states of other shapes.
    OutOfScopeError
        An option that is not supported: projections, clipped states, `use_sequence_length`.
    """

    mode = "lstm"

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        input_size: int = 0,
        dtype: Any = "float32",
        **names: Any,
    ) -> None:
        for name in ("projection_size", "state_clip_min", "state_clip_max", "use_sequence_length"):
            if names.pop(name, None):
                raise OutOfScopeError(f"gluon.rnn.{type(self).__name__}: {name} is not supported")
        if layout not in ("TNC", "NTC"):
            raise BlockArgumentError(f"layout is {layout!r}; expected 'TNC' or 'NTC'")
        sides, count = ("l", "r")[: 1 + bidirectional], 1 + bidirectional
        prefixes = [f"{side}{layer}_" for layer in range(num_layers) for side in sides]
        inputs = [input_size] * count + [hidden_size * count] * (len(prefixes) - count)
        self._declare(list(zip(prefixes, inputs)), hidden_size, dtype, names)
        self._prefixes, self._count, self._layout, self._dropout = prefixes, count, layout, dropout

    def __repr__(self) -> str:
        layers = len(self._prefixes) // self._count
        more = f", num_layers={layers}" * (layers > 1) + ", bidirectional" * (self._count == 2)
        return f"{type(self).__name__}({self._hidden}, {self._layout}{more})"

    def _state_shape(self, batch_size: int) -> tuple[int, ...]:
        return (len(self._prefixes), batch_size, self._hidden)

    def infer_shape(self, x: ndarray, *_: Any) -> None:
        for prefix in self._prefixes[: self._count]:
            getattr(self, f"{prefix}i2h_weight").shape = (self.gates * self._hidden, x.shape[-1])

    def _flat(self, device: Any) -> Iterator[ndarray]:
        """All weights, then all biases."""
        for parts in (_PARTS[:2], _PARTS[2:]):
            for name in (prefix + part for prefix in self._prefixes for part in parts):
                yield np.reshape(getattr(self, name).data(device), (-1,))

    def forward(self, x: ndarray, states: Any = None) -> Any:
        """Outputs of all steps; with `states` a pair of these and the states after the last."""
        if x.ndim != 3:
            raise BlockArgumentError(f"{self!r}: data of shape {x.shape} must have 3 axes")
        batch = x.shape[self._layout.index("N")]
        given = [states] if isinstance(states, ndarray) else states
        given = given or self.begin_state(batch, dtype=x.dtype, device=x.device)
        shapes, wanted = [each.shape for each in given], self._state_shape(batch)
        if shapes != [wanted] * self.states:
            raise BlockArgumentError(
                f"{self!r}: states of shapes {shapes} must be {self.states} of {wanted}"
            )
        data = np.swapaxes(x, 0, 1) if self._layout == "NTC" else x
        outputs, *ends = npx.rnn(
            *(data, np.concatenate([*self._flat(x.device)]), *given),
            state_size=self._hidden, num_layers=len(self._prefixes) // self._count, mode=self.mode,
            bidirectional=self._count == 2, state_outputs=True, p=self._dropout,
        )  # fmt: skip
        outputs = np.swapaxes(outputs, 0, 1) if self._layout == "NTC" else outputs
        return outputs if states is None else (outputs, ends)


class RNN(_Layer):
    """Layers of h' = activation(W x + b + R h + c); `activation` is "relu" or "tanh"."""

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        activation: str = "relu",
        *args: Any,
        **names: Any,
    ) -> None:
        super().__init__(hidden_size, num_layers, *args, **names)
        if activation not in ("relu", "tanh"):
            raise BlockArgumentError(f"activation is {activation!r}; expected 'relu' or 'tanh'")
        self.mode = f"rnn_{activation}"


class LSTM(_Layer):
    """Layers of long short-term memory; their states are the outputs and the cells."""

    gates, states = 4, 2


class GRU(_Layer):
    """Layers of gated recurrent units."""

    gates, mode = 3, "gru"


class _Cell(_Recurrent):
    """Base class of cells, which compute one step: (data, states) to (output, states)."""

    def __init__(
        self, hidden_size: int, *, input_size: int = 0, dtype: Any = "float32", **names: Any
    ) -> None:
        self._declare([("", input_size)], hidden_size, dtype, names)

    def _state_shape(self, batch_size: int) -> tuple[int, ...]:
        return (batch_size, self._hidden)

    def infer_shape(self, x: ndarray, *_: Any) -> None:
        self.collect_params()["i2h_weight"].shape = (self.gates * self._hidden, x.shape[-1])

    def _sums(self, x: ndarray, state: ndarray) -> list[list[ndarray]]:
        """The gates' sums of the input, and those of the state."""
        weight, recurrent, *biases = (getattr(self, part).data(x.device) for part in _PARTS)
        pairs = zip((x, state), (weight, recurrent), biases)
        sums = [npx.fully_connected(*p, num_hidden=self.gates * self._hidden) for p in pairs]
        return [np.split(each, self.gates, axis=1) for each in sums]

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, States]:
        """Run steps over a sequence: an array of `layout`, or a list of arrays (batch, features).

        Returns the outputs, a list unless `merge_outputs`, and the states after the last step.
        Raises BlockArgumentError: the sequence has another length. Raises OutOfScopeError:
        `valid_length` is given.
        """
        if valid_length is not None:
            raise OutOfScopeError("unroll(): valid_length is not supported")
        axis = layout.index("T")
        if isinstance(inputs, ndarray):
            steps = np.split(inputs, inputs.shape[axis], axis=axis)
            inputs = [np.squeeze(each, axis=axis) for each in steps]
        if len(inputs) != length:
            raise BlockArgumentError(f"unroll(): {len(inputs)} steps are given, not {length}")
        states, outputs = begin_state or self.begin_state(inputs[0].shape[0]), []
        for step in inputs:
            output, states = self(step, states)
            outputs.append(output)
        return (np.stack(outputs, axis=axis) if merge_outputs else outputs), states


class RNNCell(_Cell):
    """One step of h' = activation(W x + b + R h + c)."""

    def __init__(self, hidden_size: int, activation: str = "tanh", **names: Any) -> None:
        super().__init__(hidden_size, **names)
        self._activation = activation

    def forward(self, x: ndarray, states: States) -> tuple[ndarray, States]:
        ((inputs,), (recurrent,)) = self._sums(x, states[0])
        output = npx.activation(inputs + recurrent, act_type=self._activation)
        return output, [output]


class LSTMCell(_Cell):
    """One step of long short-term memory; the states are the output and the cell."""

    gates, states = 4, 2

    def forward(self, x: ndarray, states: States) -> tuple[ndarray, States]:
        i, f, c, o = (a + b for a, b in zip(*self._sums(x, states[0])))
        cell = npx.sigmoid(f) * states[1] + npx.sigmoid(i) * np.tanh(c)
        output = npx.sigmoid(o) * np.tanh(cell)
        return output, [output, cell]


class GRUCell(_Cell):
    """One step of a gated recurrent unit."""

    gates = 3

    def forward(self, x: ndarray, states: States) -> tuple[ndarray, States]:
        (r, z, n), (from_r, from_z, from_n) = self._sums(x, states[0])
        update = npx.sigmoid(z + from_z)
        new = np.tanh(n + npx.sigmoid(r + from_r) * from_n)
        output = (1 - update) * new + update * states[0]
        return output, [output]
