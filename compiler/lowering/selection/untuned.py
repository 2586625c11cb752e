"""Single kernels as the schedule library makes them: without records, or with a chosen config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm.target import Target
from tvm.tirx import PrimFunc

from schedules.strategy import Query

from ...auto_scheduler import dispatcher as auto_scheduler
from ...graph.outline_by_name import contract
from ..relax_passes.samples import ONE_SAMPLE, provenance
from ..subgraphs import function_targets
from .recorded import Recorded
from .schedule_source import ScheduleSource

_ALONE = "baton.alone"

# Changes of layout are left out of the account: a network makes them once, at its edges.
_LAYOUT_OPERATORS = frozenset(
    {"_block", "layout_unblock", "layout_transform", "reshape", "transpose", "nn.pad"}
)


@dataclass(frozen=True)
class LibraryKernel:
    """A kernel of the schedule library.

    Attributes
    ----------
    func : PrimFunc
        Scheduled.
    calls : int
    source : str
        Of its schedule, as the build's report names it.
    """

    func: PrimFunc
    calls: int
    source: str


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
            function = function.with_attr("global_symbol", "main")
            if provenance(mod).is_one_sample:  # which the operators' inputs need not show
                function = function.with_attr(ONE_SAMPLE, True)
            return tvm.IRModule({"main": function})
    raise AssertionError("contract made no function")


def library_kernels(
    mod: tvm.IRModule, target: Target, query: Query | None = None
) -> list[LibraryKernel]:
    """The scheduled kernels of a module whose main is one kernel's operators, at opt_level 3.

    Kernels that only change layouts are left out.

    Parameters
    ----------
    query
        Says which config an implementation takes; without it, that of a build without records.
    """
    from ..build import scheduled_kernels, simplify

    with auto_scheduler.FallbackContext(), tvm.transform.PassContext(opt_level=3):
        found = Recorded(simplify(mod))
        if query is not None:
            variables = [b.var.name for block in found.mod["main"].body.blocks
                         for b in block.bindings]  # fmt: skip
            found.templates["main"] = dict.fromkeys(variables, query)
        scheduled, kernels = scheduled_kernels(
            found, function_targets(found.mod, target), target, ScheduleSource.from_contexts()
        )
    return [
        LibraryKernel(scheduled[kernel.name], kernel.calls, kernel.source)
        for kernel in kernels
        if not _LAYOUT_OPERATORS.issuperset(kernel.operators)
    ]
