"""Relay operators as operators of Relax modules, and their lowering to Relax operators.

A Relax call may name any operator in TVM's registry. Each Relay operator is registered under its
Relay name, such as "nn.dense". A module therefore keeps the operators of the script, text or JSON,
and patterns, `target.<compiler>` attributes, visitors and the text writer work at Relay
granularity. `lower` expands every such call by `op.registry`; all builds start from the result.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import _ffi_api

from ..errors import RelayTypeError, UntypedVariableError
from ..ir.constants import static_key
from ..support.scoped_context import scoped_value
from .op import lookup
from .type_infer import INFERENCE, is_untyped, set_type


@functools.cache
def operator(name: str) -> tvm.ir.Op:
    """Relay operator by name, registered on first use; else UnsupportedRelayOperatorError."""
    found = lookup.lookup(name)
    if found.why_not:
        found.function()
    if name not in tvm.ir.Op.list_op_names():
        _ffi_api.RegisterOp(name, f"Relay operator {name}")
    _ffi_api.RegisterOpAttr(name, "FInferType", lambda call, _builder: result_type(call), 10)
    _ffi_api.RegisterOpAttr(name, "FPurity", True, 10)
    _ffi_api.RegisterOpAttr(name, "TOpPattern", found.pattern, _BELOW_SCRIPTS)
    made = _ffi_api.GetOp(name)
    made.set_num_inputs(len(found.operands))
    for operand in found.operands:
        made.add_argument(operand, "Tensor", "")
    _REGISTERED.add(name)
    INFERENCE[name] = result_type
    return made


_BELOW_SCRIPTS = 5  # user registrations have level 10 and take precedence

_REGISTERED: set[str] = set()


def in_use() -> bool:
    """Whether this process has created any Relay operator call; cheap to query."""
    return bool(_REGISTERED)


def is_relay(expr: Any) -> bool:
    """Whether an expression is a call of a Relay operator."""
    return isinstance(expr, relax.Call) and relay_name(expr) != ""


def relay_name(call: relax.Call) -> str:
    """Name of the called Relay operator; "" if the expression is no Relay operator call."""
    op = call.op
    if isinstance(op, tvm.ir.Op):
        name = str(op.name)
        return name if name in _REGISTERED else ""
    return ""


def call(
    name: str,
    args: Sequence[relax.Expr],
    attrs: Mapping[str, Any] | None = None,
    type_args: Sequence[Any] = (),
) -> relax.Call:
    """Create a typed call of a Relay operator; raises as `op.lookup.call` does.

    An untyped variable among `args` gets the type that the operator requires. The call also stores
    the defaults of attributes missing from `attrs`, which have Relay's names.
    """
    op = operator(name)
    found = lookup.lookup(name)
    given = {key: value for key, value in (attrs or {}).items() if key not in found.ignored}
    try:
        ty = result(name, args, given, type_args)
    except UntypedVariableError:
        ty = tvm.ir.Type.missing()
    except RelayTypeError:
        if not _DEFERRED.get():
            raise
        ty = tvm.ir.Type.missing()
    held = {key: _plain(given.get(key, default)) for key, default in found.attributes.items()}
    node = relax.Call(op, list(args), tvm.ir.make_node("ir.DictAttrs", **held))
    if not ty.is_missing():
        set_type(node, ty)
    return node


def _plain(value: Any) -> Any:
    """Convert TVM numbers, such as extents of a shape, to Python numbers, also in nested lists."""
    if isinstance(value, tvm.tirx.IntImm):
        return int(value.value)
    if isinstance(value, (list, tuple, tvm_ffi.Array)):
        plain = [_plain(each) for each in value]
        return plain if any(new is not old for new, old in zip(plain, value)) else value
    return value


def typed_call(
    name: str, args: Sequence[relax.Expr], attrs: Mapping[str, Any], ty: Any
) -> relax.Call:
    """Create a call with a known type, without inference or checks."""
    held = {**lookup.lookup(name).attributes, **attrs}
    return set_type(
        relax.Call(operator(name), list(args), tvm.ir.make_node("ir.DictAttrs", **held)), ty
    )


_DEFERRED: contextvars.ContextVar[bool] = contextvars.ContextVar("deferred", default=False)


def types_deferred() -> contextlib.AbstractContextManager[bool]:
    """Allow mismatched operands: layout callbacks build operators over the old layout's."""
    return scoped_value(_DEFERRED, True)


def result(name: str, args: Sequence[relax.Expr], attrs: dict[str, Any], type_args: Any) -> Any:
    """Infer the result type; UntypedVariableError if it needs an operand type it can't infer."""
    try:
        return _result(name, args, attrs, type_args)
    except RelayTypeError as error:
        if any(is_untyped(arg.ty) for arg in args):
            raise UntypedVariableError(str(error)) from error
        raise


def result_type(call: relax.Call) -> Any:
    """Infer the type of a call of a Relay operator."""
    return result(relay_name(call), list(call.args), attributes(call), ())


def attributes(call: relax.Call) -> dict[str, Any]:
    """Attributes of a call as plain Python values."""
    return attribute_values(call.attrs)


def attribute_values(attrs: Any) -> dict[str, Any]:
    """Attribute values of a call as plain Python values."""
    return {} if attrs is None else {str(k): plain(v) for k, v in attrs.items()}


def expand(call: relax.Call) -> relax.Expr:
    """Expand a call of a Relay operator to a nested Relax expression."""
    return lookup.call(relay_name(call), list(call.args), attributes(call))


def _result(name: str, args: Sequence[relax.Expr], attrs: dict[str, Any], type_args: Any) -> Any:
    """Infer the result type, cached by operand types and attributes.

    Inference builds the operator's Relax expansion, and networks repeat their layers. Types that
    depend on constants or have symbolic extents are not cached.
    """
    operands = tuple(static_key(arg.ty) for arg in args)
    keep = (
        None not in operands
        and name != "arange"
        and not name.startswith("dyn.")
        and all(isinstance(arg, relax.Var) or not _decides(arg) for arg in args)
    )
    key = (name, operands, repr(attrs))
    if keep and key in _KNOWN_TYPES:
        return _KNOWN_TYPES[key]
    ty = lookup.call(name, args, attrs, type_args).ty
    if keep and static_key(ty) is not None:
        if len(_KNOWN_TYPES) > 20_000:
            _KNOWN_TYPES.clear()
        _KNOWN_TYPES[key] = ty
    return ty


_KNOWN_TYPES: dict[Any, Any] = {}


def _decides(arg: relax.Expr) -> bool:
    """Whether the result type may depend on the operand's value, such as a shape or an index."""
    if isinstance(arg, tvm.ir.GenericConst):
        return len(arg.value.shape) < 2 and "int" in str(arg.value.dtype)
    return not isinstance(arg, relax.Tuple)


def plain(value: Any) -> Any:
    """Convert an attribute value to plain Python numbers, strings, lists and dicts."""
    if isinstance(value, (list, tuple, tvm_ffi.Array)):
        return [plain(item) for item in value]
    if isinstance(value, (Mapping, tvm_ffi.Map)):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tvm.tirx.IntImm):
        return int(value)
    if isinstance(value, tvm.tirx.FloatImm):
        return float(value)
    return str(value) if isinstance(value, str) else value
