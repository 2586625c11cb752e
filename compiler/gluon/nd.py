"""`nd`: operators by MXNet's own names, for code written against `mx.nd` and `hybrid_forward`'s F.

    nd.FullyConnected(x, weight, bias, num_hidden=4)
    nd.broadcast_add(a, b)

Every operator that the importer knows, and every one of a library that is loaded, can be called.
Arrays come first or by the operator's names of its inputs; what is left are its parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .creation import arange, array, full, linspace, ones, zeros
from .invoke import invoke, spell
from .ndarray import ndarray

_ALIASES = {
    "dropout": "Dropout",
    "flatten": "Flatten",
    "identity": "_copy",
    "leaky_relu": "LeakyReLU",
}


class _Contrib:
    """Operators whose names start with `_contrib_`."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return _operator(f"_contrib_{name}")


contrib = _Contrib()


def __getattr__(name: str) -> Callable[..., Any]:
    return _operator(name)


def _operator(name: str) -> Callable[..., Any]:
    from compiler.relay.frontend.mxnet_ops import is_known

    op = _ALIASES.get(name, name)
    if not is_known(op) or name.startswith("__"):
        raise AttributeError(f"there is no operator {name!r}")

    def call(*args: Any, **kwargs: Any) -> Any:
        from compiler.mxnet.graph import Node
        from compiler.mxnet.operators import input_names

        label = kwargs.pop("name", "") or ""
        inputs = [arg for arg in args if isinstance(arg, ndarray)]
        for arg in args:
            if isinstance(arg, (list, tuple)) and arg and isinstance(arg[0], ndarray):
                inputs += arg
        given = {key: value for key, value in kwargs.items() if isinstance(value, ndarray)}
        attrs = {k: v for k, v in kwargs.items() if k not in given and v is not None}
        texts = {key: spell(value) for key, value in attrs.items()}
        wanted = input_names(Node(op, op, attrs=texts))
        inputs += [given.pop(key) for key in wanted if key in given]
        inputs += given.values()
        if wanted == ("data", "weight", "bias") and len(inputs) == 2:
            texts["no_bias"] = "1"
        found = invoke(op, inputs, texts, name=label)
        return found[0] if len(found) == 1 else found

    call.__name__ = name
    return call


__all__ = ["arange", "array", "contrib", "full", "linspace", "ones", "zeros"]
