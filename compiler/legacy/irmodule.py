"""`module[gvar] = function`: the variable knows the function's type, as Relay's did, for calls."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from ..relay import adt
from ..relay.prelude import import_from_std
from .patches import Patches

_new_add = tvm.IRModule._add
_new_update_func = tvm.IRModule.update_func
_new_getitem = tvm.IRModule.__getitem__


def _add(self: tvm.IRModule, var: Any, val: Any, update: bool = True) -> Any:
    if isinstance(val, adt.TypeData):
        return adt.define(self, val)
    function = _with_types(val)
    _tell(var, function)
    return _new_add(self, var, function, update)


def _update_func(self: tvm.IRModule, var: Any, func: Any) -> Any:
    function = _with_types(func)
    _tell(var, function)
    return _new_update_func(self, var, function)


def _getitem(self: tvm.IRModule, var: Any) -> Any:
    """A function, or the data type that a type's variable names."""
    is_type = isinstance(var, adt.GlobalTypeVar)
    return adt.definition(self, var) if is_type else _new_getitem(self, var)


def _global_type_var(self: tvm.IRModule, name: str) -> adt.GlobalTypeVar:
    return adt.definition(self, name).header


def _with_types(function: Any) -> Any:
    """What is put into a module as a function: any expression, of its free variables.

    One that takes the types of its arguments becomes one over anything, unless it is a program.
    """
    from ..relay.expr import as_expr
    from ..relay.function import Function, OpenFunction
    from ..relay.variables import free_vars

    function = as_expr(function)
    if not isinstance(function, tvm.ir.BaseFunc):
        function = Function(free_vars(function), function)
    if isinstance(function, OpenFunction) and not function.is_program:
        return function.untyped()
    return function


def _tell(var: Any, function: Any) -> None:
    from ..relay.type_infer import set_type

    named = isinstance(var, tvm.ir.GlobalVar) and isinstance(function, relax.Function)
    if named and var.ty.is_missing():
        set_type(var, function.ty)


def change(patches: Patches) -> None:
    """Let modules tell the types of functions to the variables that name them."""
    patches.set(tvm.IRModule, "_add", _add)
    patches.set(tvm.IRModule, "update_func", _update_func)
    patches.set(tvm.IRModule, "__getitem__", _getitem)
    patches.add(tvm.IRModule, "get_type", adt.get_type)
    patches.add(tvm.IRModule, "get_constructor", adt.constructor)
    patches.add(tvm.IRModule, "get_global_type_var", _global_type_var)
    patches.add(tvm.IRModule, "get_global_type_vars", lambda self: list(adt.type_definitions(self)))
    patches.add(tvm.IRModule, "type_definitions", property(adt.type_definitions))
    patches.add(tvm.IRModule, "import_from_std", import_from_std)
