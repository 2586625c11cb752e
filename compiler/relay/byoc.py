"""Convert functions from Relay's BYOC passes into the build driver's subgraphs."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from typing import Any

import tvm
from tvm import relax

from ..backends import COMPILE_OPTIONS, compiled_attrs, get_partitioner, list_partitioners
from ..errors import BuildError
from ..ir.rewrite import expressions_in, relax_functions, with_functions
from ..ir.scopes import map_scopes, with_blocks
from ..ir.unique_names import Names
from ..lowering.offloaded_functions import (
    BACKEND,
    INPUT_NAMES,
    OPERATORS,
    RELAY_FUNCTION,
    RUNTIME,
    operators_of,
)
from .type_infer import set_type

_log = logging.getLogger("baton.relay")

_RELAYS_OWN = ("Compiler", "Primitive", "Inline", "global_symbol")


def _with_code_generators(mod: tvm.IRModule) -> tvm.IRModule:
    """Attach the Relay function to each function that `relay.ext.<compiler>` compiles.

    The code generator is a global function of TVM. It gets the original Relay function with the
    attributes `Compiler` and `global_symbol`. Logs each compiler that has neither a code generator
    nor a CPU backend in `compiler.partition`: TVM compiles its functions.
    """
    from .nested_expressions import nested_function  # imports flatten, which imports this module

    without: dict[str, list[str]] = defaultdict(list)
    for gvar, function in relax_functions(mod):
        if "Compiler" not in (function.attrs or {}):
            continue
        compiler = str(function.attrs["Compiler"])
        if tvm.get_global_func(f"relay.ext.{compiler}", allow_missing=True) is None:
            if compiler not in list_partitioners() or get_partitioner(compiler).device != "cpu":
                without[compiler].append(str(gvar.name_hint))
        else:
            whole = nested_function(function).with_attr("global_symbol", str(gvar.name_hint))
            mod = with_functions(mod, {gvar: function.with_attr(RELAY_FUNCTION, whole)})
    for compiler, names in without.items():
        _log.warning(
            "no code generator relay.ext.%s is registered: TVM compiles its %d functions (%s)",
            compiler,
            len(names),
            ", ".join(names[:3]) + (", ..." if len(names) > 3 else ""),
        )
    return mod


class _Lifted:
    """A module whose functions with a `Compiler` attribute are functions of the module."""

    def __init__(self, mod: tvm.IRModule) -> None:
        self.module = mod
        self._names = Names(str(gvar.name_hint) for gvar in mod.get_global_vars())
        self._callees: dict[int, Any] = {}  # by local variable
        self._functions: dict[Any, relax.Function] = {}
        for gvar, function in relax_functions(mod):
            if gvar.name_hint == "main" and "Compiler" in (function.attrs or {}):
                made = self._calling(function)
            else:
                made = map_scopes(function, self._scope)
            if not made.same_as(function):
                self._functions[gvar] = made
        if self._functions:
            self.module = with_functions(mod, self._functions)

    def _lift(self, function: relax.Function) -> Any:
        compiler, attrs = str(function.attrs["Compiler"]), function.attrs
        free = [str(var.name) for var in relax.analysis.free_vars(function)]
        if free:
            raise BuildError(
                f"a function for the compiler {compiler} reads {', '.join(free)} of the function "
                "around it; make them parameters"
            )
        symbol = str(attrs.get("global_symbol", "main"))
        name = self._names.unique(f"{compiler}_main" if symbol == "main" else symbol)
        callee = set_type(tvm.ir.GlobalVar(name), function.ty)
        self._functions[callee] = function.with_attr("global_symbol", name)
        return callee

    def _calling(self, function: relax.Function) -> relax.Function:
        """A function that only calls a lifted one."""
        params = [relax.Var(str(var.name), var.ty) for var in function.params]
        result = relax.Var("result", function.ret_ty)
        call = set_type(relax.Call(self._lift(function), params), function.ret_ty)
        body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(result, call)])], result)
        return relax.Function(params, body, function.ret_ty)

    def _scope(self, function: relax.Function) -> relax.Function:
        """Replace calls of local functions; the bindings of the functions go."""
        blocks, changed = [], False
        for block in function.body.blocks:
            kept = []
            for binding in block.bindings:
                value = binding.value
                if isinstance(value, relax.Function) and "Compiler" in (value.attrs or {}):
                    self._callees[hash(binding.var)] = self._lift(value)
                    changed = True
                    continue
                if isinstance(value, relax.Call) and hash(value.op) in self._callees:
                    callee = self._callees[hash(value.op)]
                    call = set_type(
                        relax.Call(callee, value.args, value.attrs, value.ty_args, value.span),
                        value.ty,
                    )
                    binding, changed = relax.VarBinding(binding.var, call), True
                kept.append(binding)
            blocks.append(type(block)(kept))
        if not changed:
            return function
        return with_blocks(function, blocks)


def as_subgraphs(mod: tvm.IRModule) -> tvm.IRModule:
    """Convert functions with a `Compiler` attribute to subgraphs; keep other modules as is.

    They are functions of the module, local functions that are called in place, or `main` itself.
    """
    mod = _with_code_generators(_Lifted(mod).module)
    external = {
        str(gvar.name_hint): function
        for gvar, function in relax_functions(mod)
        if "Compiler" in (function.attrs or {})
    }
    if not external:
        return mod
    inputs = _inputs(mod, set(external))
    functions: dict[Any, Any] = {}
    for gvar, function in mod.functions_items():
        name = str(gvar.name_hint)
        if name in external:
            names = inputs.get(name, [""] * len(function.params))
            function = _subgraph(function, name, len(functions), names)
        functions[gvar] = function
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def with_operators(function: relax.Function) -> relax.Function:
    """Record the operator names on a subgraph, before lowering removes them."""
    if BACKEND not in (function.attrs or {}):
        return function
    return function.with_attr(OPERATORS, json.dumps(operators_of(function)))


def without_operators(function: relax.Function) -> relax.Function:
    """Remove the names recorded by `with_operators`, unless a runtime executes the subgraph."""
    attrs = function.attrs or {}
    is_lowered = OPERATORS in attrs and RUNTIME not in attrs
    return function.without_attr(OPERATORS) if is_lowered else function


def _subgraph(function: relax.Function, name: str, number: int, names: list[str]) -> relax.Function:
    compiler = str(function.attrs["Compiler"])
    for attribute in _RELAYS_OWN:
        function = function.without_attr(attribute)
    options = {COMPILE_OPTIONS: "{}"} if RELAY_FUNCTION in function.attrs else {}
    # The functions selected by these passes may be unsupported by a GPU backend.
    known = compiler in list_partitioners()
    if not options and known and get_partitioner(compiler).device == "cpu":
        options = compiled_attrs(compiler, "relay", {})
    return function.with_attrs(
        {
            **options,
            BACKEND: compiler,
            "baton.strategy": "relay",
            "baton.subgraph_op": name,
            "baton.subgraph_id": number,
            INPUT_NAMES: json.dumps(names),
        }
    )


def _inputs(mod: tvm.IRModule, names: set[str]) -> dict[str, list[str]]:
    """Map each function to the parameters of `main` that it receives, "" for other arguments."""
    found: dict[str, list[str]] = {}
    for _, function in relax_functions(mod):
        parameters = list(function.params)
        for call in expressions_in(function, relax.Call):
            if isinstance(call.op, tvm.ir.GlobalVar) and str(call.op.name_hint) in names:
                found[str(call.op.name_hint)] = [
                    str(arg.name)
                    if isinstance(arg, relax.Var) and any(arg.same_as(p) for p in parameters)
                    else ""
                    for arg in call.args
                ]
    return found
