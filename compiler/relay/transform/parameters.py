"""Passes over parameters and arguments: ChangeBatch, SplitArgs, SimplifyFCTranspose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from .. import dialect
from ..nested_expressions import handle, nested, rewrite
from ..relay_to_relax import function_of
from .base import body_wise, function_wise
from .build import again, is_op, op, tuple_of


def ChangeBatch(data: Mapping[relax.Var, int], batch_size: int = 16) -> Any:
    """Change the batch size via the types of parameters; `data` maps these to batch axes."""
    axes = {handle(variable): int(axis) for variable, axis in data.items()}

    def change(function: relax.Function, _mod: tvm.IRModule) -> relax.Function:
        new: dict[int, relax.Var] = {}
        for parameter in function.params:
            if handle(parameter) in axes:
                extents = list(parameter.ty.shape.values)
                extents[axes[handle(parameter)]] = batch_size
                new[handle(parameter)] = _of_shape(parameter, extents)
        body = rewrite(nested(function), lambda old, made: new.get(handle(old), made))
        return _with_parameters(function, new, body) if new else function

    return function_wise("ChangeBatch", 1, change)


def SimplifyFCTranspose(target_weight_name: Sequence[str]) -> Any:
    """Replace dense(x, transpose(w)) with dense(x, w) for named weights, then passed transposed.

    `relay.data_dep_optimization.simplify_fc_transpose.convert` transposes their values too.
    """
    names = {str(name) for name in target_weight_name}

    def change(function: relax.Function, _mod: tvm.IRModule) -> relax.Function:
        new = {
            handle(parameter): _of_shape(parameter, list(parameter.ty.shape.values)[::-1])
            for parameter in function.params
            if str(parameter.name) in names
        }

        def turned(old: relax.Expr, made: relax.Expr) -> relax.Expr:
            if is_op(old, "nn.dense") and is_transposed_weight(old.args[1], names):
                return again(made, [made.args[0], new[handle(old.args[1].args[0])]])
            return made

        return _with_parameters(function, new, rewrite(nested(function), turned))

    return function_wise("SimplifyFCTranspose", 0, change)


def is_transposed_weight(expr: relax.Expr, names: set[str] | None = None) -> bool:
    """Whether an expression is a transposed matrix parameter, with one of these names if given."""
    return (
        is_op(expr, "transpose")
        and isinstance(expr.args[0], relax.Var)
        and expr.args[0].ty.ndim == 2
        and dialect.attributes(expr).get("axes") in (None, [], [1, 0])
        and (names is None or str(expr.args[0].name) in names)
    )


def SplitArgs(max_function_args: int) -> Any:
    """Split concatenations with too many operands for one kernel into several.

    `max_function_args`: maximum number of kernel arguments on the device, including the result; 0
    for no limit.
    """

    def change(_old: relax.Expr, new: relax.Expr) -> relax.Expr:
        if not is_op(new, "concatenate") or not isinstance(new.args[0], relax.Tuple):
            return new
        return _split(new, max_function_args)

    return body_wise("SplitArgs", 1, lambda body: rewrite(body, change))


def _split(concatenate: relax.Call, limit: int) -> relax.Expr:
    fields = list(concatenate.args[0].fields)
    limit -= 1  # the result is an argument too
    if limit < 1 or sum(map(_arguments, fields)) < limit:
        return concatenate
    attrs = dialect.attributes(concatenate)

    def joined(parts: list[relax.Expr]) -> relax.Expr:
        return op("concatenate", op("annotation.stop_fusion", tuple_of(parts)), **attrs)

    parts: list[relax.Expr] = []
    count = 0
    for field in fields:
        if count + _arguments(field) > limit:
            parts = [joined(parts)]
            count = _arguments(field)
        count += _arguments(field)
        parts.append(field)
    return joined(parts)


def _arguments(tensor: relax.Expr) -> int:
    """Number of kernel arguments for a tensor; dynamic extents add its shape and strides."""
    extents = list(tensor.ty.shape.values)
    open_extents = sum(not isinstance(extent, tvm.tirx.IntImm) for extent in extents)
    return 1 + open_extents + (len(extents) if open_extents else 0)


def _of_shape(parameter: relax.Var, extents: Sequence[Any]) -> relax.Var:
    """A parameter of the same name and dtype."""
    return relax.Var(str(parameter.name), relax.TensorType(extents, parameter.ty.dtype))


def _with_parameters(
    function: relax.Function, new: Mapping[int, relax.Var], body: relax.Expr
) -> relax.Function:
    parameters = [new.get(handle(each), each) for each in function.params]
    return function_of(parameters, body, function.attrs)
