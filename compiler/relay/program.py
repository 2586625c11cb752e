"""Programs: modules with functions that Relax has no form for, and what they evaluate to.

Scripts build data types, `match`, references, polymorphic functions and recursions over them. Text
has the same, and one evaluation serves both: the module is put as its text would be read.
"""

from __future__ import annotations

from typing import Any

import tvm

from .adt import type_definitions
from .function import OpenFunction


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

    program = from_relax(mod)
    program.source = "the module"
    return to_relax(program, entries=(name,))


def add_text(mod: tvm.IRModule, text: str, source: str) -> None:
    """Add the data types and functions of a text to a module, in place."""
    from .text.from_relax import data_types
    from .text.parser import parse_module
    from .text.to_nodes import add_to_module

    add_to_module(parse_module(text, source, data_types(mod)), mod)
