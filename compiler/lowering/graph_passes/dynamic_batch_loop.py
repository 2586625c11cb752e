"""Models with only the batch size dynamic: build for one batch element, and loop inside kernels.

Layouts, implementations and schedules are then those of the static model. `any_samples` detects
such a module and gives its batch size 1. `over_samples`, after scheduling, puts every kernel that
reads batch elements into a loop over the batch, and restores the batch size of tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from schedules.dynamic_rows import Rows, Tiling, assemble, rows_of, with_extents

from ...ir import dynamic_shape
from ...ir.constants import scalar_of, static_shape
from ...ir.op_dialect import RELAX
from ...ir.rewrite import CallRule, rewrite_calls
from ...ir.scopes import tuple_of, typed
from ..offloaded_functions import new_global_var
from .legalize import legalize_ops


@dataclass(frozen=True)
class Samples:
    """A module with a dynamic batch size."""

    mod: tvm.IRModule  # the module as users see it
    count: tirx.Var  # the batch size: the first extent of every tensor with a batch axis

    @property
    def one(self) -> tvm.IRModule:
        """The module for one batch element."""
        gvar = self.mod.get_global_var("main")
        main = with_extents(self.mod["main"], [(self.count, 1)])
        return tvm.IRModule({gvar: main}, attrs=self.mod.attrs, global_infos=self.mod.global_infos)


def any_samples(mod: tvm.IRModule) -> Samples | None:
    """Detect a module in which the batch size is the only dynamic extent; else None.

    None also if there are functions besides `main`, if `main` has no operator worth it, or if a
    result might depend on several batch elements, which is checked for each operator's kernel.
    """
    if [gvar.name_hint for gvar in mod.get_global_vars()] != ["main"]:
        return None
    mod = rewrite_calls(mod, _EntriesInPlace)
    main = mod["main"]
    known = dynamic_shape.of_types(main)
    if len(known) != 1 or dynamic_shape.in_order(main) != known or not _has_convolution(main):
        return None
    (count,) = known
    extents = dynamic_shape.extents_of_types(main)
    blocks = main.body.blocks
    if not all(extent.same_as(count) for extent in extents) or len(blocks) != 1:
        return None
    if not isinstance(blocks[0], relax.DataflowBlock):
        return None
    if not all(isinstance(each, relax.VarBinding) for each in blocks[0].bindings):
        return None
    legal = legalize_ops()(mod)
    for _, function in legal.functions_items():
        if isinstance(function, tirx.PrimFunc) and not _is_by_sample(function):
            return None
    calls = [binding.value for block in legal["main"].body.blocks for binding in block.bindings]
    return Samples(mod, count) if all(map(_is_simple, calls)) else None


class _EntriesInPlace(CallRule):
    """Take a slice of a tensor before its axes are permuted, so that the batch axis stays first.

    before   q = take(permute_dims(x, [2, 0, 3, 1, 4]), 0, axis=0)      x (N, T, 3, H, D)

    after    q = permute_dims(take(x, 0, axis=2), [0, 2, 1, 3])
    """

    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        permuted = self.scope.match_call(call.args[0], "permute_dims") if name == "take" else None
        if permuted is None or permuted.attrs.axes is None or call.attrs.axis is None:
            return None
        if scalar_of(call.args[1]) is None or static_shape(call.args[1]) != ():
            return None
        axes = [int(axis) for axis in permuted.attrs.axes]
        taken = axes.pop(int(call.attrs.axis) % len(axes))
        entry = RELAX.again(call, [permuted.args[0], call.args[1]], axis=taken)
        order = [axis - (axis > taken) for axis in axes]
        return relax.op.permute_dims(self.scope.emit(entry), order)


def _has_convolution(function: relax.Function) -> bool:
    """Whether the function has convolutions: other kernels support any number of rows anyway."""
    names = [
        str(binding.value.op.name)
        for block in function.body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call) and isinstance(binding.value.op, tvm.ir.Op)
    ]
    return any(name.startswith("relax.nn.conv") for name in names)


def _is_by_sample(func: tirx.PrimFunc) -> bool:
    """Whether a kernel computes each element of the batch axis from that element alone."""
    buffers = [param for param in func.params if isinstance(param.ty, tirx.BufferType)]
    unknown = [
        [isinstance(extent, (int, tirx.IntImm)) for extent in buffer.shape] for buffer in buffers
    ]
    if all(all(each) for each in unknown):
        return True
    behind_the_first = all(all(each[1:]) for each in unknown)
    return behind_the_first and len(buffers) == len(func.params) and rows_of(func) is not None


def _is_simple(value: Any) -> bool:
    """Whether `over_samples` supports a bound value."""
    if isinstance(value, (relax.Var, relax.Tuple, relax.TupleGetItem, tvm.ir.GenericConst)):
        return True
    is_call = isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)
    return is_call and str(value.op.name) == "relax.call_tir"


def over_samples(mod: tvm.IRModule, samples: Samples) -> tvm.IRModule:
    """Turn a module of scheduled kernels for one batch element into one for any batch size."""
    return _Loops(mod, samples).run()


class _Loops:
    """Rewrites `main`, binding by binding."""

    def __init__(self, mod: tvm.IRModule, samples: Samples) -> None:
        self.mod = mod
        self.count = samples.count
        self.parameters = list(samples.mod["main"].params)
        self.functions = dict(mod.functions_items())
        self.values: dict[relax.Var, relax.Expr] = {}
        self.kernels: dict[tuple[str, tuple[bool, ...]], tvm.ir.GlobalVar] = {}

    def run(self) -> tvm.IRModule:
        gvar = self.mod.get_global_var("main")
        main = self.mod["main"]
        self.values = dict(zip(main.params, self.parameters, strict=True))
        blocks = []
        for block in main.body.blocks:
            bindings = [self._binding(binding) for binding in block.bindings]
            blocks.append(type(block)(bindings, block.span))
        body = relax.SeqExpr(blocks, self._expr(main.body.body))
        result = body.body.ty
        made = relax.Function(self.parameters, body, result, main.is_pure, main.attrs)
        self.functions[gvar] = made
        mod = tvm.IRModule(self.functions, attrs=self.mod.attrs, global_infos=self.mod.global_infos)
        return relax.transform.Normalize()(mod)

    def _binding(self, binding: relax.VarBinding) -> relax.VarBinding:
        value = self._expr(binding.value)
        var = type(binding.var)(binding.var.name, value.ty)
        self.values[binding.var] = var
        return relax.VarBinding(var, value)

    def _expr(self, expr: Any) -> Any:
        if isinstance(expr, relax.Var):
            return self.values.get(expr, expr)
        if isinstance(expr, relax.Tuple):
            fields = [self._expr(field) for field in expr.fields]
            return tuple_of(fields)
        if isinstance(expr, relax.TupleGetItem):
            whole = self._expr(expr.tuple_value)
            return typed(relax.TupleGetItem(whole, expr.index), whole.ty.fields[expr.index])
        if isinstance(expr, relax.Call):
            return self._call(expr)
        return expr

    def _call(self, call: relax.Call) -> relax.Call:
        gvar, given = call.args[:2]
        operands = [self._expr(each) for each in given.fields]
        flags = tuple(self._holds_samples(each) for each in operands)
        if not any(flags):
            same = relax.Call(call.op, [gvar, tuple_of(operands)], call.attrs, call.ty_args)
            return typed(same, call.ty)
        (out,) = call.ty_args
        outs = list(out.fields) if isinstance(out, relax.TupleType) else [out]
        kernel = self._kernel(gvar, flags, len(outs))
        operands += [self.count] * (len(self.functions[kernel].params) - len(flags) - len(outs))
        arguments = tuple_of(operands)
        types = [self._with_samples(ty) for ty in outs]
        result = relax.TupleType(types) if isinstance(out, relax.TupleType) else types[0]
        return typed(relax.Call(call.op, [kernel, arguments], call.attrs, [result]), result)

    def _holds_samples(self, expr: relax.Expr) -> bool:
        shape = expr.ty.shape if isinstance(expr.ty, relax.TensorType) else None
        return isinstance(shape, relax.ShapeExpr) and any(
            not isinstance(extent, tirx.IntImm) for extent in shape.values
        )

    def _with_samples(self, ty: relax.TensorType) -> relax.TensorType:
        """A type with its first extent multiplied by the batch size."""
        first, *others = map(int, ty.shape.values)
        return relax.TensorType([_times(self.count, first), *others], ty.dtype)

    def _kernel(
        self, gvar: tvm.ir.GlobalVar, flags: tuple[bool, ...], outs: int
    ) -> tvm.ir.GlobalVar:
        key = (gvar.name_hint, flags)
        if key not in self.kernels:
            made = _looped(self.mod[gvar.name_hint], flags, outs)
            is_first = all(name != gvar.name_hint for name, _ in self.kernels)
            name = gvar.name_hint if is_first else f"{gvar.name_hint}_{len(self.kernels)}"
            self.functions.pop(gvar if is_first else None, None)
            self.kernels[key] = new_global_var(name, made.ty)
            self.functions[self.kernels[key]] = made
        return self.kernels[key]


def _times(count: Any, extent: int) -> Any:
    return count if extent == 1 else count * extent


def _looped(func: tirx.PrimFunc, flags: tuple[bool, ...], outs: int) -> tirx.PrimFunc:
    """Loop a kernel over the batch axis; a batch size that no extent equals becomes a parameter."""
    count = tirx.Var("samples", "int64")
    parameters, sizes = [], []
    for param, holds in zip(func.params, flags + (True,) * outs, strict=True):
        extents = [int(extent) for extent in param.shape]
        size = 1
        for extent in extents:
            size *= extent
        shape = [_times(count, extents[0]), *extents[1:]] if holds else extents
        parameters.append(tirx.decl_buffer(shape, param.dtype, param.name))
        sizes.append(size if holds else None)
    if not any(count.same_as(each.shape[0]) for each in parameters if each.shape):
        parameters.insert(len(flags), count)
    shell = tirx.PrimFunc(parameters, func.body, func.ret_type).with_attrs(dict(func.attrs))
    return assemble(Rows(shell, [count], sizes), {1: func}, {1: Tiling()})
