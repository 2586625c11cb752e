"""Lift workspaces that kernels allocate into tensors that their callers allocate.

    before   y = R.call_tir(split, (x, w), R.Tensor((8, 10)))      # sums of each part of k inside
    after    t = R.call_tir(split, (x, w), (R.Tensor((8, 10)), R.Tensor((4, 8, 10))))
             y = t[0]

A kernel with several launches would request its workspace from TVM's runtime on every call. As a
tensor it is part of the planned memory, at the same address in every launch of a CUDA graph.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, s_tir, tirx
from tvm.target import Target

from schedules.generic.stages import substitute
from schedules.tir_visit import nodes_of

from ...ir.constants import tensor_types
from ...primfuncs.fusion_pattern import called_kernel
from ..offloaded_functions import new_global_var


def allocates(func: tirx.PrimFunc) -> bool:
    """Whether a kernel allocates memory that all its launches share."""
    of_blocks = (b for block in nodes_of(func.body, s_tir.SBlock) for b in block.alloc_buffers)
    others = (statement.buffer for statement in nodes_of(func.body, tirx.AllocBuffer))
    return any(map(_is_global, of_blocks)) or any(map(_is_global, others))


def _is_global(buffer: Any) -> bool:
    return buffer.scope() in ("", "global")


def _workspaces(func: Any) -> list[Any]:
    """Buffers that the root block of a GPU's scheduled kernel allocates for all its launches."""
    if not isinstance(func, tirx.PrimFunc) or not isinstance(func.body, s_tir.SBlockRealize):
        return []
    if Target(func.attrs["target"]).kind.name != "cuda":
        return []
    extents = {extent for each in _tensors(func) for extent in each.shape}
    return [
        buffer
        for buffer in filter(_is_global, func.body.block.alloc_buffers)
        if all(var in extents for extent in buffer.shape for var in nodes_of(extent, tirx.Var))
    ]


def _tensors(func: tirx.PrimFunc) -> list[Any]:
    """Types of a kernel's operands and results that are tensors."""
    types = (param.ty for param in func.params)
    return [ty for ty in types if isinstance(ty, tirx.buffer.BufferType)]


def lift_workspaces(mod: tvm.IRModule) -> tvm.IRModule:
    """Have `main` allocate the workspaces of CUDA kernels, and pass them with `call_tir`."""
    found = {g: _workspaces(f) for g, f in mod.functions_items() if _workspaces(f)}
    if not found:
        return mod
    functions = dict(mod.functions_items())
    lifted = {}
    for gvar, buffers in found.items():
        kernel = _with_parameters(functions.pop(gvar), buffers)
        lifted[gvar] = (new_global_var(gvar.name_hint, kernel.ty), _tensors(kernel), buffers)
        functions[lifted[gvar][0]] = kernel
    rewriter = _Rewriter(lifted)
    for gvar, function in functions.items():
        if isinstance(function, relax.Function):
            functions[gvar] = rewriter.visit_expr(function)
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _with_parameters(func: tirx.PrimFunc, buffers: list[Any]) -> tirx.PrimFunc:
    root = func.body.block
    kept = [buffer for buffer in root.alloc_buffers if not any(buffer.same_as(b) for b in buffers)]
    block = s_tir.SBlock(
        root.iter_vars, root.reads, root.writes, root.name_hint, root.body,
        root.init, kept, root.match_buffers, root.annotations,
    )  # fmt: skip
    body = s_tir.SBlockRealize([], True, block)
    return tirx.PrimFunc([*func.params, *buffers], body, func.ret_type, attrs=func.attrs)


@relax.expr_functor.mutator
class _Rewriter(relax.expr_functor.PyExprMutator):
    """Adds the workspaces to the results of kernel calls."""

    def __init__(self, lifted: dict[Any, tuple[Any, list[Any], list[Any]]]) -> None:
        super().__init__()
        self._lifted = lifted

    def visit_call_(self, op: relax.Call) -> relax.Expr:
        call = super().visit_call_(op)
        if called_kernel(call) is None or call.args[0] not in self._lifted:
            return call
        kernel, tensors, buffers = self._lifted[call.args[0]]
        (own,) = call.ty_args
        single = not isinstance(own, relax.TupleType)
        fields = [own] if single else list(own.fields)
        given = [*tensor_types(call.args[1].ty), *fields]
        extents = [
            pair
            for tensor, ty in zip(tensors, given)
            for pair in zip(tensor.shape, ty.shape.values)
            if isinstance(pair[0], tirx.Var)
        ]
        types = [
            relax.TensorType([substitute(extent, extents) for extent in each.shape], each.dtype)
            for each in buffers
        ]
        made = relax.Call(
            call.op, [kernel, *call.args[1:]], call.attrs, [relax.TupleType([*fields, *types])]
        )
        results = self.builder_.emit(made)
        parts = [relax.TupleGetItem(results, index) for index in range(len(fields))]
        return parts[0] if single else relax.Tuple([self.builder_.emit(part) for part in parts])
