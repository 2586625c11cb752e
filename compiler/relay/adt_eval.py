"""Partial evaluation of modules that contain functions without a Relax equivalent ("programs").

Such functions use data types, `match`, references, polymorphism or recursion over these. The Relay
text reader evaluates them, so the module is first converted to the reader's syntax tree.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from ..ir.rewrite import expressions_in
from ..support.depth_first import depth_first
from .adt import type_definitions
from .function import OpenFunction
from .variables import global_vars


def is_program(mod: Any) -> bool:
    """Whether a module must be partially evaluated before compilation."""
    return isinstance(mod, tvm.IRModule) and (
        bool(type_definitions(mod))
        or any(isinstance(function, OpenFunction) for function in mod.functions.values())
    )


def evaluated(mod: tvm.IRModule, name: str = "main") -> tvm.IRModule:
    """Evaluate down to functions over tensors; RelayError if impossible. Others are unchanged."""
    if not is_program(mod):
        return mod
    from .text.from_relax import from_relax
    from .text.to_relax import to_relax

    program = from_relax(only_needed(mod, name))
    program.source = "the module"
    return to_relax(program, entries=(name,))


def only_needed(mod: tvm.IRModule, *entries: str) -> tvm.IRModule:
    """Restrict the module to the given functions and the functions that they reference."""
    functions = {str(gvar.name_hint): (gvar, each) for gvar, each in mod.functions.items()}
    known = functions.keys()
    roots = [name for name in entries if name in known]
    reached = set(depth_first(roots, lambda name: callees(functions[name][1]) & known))
    kept = dict(pair for name, pair in functions.items() if name in reached)
    return tvm.IRModule(kept, attrs=mod.attrs, global_infos=mod.global_infos)


def callees(function: Any) -> set[str]:
    """Names of the global functions that a function references."""
    if isinstance(function, OpenFunction):
        return {str(each.name_hint) for each in global_vars(function)}
    if not isinstance(function, relax.Function):
        return set()
    return {str(each.name_hint) for each in expressions_in(function, tvm.ir.GlobalVar)}


def add_text(mod: tvm.IRModule, text: str, source: str) -> None:
    """Parse Relay text and add its data types and functions to a module, in place."""
    from .text.from_relax import data_types
    from .text.parser import parse_module
    from .text.to_nodes import add_to_module

    add_to_module(parse_module(text, source, data_types(mod)), mod)
