"""Operators called by the names that they have in a symbol: `nd.FullyConnected(x, ...)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler.mxnet_format.data_dependent import DYNAMIC
from compiler.mxnet_format.graph import Node
from compiler.mxnet_format.operators import input_names, operator_of, sort_arguments

from .invoke import invoke
from .ndarray import ndarray


def operator_function(name: str) -> Callable[..., Any]:
    """The function `nd.<name>`; raises AttributeError where there is no such operator."""
    from compiler.relay.frontend.mxnet.ops import is_known

    op = operator_of(name)
    if not (is_known(op) or op in DYNAMIC) or name.startswith("__"):
        raise AttributeError(f"there is no operator {name!r}")

    def call(*args: Any, **kwargs: Any) -> Any:
        inputs, attrs, label = sort_arguments(
            op, args, kwargs, lambda value: isinstance(value, ndarray)
        )
        given = [each for each in inputs if each is not None]
        if len(given) < len(inputs) and input_names(Node(op, op, attrs=attrs))[-1:] == ("bias",):
            attrs["no_bias"] = "1"
        found = invoke(op, given, attrs, name=label)
        return found[0] if len(found) == 1 else found

    call.__name__ = name
    return call
