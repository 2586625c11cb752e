"""`BulkSize=<n>`: outline the kernel calls of `main` into segments of at most n calls.

The pass runs on scheduled, dataflow `main`; the virtual machine then dispatches a segment as one
call, with the memory of its intermediate results planned within it.
"""

from __future__ import annotations

import tvm

_PREFIX = "BulkSize="


def required_pass(size: int) -> str:
    """The `required_pass` entry for segments of `size` kernel calls."""
    return f"{_PREFIX}{size}"


def wanted() -> int | None:
    """The segment size that the current PassContext requires; None if it requires no segments."""
    for name in tvm.transform.PassContext.current().required_pass:
        if str(name).startswith(_PREFIX):
            return int(str(name).removeprefix(_PREFIX))
    return None


def split(mod: tvm.IRModule, size: int) -> tvm.IRModule:
    """Outline the kernel calls of `main`, `size` at a time, as `segment_0`, `segment_1`, ..."""
    from ...ir.dataflow_graph import OPERATION, RelaxFunction
    from ...ir.outline import Group, outline

    main = RelaxFunction(mod)
    calls = [
        index
        for index, kind in enumerate(main.kinds)
        if kind == OPERATION and main.is_dataflow[main.blocks[index]]
    ]
    groups = [
        Group(calls[start : start + size], f"segment_{number}", {})
        for number, start in enumerate(range(0, len(calls), size))
    ]
    return outline(main, groups) if len(groups) > 1 else mod
