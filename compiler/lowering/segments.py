"""`BulkSize=<n>`: the kernel calls of `main` in segments of at most n, each a function of its own.

The pass runs on scheduled, dataflow `main`; the virtual machine then dispatches a segment as one
call, with the memory of its intermediate results planned within it.
"""

from __future__ import annotations

import tvm
from tvm import relax

_PREFIX = "BulkSize="


def required_pass(size: int) -> str:
    """What a PassContext requires for segments of `size` kernel calls."""
    return f"{_PREFIX}{size}"


def wanted() -> int | None:
    """The size that the current PassContext requires, None without."""
    for name in tvm.transform.PassContext.current().required_pass:
        if str(name).startswith(_PREFIX):
            return int(str(name).removeprefix(_PREFIX))
    return None


def split(mod: tvm.IRModule, size: int) -> tvm.IRModule:
    """Outline the kernel calls of `main`, `size` at a time, as `segment_0`, `segment_1`, ..."""
    from ..partition.driver import contract

    calls = [
        binding.var.name
        for block in mod["main"].body.blocks
        if isinstance(block, relax.DataflowBlock)
        for binding in block.bindings
        if isinstance(binding.value, tvm.ir.Call)
    ]
    groups = [calls[start : start + size] for start in range(0, len(calls), size)]
    if len(groups) < 2:
        return mod
    names = [f"segment_{number}" for number in range(len(groups))]
    return contract(mod, groups, [{}] * len(groups), names=names)
