"""Visit a function and the scopes in it: branches of conditions and local functions.

A scope is rewritten as a function whose parameters are the variables that it reads, so that a
rewrite of functions needs to know nothing of scopes:

    main(c, x):  a = exp(x);  y = if c { add(a, x) } else { a }
    scopes:      main(c, x);  (a, x) -> add(a, x);  (a) -> a

Bodies of loops are functions of the module, and therefore no scopes of `main`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax
from tvm.relax.expr import _update_type

FunctionRewrite = Callable[[relax.Function], relax.Function]


def set_type(expr: Any, ty: Any) -> Any:
    """Set the type of an expression in place and return it; all users of the node see it."""
    _update_type(expr, ty)
    return expr


def typed(expr: Any, ty: Any) -> Any:
    """The expression, with this type if it has none."""
    return set_type(expr, ty) if expr.ty.is_missing() else expr


def tuple_of(fields: Sequence[relax.Expr]) -> relax.Tuple:
    """A tuple with its type."""
    return typed(relax.Tuple(list(fields)), relax.TupleType([field.ty for field in fields]))


def rebuilt(
    function: relax.Function, body: relax.Expr, params: Sequence[relax.Var] | None = None
) -> relax.Function:
    """The function with another body, and with other parameters if they are given."""
    params = function.params if params is None else list(params)
    own = function.ret_ty, function.is_pure, function.attrs, function.span
    return relax.Function(params, body, *own)


def with_blocks(function: relax.Function, blocks: Sequence[relax.BindingBlock]) -> relax.Function:
    """The function with other bindings for the same result."""
    body = relax.SeqExpr(list(blocks), function.body.body, function.body.span)
    return rebuilt(function, set_type(body, function.body.ty))


def map_scopes(function: relax.Function, change: FunctionRewrite) -> relax.Function:
    """Rewrite a function, then each scope in the result; the same function if nothing changes.

    `change` keeps the parameters of the functions that it gets. Local functions with attributes
    belong to a pass or to a code generator and are left as they are.
    """
    made = change(function)
    blocks, changed = [], False
    for block in made.body.blocks:
        bindings = []
        for binding in block.bindings:
            value = _inner(binding.value, change)
            if not value.same_as(binding.value):
                changed = True
                binding = relax.VarBinding(binding.var, value, binding.span)
            bindings.append(binding)
        blocks.append(type(block)(bindings, block.span))
    if not changed:
        return made
    return with_blocks(made, blocks)


def _inner(value: Any, change: FunctionRewrite) -> Any:
    """Rewrite the scopes of a bound value."""
    if isinstance(value, relax.If):
        old = [value.true_branch, value.false_branch]
        new = [_body([], branch, relax.analysis.free_vars(branch), change) for branch in old]
        if all(a.same_as(b) for a, b in zip(old, new)):
            return value
        return set_type(relax.If(value.cond, *new, value.span), value.ty)
    if isinstance(value, relax.Function) and not value.attrs:
        free = relax.analysis.free_vars(value)
        body = _body(list(value.params), value.body, free, change)
        if body.same_as(value.body):
            return value
        return rebuilt(value, body)
    return value


def _body(params: list[Any], body: Any, free: Any, change: FunctionRewrite) -> Any:
    """Rewrite a body as a function of its parameters and of the variables that it reads."""
    return map_scopes(relax.Function([*params, *free], body, body.ty), change).body


def has_local_functions(body: relax.SeqExpr) -> bool:
    """Whether a body or a branch in it binds a function."""
    values = [binding.value for block in body.blocks for binding in block.bindings]
    branches = [
        branch
        for value in values
        if isinstance(value, relax.If)
        for branch in (value.true_branch, value.false_branch)
    ]
    return any(isinstance(value, relax.Function) for value in values) or any(
        map(has_local_functions, branches)
    )
