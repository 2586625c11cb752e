"""Have CPUs with AVX512-BF16 multiply bfloat16 operands and accumulate in float32.

    before   y = matmul(x, w)                 float32, or bfloat16 with every sum rounded
             z = add(y, x)

    after    x1 = astype(x, "bfloat16")       at the producer of x
             y = matmul(x1, const bfloat16)   float32
             z = add(y, x)                    of an image: astype(x1, "float32")

bfloat16 matmuls and convolutions are rewritten this way; float32 ones are if a build requests
bfloat16 (`compiler.precision`). Convolutions that are faster with Winograd stay as they are.
Operators that move elements work on bfloat16. All else, including softmax and norms, is in float32.

An operand of a matmul that other operators read too is also kept in float32: otherwise each layer
of a transformer would round its residual sums. Images, which are large, are kept in bfloat16 only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.target import Target

from schedules.x86.conv.winograd_rules import beats_half_floats
from schedules.x86.machine import amx
from schedules.x86.machine.dot_product import OF_BFLOAT16

from ...ir.constants import array_of, constant, dtype_of, numpy_type, static_shape
from ...ir.op_dialect import RELAX
from ...ir.op_facts import facts_of
from ...ir.rewrite import operator_name, redefine, rewritten
from ..selection.ops.conv2d import describe
from ..selection.ops.merge_conv_groups import joined_workload

_SHORT, _WIDE = "bfloat16", "float32"


def bfloat16_products(
    mod: tvm.IRModule, name: str, target: Target, is_asked: bool, winograd: bool
) -> tvm.IRModule:
    """Rewrite function `name`; with `is_asked`, float32 matmuls are rounded to bfloat16, too."""
    function = mod[name]

    def takes(call: Any) -> bool:
        is_product = _takes(call, is_asked, amx.multiplies(OF_BFLOAT16, target))
        return is_product and not (winograd and _is_faster_wide(call, target))

    bindings = [each for block in function.body.blocks for each in block.bindings]
    products = {each.var for each in bindings if takes(each.value)}
    if not products:
        return mod
    return rewritten(mod, name, _Rounder(mod, bindings, products))


def _takes(call: Any, is_asked: bool, by_tiles: bool) -> bool:
    """Whether a call has a dot-product kernel: constant weights, no partial steps.

    Depthwise convolutions have separate kernels, which use the blocks of AMX tiles.
    """
    name = operator_name(call)
    if name not in ("matmul", "nn.conv2d") or static_shape(call) is None:
        return False
    data, weight = (static_shape(arg) for arg in call.args)
    if data is None or weight is None or array_of(call.args[1]) is None or 0 in data:
        return False
    types = {dtype_of(each) for each in (*call.args, call)}
    if types != {_SHORT} and not (is_asked and types == {_WIDE}):
        return False
    if name == "matmul":
        is_dense = 1 < len(weight) <= len(data) and math.prod(weight[:-2]) == 1
        return is_dense and data[-1] % OF_BFLOAT16.size == 0
    attrs = call.attrs
    kernel = str(attrs.kernel_layout)
    if str(attrs.data_layout) not in ("NCHW", "NHWC") or sorted(kernel) != [*"HIOW"]:
        return False
    groups, (filters, inputs) = int(attrs.groups), (weight[kernel.index(axis)] for axis in "OI")
    if groups > 1 and inputs == 1:
        return by_tiles and filters == groups
    return groups == 1 or inputs % OF_BFLOAT16.size == 0


def _is_faster_wide(call: relax.Call, target: Target) -> bool:
    workload = describe(call) if operator_name(call) == "nn.conv2d" else None
    if workload is None:
        return False
    wide = replace(workload, dtype=_WIDE, out_dtype=_WIDE, weight_dtype="")
    halves = joined_workload(replace(wide, dtype=_SHORT), target, ())
    return beats_half_floats(wide, halves, target)


@mutator
class _Rounder(PyExprMutator):
    """Rounds the operands of matmuls to bfloat16; images are kept in bfloat16 only."""

    def __init__(
        self, mod: tvm.IRModule, bindings: Sequence[Any], products: set[relax.Var]
    ) -> None:
        super().__init__(mod)
        self._products = products
        self._tuples = {
            each.var: each.value for each in bindings if isinstance(each.value, relax.Tuple)
        }
        self._short: dict[relax.Var, relax.Expr] = {}
        self._read_short: set[relax.Var] = set()
        self._images: set[relax.Var] = set()
        self._only_short: set[relax.Var] = set()
        for binding in reversed(bindings):
            if binding.var in products:
                is_image = operator_name(binding.value) != "matmul"
                self._note(binding.value.args[0], is_image)
            elif self._moves_short(binding):
                for operand in self._moved(binding.value):
                    self._note(operand, binding.var in self._images)

    def _note(self, operand: relax.Expr, is_image: bool) -> None:
        if isinstance(operand, relax.DataflowVar) and dtype_of(operand) == _WIDE:
            self._read_short.add(operand)
            if is_image:
                self._images.add(operand)

    def _moves_short(self, binding: relax.VarBinding) -> bool:
        return binding.var in self._read_short and facts_of(binding.value).keeps_values

    def _moved(self, call: relax.Call) -> list[relax.Expr]:
        """The tensors whose elements an operator moves."""
        data = call.args[0]
        data = self._tuples.get(data, data) if isinstance(data, relax.Var) else data
        return list(data.fields) if isinstance(data, relax.Tuple) else [data]

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        result = super().visit_dataflow_block_(block)
        self._short.clear()  # not visible outside the block
        return result

    def visit_dataflow_var_(self, op: relax.Var) -> relax.Expr:
        if op in self._only_short and op in self._short:  # one cast per reader, to be fused
            return self.builder_.emit(relax.op.astype(self._short[op], _WIDE))
        return super().visit_dataflow_var_(op)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = binding.value
        if self._moves_short(binding):
            operands = [self._rounded(each) for each in self._moved(value)]
            data = relax.Tuple(operands) if operator_name(value) == "concat" else operands[0]
            moved = RELAX.again(value, [data, *value.args[1:]])
            self._short[binding.var] = self.builder_.emit(moved)
            self._only_short.add(binding.var)
            return
        if binding.var in self._products:
            value = self._product(binding)
        elif binding.var in self._read_short:
            value = self.visit_expr(value)
        else:
            super().visit_var_binding_(binding)
            return
        if binding.var in self._read_short:
            wide = self._emitted(value)
            self._short[binding.var] = self.builder_.emit(relax.op.astype(wide, _SHORT))
            if binding.var in self._images:
                self._only_short.add(binding.var)
            else:
                self.set_var_remap(binding.var, wide)
        elif isinstance(binding.var, relax.DataflowVar):
            self.set_var_remap(binding.var, self._emitted(value))
        else:
            redefine(self, binding.var, value)

    def _emitted(self, value: relax.Expr) -> relax.Var:
        return value if isinstance(value, relax.Var) else self.builder_.emit(value)

    def _product(self, binding: relax.VarBinding) -> relax.Expr:
        """A float32 result, rounded if the matmul was bfloat16."""
        call = binding.value
        weight = array_of(call.args[1])
        assert weight is not None
        operands = [self._rounded(call.args[0]), constant(weight.astype(numpy_type(_SHORT)))]
        product = self.builder_.normalize(RELAX.again(call, operands, out_dtype=_WIDE))
        if self.builder_.current_block_is_dataflow():
            var = relax.DataflowVar(binding.var.name, product.ty)  # records are looked up by name
            self.builder_.emit_normalized(relax.VarBinding(var, product))
            product = var
        return product if dtype_of(call) == _WIDE else relax.op.astype(product, _SHORT)

    def _rounded(self, old: relax.Expr) -> relax.Expr:
        if dtype_of(old) == _SHORT:
            return self.visit_expr(old)
        if not isinstance(old, relax.Var):
            return self.builder_.emit(relax.op.astype(self.visit_expr(old), _SHORT))
        if old not in self._short:
            short = relax.op.astype(self.visit_expr(old), _SHORT)
            self._short[old] = self.builder_.emit(short)
        return self._short[old]
