"""Accumulate float16 and bfloat16 in float32 on CPUs.

    before   y = matmul(x, w)                   every addition rounded to float16
             z = relu(y)

    after    x1 = astype(x, "float32")
             y1 = matmul(x1, const float32)
             z1 = relu(y1)
             z = astype(z1, "float16")              rounded once

1. Operators that add or multiply many elements take and return float32. So do operators computed
   by a formula with intermediate values outside the range of float16.
2. Element-wise operators and those that move elements stay in float32 if an operand already is,
   or if only such operators read their results: the squares of a norm neither overflow nor are
   rounded.
3. A value is rounded if anything else reads it, or if it is a result of the function.

Constants become float32 when the library is built. onnxruntime computes float16 on CPUs this way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...ir.constants import array_of, constant, dtype_of
from ...ir.op_dialect import RELAX
from ...ir.op_facts import FOLLOWS, IN_FLOAT32, SUMS_IN_FLOAT32, facts_of
from ...ir.rewrite import redefine, rewritten

HALVES = ("float16", "bfloat16")
_WIDE = "float32"

_DTYPE_ATTRIBUTES = ("out_dtype", "dtype")


def widen_halves(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """Rewrite function `name` of the module; a function with nothing to widen is unchanged."""
    followed = _followed(mod[name])
    return mod if followed is None else rewritten(mod, name, _Widener(mod, followed))


def _followed(function: relax.Function) -> set[relax.Var] | None:
    """Half-precision variables with only widened readers, even indirectly; None if none is."""
    bindings = [
        binding
        for block in getattr(function.body, "blocks", ())
        for binding in block.bindings
        if isinstance(binding, relax.VarBinding)
    ]
    if not any(_needs_float32(binding.value) for binding in bindings):
        return None
    followed: set[relax.Var] = set()
    readers: dict[relax.Var, list[bool]] = {}
    for binding in reversed(bindings):
        if _follows(binding.value) and all(readers.get(binding.var, [False])):
            followed.add(binding.var)
        wide = _needs_float32(binding.value) or binding.var in followed
        for used in relax.analysis.free_vars(binding.value):
            readers.setdefault(used, []).append(wide)
    return followed


def _needs_float32(value: Any) -> bool:
    rule = facts_of(value).half
    return rule in (IN_FLOAT32, SUMS_IN_FLOAT32) and _result_dtype(value) in HALVES


def _follows(value: Any) -> bool:
    return facts_of(value).half == FOLLOWS and _result_dtype(value) in HALVES


def _result_dtype(value: relax.Expr) -> str:
    """Dtype of a tensor, or of the first field of a tuple."""
    ty = value.ty
    while isinstance(ty, relax.TupleType) and len(ty.fields):
        ty = ty.fields[0]
    return str(ty.dtype) if isinstance(ty, relax.TensorType) else ""


@mutator
class _Widener(PyExprMutator):
    """Keeps float32 values and rounds them to half precision on first use."""

    def __init__(self, mod: tvm.IRModule, followed: set[relax.Var]) -> None:
        super().__init__(mod)
        self._followed = followed
        self._wide: dict[relax.Var, relax.Expr] = {}
        self._unrounded: set[relax.Var] = set()

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        result = super().visit_dataflow_block_(block)
        self._wide.clear()  # not visible outside of the block
        self._unrounded.clear()
        return result

    def visit_dataflow_var_(self, op: relax.Var) -> relax.Expr:
        if op in self._unrounded:
            self._unrounded.discard(op)
            rounded = relax.op.astype(self._wide[op], dtype_of(op))
            self.set_var_remap(op, self.builder_.emit(rounded))
        return super().visit_dataflow_var_(op)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = binding.value
        if not self._is_to_widen(binding):
            super().visit_var_binding_(binding)
            return
        widened = self.builder_.normalize(self._widened(value))
        if isinstance(value.ty, relax.TupleType):
            fields = []
            for index, field in enumerate(value.ty.fields):
                part = self.builder_.emit(relax.TupleGetItem(widened, index))
                fields.append(self.builder_.emit(relax.op.astype(part, str(field.dtype))))
            redefine(self, binding.var, relax.Tuple(fields))
        elif isinstance(binding.var, relax.DataflowVar):
            var = relax.DataflowVar(binding.var.name, widened.ty)  # records are looked up by name
            self.builder_.emit_normalized(relax.VarBinding(var, widened))
            self._wide[binding.var] = var
            self._unrounded.add(binding.var)
        else:
            rounded = relax.op.astype(self.builder_.emit(widened), dtype_of(value))
            redefine(self, binding.var, rounded)

    def _is_to_widen(self, binding: relax.VarBinding) -> bool:
        value = binding.value
        if _needs_float32(value):
            return True
        if not _follows(value):
            return False
        return binding.var in self._followed or any(arg in self._wide for arg in value.args)

    def _widened(self, call: relax.Call) -> relax.Expr:
        stated = [key for key in _DTYPE_ATTRIBUTES if str(getattr(call.attrs, key, "")) in HALVES]
        operands = [self._operand(arg) for arg in call.args]
        return RELAX.again(call, operands, **dict.fromkeys(stated, _WIDE))

    def _operand(self, old: relax.Expr) -> relax.Expr:
        """An operand, cast to float32 if it is half precision."""
        if isinstance(old, relax.Tuple):
            return relax.Tuple([self._operand(field) for field in old.fields])
        if not isinstance(old.ty, relax.TensorType) or dtype_of(old) not in HALVES:
            return self.visit_expr(old)
        array = array_of(old)
        if array is not None:
            return constant(np.asarray(array, _WIDE))
        if not isinstance(old, relax.Var):
            return self.builder_.emit(relax.op.astype(self.visit_expr(old), _WIDE))
        if old not in self._wide:
            wide = relax.op.astype(self.visit_expr(old), _WIDE)
            self._wide[old] = self.builder_.emit(wide)
        return self._wide[old]
