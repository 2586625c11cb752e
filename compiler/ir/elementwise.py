"""Operators of Relax that compute each element of their result from one element of each operand.

Passes that carry a layout, a batch or samples through a module ask here; each of them allows for
operands that broadcast by itself.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


UNARY = _names(
    "abs astype ceil clip cos erf exp floor log negative nn.gelu nn.gelu_tanh nn.leakyrelu nn.relu "
    "nn.relu6 nn.selu nn.silu nn.softplus round rsqrt sigmoid sign sin sqrt square tanh"
)
"""Of one tensor, with a number as the result."""

BINARY = _names("add divide maximum minimum multiply power right_shift subtract")

UNBOUNDED = _names("divide exp log nn.softplus power rsqrt sqrt")
"""Those that turn finite numbers into infinities or NaNs."""

PREDICATES = _names(
    "equal greater greater_equal isfinite isinf isnan less less_equal logical_and logical_not "
    "logical_or not_equal"
)
