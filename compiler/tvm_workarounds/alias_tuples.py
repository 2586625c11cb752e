"""Read every field of a tuple from a separate alias while operators are fused.

    t = LSTM(x, ...)            t = LSTM(x, ...)
    y = t[0]                    t0 = t; y = t0[0]
    h = t[1]                    t1 = t; h = t1[1]

FuseOps of TVM 0.27 passes a fused function the fields that it reads instead of the whole tuple. It
forgets that every further field shifts the parameters after it. A function that reads two fields of
one tuple and any of another may get the wrong ones, depending on addresses. With aliases, one field
is read from each tuple. Tuples whose producer can be fused never become parameters.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ..primfuncs.fusion_pattern import INJECTIVE, callee, op_pattern


def alias_tuples(mod: tvm.IRModule) -> tvm.IRModule:
    """Give each of several reads of a tuple its own alias, unless the tuple's producer can fuse.

    `relax.transform.CanonicalizeBindings` takes the aliases out again.
    """
    for gvar, function in mod.functions_items():
        if isinstance(function, relax.Function) and (reads := _reads(mod, function)):
            writer = _Aliases(mod, reads)
            writer.builder_.update_func(gvar, writer.visit_expr(function))
            mod = writer.builder_.get()
    return mod


def _reads(mod: tvm.IRModule, function: relax.Function) -> list[relax.TupleGetItem]:
    """Reads of tuples that are read more than once and cannot be fused with their readers."""
    fusable: set[relax.Var] = set()
    reads: dict[relax.Var, list[relax.TupleGetItem]] = {}
    for binding in (each for block in function.body.blocks for each in block.bindings):
        kernel = callee(mod, binding.value)
        if kernel is not None and op_pattern(kernel) <= INJECTIVE:
            fusable.add(binding.var)
        elif isinstance(binding.value, relax.TupleGetItem):
            reads.setdefault(binding.value.tuple_value, []).append(binding.value)
    return [
        read
        for source, found in reads.items()
        if len(found) > 1 and source not in fusable
        for read in found
    ]


@mutator
class _Aliases(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, reads: list[relax.TupleGetItem]) -> None:
        super().__init__(mod)
        self._reads = reads

    def visit_tuple_getitem_(self, read: relax.TupleGetItem) -> relax.Expr:
        source = self.visit_expr(read.tuple_value)
        if any(read.same_as(each) for each in self._reads):
            source = self.builder_.emit(source)
        return relax.TupleGetItem(source, read.index)
