"""Hoist strides of 1x1 convolutions to the convolutions that produce their input.

    before   y = relu(add(conv2d(x, w), z))                    each (1, C, H, W)
             a = conv2d(y, u, strides=2); b = conv2d(y, v, strides=2)          u, v 1x1

    after    y = relu(add(conv2d(x, w, strides=2), max_pool2d(z, 1x1, strides=2)))
             a = conv2d(y, u); b = conv2d(y, v)

A strided 1x1 convolution reads one pixel of four. If all readers of a tensor skip the same pixels,
those need not be computed. The strides move through elementwise operators into the preceding
convolution, and through that one further up if it is 1x1, too. In a ResNet-50 whose stages begin
with such convolutions, a tenth of all multiplications is saved. The results are identical.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import tvm
from tvm import relax
from tvm.ir import Call
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...ir.constants import integers, static_shape
from ...ir.op_dialect import RELAX
from ...ir.op_facts import facts_named
from ...ir.rewrite import operator_name, redefine, variables_of

Steps = tuple[int, ...]
"""Step of each axis between elements that are read."""

_ALL = (1, 1, 1, 1)
_LAYOUTS = ("NCHW", "NHWC")


def move_strides(mod: tvm.IRModule, name: str, keeps: Callable[[Call], bool]) -> tvm.IRModule:
    """Move strides in function `name`; `keeps`: whether the kernel of a convolution is fixed."""
    function = mod[name]
    if not isinstance(function.body, relax.SeqExpr):
        return mod
    steps = _Readers(function, keeps).steps
    if not steps:
        return mod
    changed = mod.clone()
    result = _Mover(mod, steps).visit_expr(function)
    changed.update_func(mod.get_global_var(name), result)
    return changed


class _Readers:
    """Steps that the readers of each variable need, from the last operator to the first."""

    def __init__(self, function: relax.Function, keeps: Callable[[Call], bool]) -> None:
        self.steps: dict[relax.Var, Steps] = {}
        self._keeps = keeps
        self._needed: dict[relax.Var, Steps] = {}
        bindings = [each for block in function.body.blocks for each in block.bindings]
        self._values = {each.var: each.value for each in bindings}
        reads = (variables_of(each.value) for each in bindings)
        self._reads = Counter(var for each in reads for var in each)
        self._need(function.body.body, _ALL)
        for binding in reversed(bindings):
            self._visit(binding.var, binding.value)

    def _visit(self, var: relax.Var, value: relax.Expr) -> None:
        steps = self._needed.get(var, _ALL)
        if not self._can_skip(value, steps):
            steps = _ALL
        if steps != _ALL:
            self.steps[var] = steps
        if operator_name(value) == "nn.conv2d":
            data, weight = value.args
            self._need(weight, _ALL)
            self._need(data, self._of_data(value, steps))
        elif steps != _ALL:
            for operand in value.args:
                self._need(operand, steps if _is_like(operand, value) else _ALL)
        else:
            self._need(value, _ALL)

    def _need(self, expr: relax.Expr, steps: Steps) -> None:
        for var in variables_of(expr):
            known = self._needed.get(var, steps)
            self._needed[var] = tuple(map(math.gcd, known, steps))

    def _of_data(self, call: Call, steps: Steps) -> Steps:
        """Steps that a convolution needs of its data, given the steps of its result."""
        is_pointwise = _axes(call) is not None and not any(integers(call.attrs.padding) or (1,))
        _, _, *taps = static_shape(call.args[1]) or (0, 0, 0)
        if not is_pointwise or call.attrs.kernel_layout != "OIHW" or taps != [1, 1]:
            return _ALL
        return _ALL if self._keeps(call) else _strides(call, steps)

    def _can_skip(self, value: relax.Expr, steps: Steps) -> bool:
        """Whether an operator can omit results, and a convolution then has less work."""
        if steps == _ALL or static_shape(value) is None:
            return False
        name = operator_name(value)
        if name == "nn.conv2d":
            axes = _axes(value)
            others = [step for axis, step in enumerate(steps) if axes and axis not in axes]
            return bool(axes) and set(others) == {1} and not self._keeps(value)
        if not facts_named(name).is_elementwise:
            return False
        whole = [each for each in value.args if _is_like(each, value)]
        rest = [static_shape(each) for each in value.args if not _is_like(each, value)]
        if any(shape is None or not _is_broadcast(shape, steps) for shape in rest):
            return False
        inner = [(self._values.get(each), self._reads.get(each)) for each in whole]
        return all(isinstance(each, relax.Var) for each in whole) and any(
            reads == 1 and self._can_skip(each, steps) for each, reads in inner
        )


@mutator
class _Mover(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, steps: dict[relax.Var, Steps]) -> None:
        super().__init__(mod)
        self._steps = steps

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        var, call = binding.var, binding.value
        steps = self._steps.get(var, _ALL)
        is_conv = operator_name(call) == "nn.conv2d"
        if steps == _ALL and not (is_conv and call.args[0] in self._steps):
            super().visit_var_binding_(binding)
            return
        operands = [self.visit_expr(operand) for operand in call.args]
        changes = {}
        if is_conv:
            skipped, strides = self._steps.get(call.args[0], _ALL), _strides(call, steps)
            changes["strides"] = [strides[axis] // skipped[axis] for axis in _axes(call) or ()]
        else:
            for place, operand in enumerate(call.args):
                known = self._steps.get(operand, _ALL)
                if _is_like(operand, call) and known != steps:
                    rest = tuple(all_ // done for all_, done in zip(steps, known))
                    operands[place] = self.builder_.emit(_every(operands[place], rest))
        redefine(self, var, RELAX.again(call, operands, **changes))


def _axes(call: Call) -> tuple[int, int] | None:
    """Height and width among the axes of a convolution's data and result; None if they differ."""
    layout = call.attrs.data_layout
    if layout not in _LAYOUTS or call.attrs.out_layout not in ("", layout):
        return None
    return layout.index("H"), layout.index("W")


def _strides(call: Call, steps: Steps) -> Steps:
    """Steps of the data for the given steps of the result."""
    strides = list(steps)
    for axis, stride in zip(_axes(call) or (), integers(call.attrs.strides) or ()):
        strides[axis] *= stride
    return tuple(strides)


def _every(data: relax.Expr, steps: Steps) -> relax.Expr:
    """Subsample a tensor with a 1x1 pool, which all layouts and targets support."""
    layout = "NCHW" if steps[1] == 1 else "NHWC"
    strides = [steps[layout.index(axis)] for axis in "HW"]
    return relax.op.nn.max_pool2d(data, (1, 1), strides, layout=layout)


def _is_like(operand: relax.Expr, value: relax.Expr) -> bool:
    shape = static_shape(operand)
    return shape is not None and shape == static_shape(value)


def _is_broadcast(shape: tuple[int, ...], steps: Steps) -> bool:
    """Whether an operand is constant along all axes with steps."""
    return len(shape) <= len(steps) and all(
        step == 1 or extent == 1 for extent, step in zip(reversed(shape), reversed(steps))
    )
