"""Helpers to define Relay passes that work on Relax modules."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from ... import errors
from ...ir import rewrite
from ...ir.op_dialect import SharedRule, Vocabulary
from ...ir.rewrite import expressions_in, operator_name, relax_functions, rewrite_calls
from ...ir.scopes import map_scopes
from .. import dialect
from ..adt import type_definitions
from ..adt_eval import evaluated, is_program, only_needed
from ..function import OpenFunction
from ..nested_expressions import nested_scope
from ..relay_to_relax import function_of
from . import build

FunctionChange = Callable[[relax.Function, tvm.IRModule], relax.Function]
BodyChange = Callable[[relax.Expr], relax.Expr]


class RelayVocabulary(Vocabulary):
    """Relay operator dialect of rewrite rules."""

    constants_only = False

    def name(self, expr: Any) -> str:
        return dialect.relay_name(expr) if isinstance(expr, relax.Call) else ""

    def make(self, name: str, *operands: relax.Expr, **attributes: Any) -> relax.Expr:
        return build.op(name, *operands, **attributes)

    def again(self, call: relax.Call, operands: Sequence[relax.Expr], **changes: Any) -> relax.Expr:
        return build.again(call, operands, **changes)


RELAY = RelayVocabulary()


def rule_wise(
    name: str, opt_level: int, rule: Callable[[Vocabulary], SharedRule], sweeps: int = 1
) -> Any:
    """Create a pass from a rewrite rule shared with the build, applied until a fixed point."""

    def run(mod: tvm.IRModule) -> tvm.IRModule:
        _name_unseen(name, mod)
        for _ in range(sweeps):
            before, mod = mod, rewrite_calls(mod, lambda: rule(RELAY))
            if mod.same_as(before):
                break
        return mod

    return module_pass(name, opt_level, run)


for _error in vars(errors).values():
    # Those that a pass raises shall arrive by their own classes; TVM has a ScheduleError, too.
    is_error = isinstance(_error, type) and issubclass(_error, errors.BatonError)
    if is_error and _error is not errors.ScheduleError:
        tvm_ffi.register_error(_error)


def module_pass(name: str, opt_level: int, change: Callable[[tvm.IRModule], tvm.IRModule]) -> Any:
    """Create a module pass."""

    def run(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return change(mod)

    return tvm.transform.module_pass(run, opt_level=opt_level, name=name)


def function_wise(name: str, opt_level: int, change: FunctionChange) -> Any:
    """Pass over Relax functions; unchanged ones are reused, those with `Compiler` skipped."""

    def change_own(function: relax.Function, mod: tvm.IRModule) -> relax.Function:
        return function if is_external(function) else change(function, mod)

    def run(mod: tvm.IRModule) -> tvm.IRModule:
        _name_unseen(name, mod)
        return map_functions(mod, change_own)

    return module_pass(name, opt_level, run)


def is_external(function: relax.Function) -> bool:
    """Whether a function is partitioned for an external compiler."""
    return function.attrs is not None and "Compiler" in function.attrs


def _name_unseen(name: str, mod: tvm.IRModule) -> None:
    """Warn about parts of a module that Relay passes skip: Relax operators and programs."""
    if _is_open(mod):
        warnings.warn(
            f"{name} leaves functions over data types, and those that call them, as they are; "
            "relay.transform.PartialEvaluate evaluates them first",
            stacklevel=2,
        )
    unseen: set[str] = set()
    for _, function in relax_functions(mod):
        for node in expressions_in(function):
            if operator_name(node):
                unseen.add(str(node.op.name))
    if unseen - _NAMED:
        _NAMED.update(unseen)
        warnings.warn(
            f"{name} sees Relay's operators alone; these of Relax have no form in Relay and stay "
            f"as they are: {', '.join(sorted(unseen))}",
            stacklevel=2,
        )


def _is_open(mod: tvm.IRModule) -> bool:
    """Whether `main` needs functions that are evaluated when a module is compiled."""
    needed = only_needed(mod, "main").functions.values() if is_program(mod) else ()
    return any(isinstance(each, OpenFunction) for each in needed)


_NAMED: set[str] = set()
"""Operators already mentioned in a warning."""


def body_wise(name: str, opt_level: int, change: BodyChange) -> Any:
    """Create a pass that rewrites the nested body of every function and of every scope in it."""

    def run(function: relax.Function, _mod: tvm.IRModule) -> relax.Function:
        return with_body(function, change)

    return function_wise(name, opt_level, run)


def partition_pass(name: str, change: BodyChange) -> Any:
    """Create a `body_wise` pass that first evaluates programs, whose loops become functions."""
    chosen = body_wise(name, 0, change)

    def run(mod: tvm.IRModule) -> tvm.IRModule:
        return chosen(evaluated_if_open(mod))

    return module_pass(name, 0, run)


def evaluated_if_open(mod: tvm.IRModule) -> tvm.IRModule:
    """Evaluate a module whose `main` needs recursive functions; data types stay in a module."""
    return evaluated(mod) if _is_open(mod) and not type_definitions(mod) else mod


def with_body(function: relax.Function, change: BodyChange) -> relax.Function:
    """Replace the body of a function and of each branch and local function in it.

    Returns the same function if nothing changes.
    """

    def changed(scope: relax.Function) -> relax.Function:
        before = nested_scope(scope)
        after = change(before)
        return scope if after.same_as(before) else function_of(scope.params, after, scope.attrs)

    return map_scopes(function, changed)


def map_functions(mod: tvm.IRModule, change: FunctionChange) -> tvm.IRModule:
    """Transform all Relax functions of a module and convert them to dataflow form."""
    changed = {}
    for gvar, function in relax_functions(mod):
        made = change(function, mod)
        if not made.same_as(function):
            changed[gvar] = made
    if not changed:
        return mod
    return with_functions(mod, changed)


def with_functions(mod: tvm.IRModule, changed: dict[Any, Any]) -> tvm.IRModule:
    """Replace functions of a module and update callers to the new types."""
    made = rewrite.with_functions(mod, changed)
    return relax.transform.ConvertToDataflow(min_size=1)(made)
