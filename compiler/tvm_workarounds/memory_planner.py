"""Skip TVM's memory planner for modules that it plans incorrectly.

StaticPlanBlockMemory of TVM 0.27 tracks sizes but not devices: it gives a CUDA kernel the memory of
a CPU value that is no longer needed. It does not track conditions either: a branch gets storage
that only the other branch allocates, and storage returned by nested branches is freed too early.
"""

from __future__ import annotations

import tvm
from tvm import relax


def can_plan_memory(mod: tvm.IRModule) -> bool:
    """Whether a module has one device and no `If`; others allocate from the VM's device pools."""
    return len((mod.global_infos or {}).get("vdevice", [])) <= 1 and not has_conditions(mod)


def has_conditions(mod: tvm.IRModule) -> bool:
    """Whether a function has an `If`."""
    return any(
        isinstance(binding.value, relax.If)
        for _, function in mod.functions_items()
        if isinstance(function, relax.Function)
        for block in function.body.blocks
        for binding in block.bindings
    )
