"""Descriptions of the accepted subgraphs of a module."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tvm import IRModule, relax
from tvm.ir import Call, GlobalVar

from compiler.errors import PartitionError
from compiler.ir.outline import INPUT_NAMES
from compiler.lowering.offloaded_functions import operators_of

from ..ir.rewrite import relax_functions

_OWN = "baton."


@dataclass(frozen=True)
class SubgraphInfo:
    """One accepted subgraph."""

    name: str  # name of the function in the module
    backend: str  # with `strategy`: who claimed it
    strategy: str
    subgraph_op: str  # operator name that later partitioners see
    subgraph_id: int  # number among the candidates of its strategy, rejected ones counted
    target: str | None  # what the backend wants it compiled for; None for the build's target
    attrs: dict[str, str]  # attributes the backend set, "target" included
    # Operators in execution order, under Relay's names, also where they were lowered since;
    # Relax's, without the prefix `relax.`, for what Relay has no operator for
    operators: tuple[str, ...]
    input_names: tuple[str, ...]  # for each input the parameter of `main` it comes from, or ""


def subgraphs(mod: IRModule) -> list[SubgraphInfo]:
    """Accepted subgraphs of a module, in the order in which `main` calls them.

    Functions that `main` does not call follow, sorted by name. Raises PartitionError: it is no
    module.
    """
    if not hasattr(type(mod), "functions_items"):
        raise PartitionError(
            f"subgraphs takes the IRModule that partition returns, not {type(mod).__name__}"
        )
    found: dict[str, SubgraphInfo] = {}
    for variable, function in relax_functions(mod):
        if not function.attrs:
            continue
        if "baton.backend" in function.attrs:
            found[variable.name_hint] = _info(variable.name_hint, function)
    called = [
        binding.value.op.name_hint
        for block in (mod["main"].body.blocks if "main" in mod else ())
        for binding in block.bindings
        if isinstance(binding.value, Call) and isinstance(binding.value.op, GlobalVar)
    ]
    order = dict.fromkeys([*(name for name in called if name in found), *sorted(found)])
    return [found[name] for name in order]


def _info(name: str, function: relax.Function) -> SubgraphInfo:
    attrs = function.attrs
    own = {str(key): str(value) for key, value in attrs.items() if not str(key).startswith(_OWN)}
    return SubgraphInfo(
        name=name,
        backend=str(attrs["baton.backend"]),
        strategy=str(attrs["baton.strategy"]),
        subgraph_op=str(attrs["baton.subgraph_op"]),
        subgraph_id=int(attrs["baton.subgraph_id"]),
        target=own.get("target"),
        attrs=own,
        operators=tuple(operators_of(function)),
        input_names=tuple(json.loads(str(attrs[INPUT_NAMES]))),
    )
