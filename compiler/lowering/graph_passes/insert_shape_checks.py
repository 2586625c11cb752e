"""Insert run-time checks of dynamic extents that an operator requires to agree.

    y = matmul(a, b)     # (2, n), (m, 3)     becomes     c = extents_that_agree((m - n,))
                                                          d = as_agreed(b, c)      # (n, 3)
                                                          y = matmul(a, d)

The first kernel raises `InputError` if the extents do not agree, before any out-of-bounds access.
The second returns its operand with the required extents, so that shapes derived from them are
known. Reshapes must keep the number of elements, which is checked likewise. GPU kernels can't
raise errors, so they are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...ir.dynamic_shape import BOUNDS, simplified
from ...ir.op_dialect import RELAX
from ...ir.op_facts import facts_of
from ...ir.op_facts.shape_rules import ShapeConstraint, extents_of
from ...ir.rewrite import operator_name
from ...primfuncs.fusion_pattern import called_kernel
from .runtime_check_pass import checked_by, emit_check, refusing

AGREED = "as_agreed"
"""Name of the kernels that hand on an operand, up to a number."""

KIND = "InputError"
"""Name of the error that kernels raise, as `compiler.runtime.executor` registers it."""


def insert_shape_checks(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """Insert a check before each operator of a function whose extents may disagree."""
    most = (mod[name].attrs or {}).get(BOUNDS, {})
    checked = checked_by(_Checker(mod, most), mod, name)
    if checked is mod:
        return mod
    return relax.transform.CanonicalizeBindings()(checked)  # removes casts to known extents


def emit_checked(
    builder: relax.BlockBuilder, given: relax.Expr, checked: relax.Expr, shape: Sequence[Any]
) -> relax.Var:
    """Give a tensor this shape, after `checked` is computed."""
    # Not fused: FuseTIR treats one extent written as two expressions as two tensors.
    return emit_check(builder, _as_agreed, given, checked, relax.ShapeExpr(shape), hint=AGREED)


def is_checked(expr: relax.Expr) -> bool:
    """Whether an expression was made by `emit_checked`."""
    kernel = called_kernel(expr)
    return kernel is not None and kernel.rstrip("0123456789") == AGREED


@mutator
class _Checker(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, most: Mapping[str, int]) -> None:
        super().__init__(mod)
        self.most = most
        self.changed = False
        self.wrong: list[str] = []

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        name = operator_name(call)
        if name == "reshape":
            return self._reshape(call)
        open_needs: dict[tuple[int, int | None], list[tuple[ShapeConstraint, Any]]] = {}
        shapes = facts_of(call).shapes
        for need in shapes(call) if shapes is not None else ():
            given = _operand(call, need)
            misfit = _misfit((extents_of(given) or [])[need.axis], need, self.most)
            if not isinstance(misfit, int):
                open_needs.setdefault((need.operand, need.field), []).append((need, misfit))
        for each in open_needs.values():
            call = self._with_agreed(call, name, each)
        return call

    def _with_agreed(
        self, call: relax.Call, name: str, needs: Sequence[tuple[ShapeConstraint, Any]]
    ) -> relax.Call:
        """The call with one operand, or tuple field, replaced by its checked copy."""
        need = needs[0][0]
        given = _operand(call, need)
        shape = extents_of(given) or []
        said = []
        for each, _ in needs:
            said.append(f"{shape[each.axis]} is {each.relation} {each.extent}")
            if each.relation == "not":
                shape[each.axis] = each.extent
        number = need.operand if need.field is None else need.field
        message = f"{name}: extents known at run time do not agree, of operand {number}: "
        message = message.removeprefix("relay.") + " or ".join(said)
        agreed = self._agreed(given, shape, [misfit for _, misfit in needs], message)
        operands = [*call.args]
        if need.field is None:
            operands[need.operand] = agreed
        else:
            fields = [
                _field(call.args[need.operand], i) for i in range(len(call.args[0].ty.fields))
            ]
            fields[need.field] = agreed
            operands[need.operand] = relax.Tuple(fields)
        return self.builder_.normalize(RELAX.again(call, operands))

    def _reshape(self, call: relax.Call) -> relax.Expr:
        """Check a reshape, unless it is known to keep the number of elements."""
        data, shape = extents_of(call.args[0]), call.args[1]
        if data is None or not isinstance(shape, relax.ShapeExpr):
            return call
        misfit = simplified(_product(data) - _product(shape.values))
        if isinstance(misfit, int):
            return call
        message = (
            f"reshape: extents known at run time do not agree: {_product(data)} elements are not "
            f"{_product(shape.values)}"
        )
        agreed = self._agreed(call.args[0], data, [misfit], message)
        return self.builder_.normalize(RELAX.again(call, [agreed, shape]))

    def _agreed(
        self, given: relax.Expr, shape: Sequence[Any], misfits: Sequence[Any], message: str
    ) -> relax.Var:
        """Copy a tensor to this shape; the copy depends on the check of all misfits."""
        self.changed = True
        found = emit_check(
            self.builder_, _misfits, relax.ShapeExpr(misfits), hint="extent_misfits", fuses=True
        )
        text = re.sub(r"T\.int64\((-?\d+)\)", r"\1", message)

        def check(values: te.Tensor) -> te.Tensor:
            return refusing(values, (1,), text, KIND)

        checked = emit_check(self.builder_, check, found, hint="extents_that_agree")
        return emit_checked(self.builder_, given, checked, shape)


def _operand(call: relax.Call, need: ShapeConstraint) -> relax.Expr:
    operand = call.args[need.operand]
    return operand if need.field is None else _field(operand, need.field)


def _field(operand: relax.Expr, index: int) -> relax.Expr:
    if isinstance(operand, relax.Tuple):
        return operand.fields[index]
    return relax.TupleGetItem(operand, index)


def _misfit(extent: Any, need: ShapeConstraint, most: Mapping[str, int]) -> Any:
    """0 if an extent, static or not, meets its constraint; `most` bounds the symbols."""
    if need.relation == "not":
        return simplified(extent - need.extent)
    over = extent - need.extent if need.relation == "more than" else need.extent - extent
    return simplified(tirx.max(over, tirx.const(0, "int64")), most)


def _product(extents: Sequence[Any]) -> Any:
    result = tirx.const(1, "int64")
    for extent in extents:
        result = result * extent
    return result


def _misfits(misfits: Sequence[Any]) -> te.Tensor:
    """1 if one of these numbers is not 0."""
    wrong = tirx.const(0, "int64")
    for each in misfits:
        wrong = tirx.Select(each == 0, wrong, tirx.const(1, "int64"))
    return te.compute((1,), lambda _: wrong, name="misfits")


def _as_agreed(data: te.Tensor, _checked: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
    """Copy a tensor; the check is an operand so that it runs first."""
    return te.compute(list(shape), lambda *at: data(*at), name="as_agreed")
