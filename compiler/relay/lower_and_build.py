"""Lower and build a module in Relay or Relax operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm.target import Target

from ..lowering.build import BuildRequest
from ..pass_context import default_opt_level
from ..runtime.factory import FactoryModule
from .calling_convention import as_module, is_closed
from .external_codegen import compile_external
from .imported_module import imported_relax_module
from .relax_to_relay import subgraphs_to_relay
from .subgraph_fallback import build_with_fallback


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
