"""Functions that a backend claimed: their targets, and their way back into `main`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax
from tvm.target import Target

from .. import target as targets

BACKEND = "baton.backend"


def function_targets(mod: tvm.IRModule, target: Target) -> dict[str, Target]:
    """Target of each Relax function at operator level: its attribute `target`, else the build's."""
    chosen = {}
    for gvar, function in mod.functions_items():
        if not isinstance(function, relax.Function):
            continue
        own = function.attrs.get("target") if function.attrs else None
        chosen[gvar.name_hint] = target if own is None else targets.parse(own, target.host)
    return chosen


def backends(mod: tvm.IRModule) -> dict[str, str]:
    """Backend of each function that one claimed."""
    return {
        gvar.name_hint: str(function.attrs[BACKEND])
        for gvar, function in mod.functions_items()
        if isinstance(function, relax.Function) and function.attrs and BACKEND in function.attrs
    }


def inline_subgraphs(mod: tvm.IRModule) -> tvm.IRModule:
    """Put the scheduled subgraph functions back into main, so that memory is planned once."""
    return relax.transform.InlinePrivateFunctions()(mod)


def partition_info(mod: tvm.IRModule, chosen: Mapping[str, Target]) -> dict[str, Any]:
    """Per subgraph: backend, target and attributes, as the library's metadata keep them."""
    info = {}
    for name, backend in backends(mod).items():
        attrs = {
            str(key): str(value)
            for key, value in mod[name].attrs.items()
            if str(key) not in ("target", "global_symbol", BACKEND)
        }
        info[name] = {"backend": backend, "target": targets.to_cli(chosen[name]), "attrs": attrs}
    return info
