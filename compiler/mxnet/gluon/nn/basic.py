"""Dense layers, embeddings, and layers without parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import Any

from compiler.errors import BlockArgumentError

from ... import nd, np, npx
from ...array.ndarray import ndarray
from ..block import Block
from ..hybrid_block import HybridBlock
from ..parameter import Parameter
from .activations import Activation


class Linear(HybridBlock):
    """Base class of layers with a weight, perhaps a bias, and perhaps an activation."""

    def _declare(
        self,
        shape: tuple[int, ...],
        outputs: int,
        dtype: Any,
        weight: Any,
        bias: Any,
        use_bias: bool,
        activation: str | None,
    ) -> None:
        """Create the parameters, with initializers of the weight and of the bias."""
        self.weight = Parameter(
            "weight", shape=shape, dtype=dtype, init=weight, allow_deferred_init=True
        )
        self.bias = None
        if use_bias:
            self.bias = Parameter("bias", shape=(outputs,), dtype=dtype, init=bias)
        self.act = Activation(activation) if activation is not None else None

    def _compute(self, function: Callable[..., Any], x: ndarray, **attrs: Any) -> ndarray:
        bias = None if self.bias is None else self.bias.data(x.device)
        result = function(x, self.weight.data(x.device), bias, no_bias=bias is None, **attrs)
        return result if self.act is None else self.act(result)


class Dense(Linear):
    """x W^T + b, then an activation.

    Parameters
    ----------
    units : int
        Outputs.
    activation : str, optional
    use_bias : bool
    flatten : bool
        Whether all axes but the first are flattened; else the layer works on the last axis.
    in_units : int
        Inputs; 0 takes them from the first call.
    """

    def __init__(
        self,
        units: int,
        activation: str | None = None,
        use_bias: bool = True,
        flatten: bool = True,
        dtype: Any = "float32",
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_units: int = 0,
        **names: Any,
    ) -> None:
        super().__init__(**names)
        self._units = units
        self._flatten = flatten
        initial = weight_initializer, bias_initializer
        self._declare((units, in_units), units, dtype, *initial, use_bias, activation)

    def __repr__(self) -> str:
        shape = self.weight.shape or (0, 0)
        inputs = None if shape[1] < 0 else shape[1]
        act = f", {self.act!r}" if self.act is not None else ", linear"
        return f"Dense({inputs} -> {self._units}{act})"

    def infer_shape(self, x: ndarray, *_: Any) -> None:
        inputs = math.prod(x.shape[1:]) if self._flatten else x.shape[-1]
        self.weight.shape = (self.weight.shape[0], inputs)  # type: ignore[index]

    def forward(self, x: ndarray) -> ndarray:
        return self._compute(npx.fully_connected, x, num_hidden=self._units, flatten=self._flatten)


class Dropout(HybridBlock):
    """The input itself: dropout acts in training only."""

    def __init__(self, rate: float, axes: Sequence[int] = (), **names: Any) -> None:
        super().__init__(**names)
        self._rate = rate
        self._axes = tuple(axes)

    def __repr__(self) -> str:
        return f"Dropout(p = {self._rate}, axes={self._axes})"

    def forward(self, x: ndarray) -> ndarray:
        return npx.dropout(x, p=self._rate, axes=self._axes) if self._rate > 0 else nd.identity(x)


class Embedding(HybridBlock):
    """Rows of a table at indices."""

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        dtype: Any = "float32",
        weight_initializer: Any = None,
        sparse_grad: bool = False,
        **names: Any,
    ) -> None:
        super().__init__(**names)
        self._input_dim, self._output_dim = input_dim, output_dim
        self.weight = Parameter(
            "weight", shape=(input_dim, output_dim), dtype=dtype, init=weight_initializer
        )

    def __repr__(self) -> str:
        return f"Embedding({self._input_dim} -> {self._output_dim})"

    def forward(self, x: ndarray) -> ndarray:
        return npx.embedding(x, self.weight.data(x.device), self._input_dim, self._output_dim)


class Flatten(HybridBlock):
    """All axes after the first become one."""

    def __repr__(self) -> str:
        return "Flatten"

    def forward(self, x: ndarray) -> ndarray:
        return npx.batch_flatten(x)


class Identity(HybridBlock):
    """The input itself."""

    def forward(self, x: ndarray) -> ndarray:
        return x


class _OfFunction(Block):
    """A block whose `forward` is a function."""

    def __init__(self, function: str | Callable[..., Any], **names: Any) -> None:
        super().__init__(**names)
        self._func_name = function if isinstance(function, str) else function.__name__
        found: Any = function
        if isinstance(function, str):
            found = getattr(np, function, None) or getattr(npx, function, None)
        if not callable(found):
            raise BlockArgumentError(f"neither np nor npx has a function {function!r}")
        self._func: Callable[..., Any] = found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._func_name})"

    def forward(self, *args: Any) -> Any:
        return self._func(*args)


class Lambda(_OfFunction):
    """A function of `np` or `npx` by its name, or any callable, as a block."""


class HybridLambda(_OfFunction, HybridBlock):
    """A function of `np` or `npx` by its name, or any callable of arrays, as a hybrid block.

    A callable whose first parameter is called F gets `compiler.mxnet.nd` there, as in MXNet 1.x.
    """

    def __init__(self, function: str | Callable[..., Any], **names: Any) -> None:
        super().__init__(function, **names)
        if callable(function) and next(iter(signature(function).parameters), "") == "F":
            self._func = partial(function, nd)
