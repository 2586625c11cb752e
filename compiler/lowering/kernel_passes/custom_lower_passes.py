"""Lower scheduled loops with user-defined passes in between.

    with PassContext(config={"tirx.add_lower_pass": [(1, my_pass)]}): ...

Phase 0 is the loops as scheduled, 1 flat buffers, 2 unrolled loops, 3 the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import IRModule, s_tir, tirx
from tvm.tirx import PrimFunc

INTERNAL = "baton.internal"
"""Attribute of TIR functions that the build adds for itself, which user-defined passes skip."""


def run_custom_lower_passes(mod: IRModule) -> IRModule:
    """Run the PassContext's "tirx.add_lower_pass" on the TIR functions of a module.

    Only functions that the passes changed are lowered. Those that they only inspected are returned
    unchanged, so that printing shows the kernels that are built.
    """
    passes = added_passes()
    if not passes:
        return mod
    changed = dict(mod.functions_items())
    for variable, function in mod.functions_items():
        if isinstance(function, PrimFunc) and INTERNAL not in (function.attrs or {}):
            noted: list[bool] = []
            noting = [(phase, _noting_changes(each, noted)) for phase, each in passes]
            lowered = lower_loops(IRModule({variable: function}), False, noting)
            changed[variable] = lowered[variable] if any(noted) else function
    return IRModule(changed, attrs=mod.attrs, global_infos=mod.global_infos)


def _noting_changes(own: Any, noted: list[bool]) -> Any:
    """Wrap a pass to record in a list whether it changed its module."""

    @tvm.transform.module_pass(opt_level=0, name="AddedPass")
    def run(mod: IRModule, _: tvm.transform.PassContext) -> IRModule:
        after = own(mod)
        noted.append(not tvm_ffi.structural_equal(mod, after, True))
        return after

    return run


def lower_loops(mod: IRModule, simple_mode: bool, added: Sequence[tuple[int, Any]]) -> IRModule:
    """Lower scheduled loops, with user-defined passes in their phases."""

    def own(phase: int) -> list[Any]:
        return [each for number, each in added if number == phase]

    passes = [
        *own(0),
        s_tir.transform.CanonicalizeLoop(),
        s_tir.transform.LowerCrossThreadReduction(),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.StmtSimplify(),
    ]
    if simple_mode:
        passes += [*own(1), *own(2)]
    else:
        passes += [
            tirx.transform.FlattenBuffer(),
            tirx.transform.NarrowDataType(32),
            *own(1),
            s_tir.transform.LoopPartition(),
            tirx.transform.VectorizeLoop(),
            s_tir.transform.InjectVirtualThread(),
            s_tir.transform.InjectDoubleBuffer(),
            tirx.transform.StorageRewrite(),
            tirx.transform.UnrollLoop(),
            *own(2),
            tirx.transform.StmtSimplify(),
            tirx.transform.RemoveNoOp(),
        ]
    return tvm.transform.Sequential([*passes, *own(3)])(mod)


def added_passes() -> list[tuple[int, Any]]:
    """The user-defined passes of the PassContext's "tirx.add_lower_pass", with their phases."""
    config = tvm.transform.PassContext.current().config
    return [(int(phase), each) for phase, each in config.get("tirx.add_lower_pass", [])]
