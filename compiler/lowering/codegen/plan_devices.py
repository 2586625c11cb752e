"""Apply TVM's memory planner only to what it plans correctly.

StaticPlanBlockMemory of TVM 0.27 tracks sizes but not devices: it gives a CUDA kernel the memory of
a CPU value that is no longer needed. Here it sees the allocations of one device at a time. It does
not track conditions either: a branch gets storage that only the other branch allocates, and storage
returned by nested branches is freed too early. A module with an `If` gets no plan.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from ...ir.rewrite import relax_functions, with_functions
from ...ir.scopes import with_blocks

_HIDDEN = "baton.hidden."
_ALLOCATION, _COPY = "relax.builtin.alloc_tensor", "relax.to_vdevice"


@tvm.transform.module_pass(opt_level=0, name="StaticPlanBlockMemory")
class PlanDevices:
    """Reuse storage between the tensors of each device.

    Follows `CallTIRRewrite`, which allocates the tensors. A module with an `If` stays as it is:
    its tensors come from the VM's device pools.
    """

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        plan = relax.transform.StaticPlanBlockMemory()
        if has_conditions(mod):
            return mod
        devices = len((mod.global_infos or {}).get("vdevice", []))
        if devices <= 1:
            return plan(mod)
        for device in range(devices):
            mod = _with_operators(plan(_with_operators(mod, hide_all_but=device)))
        return mod


def _with_operators(mod: tvm.IRModule, hide_all_but: int | None = None) -> tvm.IRModule:
    """Hide copies, and allocations on all devices but one, as external functions.

    The planner gives a tensor no storage that an operator reads: it might keep the tensor. If the
    device is None, what was hidden becomes operators again.
    """

    def operator(call: Any) -> Any:
        symbol = str(getattr(call.op, "global_symbol", ""))
        if hide_all_but is None and symbol.startswith(_HIDDEN):
            return tvm.ir.Op.get(symbol.removeprefix(_HIDDEN))
        name = str(getattr(call.op, "name", ""))
        is_elsewhere = name == _ALLOCATION and int(call.args[2]) != hide_all_but
        if hide_all_but is not None and (name == _COPY or is_elsewhere):
            return relax.ExternFunc(f"{_HIDDEN}{name}")
        return call.op

    def changed(binding: Any) -> Any:
        call = binding.value
        if not isinstance(call, tvm.ir.Call) or operator(call) is call.op:
            return binding
        value = relax.Call(operator(call), call.args, call.attrs, call.ty_args, ret_ty=call.ty)
        return relax.VarBinding(binding.var, value)

    functions = {}
    for gvar, function in relax_functions(mod):
        blocks = [
            relax.BindingBlock(list(map(changed, block.bindings))) for block in function.body.blocks
        ]
        functions[gvar] = with_blocks(function, blocks)
    return with_functions(mod, functions)


def has_conditions(mod: tvm.IRModule) -> bool:
    """Whether a function has an `If`."""
    return any(
        isinstance(binding.value, relax.If)
        for _, function in relax_functions(mod)
        for block in function.body.blocks
        for binding in block.bindings
    )
