"""Relay's operators as computes of TE: what TOPI had computes for that TVM has no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax, te

from ...errors import ScheduleError
from .dataflow import substitute
from .driver import lower

_MANY = 64


def compute(operator: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Compute a Relay operator on TE tensors.

    `operator`: `relay.unique`, or any function that makes a Relay expression of its arguments.
    `*args`, `**kwargs`: its arguments, tensors of TE where it takes expressions. Returns a tensor
    of TE, or a list of them. Each kernel that the operator needs is a separate external operation.
    Raises ScheduleError: the operator needs more than kernels over tensors of known extents.
    """
    from ...lowering.codegen.device_placement import dispatch_sorts
    from ...lowering.graph_passes.legalize import legalize_ops
    from ...relay.calling_convention import as_module
    from ...relay.expr import as_expr
    from ...relay.function import Function

    target = tvm.target.Target.current() or tvm.target.Target("llvm")
    tensors: list[Any] = []
    variables: list[relax.Var] = []

    def taken(value: Any) -> Any:
        if isinstance(value, te.Tensor):
            tensors.append(value)
            shape = [
                tvm.tirx.IntImm("int64", int(extent))
                if isinstance(extent, tvm.tirx.IntImm)
                else extent
                for extent in value.shape
            ]
            ty = relax.TensorType(shape, value.dtype)
            variables.append(relax.Var(f"x{len(tensors)}", ty))
            return variables[-1]
        if isinstance(value, (list, tuple)) and any(isinstance(each, te.Tensor) for each in value):
            return [taken(each) for each in value]
        return value

    args, kwargs = tuple(map(taken, args)), {key: taken(each) for key, each in kwargs.items()}
    function = Function(variables, as_expr(operator(*args, **kwargs)))
    mod = legalize_ops()(dispatch_sorts(as_module(function), {"main": target}))
    return _Kernels(mod, dict(zip(mod["main"].params, tensors))).results()


class _Kernels:
    """The calls of kernels in a function, one external operation each."""

    def __init__(self, mod: tvm.IRModule, values: dict[relax.Var, Any]) -> None:
        self._mod = mod
        self._values: dict[relax.Var, Any] = dict(values)

    def results(self) -> Any:
        """Results of the function."""
        body = self._mod["main"].body
        for block in body.blocks:
            for binding in block.bindings:
                self._values[binding.var] = self._value(binding.value)
        return self._value(body.body)

    def _value(self, expr: relax.Expr) -> Any:
        if isinstance(expr, relax.Var):
            return self._values[expr]
        if isinstance(expr, relax.Tuple):
            return [self._value(field) for field in expr.fields]
        if isinstance(expr, relax.TupleGetItem):
            return self._value(expr.tuple_value)[expr.index]
        if isinstance(expr, tvm.ir.GenericConst):
            return _constant(expr.value.numpy())
        if isinstance(expr, relax.Call) and expr.op == tvm.ir.Op.get("relax.call_tir"):
            return self._kernel(expr)
        if isinstance(expr, relax.Call) and expr.op == tvm.ir.Op.get("relax.call_dps_packed"):
            return self._packed(expr)
        raise ScheduleError(f"no kernel of TE stands for {expr}")

    def _kernel(self, call: relax.Call) -> Any:
        inputs = [self._value(each) for each in call.args[1].fields]
        kernel = _of_loops(self._mod[call.args[0]])
        made = kernel.params[len(inputs) :]
        return te.extern(
            [list(each.ty.shape) for each in made],
            inputs,
            lambda ins, outs: substitute(kernel.body, dict(zip(kernel.params, [*ins, *outs]))),
            name=str(call.args[0].name_hint),
            dtype=[str(each.ty.dtype) for each in made],
        )

    def _packed(self, call: relax.Call) -> Any:
        """A call of a function of TVM's runtime, sorting above all."""
        inputs = [self._value(each) for each in call.args[1].fields]
        name = str(call.args[0].global_symbol)
        types = call.ty_args[0]
        made = list(types.fields) if isinstance(types, relax.TupleType) else [types]
        return te.extern(
            [list(each.shape.values) for each in made],
            inputs,
            lambda ins, outs: tvm.tirx.call_packed(name, *ins, *outs),
            name=name.rpartition(".")[2],
            dtype=[str(each.dtype) for each in made],
        )


def _of_loops(kernel: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """A kernel whose blocks are plain loops, which may stand in a schedule."""
    made = lower(kernel, simple_mode=True)
    return next(iter(made.functions.values()))


def _constant(array: np.ndarray) -> te.Tensor:
    """A tensor of these values: one value everywhere, places along the last axis, or few."""
    dtype = str(array.dtype)
    flat = array.reshape(-1)
    same = array.size > 0 and bool((flat == flat[0]).all())
    counts = array.ndim > 0 and bool((array == np.arange(array.shape[-1])).all())
    if not same and not counts and not 0 < array.size <= _MANY:
        raise ScheduleError(f"a constant of {array.size} different numbers has no form in TE")

    def value(*place: Any) -> Any:
        if same:
            return tvm.tirx.const(flat[0].item(), dtype)
        if counts:
            return place[-1].astype(dtype)
        where: Any = tvm.tirx.const(0, "int32")
        for index, extent in zip(place, array.shape):
            where = where * extent + index
        result = tvm.tirx.const(flat[-1].item(), dtype)
        for number, each in enumerate(flat[:-1]):
            result = tvm.tirx.Select(where == number, tvm.tirx.const(each.item(), dtype), result)
        return result

    return te.compute(array.shape, value, name="constant")
