"""Recurrent layers and cells.

    layer = mx.gluon.rnn.LSTM(100, num_layers=2)
    outputs, states = layer(x, layer.begin_state(batch_size=8))  # or outputs = layer(x)

Parameters have the names of MXNet 1.x (`l0_i2h_weight`), gates its order: i, f, c, o and r, z, n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from compiler.errors import BlockArgumentError, OutOfScopeError

from .. import np, npx
from ..array.ndarray import ndarray
from .hybrid_block import HybridBlock
from .parameter import Parameter

States = list[ndarray]


class _Recurrent(HybridBlock):
    """States, and parameters of one cell, of layers and cells alike."""

    gates: ClassVar[int] = 1
    states: ClassVar[int] = 1

    def _state_shape(self, batch_size: int) -> tuple[int, ...]:
        raise NotImplementedError

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Shapes of the states, in order."""
        layout = "NC" if len(self._state_shape(0)) == 2 else "LNC"
        info = {"shape": self._state_shape(batch_size), "__layout__": layout}
        return [dict(info) for _ in range(self.states)]

    def begin_state(
        self, batch_size: int = 0, func: Callable[..., ndarray] = np.zeros, **kwargs: Any
    ) -> States:
        """States before the first step: `func(shape=..., **kwargs)` of each, by default zeros."""
        return [func(shape=info["shape"], **kwargs) for info in self.state_info(batch_size)]

    def _declare(
        self, prefix: str, inputs: int, hidden: int, dtype: Any, init: Sequence[Any]
    ) -> None:
        """Create weights and biases of the input and the state of one cell."""
        rows = self.gates * hidden
        shapes = (rows, inputs), (rows, hidden), (rows,), (rows,)
        for name, shape, each in zip(_PARTS, shapes, init):
            made = Parameter(name, shape=shape, dtype=dtype, init=each, allow_deferred_init=True)
            setattr(self, prefix + name, made)


_PARTS = ("i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias")


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
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        dtype: Any = "float32",
        **rest: Any,
    ) -> None:
        for name in ("projection_size", "state_clip_min", "state_clip_max", "use_sequence_length"):
            if rest.pop(name, None):
                raise OutOfScopeError(f"gluon.rnn.{type(self).__name__}: {name} is not supported")
        super().__init__(**rest)
        if layout not in ("TNC", "NTC"):
            raise BlockArgumentError(f"layout is {layout!r}; expected 'TNC' or 'NTC'")
        self._hidden, self._layers, self._layout, self._dropout = (
            *(hidden_size, num_layers, layout, dropout),
        )
        self._directions = ("l", "r") if bidirectional else ("l",)
        initial = i2h_weight_initializer, h2h_weight_initializer
        initial += i2h_bias_initializer, h2h_bias_initializer
        for prefix, inputs in zip(self._prefixes(), self._inputs(input_size)):
            self._declare(prefix, inputs, hidden_size, dtype, initial)

    def __repr__(self) -> str:
        more = f", num_layers={self._layers}" if self._layers > 1 else ""
        more += ", bidirectional" if len(self._directions) == 2 else ""
        return f"{type(self).__name__}({self._hidden}, {self._layout}{more})"

    def _prefixes(self) -> Iterator[str]:
        """Prefixes of parameters, by layer and direction."""
        return (f"{side}{layer}_" for layer in range(self._layers) for side in self._directions)

    def _inputs(self, first: int) -> list[int]:
        """Features that the cell of each prefix reads."""
        count = len(self._directions)
        return [first] * count + [self._hidden * count] * ((self._layers - 1) * count)

    def _state_shape(self, batch_size: int) -> tuple[int, ...]:
        return (self._layers * len(self._directions), batch_size, self._hidden)

    def infer_shape(self, x: ndarray, *_: Any) -> None:
        for prefix, inputs in zip(self._prefixes(), self._inputs(x.shape[-1])):
            getattr(self, f"{prefix}i2h_weight").shape = (self.gates * self._hidden, inputs)

    def forward(self, x: ndarray, states: Any = None) -> Any:
        """Outputs of all steps; with `states` a pair of these and the states after the last."""
        if x.ndim != 3:
            raise BlockArgumentError(f"{self!r}: data of shape {x.shape} must have 3 axes")
        shape = self._state_shape(x.shape[self._layout.index("N")])
        given = [states] if isinstance(states, ndarray) else states
        given = given or [np.zeros(shape, dtype=x.dtype, device=x.device)] * self.states
        if [each.shape for each in given] != [shape] * self.states:
            raise BlockArgumentError(
                f"{self!r}: states of shapes {[each.shape for each in given]} must be "
                f"{self.states} of {shape}"
            )
        names = [prefix + part for parts in (_PARTS[:2], _PARTS[2:]) for prefix in self._prefixes()
                 for part in parts]  # fmt: skip
        flat = [np.reshape(getattr(self, name).data(x.device), (-1,)) for name in names]
        outputs, *ends = npx.rnn(
            *(np.swapaxes(x, 0, 1) if self._layout == "NTC" else x, np.concatenate(flat), *given),
            state_size=self._hidden, num_layers=self._layers, mode=self.mode, state_outputs=True,
            bidirectional=len(self._directions) == 2, p=self._dropout,
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
        **rest: Any,
    ) -> None:
        super().__init__(hidden_size, num_layers, *args, **rest)
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
        self,
        hidden_size: int,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        dtype: Any = "float32",
        **names: Any,
    ) -> None:
        super().__init__(**names)
        self._hidden = hidden_size
        initial = i2h_weight_initializer, h2h_weight_initializer
        initial += i2h_bias_initializer, h2h_bias_initializer
        self._declare("", input_size, hidden_size, dtype, initial)

    def _state_shape(self, batch_size: int) -> tuple[int, ...]:
        return (batch_size, self._hidden)

    def infer_shape(self, x: ndarray, *_: Any) -> None:
        self.i2h_weight.shape = (self.gates * self._hidden, x.shape[-1])

    def _sums(self, x: ndarray, state: ndarray) -> tuple[list[ndarray], list[ndarray]]:
        """The gates' sums of the input, and those of the state."""
        weight, recurrent, *biases = (getattr(self, name).data(x.device) for name in _PARTS)
        pairs = zip((x, state), (weight, recurrent), biases)
        inputs, states = (
            npx.fully_connected(*each, num_hidden=self.gates * self._hidden) for each in pairs
        )
        return np.split(inputs, self.gates, axis=1), np.split(states, self.gates, axis=1)

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

    def __init__(
        self, hidden_size: int, activation: str = "tanh", *args: Any, **names: Any
    ) -> None:
        super().__init__(hidden_size, *args, **names)
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
