"""Functions of operators: declared with their arguments, or by the names of `mx.nd`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any, cast

from compiler.errors import ArrayError
from compiler.mxnet.symbol.compose import known_operator
from compiler.mxnet_format.graph import Node
from compiler.mxnet_format.operators import input_names, sort_arguments

from .invoke import invoke
from .ndarray import ndarray
from .value import call_site
from .wrap import dtype_name


def declare(
    op: str,
    declaration: str,
    doc: str,
    adjust: Callable[[list[Any], dict[str, Any]], ndarray | None] | None = None,
) -> Callable[..., Any]:
    """Declare the function of an operator.

    * `declaration`: name, arrays and attributes: "pick(data, index; axis=-1, mode='clip')". Arrays
      and attributes that are None are left out, but a dtype of None is float32.
    * `adjust`: changes the given arrays and attributes in place, or returns the result itself.
    """
    text = f"def {declaration.replace(';', ',')}: ..."
    parsed = cast("ast.FunctionDef", ast.parse(text).body[0])
    names = [each.arg for each in parsed.args.args]
    least = len(names) - len(parsed.args.defaults)
    defaults = [Parameter.empty] * least + [ast.literal_eval(d) for d in parsed.args.defaults]
    kind = Parameter.POSITIONAL_OR_KEYWORD
    signature = Signature([Parameter(n, kind, default=d) for n, d in zip(names, defaults)])
    array_names = names[: declaration.partition(";")[0].count(",") + 1]

    def call(*args: Any, name: str | None = None, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        taken = [given.pop(each) for each in array_names]
        inputs = [each for index, each in enumerate(taken) if each is not None or index < least]
        result = adjust(inputs, given) if adjust is not None else None
        if result is not None:
            return result
        if "dtype" in given:
            given["dtype"] = dtype_name(given["dtype"])
        found = invoke(op, inputs, given, name=name or "")
        return found[0] if len(found) == 1 else found

    call.__name__ = call.__qualname__ = parsed.name
    call.__doc__ = doc
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def operator_function(name: str) -> Callable[..., Any]:
    """The function `nd.<name>`; raises AttributeError where there is no such operator."""
    op = known_operator(name)

    def call(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        inputs, attrs, label = sort_arguments(
            op, args, kwargs, lambda value: isinstance(value, ndarray)
        )
        given = [each for each in inputs if each is not None]
        if len(given) < len(inputs) and input_names(Node(op, op, attrs=attrs))[-1:] == ("bias",):
            attrs["no_bias"] = "1"
        found = invoke(op, given, attrs, name=label)
        if out is not None:
            found = _copied_into(found, [out] if isinstance(out, ndarray) else list(out), name)
        return found[0] if len(found) == 1 else found

    call.__name__ = name
    return call


def _copied_into(results: list[ndarray], out: list[ndarray], name: str) -> list[ndarray]:
    """Copy results into the arrays of `out=`."""
    if len(results) != len(out):
        raise ArrayError(f"{call_site()}: {name} has {len(results)} results, out= {len(out)}")
    return [result.copyto(array) for result, array in zip(results, out)]
