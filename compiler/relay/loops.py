"""`relay.loops`: loops as recursive functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax

from .expr import If, Let, Tuple, as_expr, var
from .function import OpenFunction
from .type_infer import infer_type


def while_loop(
    cond: Callable[..., Any], loop_vars: Sequence[Any], loop_bodies: Callable[..., Sequence[Any]]
) -> relax.Expr:
    """Create a function that maps initial loop variables to their final values.

    Parameters
    ----------
    cond : callable
        Takes the loop variables; returns whether to continue, as a bool scalar.
    loop_vars : sequence of expression
        Variables or expressions with the types of the loop variables. Extents that change
        between iterations are `relay.Any()`.
    loop_bodies : callable
        Takes the loop variables; returns their values in the next iteration.
    """
    found = [infer_type(as_expr(each)) for each in loop_vars]
    names = [
        str(each.name) if isinstance(each, relax.Var) else f"arg{place}"
        for place, each in enumerate(found)
    ]
    variables = [var(name, each.ty) for name, each in zip(names, found)]
    loop = var("while_loop")
    again = relax.Call(loop, [as_expr(each) for each in loop_bodies(*variables)])
    body = If(cond(*variables), again, Tuple(variables))
    result = relax.TupleType([each.ty for each in found])
    return Let(loop, OpenFunction(variables, body, None, result), loop)
