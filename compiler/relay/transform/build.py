"""Builder helpers for the expressions that passes create."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ...ir.constants import array_of, dtype_of, static_shape
from .. import dialect
from ..expr import const
from ..type_infer import infer_type

array, dtype = array_of, dtype_of


def op(name: str, *operands: relax.Expr, **attrs: Any) -> relax.Call:
    return dialect.call(name, list(operands), attrs)


def again(call: relax.Call, operands: Sequence[relax.Expr], **changes: Any) -> relax.Call:
    """Copy a call with other operands and some changed attributes."""
    return dialect.call(
        dialect.relay_name(call), list(operands), {**dialect.attributes(call), **changes}
    )


def script_attribute(name: str, attribute: str) -> Any:
    """Attribute that a script registered for a Relay operator; None if there is none."""
    if name not in tvm.ir.Op.list_op_names():
        return None
    found = tvm.ir.Op.get(name)
    return found.get_attr(attribute) if found.has_attr(attribute) else None


def is_op(expr: Any, *names: str) -> bool:
    """Whether an expression is a call of one of these Relay operators."""
    return isinstance(expr, relax.Call) and dialect.relay_name(expr) in names


def constant(value: Any, dtype: str) -> relax.Expr:
    """Create a constant tensor of a dtype."""
    return const(np.asarray(value, dtype), dtype)


def shape(expr: relax.Expr) -> list[int] | None:
    """Shape of an expression if it is static, else None."""
    extents = static_shape(expr)
    return None if extents is None else list(extents)


def tuple_of(fields: Sequence[relax.Expr]) -> relax.Expr:
    return infer_type(relax.Tuple(list(fields)))
