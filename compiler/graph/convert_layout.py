"""Convolutions over NHWC tensors as convolutions over NCHW tensors.

    before   y = relu(conv2d(x, w, "NHWC", "HWIO") + b)                  (N, H, W, C)

    after    x1 = permute_dims(x, [0, 3, 1, 2])
             y1 = relu(conv2d(x1, w1, "NCHW", "OIHW") + b1)              (N, C, H, W)
             y = permute_dims(y1, [0, 2, 3, 1])        only where somebody else reads y

What lies between convolutions follows: operators that work element by element, pooling, padding,
concatenation, reductions over the image, and permutations, which vanish. TVM's ConvertLayout
changes back at every operand of a lower rank, so at every bias.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from .constants import array_of, constant, static_shape
from .elementwise import BINARY, UNARY
from .rewrite import operator_name
from .vocabulary import RELAX

NAME = "ConvertLayout"

TO_FIRST, TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)
_KERNELS = {"nn.conv2d": "OIHW", "nn.conv2d_transpose": "IOHW"}
_POOLS = ("nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d")
_REDUCTIONS = "mean max min sum"


def convert_layout(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """Have function `name` of a module compute convolutions over NCHW tensors alone.

    Parameters
    ----------
    mod : tvm.IRModule
        At operator level. It is not changed. Functions that branch stay as they are.
    """
    function = mod[name]
    values = [binding.value for block in function.body.blocks for binding in block.bindings]
    if not _is_profitable(values) or any(isinstance(each, relax.If) for each in values):
        return mod
    updated = mod.clone()
    updated.update_func(mod.get_global_var(name), _Converter(mod).visit_expr(function))
    return relax.transform.DeadCodeElimination([name])(updated)


def _is_profitable(values: list[relax.Expr]) -> bool:
    """Whether there are convolutions in other layouts, or permutations between convolutions."""
    if any(map(_is_foreign, values)):
        return True
    orders = {_axes(value) for value in values if operator_name(value) == "permute_dims"}
    return {TO_FIRST, TO_LAST} <= orders and any(operator_name(each) in _KERNELS for each in values)


def _is_foreign(value: relax.Expr) -> bool:
    """Whether a value is a convolution in other layouts than the plain ones."""
    name = operator_name(value)
    layouts = (value.attrs.data_layout, value.attrs.kernel_layout) if name in _KERNELS else None
    return layouts is not None and layouts != ("NCHW", _KERNELS[name])


@mutator
class _Converter(PyExprMutator):
    """Keeps NHWC values as NCHW ones as long as their readers take those."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.first: dict[relax.Var, relax.Expr] = {}
        """By variable of the old function, the new value with its channels first."""
        self._lazy: set[relax.Var] = set()

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        result = super().visit_dataflow_block_(block)
        self.first.clear()  # nobody outside the block sees its variables
        self._lazy.clear()
        return result

    def visit_dataflow_var_(self, op: relax.Var) -> relax.Expr:
        return self._last(op) if op in self._lazy else super().visit_dataflow_var_(op)

    def _last(self, old: relax.Var) -> relax.Expr:
        """A value as it was, emitted now if nobody has asked before."""
        self._lazy.discard(old)
        plain = self.builder_.emit(relax.op.permute_dims(self.first[old], list(TO_LAST)))
        self.set_var_remap(old, plain)
        return plain

    def channels_first(self, old: relax.Expr) -> relax.Expr:
        """An operand of rank 4 with its channels first."""
        known = array_of(old)
        if known is not None:
            return constant(np.ascontiguousarray(known.transpose(TO_FIRST)))
        if not isinstance(old, relax.Var):
            call = relax.op.permute_dims(self.visit_expr(old), list(TO_FIRST))
            return self.builder_.emit(call)
        if old not in self.first:
            call = relax.op.permute_dims(self.visit_expr(old), list(TO_FIRST))
            self.first[old] = self.builder_.emit(call)
        return self.first[old]

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        name = operator_name(binding.value)
        rule = _RULES.get(name)
        result = rule(self, binding.value) if rule and static_shape(binding.value) else None
        if result is None:
            super().visit_var_binding_(binding)
            return
        value, is_first = result
        value = self.builder_.normalize(value)
        if not isinstance(binding.var, relax.DataflowVar):
            if is_first:
                value = relax.op.permute_dims(self.builder_.emit(value), list(TO_LAST))
            in_dataflow = self.builder_.current_block_is_dataflow()
            emit = self.builder_.emit_output if in_dataflow else self.builder_.emit
            self.set_var_remap(binding.var, emit(value))
            return
        var = value
        if not isinstance(value, relax.Var):
            # The name stays: records are looked up by it.
            var = relax.DataflowVar(binding.var.name, value.ty)
            self.builder_.emit_normalized(relax.VarBinding(var, value))
        if is_first:
            self.first[binding.var] = var
            self._lazy.add(binding.var)
        else:
            self.set_var_remap(binding.var, var)


# A rule gives the new value, not yet emitted, and whether it has its channels first where the old
# one has them last; None to leave the call as it is.
Converted = tuple[relax.Expr, bool] | None


def _convolution(converter: _Converter, call: relax.Call) -> Converted:
    attrs, kernel = call.attrs, _KERNELS[operator_name(call)]
    layout = str(attrs.data_layout)
    if layout not in ("NCHW", "NHWC") or str(attrs.out_layout or layout) != layout:
        return None
    if sorted(str(attrs.kernel_layout)) != sorted(kernel) or not _is_foreign(call):
        return None
    last = layout == "NHWC"
    data = converter.channels_first(call.args[0]) if last else converter.visit_expr(call.args[0])
    order = [str(attrs.kernel_layout).index(axis) for axis in kernel]
    weight = _permuted(converter, call.args[1], order)
    layouts = {"data_layout": "NCHW", "kernel_layout": kernel, "out_layout": "NCHW"}
    return RELAX.again(call, [data, weight], **layouts), last


def _permuted(converter: _Converter, weight: relax.Expr, order: list[int]) -> relax.Expr:
    known = array_of(weight)
    if known is not None:
        return constant(np.ascontiguousarray(known.transpose(order)))
    return converter.builder_.emit(relax.op.permute_dims(converter.visit_expr(weight), order))


def _unary(converter: _Converter, call: relax.Call) -> Converted:
    if call.args[0] not in converter.first:
        return None
    args = [converter.first[call.args[0]], *call.args[1:]]
    return relax.Call(call.op, args, call.attrs), True


def _binary(converter: _Converter, call: relax.Call) -> Converted:
    shapes = [static_shape(arg) for arg in call.args]
    if not any(arg in converter.first for arg in call.args) or None in shapes:
        return None
    if len(static_shape(call) or ()) != 4:
        return None
    args = [_operand(converter, arg, len(shape or ())) for arg, shape in zip(call.args, shapes)]
    return relax.Call(call.op, args, call.attrs), True


def _operand(converter: _Converter, arg: relax.Expr, rank: int) -> relax.Expr:
    """An operand that broadcasts against NHWC, as one that broadcasts against NCHW."""
    if rank == 4:
        return converter.channels_first(arg)
    if rank == 0:
        return converter.visit_expr(arg)
    known = array_of(arg)
    if known is not None:
        whole = known.reshape((1,) * (4 - rank) + known.shape)
        return constant(np.ascontiguousarray(whole.transpose(TO_FIRST)))
    shape = (1,) * (4 - rank) + (static_shape(arg) or ())
    reshaped = converter.builder_.emit(relax.op.reshape(converter.visit_expr(arg), shape))
    return converter.builder_.emit(relax.op.permute_dims(reshaped, list(TO_FIRST)))


def _pool(converter: _Converter, call: relax.Call) -> Converted:
    attrs = call.attrs
    if call.args[0] not in converter.first or attrs.layout != "NHWC":
        return None
    if attrs.out_layout not in ("", "NHWC"):
        return None
    data = converter.first[call.args[0]]
    return RELAX.again(call, [data], layout="NCHW", out_layout="NCHW"), True


def _pad(converter: _Converter, call: relax.Call) -> Converted:
    if call.args[0] not in converter.first:
        return None
    widths = [int(width) for width in call.attrs.pad_width]
    if len(widths) != 8:
        return None
    moved = [side for axis in TO_FIRST for side in widths[2 * axis : 2 * axis + 2]]
    return RELAX.again(call, [converter.first[call.args[0]]], pad_width=moved), True


def _concat(converter: _Converter, call: relax.Call) -> Converted:
    if not isinstance(call.args[0], relax.Tuple) or call.attrs.axis is None:
        return None
    fields = list(call.args[0].fields)
    if not any(field in converter.first for field in fields):
        return None
    parts = [converter.channels_first(field) for field in fields]
    return relax.op.concat(parts, axis=TO_FIRST.index(int(call.attrs.axis) % 4)), True


def _reduce(converter: _Converter, call: relax.Call) -> Converted:
    """Over the image: (N, H, W, C) -> (N, C) or (N, 1, 1, C)."""
    axes = call.attrs.axis
    if call.args[0] not in converter.first or axes is None:
        return None
    if sorted(int(axis) % 4 for axis in axes) != [1, 2]:
        return None
    made = RELAX.again(call, [converter.first[call.args[0]]], axis=[2, 3])
    return made, bool(call.attrs.keepdims)


def _reshape(converter: _Converter, call: relax.Call) -> Converted:
    """(N, 1, 1, C) to anything: the order in memory is that of (N, C, 1, 1)."""
    shape = static_shape(call.args[0])
    if call.args[0] not in converter.first or shape is None or shape[1:3] != (1, 1):
        return None
    return relax.op.reshape(converter.first[call.args[0]], static_shape(call)), False


def _permute(converter: _Converter, call: relax.Call) -> Converted:
    if _axes(call) == TO_FIRST and call.args[0] in converter.first:
        return converter.first[call.args[0]], False
    if _axes(call) == TO_LAST and isinstance(call.args[0], relax.Var):
        return converter.visit_expr(call.args[0]), True
    return None


def _axes(call: relax.Call) -> tuple[int, ...] | None:
    axes = call.attrs.axes
    return None if axes is None else tuple(int(axis) for axis in axes)


_RULES: dict[str, Callable[[_Converter, relax.Call], Converted]] = {
    **dict.fromkeys(_KERNELS, _convolution),
    **dict.fromkeys(UNARY, _unary),
    **dict.fromkeys(BINARY, _binary),
    **dict.fromkeys(_POOLS, _pool),
    **dict.fromkeys(_REDUCTIONS.split(), _reduce),
    "nn.pad": _pad,
    "concat": _concat,
    "reshape": _reshape,
    "permute_dims": _permute,
}
