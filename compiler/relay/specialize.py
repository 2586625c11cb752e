"""Specialize a module to the concrete shapes of its arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tvm
from tvm import relax

from ..errors import InputError
from ..ir import dynamic_shape
from ..ir.constants import leaf_types, shape_of_type
from ..runtime.extents import require_equal_symbols, require_shape
from .relay_to_relax import Flattener
from .type_infer import set_type, type_of


def specialize(mod: tvm.IRModule, values: Sequence[Any], name: str = "main") -> tvm.IRModule:
    """Specialize a function to the shapes and dtypes of `values`, one per parameter.

    Returns the same module if nothing changes. Raises InputError: a value does not fit.
    """
    function = mod[name]
    wanted = check_values(function, values)
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
    new_name = set_type(
        tvm.ir.GlobalVar(name), relax.FuncType([var.ty for var in parameters], body.ty)
    )
    functions = {g: f for g, f in changed.functions_items() if g != gvar}
    return tvm.IRModule({**functions, new_name: made}, attrs=mod.attrs)


def check_values(function: relax.Function, values: Sequence[Any]) -> list[Any]:
    """New type of each parameter for the values, None if unchanged; InputError if one misfits."""
    if len(values) != len(function.params):
        raise InputError(
            f"a function of {len(function.params)} parameters is called with {len(values)} values"
        )
    wanted = [_type_of_value(var, value) for var, value in zip(function.params, values)]
    _require_extents(function, values)
    return wanted


def _type_of_value(var: relax.Var, value: Any) -> Any:
    """Specialized type of a parameter; None if the parameter already has it."""
    ty = _of(value)
    if not _fits(var.ty, ty):
        raise InputError(f"parameter {var.name} is {type_of(var)}, the value {type_of(ty)}")
    return ty if None in map(shape_of_type, leaf_types(var.ty)) else None


def _of(value: Any) -> Any:
    if isinstance(value, tuple):
        return relax.TupleType([_of(item) for item in value])
    return relax.TensorType(list(map(int, value.shape)), str(value.dtype))


def _fits(declared: Any, given: Any) -> bool:
    """Whether a value is a tensor or tuple of the parameter's type, ignoring extents."""
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
    return declared.shape is not None or declared.ndim in (-1, given.ndim)


def _require_extents(function: relax.Function, values: Sequence[Any]) -> None:
    """Raise InputError if a value's extents contradict those of its parameter or a symbol."""
    tensors = [
        each
        for var, value in zip(function.params, values)
        for each in _tensors(f"parameter {var.name!r}", var.ty, value)
    ]
    names = dynamic_shape.names(function)
    bounds = dynamic_shape.bounds(function)

    def name(extent: Any) -> int | str:
        return int(extent) if isinstance(extent, tvm.tirx.IntImm) else names.get(extent, "?")

    for what, declared, shape in tensors:
        require_shape(what, shape, list(map(name, declared)), bounds)
    require_equal_symbols(
        (what, axis, names[symbol], extent)
        for what, declared, shape in tensors
        for axis, (symbol, extent) in enumerate(zip(declared, shape))
        if symbol in names
    )


def _tensors(what: str, ty: Any, value: Any) -> Iterator[tuple[str, list[Any], tuple[int, ...]]]:
    """Yield (name, declared extents, actual extents) of each tensor of known rank."""
    if isinstance(ty, relax.TupleType):
        for index, (field, item) in enumerate(zip(ty.fields, value)):
            yield from _tensors(f"{what}[{index}]", field, item)
    elif isinstance(ty.shape, relax.ShapeExpr):
        yield what, list(ty.shape.values), tuple(map(int, value.shape))
