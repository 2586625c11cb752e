"""Give every variable of a Relax function a unique name.

Relax tells variables apart by identity, but records and groups refer to them by name.
"""

from __future__ import annotations

from collections import Counter

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...ir.unique_names import Names


def unique_names(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    function = mod[name]
    counts = Counter(var.name for var in function.params)
    for block in function.body.blocks:
        counts.update(binding.var.name for binding in block.bindings)
    if max(counts.values(), default=1) == 1:
        return mod
    changed = mod.clone()
    changed[mod.get_global_var(name)] = _Renamer(Names(counts)).visit_expr(function)
    return changed


@mutator
class _Renamer(PyExprMutator):
    def __init__(self, names: Names) -> None:
        super().__init__()
        self.names = names
        self.seen: set[str] = set()

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = self.builder_.normalize(self.visit_expr(binding.value))
        old, new = binding.var, binding.var
        if old.name in self.seen:
            new = type(old)(self.names.unique(old.name), old.ty)
        elif not value.same_as(binding.value):
            new = type(old)(old.name, old.ty)
        self.seen.add(new.name)
        self.set_var_remap(old, new)
        self.builder_.emit_normalized(relax.VarBinding(new, value))
