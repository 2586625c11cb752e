"""Lowering of Relay expressions: nested expressions to bindings, operators to Relax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from ..errors import UntypedVariableError
from ..ir.rewrite import expressions_in, relax_functions, with_functions
from . import dialect
from .byoc import as_subgraphs, with_operators
from .nested_expressions import dict_attrs
from .nested_expressions import operands as operands_of
from .ty import mentions_data
from .type_infer import infer_type, set_type

_handle = tvm_ffi.Object.__hash__

Expansion = Callable[[relax.Call], relax.Expr]


def lower(mod: tvm.IRModule) -> tvm.IRModule:
    """Replace every call of a Relay operator by what it is in Relax.

    Modules without such calls are returned as they are. The dataflow blocks of the others are
    formed anew. Functions of other compilers become claimed subgraphs, functions inside of
    functions are put where they are called.

    Raises
    ------
    UnsupportedRelayOperatorError, RelayTypeError
        A call does not apply, or does not fit its operands.
    """
    mod = as_subgraphs(_with_public_main(mod))
    changed = {
        gvar: _lowered(with_operators(function))
        for gvar, function in relax_functions(mod)
        if _has_relay(function)
    }
    if not changed:
        return mod
    mod = relax.transform.ConvertToDataflow(min_size=1)(with_functions(mod, changed))
    with tvm.transform.PassContext(opt_level=1):  # at every level: passes fuse and drop what
        return relax.transform.CanonicalizeBindings()(mod)  # a block keeps to itself


def in_dataflow(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with the calls of each function in dataflow blocks; operators stay as they are.

    Functions of other compilers become claimed subgraphs, functions inside of functions are put
    where they are called.
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
    """Whether a function is bound, or called, inside of the function."""
    return any(not each.same_as(function) for each in expressions_in(function, relax.Function))


def _with_public_main(mod: tvm.IRModule) -> tvm.IRModule:
    """`main` with a global symbol: passes drop functions that nobody calls and that have none."""
    names = [gvar.name_hint for gvar in mod.get_global_vars()]
    if "main" not in names or not isinstance(mod["main"], relax.Function):
        return mod
    if mod["main"].attrs is not None and "global_symbol" in mod["main"].attrs:
        return mod
    public = mod.clone() if hasattr(mod, "clone") else tvm.IRModule(dict(mod.functions), mod.attrs)
    public.update_func(mod.get_global_var("main"), mod["main"].with_attr("global_symbol", "main"))
    return public


def _has_relay(function: relax.Function) -> bool:
    return dialect.in_use() and any(map(dialect.is_relay, expressions_in(function)))


def _lowered(function: relax.Function) -> relax.Function:
    return Flattener(expansion=dialect.expand).function(function)


class Flattener:
    """Turns nested typed expressions into bindings of leaves.

    Parameters
    ----------
    expansion : callable, optional
        What to put in place of a call of a Relay operator.
    inlines : bool
        Put functions of the body where they are called, as is done where operators are expanded.
    """

    def __init__(self, expansion: Expansion | None = None, inlines: bool = False) -> None:
        self.expansion = expansion
        self.inlines = inlines or expansion is not None
        self.bindings: list[Any] = []
        self.functions: dict[int, tuple[relax.Expr, relax.Function]] = {}
        # By handle: expressions compare equal to what they are, not to what they name. A handle
        # stays one node's while the node is kept.
        self.known: list[dict[int, tuple[relax.Expr, relax.Expr]]] = [{}]

    def function(self, function: relax.Function) -> relax.Function:
        """The function with flat bindings; its parameters stay."""
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
        """A scope of its own: what is bound in it is not seen outside."""
        outer, self.bindings = self.bindings, []
        self.known.append({})
        result = self.leaf(body)
        sequence = relax.SeqExpr(
            [relax.BindingBlock(self.bindings)] if self.bindings else [], result
        )
        set_type(sequence, result.ty)
        self.known.pop()
        self.bindings = outer
        return sequence

    def leaf(self, expr: relax.Expr) -> relax.Expr:
        """Bind whatever is nested in an expression; a variable, constant or tuple of them."""
        stack: list[tuple[relax.Expr, bool]] = [(expr, False)]
        while stack:
            node, ready = stack.pop()
            if self._found(node) is not None or _is_leaf(node):
                continue
            operands = operands_of(node)
            if not ready and operands:
                stack.append((node, True))
                stack.extend((each, False) for each in reversed(operands))
            else:
                self.remember(node, self._emit(node))
        return self._value(expr)

    def remember(self, node: relax.Expr, value: relax.Expr) -> None:
        """From now on, in this scope, `value` stands for `node`."""
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
            made: relax.Expr = relax.If(self._value(node.cond), *branches, node.span)
            set_type(made, relax.analysis.type_lca(branches[0].ty, branches[1].ty))
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
        """A call of a function of the body."""
        function = self._function_behind(node.op)
        if not self.inlines or function is None:
            op = self.leaf(node.op) if isinstance(node.op, relax.Function) else self._value(node.op)
            made = relax.Call(op, args, node.attrs, node.ty_args, node.span)
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
                    var = relax.Var(binding.var.name, binding.ty)
                    self.bindings.append(relax.MatchCast(var, value, binding.ty))
                    self.remember(binding.var, var)
                elif isinstance(binding.value, relax.Function) and self.inlines:
                    self.functions[_handle(binding.var)] = (binding.var, binding.value)
                else:
                    self.remember(binding.var, self.leaf(binding.value))
        return self.leaf(sequence.body)

    def bind(self, value: relax.Expr) -> relax.Var:
        """A new variable for a value."""
        var = relax.Var("lv", value.ty)
        self.bindings.append(relax.VarBinding(var, value))
        return var


def function_of(
    parameters: Sequence[relax.Var], body: relax.Expr, attrs: Any = None
) -> relax.Function:
    """A function in bindings, from parameters and a nested body.

    Raises
    ------
    UntypedVariableError
        It takes or returns data, which only `relay.Function` makes functions of.
    """
    if any(mentions_data(each.ty) for each in (*parameters, body)):
        raise UntypedVariableError("a function over data types has no form in Relax")
    sequence = Flattener().sequence(body)
    return relax.Function(list(parameters), sequence, sequence.ty, attrs=dict_attrs(attrs))


def _is_leaf(node: relax.Expr) -> bool:
    return not isinstance(
        node,
        (relax.Call, relax.Tuple, relax.TupleGetItem, relax.SeqExpr, relax.If, relax.Function),
    )
