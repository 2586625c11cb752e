"""`StaticAllocation`: add an entry point whose intermediate tensors persist between calls.

After memory planning, before:

    main(inputs, weights):  s = alloc_storage(..); t = alloc_tensor(s, ..); kernel(x, t); ..

after, in addition to an unchanged `main`:

    workspace():                          s = alloc_storage(..); t = alloc_tensor(s, ..); (t, ..)
    main_static(inputs, weights, t, ..):  kernel(x, t); ..

Results are still allocated by every call, so that no later call changes them.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from ...ir.scopes import rebuilt

NAME = "StaticAllocation"
ENTRY = "main_static"
WORKSPACE = "workspace"

_ALLOCATIONS = frozenset(["relax.memory.alloc_storage", "relax.memory.alloc_tensor"])


def wanted() -> bool:
    """Whether the current PassContext requires the pass by name."""
    return NAME in tvm.transform.PassContext.current().required_pass


@tvm.transform.module_pass(opt_level=0, name=NAME)
class StaticAllocation:
    """Add the functions `workspace` and `main_static` to a module with planned memory."""

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        main = mod["main"]
        allocations, tensors = _allocations(main)
        kept = [
            relax.BindingBlock([b for b in block.bindings if b.var not in allocations])
            for block in main.body.blocks
        ]
        static = rebuilt(main, relax.SeqExpr(kept, main.body.body), [*main.params, *tensors])
        bindings = [b for block in main.body.blocks for b in block.bindings if b.var in allocations]
        result = relax.Var("tensors", relax.TupleType([var.ty for var in tensors]))
        bindings.append(relax.VarBinding(result, relax.Tuple(tensors)))
        workspace = relax.Function(
            [], relax.SeqExpr([relax.BindingBlock(bindings)], result), result.ty, False
        )
        added = mod.clone()
        # The two functions may not share variables.
        added[ENTRY] = _named(static, ENTRY)
        added[WORKSPACE] = _named(workspace, WORKSPACE)
        return added


def _allocations(main: relax.Function) -> tuple[set[Any], list[Any]]:
    """The variables of planned storages and tensors, and those of the tensors in order."""
    variables: set[Any] = set()
    tensors: list[Any] = []
    for block in main.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if not (isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.Op)):
                continue
            if value.op.name in _ALLOCATIONS:
                variables.add(binding.var)
                if value.op.name.endswith("tensor"):
                    tensors.append(binding.var)
    return variables, tensors


def _named(function: relax.Function, name: str) -> relax.Function:
    return relax.utils.copy_with_new_vars(function).with_attr("global_symbol", name)
