"""Initial values of parameters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compiler.errors import BlockArgumentError

from .random import generator

Shape = tuple[int, ...]


class Initializer:
    """Makes the initial value of a parameter; `values` is what kinds of it define."""

    def values(self, name: str, shape: Shape) -> np.ndarray:
        """The value of the parameter `name`."""
        raise NotImplementedError

    def __call__(self, name: str, shape: Shape, dtype: str) -> np.ndarray:
        """The value in a dtype."""
        return np.asarray(self.values(name, shape)).astype(dtype).reshape(shape)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        given = ", ".join(f"{key}={value!r}" for key, value in vars(self).items())
        return f"{type(self).__name__}({given})"


class Constant(Initializer):
    """One number, or an array of the parameter's shape."""

    def __init__(self, value: Any = 0.0) -> None:
        self.value = value

    def values(self, name: str, shape: Shape) -> np.ndarray:
        return np.broadcast_to(np.asarray(self.value), shape)


class Zero(Constant):
    """Zeros."""

    def __init__(self) -> None:
        super().__init__(0.0)


class One(Constant):
    """Ones."""

    def __init__(self) -> None:
        super().__init__(1.0)


class Uniform(Initializer):
    """Evenly distributed in [-scale, scale)."""

    def __init__(self, scale: float = 0.07) -> None:
        self.scale = scale

    def values(self, name: str, shape: Shape) -> np.ndarray:
        return generator().uniform(-self.scale, self.scale, shape)


class Normal(Initializer):
    """Normally distributed."""

    def __init__(self, sigma: float = 0.01) -> None:
        self.sigma = sigma

    def values(self, name: str, shape: Shape) -> np.ndarray:
        return generator().normal(0.0, self.sigma, shape)


class Xavier(Initializer):
    """Scaled by the numbers of inputs and outputs: Glorot & Bengio (2010).

    Parameters
    ----------
    rnd_type : str
        "uniform" or "gaussian".
    factor_type : str
        "avg", "in" or "out".
    magnitude : float
    """

    def __init__(
        self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3
    ) -> None:
        if rnd_type not in ("uniform", "gaussian") or factor_type not in ("avg", "in", "out"):
            raise BlockArgumentError(
                f"Xavier of rnd_type {rnd_type!r}, factor_type {factor_type!r}"
            )
        self.rnd_type = rnd_type
        self.factor_type = factor_type
        self.magnitude = float(magnitude)

    def values(self, name: str, shape: Shape) -> np.ndarray:
        if len(shape) < 2:
            raise BlockArgumentError(f"Xavier needs two axes at least; {name!r} has shape {shape}")
        field = math.prod(shape[2:])
        inputs, outputs = shape[1] * field, shape[0] * field
        factor = {"avg": (inputs + outputs) / 2, "in": inputs, "out": outputs}[self.factor_type]
        scale = math.sqrt(self.magnitude / max(factor, 1))
        if self.rnd_type == "uniform":
            return generator().uniform(-scale, scale, shape)
        return generator().normal(0.0, scale, shape)


class MSRAPrelu(Xavier):
    """For layers followed by PReLU: He et al. (2015)."""

    def __init__(self, factor_type: str = "avg", slope: float = 0.25) -> None:
        super().__init__("gaussian", factor_type, 2.0 / (1 + slope**2))


class Orthogonal(Initializer):
    """Orthogonal rows or columns: Saxe et al. (2013)."""

    def __init__(self, scale: float = 1.414) -> None:
        self.scale = scale

    def values(self, name: str, shape: Shape) -> np.ndarray:
        rows, columns = shape[0], math.prod(shape[1:])
        drawn = generator().normal(0.0, 1.0, (rows, columns))
        u, _, v = np.linalg.svd(drawn, full_matrices=False)
        return self.scale * (u if u.shape == drawn.shape else v)


_BY_NAME = {
    "zeros": Zero,
    "zero": Zero,
    "ones": One,
    "one": One,
    "uniform": Uniform,
    "normal": Normal,
    "xavier": Xavier,
    "msraprelu": MSRAPrelu,
    "orthogonal": Orthogonal,
}


def create(init: Any) -> Initializer:
    """An initializer given as one, by name or as a number; BlockArgumentError if unknown."""
    if isinstance(init, Initializer):
        return init
    if isinstance(init, (int, float, np.ndarray)):
        return Constant(init)
    if isinstance(init, type) and issubclass(init, Initializer):
        return init()
    if str(init).lower() not in _BY_NAME:
        raise BlockArgumentError(f"unknown initializer {init!r}; there are {sorted(_BY_NAME)}")
    return _BY_NAME[str(init).lower()]()
