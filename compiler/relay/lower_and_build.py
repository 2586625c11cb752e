"""Lower and build a module in Relay or Relax operators.

Subgraphs that do not compile are inlined into `main`, or halved and tried again, as the attribute
`baton.on_compile_error` of an accepted subgraph says: "back" or "split". Without it, the build
raises the subgraph's error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import tvm
from tvm.target import Target

from ..backends import COMPILE_OPTIONS
from ..ir.dataflow_graph import OPERATION, RelaxFunction
from ..ir.outline import ON_COMPILE_ERROR, Group, outline
from ..lowering.bind import bind_params
from ..lowering.build import BuildRequest
from ..lowering.offloaded_functions import (
    BACKEND,
    INPUT_NAMES,
    OPERATORS,
    backends,
    bind_constant_arguments,
    function_targets,
    inline_into_callers,
)
from ..pass_context import default_opt_level
from ..runtime.factory import FactoryModule
from .calling_convention import as_module, is_closed
from .external_codegen import check_external, compile_external
from .relax_to_relay import imported_relax_module, subgraphs_to_relay

if TYPE_CHECKING:
    from ..runtime.factory import FactoryModule


Attempt = Callable[[tvm.IRModule, Target, Mapping[str, Any], list[str]], "FactoryModule"]


def build_with_fallback(
    mod: tvm.IRModule, target: Target, params: Mapping[str, Any], attempt: Attempt
) -> FactoryModule:
    """Build a module; fall back for subgraphs that do not compile, where allowed.

    `attempt` builds the module and adds the notes, one per abandoned subgraph, to the report. Its
    error is raised if it is not caused by a subgraph with a fallback.
    """
    notes: list[str] = []
    while True:
        try:
            return attempt(mod, target, params, notes)
        except Exception:
            reasons = _failing(mod, target, params, attempt)
            if not reasons:
                raise
        for name, reason in reasons.items():
            mod, note = _give_up_subgraph(mod, name, reason)
            notes.append(note)


def _failing(
    mod: tvm.IRModule, target: Target, params: Mapping[str, Any], attempt: Attempt
) -> dict[str, str]:
    """Compile each function with a fallback separately; return the errors of those that fail."""
    names = [name for name in backends(mod) if ON_COMPILE_ERROR in mod[name].attrs]
    if not names:
        return {}
    bound = bind_constant_arguments(bind_params(mod, params)[0])
    reasons: dict[str, str] = {}
    for name in names:
        function = bound[name].without_attr(BACKEND).with_attr("global_symbol", "main")
        if COMPILE_OPTIONS in function.attrs:
            function = function.without_attr(COMPILE_OPTIONS)
        try:
            check_external(mod, name, params)
            own = function_targets(tvm.IRModule({"main": function}), target)["main"]
            attempt(tvm.IRModule({"main": function}), own, {}, [])
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            reasons[name] = f"{type(error).__name__}: {lines[0]}".rstrip(": ")
    return reasons


def _give_up_subgraph(mod: tvm.IRModule, name: str, reason: str) -> tuple[tvm.IRModule, str]:
    """Inline or split the function; return the module and a note on the reason."""
    function = mod[name]
    policy, backend = str(function.attrs[ON_COMPILE_ERROR]), str(function.attrs[BACKEND])
    operations = _operations(mod, name)
    outcome = "goes back to main"
    if policy == "split" and len(operations) > 1:
        half = len(operations) // 2
        mod = _halved(mod, name, [operations[:half], operations[half:]])
        outcome = f"is split after {half} of {len(operations)} operators"
    note = f"subgraph {name} of backend {backend!r} does not compile and {outcome}: {reason}"
    return inline_into_callers(mod, {name}), note


def _operations(mod: tvm.IRModule, name: str) -> list[int]:
    kinds = RelaxFunction(mod, name).kinds
    return [index for index, kind in enumerate(kinds) if kind == OPERATION]


def _halved(mod: tvm.IRModule, name: str, halves: list[list[int]]) -> tvm.IRModule:
    """Replace the function with two functions with half of its operators each."""
    function = mod[name]
    attrs = {str(k): v for k, v in function.attrs.items() if str(k) not in (INPUT_NAMES, OPERATORS)}
    whole = RelaxFunction(mod, name)
    groups = [
        Group(half, f"{name}_{part}", attrs, whole.parameters) for part, half in enumerate(halves)
    ]
    before = {gvar.name_hint for gvar in mod.get_global_vars()}
    result = outline(whole, groups)
    # INPUT_NAMES of the halves are the function's parameters; map them to names in main.
    known = json.loads(str(function.attrs[INPUT_NAMES]))
    outer = {var.name: original for var, original in zip(function.params, known)}
    for gvar, half in result.functions_items():
        if gvar.name_hint not in before:
            names = [outer.get(inner, "") for inner in json.loads(str(half.attrs[INPUT_NAMES]))]
            result[gvar] = half.with_attr(INPUT_NAMES, json.dumps(names))
    return result


def lower_and_build(
    mod: tvm.IRModule, target: Target, params: Mapping[str, Any], mod_name: str
) -> FactoryModule:
    """Compile a module for a parsed target: external code generators, lowering, then the build.

    Unmodified imported modules are built from the Relax module that the import keeps. Others are
    lowered to Relax operators once, after the cache lookup. Raises as `build` does.
    """
    imported = imported_relax_module(mod)
    given = mod if imported is None else imported
    given = subgraphs_to_relay(given if is_closed(given) else as_module(given))

    def attempt(
        mod: tvm.IRModule, target: Target, params: Mapping[str, Any], notes: list[str]
    ) -> FactoryModule:
        compiled, modules = compile_external(mod, target, params)
        request = BuildRequest(compiled, target, params, mod_name, notes, modules)
        library = request.cached_library() or request.build_library(as_module(request.bound))
        library.ir_mod = mod
        return library

    with default_opt_level():
        library = build_with_fallback(given, target, params, attempt)
    if imported is not None:
        library.ir_mod = mod
    return library
