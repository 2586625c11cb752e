"""Activation layers."""

from __future__ import annotations

from typing import Any

from compiler.errors import BlockArgumentError

from ... import npx
from ...array.ndarray import ndarray
from ...initializer import Constant
from ..hybrid_block import HybridBlock
from ..parameter import Parameter

KINDS = ("relu", "sigmoid", "tanh", "softrelu", "softsign", "log_sigmoid", "mish")


class Activation(HybridBlock):
    """A function by its name: relu, sigmoid, tanh, softrelu, softsign, log_sigmoid, mish."""

    def __init__(self, activation: str, **names: Any) -> None:
        super().__init__(**names)
        if activation not in KINDS:
            raise BlockArgumentError(f"unknown activation {activation!r}; there are {KINDS}")
        self._act_type = activation

    def __repr__(self) -> str:
        return f"Activation({self._act_type})"

    def forward(self, x: ndarray) -> ndarray:
        return npx.activation(x, self._act_type)


class ELU(HybridBlock):
    """x where positive, alpha * (exp(x) - 1) elsewhere."""

    kind = "elu"

    def __init__(self, alpha: float = 1.0, **names: Any) -> None:
        super().__init__(**names)
        self._alpha = alpha

    def forward(self, x: ndarray) -> ndarray:
        return npx.leaky_relu(x, act_type=self.kind, slope=self._alpha)


class LeakyReLU(ELU):
    """x where positive, alpha * x elsewhere."""

    kind = "leaky"

    def __init__(self, alpha: float, **names: Any) -> None:
        super().__init__(alpha, **names)
        if alpha < 0:
            raise BlockArgumentError(f"the slope must not be negative, but is {alpha}")

    def __repr__(self) -> str:
        return f"LeakyReLU({self._alpha})"


class SELU(ELU):
    """ELU with fixed scales."""

    kind = "selu"

    def __init__(self, **names: Any) -> None:
        super().__init__(0.25, **names)


class PReLU(HybridBlock):
    """LeakyReLU with slopes that are parameters."""

    def __init__(self, alpha_initializer: Any = None, in_channels: int = 1, **names: Any) -> None:
        super().__init__(**names)
        init = Constant(0.25) if alpha_initializer is None else alpha_initializer
        self.alpha = Parameter("alpha", shape=(in_channels,), init=init)

    def forward(self, x: ndarray) -> ndarray:
        return npx.leaky_relu(x, self.alpha.data(x.device), act_type="prelu")


class GELU(HybridBlock):
    """x * Phi(x); `approximation` "erf" is exact, "tanh" the approximation."""

    def __init__(self, approximation: str = "erf", **names: Any) -> None:
        super().__init__(**names)
        if approximation not in ("erf", "tanh"):
            raise BlockArgumentError(f"GELU is erf or tanh, not {approximation!r}")
        self._approximation = approximation

    def forward(self, x: ndarray) -> ndarray:
        if self._approximation == "erf":
            return npx.gelu(x)
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1 + npx.activation(inner, "tanh"))


class Swish(HybridBlock):
    """x * sigmoid(beta * x)."""

    def __init__(self, beta: float = 1.0, **names: Any) -> None:
        super().__init__(**names)
        self._beta = beta

    def forward(self, x: ndarray) -> ndarray:
        return x * npx.sigmoid(x if self._beta == 1.0 else self._beta * x)


class SiLU(Swish):
    """x * sigmoid(x)."""

    def __init__(self, **names: Any) -> None:
        super().__init__(1.0, **names)
