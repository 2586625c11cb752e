"""Relay's operators as operators of Relax modules, and their lowering to Relax's own.

A Relax call may name any operator that TVM knows. Each Relay operator is registered under Relay's
name, "nn.dense", so that a module holds what the script, the text or the JSON said: patterns,
`target.<compiler>` attributes, visitors and the text writer see Relay's granularity. `lower` turns
every such call into what `op.registry` makes of it, which is what all of Baton's builds work on.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import _ffi_api

from ..errors import RelayTypeError, UntypedVariableError
from ..ir.constants import static_key
from .op import lookup
from .type_infer import INFERENCE, is_untyped, set_type


@functools.cache
def operator(name: str) -> tvm.ir.Op:
    """The operator under its Relay name, registered with TVM at its first use.

    Raises
    ------
    UnsupportedRelayOperatorError
        Relay has no such operator, or it does not apply.
    """
    found = lookup.lookup(name)
    if found.why_not:
        found.function()
    if name not in tvm.ir.Op.list_op_names():
        _ffi_api.RegisterOp(name, f"Relay operator {name}")
    _ffi_api.RegisterOpAttr(name, "FInferType", _infer, 10)
    _ffi_api.RegisterOpAttr(name, "FPurity", True, 10)
    _ffi_api.RegisterOpAttr(name, "TOpPattern", found.pattern, _BELOW_SCRIPTS)
    made = _ffi_api.GetOp(name)
    made.set_num_inputs(len(found.operands))
    for operand in found.operands:
        made.add_argument(operand, "Tensor", "")
    _REGISTERED.add(name)
    INFERENCE[name] = result_type
    return made


_BELOW_SCRIPTS = 5  # what scripts register has level 10 and wins

_REGISTERED: set[str] = set()


def in_use() -> bool:
    """Whether this process has made a call of any Relay operator: costs nothing to ask."""
    return bool(_REGISTERED)


def is_relay(expr: Any) -> bool:
    """Whether an expression is a call of a Relay operator."""
    return isinstance(expr, relax.Call) and relay_name(expr) != ""


def relay_name(call: relax.Call) -> str:
    """The name of the Relay operator that is called; "" if it is none."""
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
    """A call of a Relay operator that knows its type.

    Parameters
    ----------
    name : str
        Registered name, e.g. "nn.conv2d".
    args : sequence of relax.Expr
        Operands; a variable without a type gets the one that the operator demands.
    attrs : dict of str to object
        Attributes under Relay's names; the call also holds the defaults of the others.

    Raises
    ------
    UnsupportedRelayOperatorError, RelayTypeError
        As `op.lookup.call` does.
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
    """Numbers that TVM made, such as extents of a shape, as Python's, also inside of lists."""
    if isinstance(value, tvm.tirx.IntImm):
        return int(value.value)
    if isinstance(value, (list, tuple, tvm_ffi.Array)):
        plain = [_plain(each) for each in value]
        return plain if any(new is not old for new, old in zip(plain, value)) else value
    return value


def typed_call(
    name: str, args: Sequence[relax.Expr], attrs: Mapping[str, Any], ty: Any
) -> relax.Call:
    """A call whose type is known, so that nothing is inferred or checked."""
    held = {**lookup.lookup(name).attributes, **attrs}
    node = relax.Call(operator(name), list(args), tvm.ir.make_node("ir.DictAttrs", **held))
    set_type(node, ty)
    return node


_DEFERRED: contextvars.ContextVar[bool] = contextvars.ContextVar("deferred", default=False)


@contextlib.contextmanager
def types_deferred() -> Iterator[None]:
    """Calls whose operands do not fit yet may be made: their operands will be put in place later.

    Callbacks that give an operator another layout write it over operands in the old one.
    """
    token = _DEFERRED.set(True)
    try:
        yield
    finally:
        _DEFERRED.reset(token)


def result(name: str, args: Sequence[relax.Expr], attrs: dict[str, Any], type_args: Any) -> Any:
    """The result type of an operator.

    Raises
    ------
    UntypedVariableError
        It depends on an operand that has no type, and the operator does not say what it must be.
    """
    try:
        return _result(name, args, attrs, type_args)
    except RelayTypeError as error:
        if any(is_untyped(arg.ty) for arg in args):
            raise UntypedVariableError(str(error)) from error
        raise


def result_type(call: relax.Call) -> Any:
    """The type of a call of a Relay operator."""
    return result(relay_name(call), list(call.args), attributes(call), ())


def attributes(call: relax.Call) -> dict[str, Any]:
    """The attributes of a call as plain Python values."""
    return attribute_values(call.attrs)


def attribute_values(attrs: Any) -> dict[str, Any]:
    """Attribute values of a call as plain Python values."""
    return {} if attrs is None else {str(k): plain(v) for k, v in attrs.items()}


def expand(call: relax.Call) -> relax.Expr:
    """Expand a call of a Relay operator to a nested Relax expression."""
    return lookup.call(relay_name(call), list(call.args), attributes(call))


def _result(name: str, args: Sequence[relax.Expr], attrs: dict[str, Any], type_args: Any) -> Any:
    """The result type, inferred once for the same operand types and attributes.

    Inferring a type takes making what the operator becomes in Relax; networks repeat their layers.
    Types that constants decide, or with extents that are not numbers, are not kept.
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
    """Whether an operand's value may decide the type of the result: a shape, an index, a bound."""
    if isinstance(arg, tvm.ir.GenericConst):
        return len(arg.value.shape) < 2 and "int" in str(arg.value.dtype)
    return not isinstance(arg, relax.Tuple)


def _infer(call: relax.Call, _builder: relax.BlockBuilder) -> Any:
    return result_type(call)


def plain(value: Any) -> Any:
    """A value of an attribute as Python's own numbers, strings, lists and dicts."""
    if isinstance(value, (list, tuple, tvm_ffi.Array)):
        return [plain(item) for item in value]
    if isinstance(value, (Mapping, tvm_ffi.Map)):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tvm.tirx.IntImm):
        return int(value)
    if isinstance(value, tvm.tirx.FloatImm):
        return float(value)
    return str(value) if isinstance(value, str) else value
