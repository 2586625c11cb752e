"""Convert convolutions between NHWC and NCHW layouts, in either direction.

    before   y = relu(conv2d(x, w, "NHWC", "HWIO") + b)                  (N, H, W, C)

    after    x1 = permute_dims(x, [0, 3, 1, 2])
             y1 = relu(conv2d(x1, w1, "NCHW", "OIHW") + b1)              (N, C, H, W)
             y = permute_dims(y1, [0, 2, 3, 1])        only if other operators read y

Operators between convolutions are converted, too: elementwise operators, pooling, padding,
concatenation, reductions over the image, and permutations, which are removed. TVM's ConvertLayout
converts back at every operand of lower rank, and so at every bias.

CPU schedules expect channels first; tensor cores need channels last, as contiguous operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from .constants import array_of, constant, static_shape
from .op_dialect import RELAX
from .op_facts import BINARY, POOL, REDUCTION, UNARY, facts_named
from .rewrite import operator_name, redefine

NAME = "ConvertLayout"

TO_FIRST, TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


@dataclass(frozen=True)
class Layouts:
    old: str  # image layouts
    new: str
    # Permutation from the old layout to the new one, and from the new one to the old one
    axes: tuple[int, ...]
    back: tuple[int, ...]
    kernels: Mapping[str, str]  # layout of the weights, by the operators that change
    depthwise: str = ""  # layout of the weights of depthwise convolutions, if it is another

    def kernel(self, call: relax.Expr) -> str | None:
        """Layout of a convolution's weights; None for operators that do not change."""
        found = self.kernels.get(operator_name(call))
        if not found or not self.depthwise or int(call.attrs.groups) == 1:
            return found
        shape = static_shape(call.args[1])
        channels = shape[str(call.attrs.kernel_layout).index("I")] if shape else 0
        return self.depthwise if channels == 1 else found

    @property
    def image(self) -> tuple[int, int]:
        """The axes of height and width in the old layout."""
        return self.old.index("H"), self.old.index("W")


CHANNELS_FIRST = Layouts(
    "NHWC", "NCHW", TO_FIRST, TO_LAST, {"nn.conv2d": "OIHW", "nn.conv2d_transpose": "IOHW"}
)
CHANNELS_LAST = Layouts("NCHW", "NHWC", TO_LAST, TO_FIRST, {"nn.conv2d": "OHWI"}, depthwise="HWOI")

Predicate = Callable[[relax.Call], bool]


def convert_layout(
    mod: tvm.IRModule,
    name: str,
    layouts: Layouts = CHANNELS_FIRST,
    wanted: Predicate = lambda _: True,
) -> tvm.IRModule:
    """Convert `wanted` convolutions of function `name`; functions that branch stay as they are."""
    function = mod[name]
    values = [binding.value for block in function.body.blocks for binding in block.bindings]
    converter = _Converter(mod, layouts, wanted)
    if not converter.is_profitable(values) or any(isinstance(each, relax.If) for each in values):
        return mod
    updated = mod.clone()
    updated.update_func(mod.get_global_var(name), converter.visit_expr(function))
    return relax.transform.DeadCodeElimination([name])(updated)


@mutator
class _Converter(PyExprMutator):
    """Keeps values in the new layout as long as their readers support it."""

    def __init__(self, mod: tvm.IRModule, layouts: Layouts, wanted: Predicate) -> None:
        super().__init__(mod)
        self.layouts, self._wanted = layouts, wanted
        self.first: dict[relax.Var, relax.Expr] = {}
        """Value in the new layout by variable of the old function."""
        self._lazy: set[relax.Var] = set()

    def is_profitable(self, values: list[relax.Expr]) -> bool:
        """Whether there are convolutions to change, or permutations between convolutions."""
        if any(map(self.is_foreign, values)):
            return True
        orders = {_axes(value) for value in values if operator_name(value) == "permute_dims"}
        kernels = self.layouts.kernels
        are_ours = any(operator_name(each) in kernels and self._wanted(each) for each in values)
        return {TO_FIRST, TO_LAST} <= orders and are_ours

    def is_foreign(self, value: relax.Expr) -> bool:
        """Whether a value is a convolution in layouts other than the new ones."""
        kernel = self.layouts.kernel(value)
        if kernel is None:
            return False
        layouts = (value.attrs.data_layout, value.attrs.kernel_layout)
        return layouts != (self.layouts.new, kernel) and self._wanted(value)

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        result = super().visit_dataflow_block_(block)
        self.first.clear()  # not visible outside of the block
        self._lazy.clear()
        return result

    def visit_dataflow_var_(self, op: relax.Var) -> relax.Expr:
        return self._last(op) if op in self._lazy else super().visit_dataflow_var_(op)

    def _last(self, old: relax.Var) -> relax.Expr:
        """A value in the old layout, emitted on first use."""
        self._lazy.discard(old)
        plain = self.builder_.emit(relax.op.permute_dims(self.first[old], self.layouts.back))
        self.set_var_remap(old, plain)
        return plain

    def in_new_layout(self, old: relax.Expr) -> relax.Expr:
        """An operand of rank 4."""
        if not isinstance(old, relax.Var):
            return _permuted(self, old, self.layouts.axes)
        if old not in self.first:
            self.first[old] = _permuted(self, old, self.layouts.axes)
        return self.first[old]

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        name = operator_name(binding.value)
        rule = _RULES.get(name) or _RULES_OF_KIND.get(facts_named(name).kind)
        result = rule(self, binding.value) if rule and static_shape(binding.value) else None
        if result is None:
            super().visit_var_binding_(binding)
            return
        value, is_first = result
        value = self.builder_.normalize(value)
        if not isinstance(binding.var, relax.DataflowVar):
            if is_first:
                value = relax.op.permute_dims(self.builder_.emit(value), self.layouts.back)
            redefine(self, binding.var, value)
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


# A rule returns the new value, not yet emitted, and whether it is in the new layout if the old one
# is in the old layout; None to keep the call.
Converted = tuple[relax.Expr, bool] | None


def _convolution(converter: _Converter, call: relax.Call) -> Converted:
    attrs, layouts = call.attrs, converter.layouts
    kernel, layout = layouts.kernel(call), str(attrs.data_layout)
    if kernel is None or not converter.is_foreign(call):
        return None
    if layout not in (layouts.old, layouts.new) or str(attrs.out_layout or layout) != layout:
        return None
    if sorted(str(attrs.kernel_layout)) != sorted(kernel):
        return None
    moves, data = layout == layouts.old, call.args[0]
    data = converter.in_new_layout(data) if moves else converter.visit_expr(data)
    order = [str(attrs.kernel_layout).index(axis) for axis in kernel]
    weight = _permuted(converter, call.args[1], order)
    new = {"data_layout": layouts.new, "kernel_layout": kernel, "out_layout": layouts.new}
    return RELAX.again(call, [data, weight], **new), moves


def _permuted(converter: _Converter, expr: relax.Expr, order: Sequence[int]) -> relax.Expr:
    known = array_of(expr)
    if known is not None:
        return constant(np.ascontiguousarray(known.transpose(order)))
    return converter.builder_.emit(relax.op.permute_dims(converter.visit_expr(expr), order))


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
    """Reshape an operand that broadcasts against the old layout for the new one."""
    if rank == 4:
        return converter.in_new_layout(arg)
    if rank == 0:
        return converter.visit_expr(arg)
    known = array_of(arg)
    if known is not None:
        whole = known.reshape((1,) * (4 - rank) + known.shape)
        return constant(np.ascontiguousarray(whole.transpose(converter.layouts.axes)))
    shape = (1,) * (4 - rank) + (static_shape(arg) or ())
    reshaped = converter.builder_.emit(relax.op.reshape(converter.visit_expr(arg), shape))
    return converter.builder_.emit(relax.op.permute_dims(reshaped, converter.layouts.axes))


def _pool(converter: _Converter, call: relax.Call) -> Converted:
    attrs, layouts = call.attrs, converter.layouts
    if call.args[0] not in converter.first or attrs.layout != layouts.old:
        return None
    if attrs.out_layout not in ("", layouts.old):
        return None
    data = converter.first[call.args[0]]
    return RELAX.again(call, [data], layout=layouts.new, out_layout=layouts.new), True


def _pad(converter: _Converter, call: relax.Call) -> Converted:
    if call.args[0] not in converter.first:
        return None
    widths = [int(width) for width in call.attrs.pad_width]
    if len(widths) != 8:
        return None
    axes = converter.layouts.axes
    moved = [side for axis in axes for side in widths[2 * axis : 2 * axis + 2]]
    return RELAX.again(call, [converter.first[call.args[0]]], pad_width=moved), True


def _concat(converter: _Converter, call: relax.Call) -> Converted:
    if not isinstance(call.args[0], relax.Tuple) or call.attrs.axis is None:
        return None
    fields = list(call.args[0].fields)
    if not any(field in converter.first for field in fields):
        return None
    parts = [converter.in_new_layout(field) for field in fields]
    return relax.op.concat(parts, axis=converter.layouts.axes.index(int(call.attrs.axis) % 4)), True


def _reduce(converter: _Converter, call: relax.Call) -> Converted:
    """Reduce over the image, leaving (N, C), or an image of one element."""
    axes, layouts = call.attrs.axis, converter.layouts
    if call.args[0] not in converter.first or axes is None:
        return None
    if sorted(int(axis) % 4 for axis in axes) != sorted(layouts.image):
        return None
    image = [layouts.axes.index(axis) for axis in layouts.image]
    made = RELAX.again(call, [converter.first[call.args[0]]], axis=image)
    return made, bool(call.attrs.keepdims)


def _reshape(converter: _Converter, call: relax.Call) -> Converted:
    """Reshape an image of one element to any shape: the order in memory is that of (N, C)."""
    shape = static_shape(call.args[0])
    if call.args[0] not in converter.first or shape is None:
        return None
    if any(shape[axis] != 1 for axis in converter.layouts.image):
        return None
    return relax.op.reshape(converter.first[call.args[0]], static_shape(call)), False


def _permute(converter: _Converter, call: relax.Call) -> Converted:
    layouts = converter.layouts
    if _axes(call) == layouts.axes and call.args[0] in converter.first:
        return converter.first[call.args[0]], False
    if _axes(call) == layouts.back and isinstance(call.args[0], relax.Var):
        return converter.visit_expr(call.args[0]), True
    return None


def _axes(call: relax.Call) -> tuple[int, ...] | None:
    axes = call.attrs.axes
    return None if axes is None else tuple(int(axis) for axis in axes)


_RULES: dict[str, Callable[[_Converter, relax.Call], Converted]] = {
    **dict.fromkeys(("nn.conv2d", "nn.conv2d_transpose"), _convolution),
    "nn.pad": _pad,
    "concat": _concat,
    "reshape": _reshape,
    "permute_dims": _permute,
}
_RULES_OF_KIND = {UNARY: _unary, BINARY: _binary, POOL: _pool, REDUCTION: _reduce}
