"""Insert run-time bounds checks for non-constant indices.

    y = gather_elements(x, i)        becomes       j = gather_elements_indices(i)
                                                   y = gather_elements(x, j)

The added kernel reads all indices once, before any is used, and returns a copy in which negative
indices count from the front. The operator can't run without it, and nothing is fused with it. The
kernel raises `IndexRangeError` if an index is out of bounds. Devices whose kernels can't raise
errors clamp the index instead. Constant indices are checked at compile time, at no run-time cost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ...ir.constants import array_of, constant, static_shape
from ...ir.op_dialect import RELAX
from ...ir.op_facts import facts_of
from ...ir.op_facts.index_rules import Bounds
from ...ir.rewrite import CallRule, operator_name, rewrite_calls
from .kernel_error import give_up, local, set_error
from .runtime_check_pass import checked_by, emit_check, operand_of, with_operand

KIND = "IndexRangeError"
"""Name of the error that kernels raise, as `compiler.runtime.executor` registers it."""

_NAMELESS = re.compile(r"(lv|gv)\d*")


def check_indices(mod: tvm.IRModule, name: str, can_raise: bool) -> tvm.IRModule:
    """Insert a check before each operator of a function that indexes with an operand.

    Without `can_raise`, as on GPUs, an index out of bounds is clamped. Raises BuildError: a
    constant index is out of bounds, or the shapes of indices and data do not match.
    """
    return checked_by(_Checker(mod, can_raise), mod, name)


def indexes_at_run_time(call: Any) -> bool:
    """Whether a call has non-constant indices."""
    if not isinstance(call, relax.Call):
        return False
    return any(array_of(operand_of(call, each)) is None for each in _bounds(call))


def _bounds(call: relax.Call) -> list[Bounds]:
    rule = facts_of(call).indices
    return [] if rule is None else rule(call)


def limited_takes(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """Make each `take` of function `name` that would trust its indices clamp them.

    All use "clip" in the end: its cost is not measurable, and TVM warns about the other mode.
    """
    return rewrite_calls(mod, _Limits, [name])


class _Limits(CallRule):
    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        return _with_limits(call, name)


def _with_limits(call: relax.Call, name: str) -> relax.Expr | None:
    """A `take` in mode "clip" for one in mode "fast"; None for any other call."""
    is_fast = name in ("take", "relay.take") and call.attrs["mode"] == "fast"
    return RELAX.again(call, call.args, mode="clip") if is_fast else None


@mutator
class _Checker(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, can_raise: bool) -> None:
        super().__init__(mod)
        self.changed = False
        self.wrong: list[str] = []
        self._can_raise = can_raise
        self._result = ""

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self._result = str(binding.var.name)
        super().visit_var_binding_(binding)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        name = operator_name(call)
        bounds = _bounds(call)
        if not bounds:
            return self._limited(call, name)
        operator = name.removeprefix("relay.")
        what = facts_of(call).indices_of or operator
        if not _NAMELESS.fullmatch(self._result):
            what += f" ({self._result})"
        problem = _unfit_shapes(call, operator)
        if problem:
            self.wrong.append(f"{what}: {problem}")
        arguments = list(call.args)
        for each in bounds:
            given = operand_of(call, each)
            checked = self._check(given, each, operator, what)
            if checked is None:
                continue
            self.changed = True
            arguments = with_operand(arguments, each, checked)
        call = relax.Call(call.op, arguments, call.attrs, call.ty_args)
        return self._limited(call, name)

    def _limited(self, call: relax.Call, name: str) -> relax.Expr:
        """A `take` that clamps its indices; any other call unchanged."""
        limited = _with_limits(call, name)
        self.changed = self.changed or limited is not None
        return call if limited is None else limited

    def _check(
        self, given: relax.Expr, bounds: Bounds, operator: str, what: str
    ) -> relax.Expr | None:
        """The checked indices; None if the given ones are valid."""
        array = array_of(self._definition(given))
        if array is not None and all(isinstance(e, (int, type(None))) for e in bounds.extents):
            problem = _outside(array, bounds)
            if problem:
                self.wrong.append(f"{what}: {problem}")
                return None
            wrapped = _array_from_front(array, bounds)
            return None if wrapped is array else constant(wrapped)
        given, bounds = self._raw(given, bounds)
        variables = [each for each in bounds.extents if isinstance(each, tirx.Expr)]
        compute = _checked if self._can_raise else _limited

        def kernel(indices: te.Tensor, extents: list[Any]) -> te.Tensor:
            known = iter(extents)
            mine = [next(known) if isinstance(e, tirx.Expr) else e for e in bounds.extents]
            return compute(indices, replace(bounds, extents=tuple(mine)), what)

        hint = f"{operator.replace('.', '_')}_indices"
        shape = relax.ShapeExpr(variables)
        return emit_check(self.builder_, kernel, given, shape, hint=hint, fuses=not self._can_raise)

    def _definition(self, expr: Any) -> Any:
        while isinstance(expr, relax.Var):
            value = self.lookup_binding(expr)
            if value is None:
                return expr
            expr = value
        return expr

    def _raw(self, given: relax.Expr, bounds: Bounds) -> tuple[relax.Expr, Bounds]:
        """For where(i < 0, i + extent, i), as importers write it, `i`, which may be negative.

        If the addend is known only at run time, the sum itself, which may not be negative.
        """
        chosen = self._definition(given)
        if operator_name(chosen) == "permute_dims":
            inner, found = self._raw(chosen.args[0], bounds)
            if inner.same_as(chosen.args[0]):
                return given, found
            return self.builder_.emit(relax.op.permute_dims(inner, chosen.attrs.axes)), found
        if operator_name(chosen) != "where":
            return given, bounds
        condition, shifted, raw = (self._definition(arg) for arg in chosen.args)
        if operator_name(condition) != "less" or operator_name(shifted) != "add":
            return given, bounds
        same = (condition.args[0], shifted.args[0])
        zero, extent = (array_of(self._definition(each.args[1])) for each in (condition, shifted))
        if not all(self._definition(e).same_as(raw) for e in same) or zero is None or zero.any():
            return given, bounds
        if extent is None:
            return given, replace(bounds, from_end=False)
        if extent.ravel().tolist() != list(bounds.extents):
            return given, bounds
        return chosen.args[2], replace(bounds, from_end=True)


def _unfit_shapes(call: relax.Call, operator: str) -> str:
    """Error text for index shapes that exceed the data along other axes; "" if they fit."""
    if operator not in ("gather", "gather_elements", "scatter_elements"):
        return ""
    data, indices = static_shape(call.args[0]), static_shape(call.args[1])
    if data is None or indices is None or 0 in indices:
        return ""
    axis = int(call.attrs["axis"]) % len(data)
    for at, (extent, own) in enumerate(zip(data, indices)):
        if at != axis and own > extent:
            return f"indices of shape {indices} reach beyond axis {at} of data of shape {data}"
    return ""


def _parts(array: np.ndarray, bounds: Bounds) -> Iterator[tuple[int, Any]]:
    """Each coordinate that is an index, and its position in constant indices."""
    for coordinate, extent in enumerate(bounds.extents):
        if extent is not None:
            at: list[Any] = [slice(None)] * array.ndim
            if bounds.along is not None:
                at[bounds.along] = coordinate
            yield coordinate, tuple(at)


def _outside(array: np.ndarray, bounds: Bounds) -> str:
    """Error text for constant indices out of bounds; "" if all are valid."""
    for coordinate, at in _parts(array, bounds):
        first, stop = bounds.limits(coordinate)
        part = array[at]
        inside = (part >= first) & (part < stop)
        if bounds.but is not None:
            inside |= part == bounds.but
        if not inside.all():
            return (
                f"the constant index {part[~inside].flat[0]} is outside of [{first}, {stop - 1}], "
                f"axis {bounds.axes[coordinate]} has the extent {bounds.extents[coordinate]}"
            )
    return ""


def _array_from_front(array: np.ndarray, bounds: Bounds) -> np.ndarray:
    """Constant indices counted from the front; the same array if all are."""
    if not bounds.from_end or array.size == 0 or array.min() >= 0:
        return array
    result = array.astype("int64") if array.itemsize < 4 else array.copy()
    for coordinate, at in _parts(array, bounds):
        result[at] += np.where(result[at] < 0, bounds.extents[coordinate], 0).astype(result.dtype)
    return result


def _checked(indices: te.Tensor, bounds: Bounds, what: str) -> te.Tensor:
    """Copy the indices; the kernel raises an error if one is out of bounds."""

    dtype = _kept_dtype(str(indices.dtype))

    def build(ins: Any, outs: Any) -> Any:
        with IRBuilder() as builder:
            given, kept = T.buffer_proxy(ins[0]), T.buffer_proxy(outs[0])
            with T.seq_scope():
                outside = local("int32")
                outside[0] = T.int32(0)

                def copy(at: tuple[Any, ...], coordinate: int) -> None:
                    value = given[at]
                    kept[at] = tirx.Cast(dtype, _from_front(value, bounds, coordinate))
                    if bounds.extents[coordinate] is not None:
                        outside[0] = outside[0] | tirx.Cast(
                            "int32", _is_outside(value, bounds, coordinate)
                        )

                _for_each(indices.shape, bounds, copy)
                with T.If(outside[0] != 0), T.Then():
                    _tell(given, indices.shape, bounds, what)
            return builder.get()

    return te.extern([indices.shape], [indices], build, dtype=dtype, name="checked_indices")


def _for_each(shape: Any, bounds: Bounds, visit: Any) -> None:
    """Emit loops over all indices; coordinates are visited one after the other."""

    def level(axis: int, at: tuple[Any, ...], coordinate: int) -> None:
        if axis == len(shape):
            visit(at or (0,), coordinate)
        elif axis == bounds.along:
            for each in range(len(bounds.extents)):
                level(axis + 1, (*at, each), each)
        else:
            with T.serial(0, shape[axis]) as here:
                level(axis + 1, (*at, here), coordinate)

    level(0, (), 0)


def _kept_dtype(dtype: str) -> str:
    """The dtype of checked indices: holds the given dtype and every extent."""
    return dtype if dtype in ("int32", "int64") or dtype.startswith("float") else "int64"


def _from_front(value: Any, bounds: Bounds, coordinate: int) -> Any:
    """The index, counted from the front."""
    extent = bounds.extents[coordinate]
    if not bounds.from_end or extent is None:
        return value
    value = tirx.Cast(_kept_dtype(str(value.ty.dtype)), value)
    zero = tirx.const(0, value.ty.dtype)
    return value + tirx.Select(value < zero, _as(extent, value), zero)


def _is_outside(value: Any, bounds: Bounds, coordinate: int) -> Any:
    first, stop = bounds.limits(coordinate)
    dtype = str(value.ty.dtype)
    if dtype == "int32" and not (isinstance(stop, int) and stop < 1 << 31):
        dtype = "int64"
    value = tirx.Cast(_kept_dtype(dtype), value)
    outside = tirx.Or(value < _as(first, value), value >= _as(stop, value))
    if dtype.startswith("float"):
        outside = tirx.Or(outside, tirx.isnan(value))
    if bounds.but is not None:
        outside = tirx.And(outside, value != _as(bounds.but, value))
    return outside


def _as(number: Any, value: Any) -> Any:
    """A number in the dtype of a value."""
    dtype = str(value.ty.dtype)
    return tirx.const(number, dtype) if isinstance(number, int) else tirx.Cast(dtype, number)


def _tell(given: Any, shape: Any, bounds: Bounds, what: str) -> None:
    """Emit the code that raises the error, with the first index that is out of bounds."""
    wrong, at_coordinate = local("int64"), local("int32")
    at_coordinate[0] = T.int32(-1)

    def look(at: tuple[Any, ...], coordinate: int) -> None:
        if bounds.extents[coordinate] is None:
            return
        value = given[at]
        is_first = tirx.And(_is_outside(value, bounds, coordinate), at_coordinate[0] < 0)
        with T.If(is_first), T.Then():
            wrong[0] = tirx.Cast("int64", value)
            at_coordinate[0] = T.int32(coordinate)

    _for_each(shape, bounds, look)
    for coordinate, extent in enumerate(bounds.extents):
        if extent is None:
            continue
        first, stop = bounds.limits(coordinate)
        with T.If(at_coordinate[0] == coordinate), T.Then():
            pieces = [f"{what}: the index ", wrong[0], " is outside of [", first, ", ", stop - 1]
            pieces += [f"], axis {bounds.axes[coordinate]} has the extent ", extent]
            set_error(KIND, pieces)
    give_up()


def _limited(indices: te.Tensor, bounds: Bounds, what: str) -> te.Tensor:
    def value(*at: Any) -> Any:
        given = tirx.Cast(_kept_dtype(str(indices.dtype)), indices(*at))
        result = given
        for coordinate, extent in enumerate(bounds.extents):
            if extent is None:
                continue
            first, stop = bounds.limits(coordinate)
            inside = tirx.max(tirx.min(given, _as(stop - 1, given)), _as(first, given))
            if bounds.but is not None:
                inside = tirx.Select(given == _as(bounds.but, given), given, inside)
            inside = _from_front(inside, bounds, coordinate)
            if bounds.along is None:
                return inside
            result = tirx.Select(at[bounds.along] == coordinate, inside, result)
        return result

    return te.compute(indices.shape, value, name="limited_indices")
