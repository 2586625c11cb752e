"""Random weight initializers that reproduce Relay's weights for a given seed."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ...errors import RelayError
from ...ir.constants import static_shape
from ..analysis import free_vars
from ..function import Function


class Initializer:
    """Fills arrays according to name suffixes: weight, bias, gamma, beta, mean, var."""

    def __init__(self, **kwargs: Any):
        self._kwargs = kwargs

    def __call__(self, desc: str, arr: np.ndarray) -> None:
        """Initialize `arr`, the array of the parameter `desc`."""
        if desc.endswith("weight"):
            self._init_weight(desc, arr)
        elif desc.endswith(("bias", "beta", "mean")):
            arr[:] = 0.0
        elif desc.endswith(("gamma", "var")):
            arr[:] = 1.0
        else:
            raise RelayError(
                f"parameter {desc!r}: names end in weight, bias, gamma, beta, mean or var"
            )

    def _init_weight(self, name: str, arr: np.ndarray) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say how weights are filled")


class Xavier(Initializer):
    """Uniform or normal weights scaled by the number of inputs and outputs.

    Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural
    networks" (2010).
    """

    def __init__(
        self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3
    ) -> None:
        super().__init__(rnd_type=rnd_type, factor_type=factor_type, magnitude=magnitude)
        self.rnd_type = rnd_type
        self.factor_type = factor_type
        self.magnitude = float(magnitude)

    def _init_weight(self, name: str, arr: np.ndarray) -> None:
        shape = arr.shape
        if len(shape) < 2:
            raise RelayError(f"parameter {name!r} of shape {shape} needs two dimensions or more")
        window = math.prod(shape[2:])
        fan_in, fan_out = shape[1] * window, shape[0] * window
        factors = {"avg": (fan_in + fan_out) / 2.0, "in": fan_in, "out": fan_out}
        if self.factor_type not in factors:
            raise RelayError(f"factor_type must be avg, in or out, not {self.factor_type!r}")
        factor = float(window) if "depthwise" in name else factors[self.factor_type]
        scale = math.sqrt(self.magnitude / factor)
        if self.rnd_type == "uniform":
            arr[:] = np.random.uniform(-scale, scale, size=shape)
        elif self.rnd_type == "gaussian":
            arr[:] = np.random.normal(0, scale, size=shape)
        else:
            raise RelayError(f"rnd_type must be uniform or gaussian, not {self.rnd_type!r}")


class Constant(Initializer):
    """Constant weights: one divided by the number of elements."""

    def _init_weight(self, name: str, arr: np.ndarray) -> None:
        arr[:] = 1.0 / arr.size


def function_of(net: relax.Expr) -> relax.Function:
    """Function of the free variables of a network's result."""
    return Function(free_vars(net), net)


def create_workload(
    net: relax.Function | relax.Expr, initializer: Initializer | None = None, seed: int = 0
) -> tuple[tvm.IRModule, dict[str, Any]]:
    """Create a module from a network, with values of all parameters except `data`.

    Parameters
    ----------
    net : relax.Function or expression
        The network; the free variables of an expression are its parameters.
    initializer
        Parameter initializer; `Xavier()` by default.
    seed : int
        Seed of numpy's global generator; the weights are the same as Relay's.
    """
    if not isinstance(net, relax.Function):
        net = function_of(net)
    initializer = initializer or Xavier()
    np.random.seed(seed)
    params = {}
    for var in net.params:
        if var.name == "data":
            continue
        shape = static_shape(var)
        if shape is None:
            raise RelayError(f"parameter {var.name!r} has no known shape")
        values = np.zeros(shape, str(var.ty.dtype))
        initializer(str(var.name), values)
        params[str(var.name)] = tvm.runtime.tensor(values)
    return tvm.IRModule({"main": net.with_attr("global_symbol", "main")}), params


def with_defaults(
    function: Callable[..., Any], order: str = "", /, **defaults: Any
) -> Callable[..., Any]:
    """Copy a function with other defaults, and another order, of its parameters."""
    own = inspect.signature(function)
    names = order.split() or list(own.parameters)
    parameters = [own.parameters[name] for name in names]
    signature = own.replace(
        parameters=[
            each.replace(default=defaults.get(each.name, each.default)) for each in parameters
        ]
    )

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        more = bound.arguments.pop("kwargs", {})
        return function(**bound.arguments, **more)

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def workload_of(
    get_net: Callable[..., Any],
    initializer: Initializer | None = None,
    order: str = "",
    /,
    **defaults: Any,
) -> Callable[..., tuple[tvm.IRModule, dict[str, Any]]]:
    """Create `get_workload` of a network: `create_workload` of `with_defaults(get_net, ...)`."""
    net = with_defaults(get_net, order, **defaults)

    @functools.wraps(net)
    def get_workload(*args: Any, **kwargs: Any) -> tuple[tvm.IRModule, dict[str, Any]]:
        return create_workload(net(*args, **kwargs), initializer)

    get_workload.__name__ = get_workload.__qualname__ = "get_workload"
    get_workload.__doc__ = "Build the network as a module with parameters."
    return get_workload
