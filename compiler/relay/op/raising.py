"""Relax to Relay: rules registered with `from_relax`, whose results lower to equivalent calls."""

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
from .op_def import REQUIRED, Operator


class Definitions(Protocol):
    """Lookup of definitions in the function that contains a call."""

    def __call__(self, expr: relax.Expr) -> relax.Expr:
        """Expression bound to a variable; any other expression is returned unchanged."""


Rule = Callable[[relax.Call, Definitions], relax.Expr | None]

_RULES: dict[str, Rule] = {}


def from_relax(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for these Relax operators, named without "relax.".

    The rule returns a nested Relay expression over the operands of the call, with the call's
    type, or None if Relay lacks this form of the operator.
    """

    def register(rule: Rule) -> Rule:
        for name in names:
            _RULES[name] = rule
        return rule

    return register


def same_name(*names: str) -> None:
    """Register operators with the same name and tensor operands in Relay and Relax."""
    for name in names:
        renamed(name, name)


def renamed(name: str, relay_name: str, **attrs: Callable[[relax.Call], Any]) -> None:
    """Register a Relax operator whose Relay operator has the same tensor operands.

    `attrs` computes attributes of the Relay call from the Relax call; others are the same.
    """

    @from_relax(name)
    def rule(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
        tensors = all(isinstance(arg.ty, relax.TensorType) for arg in call.args)
        computed = {key: compute(call) for key, compute in attrs.items()}
        return call_with_same_attrs(relay_name, call, **computed) if tensors else None


def rule_for(call: relax.Call) -> Rule | None:
    """Rule of the called Relax operator; None if there is none."""
    name = operator_name(call)
    return _RULES.get(name, _from_kernel if name.startswith("relay.") else None)


def _from_kernel(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    """Convert a kernel to the Relay operator of the same name."""
    return equivalent_call(operator_name(call).removeprefix("relay."), call.args, call)


def raisable() -> list[str]:
    """Names of the Relax operators that have rules, without "relax."."""
    from . import registry

    registry.names()
    return sorted(_RULES)


def typed_call(name: str, operands: Sequence[relax.Expr], ty: Any, **attrs: Any) -> relax.Call:
    """Create a call of a Relay operator with a known type."""
    from .. import dialect

    return dialect.typed_call(name, operands, attrs, ty)


def equivalent_call(
    name: str, operands: Sequence[relax.Expr], call: relax.Call, **attrs: Any
) -> relax.Expr | None:
    """Relay call, with `call`'s attributes, that lowers to exactly this Relax call; else None."""
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
    """Relay call with the operands and attributes of a Relax call; `attrs` adds others."""
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
    """Attribute of a call as a plain Python value."""
    from .. import dialect

    if isinstance(attrs, tvm.ir.attrs.DictAttrs):
        return dialect.plain(attrs[name]) if name in attrs else default
    return dialect.plain(getattr(attrs, name, default))


def tensor(shape: Sequence[Any], like: relax.Expr) -> relax.TensorType:
    """Tensor type with a shape and the dtype of another tensor."""
    return relax.TensorType(list(shape), str(like.ty.dtype))


def shape_of(expr: relax.Expr) -> list[int] | None:
    """Shape of an expression if it is static, else None."""
    shape = static_shape(expr)
    return None if shape is None else list(shape)


def reshaped(data: relax.Expr, shape: Sequence[int]) -> relax.Expr:
    """Reshape `data`; small constants are folded."""
    array = array_of(data)
    if array is not None and array.size <= 65_536:
        return constant(array.reshape(shape))
    if shape_of(data) == list(shape):
        return data
    return typed_call("reshape", [data], tensor(shape, data), newshape=list(shape))


def swap_last_two_axes(data: relax.Expr) -> relax.Expr:
    """Swap the last two axes."""
    shape = shape_of(data)
    assert shape is not None
    axes = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    return typed_call("transpose", [data], tensor([shape[axis] for axis in axes], data), axes=axes)


def swapped_operand(data: relax.Expr, definition: Definitions) -> relax.Expr:
    """Swap the last two axes of `data`, or undo an existing swap."""
    inner = definition(data)
    if operator_name(inner) == "permute_dims":
        rank = len(shape_of(data) or ())
        wanted = [*range(rank - 2), rank - 1, rank - 2]
        if axes_of(inner, rank) == wanted:
            return inner.args[0]
    return swap_last_two_axes(data)


def axes_of(call: relax.Call, rank: int) -> list[int]:
    """Axis order of a `permute_dims`."""
    axes = call.attrs.axes
    return list(range(rank))[::-1] if axes is None else [int(axis) % rank for axis in axes]


def number(value: float, like: relax.Expr) -> relax.Expr:
    """Scalar constant with the dtype of `like`."""
    return constant(np.array(value, str(like.ty.dtype)))


def int_list(values: Any) -> list[int] | None:
    """Attribute that is a list of integers, or None."""
    return None if values is None else [int(each) for each in values]


def static_ints(fields: Any) -> list[int] | None:
    """Integers of a tuple or shape operand; None if one is dynamic."""
    inside = getattr(fields, "fields", getattr(fields, "values", None))
    found = None if inside is None else integers(list(inside))
    return None if found is None else list(found)


def value_of(expr: Any) -> Any:
    """Number in a scalar constant or immediate operand; None if unknown."""
    array = array_of(expr)
    if array is not None:
        return array.item() if array.size == 1 else None
    known = isinstance(expr, (tvm.tirx.IntImm, tvm.tirx.FloatImm))
    return expr.value if known else None
