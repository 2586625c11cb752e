"""Methods of arrays that `np`, `npx` and arithmetic define, added to `ndarray` on import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.errors import ArrayError

from .. import np as functions
from .. import npx
from . import elementwise
from .ndarray import ndarray, rebind, reject_in_trace
from .value import call_site
from .wrap import from_host


def _binary(name: str, reverse: bool = False) -> Callable[[Any, Any], ndarray]:
    def method(self: Any, other: Any) -> ndarray:
        if not elementwise.is_operand(other):
            return NotImplemented
        function = elementwise.BINARY[name]
        return function(other, self) if reverse else function(self, other)

    return method


def _in_place(name: str) -> Callable[[Any, Any], ndarray]:
    def method(self: Any, other: Any) -> ndarray:
        reject_in_trace(self)
        result = elementwise.BINARY[name](self, other)
        if result.shape != self.shape:
            raise ArrayError(f"{call_site()}: a result of shape {result.shape} in {self.shape}")
        rebind(self, result.astype(self.dtype)._value)
        return self

    return method


def _unary(name: str) -> Callable[[Any], ndarray]:
    def method(self: Any) -> ndarray:
        return elementwise.UNARY[name](self)

    return method


def _function(name: str) -> Callable[..., Any]:
    """The function of that name of `np` or `npx`, with the array as its first argument."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        function = getattr(functions, name, None) or getattr(npx, name)
        return function(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"`{name}` of this array, as the function of that name."
    return method


class Methods:
    """Methods that are copied to `ndarray`."""

    # Numpy's protocols.

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        function = getattr(functions, ufunc.__name__, None)
        if method != "__call__" or kwargs or function is None:
            return NotImplemented
        return function(*(from_host(x) if isinstance(x, np.ndarray) else x for x in inputs))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        found: Any = functions
        for part in func.__module__.split(".")[1:]:
            found = getattr(found, part, found)
        function = getattr(found, func.__name__, None)
        if function is None or not callable(function):
            return NotImplemented
        return function(*args, **kwargs)

    __add__ = _binary("add")
    __radd__ = _binary("add", reverse=True)
    __sub__ = _binary("subtract")
    __rsub__ = _binary("subtract", reverse=True)
    __mul__ = _binary("multiply")
    __rmul__ = _binary("multiply", reverse=True)
    __truediv__ = _binary("true_divide")
    __rtruediv__ = _binary("true_divide", reverse=True)
    __floordiv__ = _binary("floor_divide")
    __rfloordiv__ = _binary("floor_divide", reverse=True)
    __mod__ = _binary("mod")
    __rmod__ = _binary("mod", reverse=True)
    __pow__ = _binary("power")
    __rpow__ = _binary("power", reverse=True)
    __matmul__ = _function("matmul")
    __eq__ = _binary("equal")  # type: ignore[assignment]
    __ne__ = _binary("not_equal")  # type: ignore[assignment]
    __lt__ = _binary("less")
    __le__ = _binary("less_equal")
    __gt__ = _binary("greater")
    __ge__ = _binary("greater_equal")
    __and__ = _binary("bitwise_and")
    __or__ = _binary("bitwise_or")
    __xor__ = _binary("bitwise_xor")
    __iadd__ = _in_place("add")
    __isub__ = _in_place("subtract")
    __imul__ = _in_place("multiply")
    __itruediv__ = _in_place("true_divide")
    __neg__ = _unary("negative")
    __abs__ = _unary("abs")
    __invert__ = _unary("logical_not")
    abs = _unary("abs")

    def __rmatmul__(self, other: Any) -> ndarray:
        return functions.matmul(functions.array(other), self)

    def __pos__(self: Any) -> ndarray:
        return self

    def reshape(self: Any, *shape: Any, order: str = "C", **kwargs: Any) -> ndarray:
        """Elements in another shape; -1 is what is left. `npx.reshape` has more codes."""
        newshape = kwargs.pop("newshape", None) or kwargs.pop("shape", None)
        if newshape is None:
            newshape = shape[0] if len(shape) == 1 else shape
        return functions.reshape(self, newshape, order=order)

    def transpose(self: Any, *axes: Any) -> ndarray:
        """Axes in another order, reversed by default."""
        wanted = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        return functions.transpose(self, wanted)

    def broadcast_to(self: Any, shape: Any) -> ndarray:
        """`np.broadcast_to` of this array."""
        return functions.broadcast_to(self, shape)

    def flatten(self: Any) -> ndarray:
        """All elements along one axis."""
        return self.reshape(-1)

    ravel = flatten


for _name in (
    *("all", "any", "argmax", "argmin", "argsort", "clip", "cumsum", "diagonal", "dot"),
    *("expand_dims", "floor", "ceil", "exp", "log", "max", "mean", "min", "nonzero", "prod"),
    *("repeat", "round", "sort", "split", "sqrt", "square", "squeeze", "std", "sum", "swapaxes"),
    *("take", "tanh", "tile", "var", "norm", "sigmoid", "relu", "slice_axis", "softmax"),
    *("log_softmax", "sign", "sin", "cos", "flip", "one_hot", "pick", "topk", "zeros_like"),
):
    if not hasattr(Methods, _name) and not hasattr(ndarray, _name):
        setattr(Methods, _name, _function(_name))

_OF_CLASSES = (*vars(type("", (), {})), "__hash__", "__firstlineno__", "__static_attributes__")
for _name, _member in list(vars(Methods).items()):
    if _name not in _OF_CLASSES:
        setattr(ndarray, _name, _member)
