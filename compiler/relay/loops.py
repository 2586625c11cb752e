"""`relay.loops`: a loop as a function that goes on with itself."""

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
    """A function of the first values of a loop's variables, which returns the last ones.

    Parameters
    ----------
    cond : callable
        Takes the variables, returns whether there is another round: a scalar of bool.
    loop_vars : sequence of expression
        Variables, or expressions, of the types that the variables of the loop have. Extents that
        change from round to round are `relay.Any()`.
    loop_bodies : callable
        Takes the variables, returns what they are in the next round.
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
