"""Arithmetic on expressions makes Relay's operators, as it did: `x + y` is a call of "add"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.ir import _tensor_expr_overload

from .patches import Patches

_OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "truediv": "divide",
}
_COMPARISONS = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}


def change(patches: Patches) -> None:
    """Put Relay's operators behind Python's."""
    for short, name in {**_OPERATORS, **_COMPARISONS}.items():
        patches.set(_tensor_expr_overload, f"__{short}__", _binary(name))
    for short, name in _OPERATORS.items():
        patches.set(_tensor_expr_overload, f"__r{short}__", _binary(name, swapped=True))
    patches.set(_tensor_expr_overload, "__neg__", _negative)
    patches.set(_tensor_expr_overload, "astype", _astype)


def _binary(name: str, swapped: bool = False) -> Callable[[Any, Any], Any]:
    def make(this: Any, other: Any) -> Any:
        from ..relay import op
        from ..relay.expr import TupleWrapper, const
        from ..relay.infer import infer_type

        if isinstance(other, TupleWrapper):
            return NotImplemented
        if isinstance(other, (bool, int, float)):
            other = const(other, str(infer_type(this).ty.dtype))
        function = getattr(op, name)
        return function(other, this) if swapped else function(this, other)

    return make


def _negative(this: Any) -> Any:
    from ..relay import op

    return op.negative(this)


def _astype(this: Any, dtype: Any, _span: Any = None) -> Any:
    from ..relay import op

    return op.cast(this, dtype)
