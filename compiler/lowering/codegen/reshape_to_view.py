"""`ReshapesAsViews`: replace kernels that only reshape by views of the same memory.

    before   b = call_tir(reshape, (a,), (1, n * m, 288))

    after    b = reshape(a, (1, n * m, 288))       the virtual machine changes the descriptor only

TVM recognizes such kernels by their loops, before scheduling and only with static extents.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import tvm
from tvm import relax, tirx
from tvm.ir import TensorLoad

from schedules.tir_visit import nodes_of

from ...ir.dynamic_shape import simplified
from ...ir.scopes import with_blocks
from ...primfuncs.fusion_pattern import callee
from ..offloaded_functions import call_counts

VIEW = "baton.view"
"""Attribute of kernels that do nothing but copy their operand in another shape."""

_OPERATORS = ("reshape", "squeeze", "expand_dims")
_MOST_ELEMENTS = 2**31 - 1  # TVM's analysis counts them in int32


def is_reshape(kernel: tirx.PrimFunc, operators: Sequence[str]) -> bool:
    """Whether an unscheduled kernel of these operators copies elements in row-major order."""
    if len(operators) != 1 or operators[0] not in _OPERATORS:
        return False
    buffers = [param.ty for param in kernel.params if isinstance(param.ty, tirx.BufferType)]
    if len(buffers) != 2 or str(buffers[0].dtype) != str(buffers[1].dtype):
        return False
    counts = [math.prod(buffer.shape, start=tirx.const(1, "int64")) for buffer in buffers]
    difference = simplified(counts[0] - counts[1])
    if not isinstance(difference, int) or difference != 0:
        return False
    if all(isinstance(extent, tirx.IntImm) for buffer in buffers for extent in buffer.shape):
        small = simplified(counts[0]) <= _MOST_ELEMENTS
        return small and bool(relax.analysis.has_reshape_pattern(kernel))
    # TVM's analysis takes static extents alone; these operators keep the order of the elements.
    stores = nodes_of(kernel.body, tirx.BufferStore)
    return len(stores) == 1 and isinstance(stores[0].value, TensorLoad)


@tvm.transform.module_pass(opt_level=0, name="ReshapesAsViews")
class ReshapesAsViews:
    """Replace calls of kernels that are marked with `VIEW` by views.

    A result of the function stays a copy, because callers own it. `dropped`: saved calls per
    inference, by kernel, once the pass has run.
    """

    def __init__(self) -> None:
        self.dropped: Counter[str] = Counter()

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        times = call_counts(mod)
        functions = dict(mod.functions_items())
        for gvar, function in mod.functions_items():
            if not isinstance(function, relax.Function):
                continue
            blocks = [
                self._viewed(mod, block, times[gvar.name_hint]) for block in function.body.blocks
            ]
            functions[gvar] = with_blocks(function, blocks)
        if not self.dropped:
            return mod
        viewed = tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
        return relax.transform.DeadCodeElimination()(relax.transform.Normalize()(viewed))

    def _viewed(
        self, mod: tvm.IRModule, block: relax.BindingBlock, times: int
    ) -> relax.BindingBlock:
        bindings = []
        for binding in block.bindings:
            value = binding.value
            kernel = callee(mod, value)
            is_view = kernel is not None and VIEW in (kernel.attrs or {})
            if is_view and isinstance(binding.var, relax.DataflowVar):
                self.dropped[str(value.args[0].name_hint)] += times
                view = relax.op.reshape(value.args[1].fields[0], value.ty.shape)
                binding = relax.VarBinding(binding.var, view)
            bindings.append(binding)
        return type(block)(bindings)
