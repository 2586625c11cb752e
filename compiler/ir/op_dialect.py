"""Operators under Relay's names, for rules that serve Relax's operators and Relay's alike.

Attributes that such rules read are called the same in both: `call.attrs["data_layout"]`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax

from .op_facts import facts_named
from .rewrite import CallRule, operator_name

_MAKERS: dict[str, Callable[..., relax.Expr]] = {
    "expand_dims": lambda data, axis, num_newaxis: relax.op.expand_dims(
        data, list(range(axis, axis + num_newaxis))
    ),
    "reshape": lambda data, newshape: relax.op.reshape(data, newshape),
}
"""Constructors of operators whose arguments differ between Relax and Relay."""


class Vocabulary:
    """The Relax dialect. With `constants_only`, rules add nothing to inference."""

    constants_only = True

    def name(self, expr: Any) -> str:
        """Relay's name of the operator that `expr` calls; "" if it calls none."""
        name = operator_name(expr)
        return facts_named(name).relay_name or name

    def make(self, name: str, *operands: relax.Expr, **attributes: Any) -> relax.Expr:
        """A call of the operator that has this name and these attributes in Relay."""
        return (_MAKERS.get(name) or getattr(relax.op, name))(*operands, **attributes)

    def again(self, call: relax.Call, operands: Sequence[relax.Expr], **changes: Any) -> relax.Expr:
        """Copy a call with other operands and some attributes changed."""
        attrs = call.attrs
        if changes:
            key = type(attrs).__tvm_ffi_type_info__.type_key
            attrs = tvm.ir.make_node(key, **{**attribute_values(attrs), **changes})
        return tvm.ir.Call(call.op, list(operands), attrs, call.ty_args)


RELAX = Vocabulary()


def attribute_values(attrs: Any) -> dict[str, Any]:
    """Attribute values of a call by name."""
    if hasattr(attrs, "items"):
        return {str(key): value for key, value in attrs.items()}
    fields = type(attrs).__tvm_ffi_type_info__.fields
    return {field.name: getattr(attrs, field.name) for field in fields}


class SharedRule(CallRule):
    """A rule for both dialects; `rewrite` gets Relay's names."""

    def __init__(self, vocabulary: Vocabulary = RELAX) -> None:
        super().__init__()
        self.vocabulary = vocabulary

    def name(self, expr: Any) -> str:
        return self.vocabulary.name(expr)
