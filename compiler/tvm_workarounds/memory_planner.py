"""Keeps TVM's memory planner from modules that it plans wrongly.

StaticPlanBlockMemory of TVM 0.27 knows sizes and not devices: it gives a CUDA kernel the memory of
a CPU value that is no longer needed. Nor does it know of conditions: a branch gets storage that
only the other one allocates, and what nested ones return is given back too early.
"""

from __future__ import annotations

import tvm
from tvm import relax


def can_plan_memory(mod: tvm.IRModule) -> bool:
    """Whether `StaticPlanBlockMemory` may run on the module: one device, and no `If`.

    Tensors of others come from the virtual machine's pools, one for each device.
    """
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
