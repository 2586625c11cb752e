"""Rewrite operator calls, one at a time, in execution order."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

import tvm
from tvm import relax, sym
from tvm.relax.expr_functor import PyExprMutator, mutator

from ..primfuncs.kernel_operators import NamingBuilder
from .spans import in_place_of

SKIPPED_ATTRIBUTES = ("Primitive", "Composite", "Codegen")
"""Functions with one of these belong to fusion or to an external code generator."""


DEBUG_VARIABLE = "BATON_DEBUG"
"""Environment variable: a rule that changes the type of a call raises instead of being ignored."""


def is_same_type(old: Any, new: Any) -> bool:
    """Whether `new` may replace `old`: same rank, dtype and known extents; it may know more."""
    if isinstance(old, relax.TupleType) and isinstance(new, relax.TupleType):
        return len(old.fields) == len(new.fields) and all(map(is_same_type, old.fields, new.fields))
    if isinstance(old, relax.ShapeType) and isinstance(new, relax.ShapeType):
        return old.ndim in (-1, new.ndim)
    if not isinstance(old, relax.TensorType) or not isinstance(new, relax.TensorType):
        return bool(tvm.ir.structural_equal(old, new, map_free_vars=False))
    if (str(old.dtype), old.ndim) != (str(new.dtype), new.ndim):
        return False
    if not isinstance(old.shape, relax.ShapeExpr):
        return True
    if not isinstance(new.shape, relax.ShapeExpr):
        return False
    pairs = zip(old.shape.values, new.shape.values)
    return all(_is_same_extent(one, other) for one, other in pairs)


def _is_same_extent(one: Any, other: Any) -> bool:
    if isinstance(one, tvm.tirx.IntImm) and isinstance(other, tvm.tirx.IntImm):
        return int(one) == int(other)
    return bool(one.same_as(other) or sym.Analyzer().can_prove_equal(one, other))


class CallRule(ABC):
    """A rewrite rule for operator calls.

    An instance serves one function, so that it may keep state between calls.
    """

    def __init__(self) -> None:
        self.scope: Scope

    def name(self, expr: Any) -> str:
        """The name of the operator that `expr` calls; "" for what the rule does not know."""
        return operator_name(expr)

    @abstractmethod
    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        """The replacement of a call of operator `name`; None to keep the call.

        A replacement with another shape or dtype is ignored. It may nest new calls.
        """


class Scope:
    """Queries of a rule about the function that it rewrites."""

    def __init__(self, function: relax.Function, mutator_: Any):
        self.function = function
        self._mutator = mutator_
        self._uses: Counter[relax.Var] = Counter()
        self._sources: dict[relax.Var, relax.Var] = {}
        self._count(function.body)

    def _count(self, body: relax.SeqExpr) -> None:
        # TVM's visitors also visit the type of each operand: quadratic for a tuple of n tensors.
        for block in body.blocks:
            for binding in block.bindings:
                self._count_operands(binding.value)
        self._count_operands(body.body)

    def _count_operands(self, value: Any) -> None:
        if isinstance(value, relax.Tuple):
            for item in value.fields:
                self._count_operands(item)
        elif isinstance(value, relax.TupleGetItem):
            self._count_var(value.tuple_value)
        elif isinstance(value, tvm.ir.Call):
            for argument in value.args:
                self._count_operands(argument)
        elif isinstance(value, relax.If):
            self._count_var(value.cond)
            self._count(value.true_branch)
            self._count(value.false_branch)
        elif isinstance(value, relax.Function):
            self._count(value.body)
        elif isinstance(value, relax.SeqExpr):
            self._count(value)
        else:
            self._count_var(value)

    def _count_var(self, value: Any) -> None:
        if isinstance(value, relax.Var):
            self._uses[value] += 1

    def definition(self, expr: Any) -> Any:
        """The expression that computes `expr`: what a variable is bound to, else `expr` itself."""
        if not isinstance(expr, relax.Var):
            return expr
        var = self._source(expr)
        value = self._mutator.lookup_binding(var)
        return var if value is None else value

    def _source(self, var: relax.Var) -> relax.Var:
        """The variable at the end of a chain of aliases; each alias is followed once."""
        aliases = []
        while True:
            value = self._sources.get(var)
            if value is None:
                value = self._mutator.lookup_binding(var)
            if not isinstance(value, relax.Var):
                break
            aliases.append(var)
            var = value
        for alias in aliases:
            self._sources[alias] = var
        return var

    def match_call(self, expr: Any, name: str) -> relax.Call | None:
        """The call that computes `expr` if it is one of the operator `name`; else None."""
        value = self.definition(expr)
        return value if self._mutator.rule.name(value) == name else None

    @property
    def builder(self) -> Any:
        """The block builder of the function; its `call_te` adds kernels to the module."""
        return NamingBuilder(self._mutator.builder_)

    def emit(self, expr: relax.Expr) -> relax.Var:
        """A variable for a new expression that several calls will read."""
        return self.builder.emit(expr)

    def used_once(self, expr: Any) -> bool:
        """Whether a variable is read in one place only; one made by the rewriting is read there."""
        return isinstance(expr, relax.Var) and self._uses[expr] <= 1


def rewritten(mod: tvm.IRModule, name: str, mutator_: Any) -> tvm.IRModule:
    """Rewrite function `name` with a mutator, and drop what is no longer used."""
    mutator_.builder_.update_func(mod.get_global_var(name), mutator_.visit_expr(mod[name]))
    return relax.transform.DeadCodeElimination([name])(mutator_.builder_.get())


def redefine(mutator_: Any, old: relax.Var, value: relax.Expr) -> None:
    """Have a mutator emit a value in the place of the variable that it visits."""
    builder = mutator_.builder_
    is_output = builder.current_block_is_dataflow() and not isinstance(old, relax.DataflowVar)
    mutator_.set_var_remap(old, (builder.emit_output if is_output else builder.emit)(value))


def with_functions(mod: tvm.IRModule, changed: Mapping[Any, Any]) -> tvm.IRModule:
    """The module with some functions replaced, by global variable."""
    functions = {**dict(mod.functions_items()), **changed}
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def relax_functions(mod: tvm.IRModule) -> list[tuple[Any, relax.Function]]:
    """The Relax functions of a module, without kernels, with their global variables."""
    return [each for each in mod.functions_items() if isinstance(each[1], relax.Function)]


def functions_by_name(mod: tvm.IRModule) -> dict[str, relax.Function]:
    """`relax_functions` by name."""
    return {str(gvar.name_hint): function for gvar, function in relax_functions(mod)}


def expressions_in(value: relax.Expr, kind: Any = object) -> list[Any]:
    """Expressions of a class in an expression or function, in post-order, itself included."""
    found: list[Any] = []
    relax.analysis.post_order_visit(value, found.append)
    return [expr for expr in found if isinstance(expr, kind)]


def variables_of(value: relax.Expr) -> list[relax.Var]:
    """The variables that an expression reads, repetitions included."""
    return expressions_in(value, relax.Var)


def operator_name(expr: Any) -> str:
    """Name of the operator that `expr` calls, without "relax."; "" if it calls none of Relax's.

    Kernels of Relay's operators that Relax does not have are operators "relay.<name>" of Relax.
    """
    if isinstance(expr, tvm.ir.Call) and isinstance(expr.op, tvm.ir.Op):
        name = str(expr.op.name)
        if name.startswith(("relax.", "relay.")):
            return name.removeprefix("relax.")
    return ""


@mutator
class _Applier(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, function: relax.Function, rule: CallRule):
        super().__init__(mod)
        self.rule = rule
        self.has_changed = False
        rule.scope = Scope(function, self)

    def visit_function_(self, op: relax.Function) -> relax.Expr:
        return op if _is_skipped(op) else super().visit_function_(op)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = self.visit_expr(binding.value)
        if isinstance(value, relax.Var) and isinstance(binding.var, relax.DataflowVar):
            # A chain of aliases would cost CanonicalizeBindings quadratic time.
            self.set_var_remap(binding.var, value)
            return
        var = self.with_type(self.visit_var_def(binding.var), value.ty)
        if not var.same_as(binding.var):
            self.set_var_remap(binding.var, var)
        if var.same_as(binding.var) and value.same_as(binding.value):
            self.builder_.emit_normalized(binding)
        else:
            self.builder_.emit_normalized(relax.VarBinding(var, value, binding.span))

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        name = self.rule.name(call)
        if not name:
            return call
        replacement = self.rule.rewrite(call, name)
        if replacement is None:
            return call
        replacement = self.builder_.normalize(in_place_of(call, replacement))
        if not is_same_type(call.ty, replacement.ty):
            if os.environ.get(DEBUG_VARIABLE):
                raise TypeError(f"{self.rule}: {name} of {call.ty} becomes {replacement.ty}")
            return call
        self.has_changed = True
        return replacement


@mutator
class _Substitute(PyExprMutator):
    def __init__(self, values: Mapping[relax.Var, relax.Expr]) -> None:
        super().__init__()
        self.values = values

    def visit_var_(self, op: relax.Var) -> relax.Expr:
        return self.values.get(op, op)


def substituted(expr: relax.Expr, values: Mapping[relax.Var, relax.Expr]) -> relax.Expr:
    """The expression with other values for some variables outside of dataflow blocks."""
    return _Substitute(values).visit_expr(expr)


def rewrite_calls(
    mod: tvm.IRModule, rule: Callable[[], CallRule], names: Collection[str] | None = None
) -> tvm.IRModule:
    """Apply a rule to every call of every Relax function, and drop what is no longer used.

    `rule` makes the rule for a function. `names`: of the functions; all by default.
    """
    changed = []
    for variable, function in relax_functions(mod):
        if _is_skipped(function):
            continue
        if names is not None and variable.name_hint not in names:
            continue
        applier = _Applier(mod, function, rule())
        result = applier.visit_expr(function)
        if applier.has_changed:
            changed.append(variable)
            applier.builder_.update_func(variable, result)
            mod = applier.builder_.get()
    if not changed:
        return mod
    mod = relax.transform.CanonicalizeBindings()(mod)
    for variable in changed:
        mod.update_func(variable, relax.analysis.remove_all_unused(mod[variable]))
    return mod


def call_pass(
    name: str, opt_level: int, rule: Callable[[], CallRule]
) -> Callable[[], tvm.transform.Pass]:
    """Create a named pass that applies a rule to every call."""
    return lambda: tvm.transform.module_pass(
        lambda mod, _: rewrite_calls(mod, rule), opt_level=opt_level, name=name
    )


def _is_skipped(function: relax.Function) -> bool:
    attributes = function.attrs
    return attributes is not None and any(name in attributes for name in SKIPPED_ATTRIBUTES)
