"""A module for known shapes: what the text leaves open becomes what the arguments have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from ..errors import InputError
from ..graph.constants import shape_of_type
from .flatten import Flattener
from .infer import set_type, type_of


def specialize(mod: tvm.IRModule, values: Sequence[Any], name: str = "main") -> tvm.IRModule:
    """The module with a function whose parameters have the types of `values`.

    Parameters
    ----------
    values : sequence of array or tuple
        One for each parameter; only shapes and dtypes are looked at.

    Returns
    -------
    The module itself if there is nothing to specialise.

    Raises
    ------
    InputError
        A value does not fit its parameter.
    """
    function = mod[name]
    if len(values) != len(function.params):
        raise InputError(f"{name} takes {len(function.params)} arguments, got {len(values)}")
    wanted = [_type_of_value(var, value) for var, value in zip(function.params, values)]
    if all(new is None for new in wanted):
        return mod
    flattener = Flattener()
    parameters = []
    for var, ty in zip(function.params, wanted):
        parameter = var if ty is None else relax.Var(var.name, ty)
        flattener.remember(var, parameter)
        parameters.append(parameter)
    body = flattener.sequence(function.body)
    made = relax.Function(parameters, body, body.ty, function.is_pure, function.attrs)
    changed = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    gvar = mod.get_global_var(name)
    new_name = tvm.ir.GlobalVar(name)
    set_type(new_name, relax.FuncType([var.ty for var in parameters], body.ty))
    functions = {g: f for g, f in changed.functions_items() if g != gvar}
    return tvm.IRModule({**functions, new_name: made}, attrs=mod.attrs)


def _type_of_value(var: relax.Var, value: Any) -> Any:
    """The type that a parameter gets; None if it has it already."""
    ty = _of(value)
    if not _fits(var.ty, ty):
        raise InputError(f"parameter {var.name} is {type_of(var)}, the value {type_of(ty)}")
    return None if _is_static(var.ty) else ty


def _of(value: Any) -> Any:
    if isinstance(value, tuple):
        return relax.TupleType([_of(item) for item in value])
    return relax.TensorType(list(map(int, value.shape)), str(value.dtype))


def _is_static(ty: Any) -> bool:
    if isinstance(ty, relax.TupleType):
        return all(map(_is_static, ty.fields))
    return shape_of_type(ty) is not None


def _fits(declared: Any, given: Any) -> bool:
    if isinstance(declared, relax.TupleType):
        return (
            isinstance(given, relax.TupleType)
            and len(given.fields) == len(declared.fields)
            and all(map(_fits, declared.fields, given.fields))
        )
    if not isinstance(declared, relax.TensorType) or not isinstance(given, relax.TensorType):
        return False
    if str(declared.dtype) != str(given.dtype):
        return False
    if declared.shape is None:
        return declared.ndim in (-1, given.ndim)
    return len(declared.shape.values) == given.ndim and all(
        not isinstance(want, tvm.tirx.IntImm) or int(want) == int(have)
        for want, have in zip(declared.shape.values, given.shape.values)
    )
