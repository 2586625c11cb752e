"""`module[gvar] = function`: the variable knows the function's type, as Relay's did, for calls."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from .patches import Patches

_new_add = tvm.IRModule._add
_new_update_func = tvm.IRModule.update_func


def _add(self: tvm.IRModule, var: Any, val: Any, update: bool = True) -> Any:
    function = _with_types(val)
    _tell(var, function)
    return _new_add(self, var, function, update)


def _update_func(self: tvm.IRModule, var: Any, func: Any) -> Any:
    function = _with_types(func)
    _tell(var, function)
    return _new_update_func(self, var, function)


def _with_types(function: Any) -> Any:
    """A function that takes the types of its arguments as one that may be in a module."""
    from ..relay.function import OpenFunction

    return function.untyped() if isinstance(function, OpenFunction) else function


def _tell(var: Any, function: Any) -> None:
    from ..relay.infer import set_type

    named = isinstance(var, tvm.ir.GlobalVar) and isinstance(function, relax.Function)
    if named and var.ty.is_missing():
        set_type(var, function.ty)


def change(patches: Patches) -> None:
    """Let modules tell the types of functions to the variables that name them."""
    patches.set(tvm.IRModule, "_add", _add)
    patches.set(tvm.IRModule, "update_func", _update_func)
