"""Arithmetic on expressions makes Relay's operators, as it did: `x + y` is a call of "add"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax
from tvm.ir import Call, Op, _tensor_expr_overload
from tvm.script.ir_builder import IRBuilder

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
        method = f"__{short}__"
        patches.set(_tensor_expr_overload, method, _binary(name, _new(method)))
    for short, name in _OPERATORS.items():
        method = f"__r{short}__"
        patches.set(_tensor_expr_overload, method, _binary(name, _new(method), swapped=True))
    patches.set(_tensor_expr_overload, "__neg__", _negative)
    patches.set(_tensor_expr_overload, "astype", _astype)


def _is_relax(*operands: Any) -> bool:
    """Whether it is Relax's arithmetic: on its operators' results, or where it builds modules."""
    called = [x.op for x in operands if isinstance(x, Call) and isinstance(x.op, Op)]
    return (
        any(str(operator.name).startswith("relax.") for operator in called)
        or relax.BlockBuilder.current() is not None
        or IRBuilder.is_in_scope()
    )


def _new(method: str) -> Callable[[Any, Any], Any]:
    found: Callable[[Any, Any], Any] = getattr(_tensor_expr_overload, method)
    return found


def _binary(
    name: str, relaxs: Callable[[Any, Any], Any], swapped: bool = False
) -> Callable[[Any, Any], Any]:
    def make(this: Any, other: Any) -> Any:
        from ..relay import op
        from ..relay.expr import TupleWrapper, const
        from ..relay.type_infer import infer_type

        if isinstance(other, TupleWrapper):
            return NotImplemented
        if _is_relax(this, other):
            return relaxs(this, other)
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
