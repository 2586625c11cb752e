"""Programs: modules with functions that Relax has no form for, and what they evaluate to.

Scripts build data types, `match`, references, polymorphic functions and recursions over them. Text
has the same, and one evaluation serves both: the module is put as its text would be read.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from ..ir.rewrite import expressions_in
from .adt import type_definitions
from .function import OpenFunction
from .variables import global_vars


def is_program(mod: Any) -> bool:
    """Whether a module must be evaluated before it is compiled."""
    return isinstance(mod, tvm.IRModule) and (
        bool(type_definitions(mod))
        or any(isinstance(function, OpenFunction) for function in mod.functions.values())
    )


def evaluated(mod: tvm.IRModule, name: str = "main") -> tvm.IRModule:
    """The module with a function over tensors, and what it needs; others as they are.

    Raises
    ------
    RelayError
        Something is neither a computation on tensors nor can be evaluated before it runs.
    """
    if not is_program(mod):
        return mod
    from .text.from_relax import from_relax
    from .text.to_relax import to_relax

    program = from_relax(only_needed(mod, name))
    program.source = "the module"
    return to_relax(program, entries=(name,))


def only_needed(mod: tvm.IRModule, *entries: str) -> tvm.IRModule:
    """The module with some functions, and those that these name, alone."""
    functions = {str(gvar.name_hint): (gvar, each) for gvar, each in mod.functions.items()}
    reached: set[str] = set()
    stack = [name for name in entries if name in functions]
    while stack:
        name = stack.pop()
        if name in functions and name not in reached:
            reached.add(name)
            stack += callees(functions[name][1])
    kept = dict(pair for name, pair in functions.items() if name in reached)
    return tvm.IRModule(kept, attrs=mod.attrs, global_infos=mod.global_infos)


def callees(function: Any) -> set[str]:
    """Names of the global functions that a function mentions."""
    if isinstance(function, OpenFunction):
        return {str(each.name_hint) for each in global_vars(function)}
    if not isinstance(function, relax.Function):
        return set()
    return {str(each.name_hint) for each in expressions_in(function, tvm.ir.GlobalVar)}


def add_text(mod: tvm.IRModule, text: str, source: str) -> None:
    """Add the data types and functions of a text to a module, in place."""
    from .text.from_relax import data_types
    from .text.parser import parse_module
    from .text.to_nodes import add_to_module

    add_to_module(parse_module(text, source, data_types(mod)), mod)
