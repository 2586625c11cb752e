"""Relax's operators by the names that Relay has for them, for modules that importers made."""

from __future__ import annotations

from typing import Any

from tvm import relax

from ...errors import RelayError

_SAME = (
    *("abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atanh", "bitwise_and"),
    *("bitwise_not", "bitwise_or", "bitwise_xor", "ceil", "cos", "cosh", "divide"),
    *("equal", "erf", "exp", "floor", "floor_divide", "floor_mod", "greater", "greater_equal"),
    *("isfinite", "isinf", "isnan", "left_shift", "less", "less_equal", "log"),
    *("logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum"),
    *("mod", "multiply", "negative", "not_equal", "power", "right_shift", "rsqrt"),
    *("sigmoid", "sign", "sin", "sinh", "sqrt", "subtract", "tan", "tanh", "trunc"),
    *("nn.relu",),
)


def raised(call: relax.Call) -> tuple[str, list[relax.Expr], dict[str, Any]]:
    """Relay's name, operands and attributes for a call of one of Relax's operators.

    Raises
    ------
    RelayError
        Relay's text has no form for it.
    """
    name = str(call.op.name).removeprefix("relax.")
    if name in _SAME:
        return name, list(call.args), {}
    raise RelayError(f"the Relax operator {call.op.name} has no form in Relay's text")
