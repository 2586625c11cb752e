"""Merge kernels of rows on CUDA devices where FuseOps leaves them apart.

    before   y = fused_matmul_add(x, w, r)             two launches if k is divided among blocks
             z = layer_norm(y, gamma, beta)            float32, for the residual sum
             h = cast(z)                               float16, for a matmul

    after    both = fused_matmul_add_layer_norm_cast(x, w, r, gamma, beta)      two launches
             z = both[0]; h = both[1]

FuseOps merges no element-wise operator with a kernel whose result has other readers, and no matmul
with a norm or softmax. A merged kernel also returns the first result if it has other readers. The
rules of `schedules.cuda` decide: a matmul is merged where its k is divided, so that the launch that
would add the parts also computes the rows, and only if that is faster by their prices.
"""

from __future__ import annotations

from collections import defaultdict

import tvm
from tvm import relax, s_tir, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.target import Target

from schedules import cuda
from schedules.anchor import blocks
from schedules.cuda.blocks import stages
from schedules.cuda.gemm.contraction import multiplied
from schedules.cuda.gemm.tensor_cores import TF32

from ...ir.rewrite import redefine, rewritten, variables_of
from ...primfuncs.fusion_pattern import BROADCAST, called_kernel, op_pattern
from ...tvm_workarounds.block_builder import BlockBuilder
from ...tvm_workarounds.extent_order import fuse_kernels

_MATMUL, _ROWS, _MAP = "matmul", "rows", "map"
_RULES = ("cuda.tensor_cores", "cuda.float32_products", "cuda.row_reductions")
"""Rules that take merged kernels."""


def merge_row_kernels(
    mod: tvm.IRModule, name: str, target: Target, tf32: bool
) -> tuple[tvm.IRModule, dict[str, list[str]]]:
    """Merge kernels of function `name` of a module after fusion, for a CUDA target.

    `tf32`: tensor cores may multiply float32. Returns the module, and by the name of each new
    kernel the names of the two that it replaces, in the order of merging.
    """
    merged: dict[str, list[str]] = {}
    known: dict[str, str] = {}
    for kinds in ((_MAP, _ROWS), (_ROWS, _MAP), (_MATMUL, _ROWS), (_MATMUL, _MAP)):
        merger = _Merger(mod, mod[name], kinds, known, target, tf32)
        changed = rewritten(mod, name, merger)
        if merger.merged:
            mod = relax.transform.CanonicalizeBindings()(changed)
            merged |= merger.merged
    return mod, merged


def _kind(func: tirx.PrimFunc) -> str:
    """Kind of a kernel; "" if it has a tuning record or cannot be merged."""
    found = stages(s_tir.Schedule(func))
    is_recorded = any("schedule_config" in block.annotations for block in blocks(func))
    if is_recorded or any(stage.is_opaque or -1 in stage.extents for stage in found):
        return ""
    reductions = sum(stage.is_reduction for stage in found)
    if multiplied(func):
        return _MATMUL if reductions == 1 else ""
    if reductions:
        return _ROWS
    # Rows may be read several times: not through a transposition.
    return _MAP if op_pattern(func) <= BROADCAST else ""


@mutator
class _Merger(PyExprMutator):
    """Merges calls of two kernels, the first of which is of the first kind, in its place.

    `merged`: the kernels that each new kernel replaces.
    """

    def __init__(
        self,
        mod: tvm.IRModule,
        function: relax.Function,
        wanted: tuple[str, str],
        kinds: dict[str, str],
        target: Target,
        tf32: bool,
    ) -> None:
        super().__init__(mod)
        self._mod, self._wanted, self._target, self._tf32 = mod, wanted, target, tf32
        self._kinds = kinds  # of kernels that are known
        self._order: dict[relax.Var, int] = {}
        self._readers: dict[relax.Var, list[relax.Binding]] = defaultdict(list)
        for binding in (each for block in function.body.blocks for each in block.bindings):
            self._order[binding.var] = len(self._order)
            for var in set(variables_of(binding.value)):
                self._readers[var].append(binding)
        self._kernels: dict[object, tuple[tvm.ir.GlobalVar, relax.Type] | None] = {}
        self._values: dict[relax.Var, relax.Expr] = {}  # of second calls that are merged
        self.merged: dict[str, list[str]] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.var in self._values:
            redefine(self, binding.var, self._values[binding.var])
            return
        is_tensor = isinstance(binding.var.ty, relax.TensorType)
        if is_tensor and isinstance(binding.var, relax.DataflowVar) and self._is(binding, 0):
            for reader in self._readers[binding.var]:
                if self._is(reader, 1) and self._merge(binding, reader):
                    return
        super().visit_var_binding_(binding)

    def _is(self, binding: relax.Binding, place: int) -> bool:
        """Whether a binding calls a kernel of the wanted kind."""
        name = called_kernel(binding.value)
        if name is None or str(binding.value.op.name) != "relax.call_tir":
            return False
        if name not in self._kinds:
            self._kinds[name] = _kind(self._mod[name])
        return self._kinds[name] == self._wanted[place]

    def _merge(self, first: relax.VarBinding, second: relax.VarBinding) -> bool:
        """Call one kernel in the place of the first call, if a rule takes it."""
        others = dict.fromkeys(_arguments(second))
        del others[first.var]
        if any(self._order.get(each, -1) > self._order[first.var] for each in others):
            return False
        is_read = len(self._readers[first.var]) > 1
        key = called_kernel(first.value), called_kernel(second.value), is_read
        if key not in self._kernels:
            self._kernels[key] = self._kernel(first, second, is_read)
        found = self._kernels[key]
        if found is None:
            return False
        arguments = [self.visit_expr(each) for each in (*_arguments(first), *others)]
        results = self.builder_.emit(_call(*found, arguments))
        fields = _fields(self.builder_, results)
        if is_read:
            redefine(self, first.var, fields.pop(0))
        self._values[second.var] = fields[0] if len(fields) == 1 else relax.Tuple(fields)
        return True

    def _kernel(
        self, first: relax.VarBinding, second: relax.VarBinding, is_read: bool
    ) -> tuple[tvm.ir.GlobalVar, relax.Type] | None:
        """Add the kernel of both calls; the type of its results, too. None if no rule takes it."""
        builder = BlockBuilder()
        names = [str(each.value.args[0].name_hint) for each in (first, second)]
        callees = [builder.add_func(self._mod[name], name) for name in names]
        own = [relax.Var("p", each.ty) for each in _arguments(first)]
        theirs = {each: relax.Var("p", each.ty) for each in _arguments(second)}
        del theirs[first.var]
        with builder.function("both", [*own, *theirs.values()], {"Primitive": True}):
            with builder.dataflow():
                y = builder.emit(_call(callees[0], first.var.ty, own))
                passed = [theirs.get(each, y) for each in _arguments(second)]
                z = builder.emit(_call(callees[1], second.var.ty, passed))
                fields = [y, *_fields(builder, z)] if is_read else [z]
                result = builder.emit_output(fields[0] if len(fields) == 1 else relax.Tuple(fields))
            both = builder.emit_func_output(result)
        with builder.function("main", [*own, *theirs.values()]):
            builder.emit_func_output(builder.emit(relax.Call(both, [*own, *theirs.values()])))
        func = fuse_kernels(builder.get())["both"]
        tried = func.with_attr(TF32, True) if self._tf32 else func
        rules = (rule for rule in cuda.rules() if rule.name in _RULES)
        if all(rule.apply(tried, self._target, False) is None for rule in rules):
            return None
        name = "_".join(["fused", *(each.removeprefix("fused_") for each in names)])
        made = self.builder_.add_func(func, name)
        self.merged[str(made.name_hint)] = names
        return made, result.ty


def _arguments(binding: relax.Binding) -> list[relax.Expr]:
    return list(binding.value.args[1].fields)


def _call(kernel: tvm.ir.GlobalVar, result: relax.Type, arguments: list[relax.Expr]) -> relax.Call:
    op = tvm.ir.Op.get("relax.call_tir")
    return relax.Call(op, [kernel, relax.Tuple(arguments)], None, [result])


def _fields(builder: relax.BlockBuilder, value: relax.Var) -> list[relax.Expr]:
    """The tensors of a kernel's results."""
    if not isinstance(value.ty, relax.TupleType):
        return [value]
    fields = range(len(value.ty.fields))
    return [builder.emit(relax.TupleGetItem(value, at)) for at in fields]
