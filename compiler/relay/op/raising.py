"""Relax to Relay: the rules of operators, and helpers for them.

An operator's file registers with `from_relax` the Relax calls that it represents. Lowering the
result of a rule gives the same Relax calls, or others of the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from ...errors import RelayError
from ...ir.constants import array_of, constant, integers, static_shape
from ...ir.rewrite import operator_name
from ..type_infer import set_type
from .op_def import REQUIRED, Operator


class Definitions(Protocol):
    """Queries of a rule about the function of a call."""

    def __call__(self, expr: relax.Expr) -> relax.Expr:
        """The Relax expression that a variable is bound to; any other expression unchanged."""


Rule = Callable[[relax.Call, Definitions], relax.Expr | None]

_RULES: dict[str, Rule] = {}


def from_relax(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for the Relax operators of these names, without "relax.".

    The rule returns a nested expression of Relay's operators over the operands of the call, with
    the call's type, or None for a form of the operator that Relay does not have.
    """

    def register(rule: Rule) -> Rule:
        for name in names:
            _RULES[name] = rule
        return rule

    return register


def same_name(*names: str) -> None:
    """Register operators that have one name, and tensors as operands, in Relay and Relax."""
    for name in names:
        _RULES[name] = _renamed(name)


def _renamed(name: str) -> Rule:
    def rule(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
        tensors = all(isinstance(arg.ty, relax.TensorType) for arg in call.args)
        return call_with_same_attrs(name, call) if tensors else None

    return rule


def rule_for(call: relax.Call) -> Rule | None:
    """The rule of the Relax operator that is called; None if it has no form in Relay."""
    name = operator_name(call)
    return _RULES.get(name, _from_kernel if name.startswith("relay.") else None)


def _from_kernel(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    """The Relay operator that a kernel has its name of."""
    return equivalent_call(operator_name(call).removeprefix("relay."), call.args, call)


def raisable() -> list[str]:
    """Names of the Relax operators that have a form in Relay, without "relax."."""
    from . import registry

    registry.names()
    return sorted(_RULES)


def typed_call(name: str, operands: Sequence[relax.Expr], ty: Any, **attrs: Any) -> relax.Call:
    """A call of a Relay operator whose type is known."""
    from .. import dialect

    return dialect.typed_call(name, operands, attrs, ty)


def equivalent_call(
    name: str, operands: Sequence[relax.Expr], call: relax.Call, **attrs: Any
) -> relax.Expr | None:
    """A call of a Relay operator that becomes this very call of Relax; None if it does not.

    Attributes that both have under one name are those of the call.
    """
    from .. import dialect
    from . import registry

    if not registry.is_available(name):
        return None
    found = registry.lookup(name)
    if len(operands) != len(found.operands):
        return None
    result = _with_attributes(found, operands, call, attrs)
    try:
        same = result is not None and tvm_ffi.structural_equal(dialect.expand(result), call)
    except RelayError:
        return None
    return result if same else None


def call_with_same_attrs(name: str, call: relax.Call, **attrs: Any) -> relax.Expr | None:
    """A call of a Relay operator with the operands and attributes of one of Relax.

    Attributes that both have under one name are those of the call; `attrs` are others.
    """
    from . import registry

    return _with_attributes(registry.lookup(name), call.args, call, attrs)


def _with_attributes(
    found: Operator, operands: Sequence[relax.Expr], call: relax.Call, attrs: dict[str, Any]
) -> relax.Expr | None:
    from .. import dialect

    held = {key: _attribute(call.attrs, key, value) for key, value in found.attributes.items()}
    held.update(attrs)
    if REQUIRED in held.values():
        return None
    return dialect.typed_call(found.name, operands, held, call.ty)


def _attribute(attrs: Any, name: str, default: Any) -> Any:
    """An attribute of a call as a plain value."""
    from .. import dialect

    if isinstance(attrs, tvm.ir.attrs.DictAttrs):
        return dialect.plain(attrs[name]) if name in attrs else default
    return dialect.plain(getattr(attrs, name, default))


def tensor(shape: Sequence[Any], like: relax.Expr) -> relax.TensorType:
    """The type of a tensor of a shape and another one's dtype."""
    return relax.TensorType(list(shape), str(like.ty.dtype))


def tuple_of(fields: Sequence[relax.Expr]) -> relax.Tuple:
    """A tuple that knows its type."""
    result = relax.Tuple(list(fields))
    if result.ty.is_missing():
        set_type(result, relax.TupleType([field.ty for field in fields]))
    return result


def shape_of(expr: relax.Expr) -> list[int] | None:
    """The shape, if all of it is known."""
    shape = static_shape(expr)
    return None if shape is None else list(shape)


def reshaped(data: relax.Expr, shape: Sequence[int]) -> relax.Expr:
    """`data` in another shape; a small constant is one of that shape."""
    array = array_of(data)
    if array is not None and array.size <= 65_536:
        return constant(array.reshape(shape))
    if shape_of(data) == list(shape):
        return data
    return typed_call("reshape", [data], tensor(shape, data), newshape=list(shape))


def swap_last_two_axes(data: relax.Expr) -> relax.Expr:
    """The last two axes exchanged."""
    shape = shape_of(data)
    assert shape is not None
    axes = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    return typed_call("transpose", [data], tensor([shape[axis] for axis in axes], data), axes=axes)


def swapped_operand(data: relax.Expr, definition: Definitions) -> relax.Expr:
    """`data` with its last two axes swapped; undoes an existing swap."""
    inner = definition(data)
    if operator_name(inner) == "permute_dims":
        rank = len(shape_of(data) or ())
        wanted = [*range(rank - 2), rank - 1, rank - 2]
        if axes_of(inner, rank) == wanted:
            return inner.args[0]
    return swap_last_two_axes(data)


def axes_of(call: relax.Call, rank: int) -> list[int]:
    """The order of axes that a `permute_dims` makes."""
    axes = call.attrs.axes
    return list(range(rank))[::-1] if axes is None else [int(axis) % rank for axis in axes]


def number(value: float, like: relax.Expr) -> relax.Expr:
    """A scalar constant of the dtype of `like`."""
    return constant(np.array(value, str(like.ty.dtype)))


def int_list(values: Any) -> list[int] | None:
    """An attribute that is a list of integers, or None."""
    return None if values is None else [int(each) for each in values]


def static_ints(fields: Any) -> list[int] | None:
    """The integers that a tuple or shape holds as an operand; None if one is not known."""
    inside = getattr(fields, "fields", getattr(fields, "values", None))
    found = None if inside is None else integers(list(inside))
    return None if found is None else list(found)


def value_of(expr: Any) -> Any:
    """The number of a scalar operand, a constant or an immediate; None if it is not known."""
    array = array_of(expr)
    if array is not None:
        return array.item() if array.size == 1 else None
    known = isinstance(expr, (tvm.tirx.IntImm, tvm.tirx.FloatImm))
    return expr.value if known else None
