"""`CUDAGraph`: a second entry point whose kernels a GPU replays as one CUDA graph.

Before memory planning, before:

    main(inputs, weights):        t = kernel_1(inputs, weights); .. ; kernel_n(t)

after, in addition to an unchanged `main`:

    main_graph(inputs, weights):  x = copy(inputs); t = kernel_1(x, weights); .. ; copy(kernel_n(t))

A graph fixes the addresses of its tensors. So all kernels work on tensors that the virtual machine
keeps, and on the weights of the first call. The copies before and after the graph are launched
separately. Use `main` to inspect single calls or to pass different weights on each call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.target import Target

from schedules.rules import schedule

from ...errors import BuildError
from ...ir.constants import tensor_types
from ...ir.scopes import rebuilt
from ...runtime.entry import GRAPH_ENTRY
from ...runtime.foreign import RUN_ON_CUDA
from ..offloaded_functions import new_global_var
from . import bulk_segments, static_allocation
from .plan_devices import has_conditions
from .workspaces import allocates

NAME = "CUDAGraph"
FUNCTIONS = (GRAPH_ENTRY, "cuda_graph_alloc")
"""Functions with memory that calls of `main` do not take."""
_OPTION = "relax.backend.use_cuda_graph"


def obstacle(mod: tvm.IRModule) -> str:
    """Why a GPU module of an inlined `main` and scheduled kernels gets no graph; "" if it does."""
    context = tvm.transform.PassContext.current()
    if NAME in context.disabled_pass or not context.config.get(_OPTION, True):
        return "the PassContext switches it off"
    if static_allocation.wanted() or bulk_segments.wanted() is not None:
        return "the PassContext asks for another entry"
    if len((mod.global_infos or {}).get("vdevice", [])) > 1:
        return "a part of the model runs on another device"
    if has_conditions(mod):
        return "the branch taken is only known at run time"
    functions = dict(mod.functions_items())
    relax_functions = [f for f in functions.values() if isinstance(f, relax.Function)]
    if len(relax_functions) > 1:
        return "it has functions beside main"
    reasons = (_of_binding(mod, var, value) for var, value in _bindings(mod["main"]))
    return next(filter(None, reasons), "")


def _bindings(main: relax.Function) -> Iterator[tuple[Any, Any]]:
    """Parameters, with value None, and bindings with their values."""
    yield from ((var, None) for var in main.params)
    for block in main.body.blocks:
        yield from ((binding.var, binding.value) for binding in block.bindings)


def _of_binding(mod: tvm.IRModule, var: relax.Var, value: Any) -> str:
    if not all(map(_is_static, tensor_types(var.ty))):
        return f"the shape of {var.name} is dynamic"
    if not all(all(map(int, leaf.shape.values)) for leaf in tensor_types(var.ty)):
        return f"{var.name} has no elements"
    operator = getattr(value, "op", None)
    name = str(getattr(operator, "name", ""))
    if name == "relax.call_tir":
        kernel = value.args[0]
        return f"{kernel.name_hint} allocates memory itself" if allocates(mod[kernel]) else ""
    if name == "relax.call_dps_packed":
        called = str(value.args[0].global_symbol)
        return "" if called == RUN_ON_CUDA else f"{called} may do more than launch kernels"
    if isinstance(value, tvm.ir.Call) and name not in ("relax.reshape", "relax.memory.view"):
        return f"{name or operator} may do more than launch kernels"
    return ""


def _is_static(ty: relax.TensorType) -> bool:
    extents = getattr(ty.shape, "values", None)
    return extents is not None and all(isinstance(extent, tirx.IntImm) for extent in extents)


def with_graph_entry(mod: tvm.IRModule, target: Target) -> tvm.IRModule:
    """Add the graph entry and its copies to a module that has no obstacle."""
    main = relax.utils.copy_with_new_vars(mod["main"])
    copies = _Copies(target)
    inputs = int(main.attrs["num_input"]) if "num_input" in main.attrs else len(main.params)
    given = [relax.Var(var.name, var.ty) for var in main.params[:inputs]]
    front = [
        relax.VarBinding(kept, copies.of(var)) for kept, var in zip(main.params[:inputs], given)
    ]
    behind: list[relax.VarBinding] = []
    result = copies.of_result(main.body.body, behind)
    body = relax.SeqExpr(
        [relax.BindingBlock(front), *main.body.blocks, relax.BindingBlock(behind)], result
    )
    params = [*given, *main.params[inputs:]]
    entry = rebuilt(main, body, params)
    added = mod.clone()
    for gvar, kernel in copies.kernels.values():
        added[gvar] = kernel
    added[GRAPH_ENTRY] = entry.with_attr("global_symbol", GRAPH_ENTRY)
    return relax.transform.Normalize()(added)


class _Copies:
    """Calls of copy kernels, one kernel for each shape and dtype."""

    def __init__(self, target: Target) -> None:
        self.kernels: dict[str, tuple[Any, tirx.PrimFunc]] = {}
        self._target = target

    def of(self, value: relax.Var) -> relax.Expr:
        key = f"{value.ty.dtype}{list(value.ty.shape.values)}"
        if key not in self.kernels:
            kernel = _copy_kernel(value.ty, self._target)
            name = f"copy_into_graph_{len(self.kernels)}"
            self.kernels[key] = (new_global_var(name, kernel.ty), kernel)
        return relax.call_tir(self.kernels[key][0], relax.Tuple([value]), value.ty)

    def of_result(self, value: relax.Expr, bindings: list[relax.VarBinding]) -> relax.Expr:
        """Bind copies of a function's result; returns the expression to return instead."""

        def bound(bound_value: relax.Expr, ty: Any) -> relax.Var:
            var = relax.Var(f"result_{len(bindings)}", ty)
            bindings.append(relax.VarBinding(var, bound_value))
            return var

        if isinstance(value, relax.Tuple):
            return relax.Tuple([self.of_result(field, bindings) for field in value.fields])
        if isinstance(value.ty, relax.TupleType):
            fields = [
                bound(relax.TupleGetItem(value, index), ty)
                for index, ty in enumerate(value.ty.fields)
            ]
            return relax.Tuple([self.of_result(field, bindings) for field in fields])
        return bound(self.of(value), value.ty)


def _copy_kernel(ty: relax.TensorType, target: Target) -> tirx.PrimFunc:
    x = te.placeholder(list(ty.shape.values), str(ty.dtype), "x")
    func = te.create_prim_func([x, te.compute(x.shape, lambda *index: x[index], "copy")])
    scheduled = schedule(func, target)
    if scheduled is None:
        raise BuildError(f"no schedule copies a tensor of {ty}")
    return scheduled.func.with_attr("target", target)


@tvm.transform.module_pass(opt_level=0, name=NAME)
class CaptureGraphEntry:
    """Apply TVM's RewriteCUDAGraph to the graph entry only."""

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        functions = dict(mod.functions_items())
        main = mod.get_global_var("main")
        kept = functions.pop(main)
        rest = tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
        with tvm.transform.PassContext(config={_OPTION: True}):  # otherwise the pass is a no-op
            captured = relax.transform.RewriteCUDAGraph()(rest)
        functions = {main: kept, **dict(captured.functions_items())}
        return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
