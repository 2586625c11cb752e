"""Lower Relay expressions: nested expressions to bindings, Relay operators to Relax operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from ..errors import UntypedVariableError
from ..ir.dynamic_shape import symbols_of, with_known_casts
from ..ir.rewrite import expressions_in, functions_by_name, relax_functions, with_functions
from ..ir.scopes import has_local_functions
from ..lowering.offloaded_functions import BACKEND
from . import dialect
from .byoc import as_subgraphs, with_operators
from .nested_expressions import closed, dict_attrs, is_closed_scope, operands, post_order
from .ty import mentions_data
from .type_infer import infer_type, set_type

_handle = tvm_ffi.Object.__hash__

Expansion = Callable[[relax.Call], relax.Expr]


def lower(mod: tvm.IRModule) -> tvm.IRModule:
    """Expand every Relay operator call to Relax operators.

    Modules without such calls are returned unchanged. Otherwise the dataflow blocks are rebuilt.
    Functions with a `Compiler` attribute become subgraphs, and inner functions are inlined. Raises
    UnsupportedRelayOperatorError, RelayTypeError: a call is unsupported or does not fit its
    operands.
    """
    mod = as_subgraphs(_with_public_main(mod))
    has_subgraphs = any(BACKEND in (function.attrs or {}) for _, function in relax_functions(mod))
    changed = {
        gvar: _lowered(with_operators(function))
        for gvar, function in relax_functions(mod)
        if _has_relay(function) or (has_subgraphs and has_local_functions(function.body))
    }
    if not changed:
        return mod
    changed = {gvar: with_known_casts(function) for gvar, function in changed.items()}
    mod = relax.transform.ConvertToDataflow(min_size=1)(with_functions(mod, changed))
    with tvm.transform.PassContext(opt_level=1):  # any opt_level: passes fuse and drop
        return relax.transform.CanonicalizeBindings()(mod)  # only block-private values


def in_dataflow(mod: tvm.IRModule) -> tvm.IRModule:
    """Put the calls of each function into dataflow blocks, with unchanged operators.

    Functions with a `Compiler` attribute become subgraphs, and inner functions are inlined.
    """
    mod = as_subgraphs(mod)
    changed = {
        gvar: Flattener(inlines=True).function(function)
        for gvar, function in relax_functions(mod)
        if _has_function(function)
    }
    mod = with_functions(mod, changed)
    blocks = [block for _, function in relax_functions(mod) for block in function.body.blocks]
    if all(isinstance(block, relax.DataflowBlock) for block in blocks):
        return mod
    return relax.transform.ConvertToDataflow(min_size=1)(mod)


def _has_function(function: relax.Function) -> bool:
    """Whether the function contains an inner function."""
    return any(not each.same_as(function) for each in expressions_in(function, relax.Function))


def _with_public_main(mod: tvm.IRModule) -> tvm.IRModule:
    """Give `main` a global symbol: passes drop uncalled functions without one.

    A `main` that was a region's function loses Relay's marks of kernels, which TVM's fusion reads.
    """
    main = functions_by_name(mod).get("main")
    if main is None:
        return mod
    made = (
        main if "global_symbol" in (main.attrs or {}) else main.with_attr("global_symbol", "main")
    )
    for name in ("Primitive", "Inline"):
        made = made.without_attr(name) if name in made.attrs else made
    return mod if made is main else with_functions(mod, {mod.get_global_var("main"): made})


def _has_relay(function: relax.Function) -> bool:
    return dialect.in_use() and any(map(dialect.is_relay, expressions_in(function)))


def _lowered(function: relax.Function) -> relax.Function:
    return Flattener(expansion=dialect.expand).function(function)


class Flattener:
    """Converts nested typed expressions to bindings over leaves (A-normal form).

    `expansion`: replaces each call of a Relay operator. `inlines`: inline inner functions; always
    done if operators are expanded.
    """

    def __init__(self, expansion: Expansion | None = None, inlines: bool = False) -> None:
        self.expansion = expansion
        self.inlines = inlines or expansion is not None
        self.bindings: list[Any] = []
        self.functions: dict[int, tuple[relax.Expr, relax.Function]] = {}
        # Keyed by handle, because equality of expressions is structural. A handle is unique only
        # as long as its node is alive.
        self.known: list[dict[int, tuple[relax.Expr, relax.Expr]]] = [{}]

    def function(self, function: relax.Function) -> relax.Function:
        """Convert the body of a function to bindings; its parameters are unchanged."""
        body = self.sequence(function.body)
        return relax.Function(
            function.params,
            body,
            body.ty,
            is_pure=function.is_pure,
            attrs=function.attrs,
            span=function.span,
        )

    def sequence(self, body: relax.Expr) -> relax.SeqExpr:
        """Convert a body in its own scope; bindings are not visible outside."""
        outer, self.bindings = self.bindings, []
        self.known.append({})
        result = self.leaf(body)
        sequence = set_type(
            relax.SeqExpr([relax.BindingBlock(self.bindings)] if self.bindings else [], result),
            result.ty,
        )
        self.known.pop()
        self.bindings = outer
        return sequence

    def leaf(self, expr: relax.Expr) -> relax.Expr:
        """Bind all nested parts; return a variable, a constant or a tuple of them."""

        def is_bound(node: relax.Expr) -> bool:
            return self._found(node) is not None or _is_leaf(node)

        for node in post_order(expr, lambda each: [] if is_bound(each) else operands(each)):
            if not is_bound(node):
                self.remember(node, self._emit(node))
        return self._value(expr)

    def remember(self, node: relax.Expr, value: relax.Expr) -> None:
        """Replace `node` with `value` in the rest of this scope."""
        self.known[-1][_handle(node)] = (node, value)

    def _found(self, node: relax.Expr) -> relax.Expr | None:
        handle = _handle(node)
        for scope in reversed(self.known):
            found = scope.get(handle)
            if found is not None:
                return found[1]
        return None

    def _value(self, node: relax.Expr) -> relax.Expr:
        found = self._found(node)
        return node if found is None else found

    def _emit(self, node: relax.Expr) -> relax.Expr:
        if isinstance(node, relax.SeqExpr):
            return self._inlined(node)
        if isinstance(node, relax.If):
            branches = [self.sequence(node.true_branch), self.sequence(node.false_branch)]
            made: relax.Expr = set_type(
                relax.If(self._value(node.cond), *branches, node.span),
                relax.analysis.type_lca(branches[0].ty, branches[1].ty),
            )
            return self.bind(made)
        if isinstance(node, relax.Function):
            return self.bind(self.function(node))
        if isinstance(node, relax.Tuple):
            return infer_type(relax.Tuple([self._value(field) for field in node.fields], node.span))
        if isinstance(node, relax.TupleGetItem):
            whole = self._value(node.tuple_value)
            if isinstance(whole, relax.Tuple):
                return whole.fields[node.index]
            return self.bind(infer_type(relax.TupleGetItem(whole, node.index, node.span)))
        return self._call(node)

    def _call(self, node: relax.Call) -> relax.Expr:
        args = [self._value(arg) for arg in node.args]
        if isinstance(node.op, (relax.Function, relax.Var)):
            return self._local_call(node, args)
        if any(new is not old for new, old in zip(args, node.args)):
            made = relax.Call(node.op, args, node.attrs, node.ty_args, node.span)
            same = all(
                tvm_ffi.structural_equal(new.ty, old.ty) for new, old in zip(args, node.args)
            )
            if same and not node.ty.is_missing():
                set_type(made, node.ty)
            node = infer_type(made)
        if self.expansion is not None and dialect.is_relay(node):
            return self.leaf(self.expansion(node))
        return self.bind(infer_type(node))

    def _local_call(self, node: relax.Call, args: list[relax.Expr]) -> relax.Expr:
        function = self._function_behind(node.op)
        if function is None or not (self.inlines or is_closed_scope(node)):
            op = self.leaf(node.op) if isinstance(node.op, relax.Function) else self._value(node.op)
            made = relax.Call(op, args, node.attrs, node.ty_args, node.span)
            given = {symbol for arg in args for symbol in symbols_of(arg.ty)}
            if not given.issuperset(symbols_of(node.ty)):  # the function finds extents from values
                return self.match(self.bind(infer_type(made)), node.ty)
            if not node.ty.is_missing():
                set_type(made, node.ty)
            return self.bind(infer_type(made))
        self.known.append({})
        for parameter, value in zip(function.params, args):
            self.remember(parameter, value)
        result = self.leaf(function.body)
        self.known.pop()
        return result

    def _function_behind(self, op: relax.Expr) -> relax.Function | None:
        if isinstance(op, relax.Function):
            return op
        found = self.functions.get(_handle(op))
        return None if found is None else found[1]

    def _inlined(self, sequence: relax.SeqExpr) -> relax.Expr:
        for block in sequence.blocks:
            for binding in block.bindings:
                if isinstance(binding, relax.MatchCast):
                    value = self.leaf(binding.value)
                    self.remember(binding.var, self.match(value, binding.ty, binding.var.name))
                elif isinstance(binding.value, relax.Function) and self.inlines:
                    self.functions[_handle(binding.var)] = (binding.var, binding.value)
                else:
                    self.remember(binding.var, self.leaf(binding.value))
        return self.leaf(sequence.body)

    def bind(self, value: relax.Expr) -> relax.Var:
        var = relax.Var("lv", value.ty)
        self.bindings.append(relax.VarBinding(var, value))
        return var

    def match(self, value: relax.Expr, ty: Any, name: str = "lv") -> relax.Var:
        """Bind a value by a `match_cast` to a type."""
        var = relax.Var(name, ty)
        self.bindings.append(relax.MatchCast(var, value, ty))
        return var


def function_of(
    parameters: Sequence[relax.Var], body: relax.Expr, attrs: Any = None
) -> relax.Function:
    """Function with the bindings of a nested body; UntypedVariableError if it passes data."""
    if any(mentions_data(each.ty) for each in (*parameters, body)):
        raise UntypedVariableError("a function over data types has no form in Relax")
    sequence = Flattener().sequence(closed(body))
    return relax.Function(list(parameters), sequence, sequence.ty, attrs=dict_attrs(attrs))


def _is_leaf(node: relax.Expr) -> bool:
    return not isinstance(
        node, (relax.Call, relax.Tuple, relax.TupleGetItem, relax.SeqExpr, relax.If, relax.Function)
    )
