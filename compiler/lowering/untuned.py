"""Single kernels as a build without records would schedule them: what tuning has to beat."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm.target import Target
from tvm.tirx import PrimFunc

from ..auto_scheduler import dispatcher as auto_scheduler
from ..partition import contract
from .schedule_source import ScheduleSource
from .subgraphs import function_targets

_ALONE = "baton.alone"

# Changes of layout are left out of the account: a network makes them once, at its edges.
_LAYOUT_OPERATORS = frozenset({"layout_transform", "reshape", "transpose", "pad"})


def alone(mod: tvm.IRModule, name: str, bindings: Sequence[str]) -> tvm.IRModule:
    """A module whose main has only some operators of a function.

    Parameters
    ----------
    mod : tvm.IRModule
        At operator level.
    name : str
        The function.
    bindings : sequence of str
        Variables that the operators' results are bound to.
    """
    outlined = contract(mod, [list(bindings)], [{_ALONE: "1"}], function=name)
    for _, function in outlined.functions_items():
        if function.attrs and _ALONE in function.attrs:
            for key in list(function.attrs.keys()):
                function = function.without_attr(key)
            return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    raise AssertionError("contract made no function")


def untuned_kernels(mod: tvm.IRModule, target: Target) -> list[tuple[PrimFunc, int]]:
    """The scheduled kernels of a module, with the number of their calls.

    Kernels that only change layouts are left out.
    """
    from .build import scheduled_kernels, simplify

    with auto_scheduler.FallbackContext():
        simplified = simplify(mod)
        scheduled, kernels = scheduled_kernels(
            simplified,
            function_targets(simplified, target),
            target,
            ScheduleSource.from_contexts(),
            {},
        )
    return [
        (scheduled[kernel.name], kernel.calls)
        for kernel in kernels
        if not _LAYOUT_OPERATORS.issuperset(kernel.operators)
    ]
