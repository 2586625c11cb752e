"""Register Relay's operators and create their public builders."""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tvm
from tvm import relax

from ...errors import (
    BatonError,
    RelayError,
    RelayTypeError,
    UnsupportedRelayOperatorError,
    UntypedVariableError,
)
from ...primfuncs.kernel_operators import declare_operator
from ...support.lazy_import import lazy_attributes
from .. import dialect
from ..expr import TupleWrapper, as_expr
from ..type_infer import infer_type, infer_type_if_possible, type_of, with_symbolic_extents
from .lookup import OPERATORS, load
from .lookup import call as call
from .lookup import is_available as is_available
from .lookup import lookup as lookup
from .lookup import names as names
from .op_def import FUSABLE, Builder, Operator

Wrapped = TypeVar("Wrapped", bound=Builder)

_BUILDERS: dict[str, Builder] = {}
"""Public builders by name without "relay.": "add", "nn.conv2d"."""

_EXPANDING: contextvars.ContextVar[bool] = contextvars.ContextVar("expanding", default=False)
"""Whether builders create Relax expressions (inside other operators) or Relay calls."""


def operator(
    name: str,
    operands: Sequence[str] | int = 1,
    *,
    aliases: Sequence[str] = (),
    renamed: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
    ignored: Sequence[str] = (),
    prepare: Mapping[str, Callable[[Any], Any]] | None = None,
    wraps: bool | Callable[[Mapping[str, Any]], int] = False,
    doc: str = "",
    **facts: Any,
) -> Callable[[Wrapped], Wrapped]:
    """Register a function as the Relay operator `name`.

    The function builds the operator's Relax expansion. The returned builder has the same signature.
    It creates a Relay call, or the Relax expansion if it is called inside another operator.

    `operands`: names of the operand parameters, or the number of leading operands.
    `aliases`: other registered names of the operator.
    `renamed`: attribute names that differ from the parameter names.
    `defaults`: attribute defaults that differ from those of the Python function.
    `ignored`: attributes that are accepted without effect.
    `prepare`: functions by attribute name that normalize a script's value for the call, such as one
    stride for all axes.
    `wraps`: whether the Python function returns a `TupleWrapper`, as in Relay. If this depends on
    the arguments, a function that returns the number of fields, 0 for an unwrapped result.
    `doc`: docstring template for a function that implements several operators; gets the operator
    name.
    `facts`: further fields of the record: lowering kind, fusion pattern, layouts, ...
    """

    def register(function: Wrapped) -> Wrapped:
        if doc:
            function.__name__ = function.__qualname__ = name.rpartition(".")[2]
            function.__doc__ = doc
        parameters = list(inspect.signature(function).parameters.values())
        names = [parameter.name for parameter in parameters]
        taken = tuple(names[:operands]) if isinstance(operands, int) else tuple(operands)
        called = {old: new for new, old in (renamed or {}).items()}
        attributes = {
            called.get(parameter.name, parameter.name): parameter.default
            for parameter in parameters
            if parameter.name not in taken
        }
        attributes.update(defaults or {})
        if "out_dtype" in attributes and facts.get("pattern") == FUSABLE:
            facts.setdefault("dtype_attribute", "out_dtype")
        for each in (name, *aliases):
            declare_operator(each)
            OPERATORS[each] = Operator(
                each,
                _checked_builder(each, function, taken),
                taken,
                attributes,
                renamed or {},
                frozenset(ignored),
                **facts,
            )
        made = _caller(OPERATORS[name], function, prepare or {}, wraps)
        for each in (name, *aliases) if not function.__name__.startswith("_") else ():
            builder(each.rpartition(".")[0] + "." + function.__name__)(made)
        return made  # type: ignore[return-value]

    return register


def builder(name: str) -> Callable[[Wrapped], Wrapped]:
    """Expose a function as `relay.<name>`; `operator` does so for names without leading `_`."""

    def register(function: Wrapped) -> Wrapped:
        _BUILDERS[name.lstrip(".")] = function
        return function

    return register


def builders_of(family: str) -> tuple[Callable[[str], Builder], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` over the builders of a family: "nn", ...; "" is `relay`."""
    start = f"{family}." if family else ""

    def find(name: str) -> Builder:
        load()
        if start + name not in _BUILDERS:
            raise AttributeError(f"relay.{start}{name} does not exist")
        return _BUILDERS[start + name]

    def __dir__() -> list[str]:
        load()
        names = [each.removeprefix(start) for each in _BUILDERS if each.startswith(start)]
        return sorted(each for each in names if "." not in each)

    return lazy_attributes(f"{__package__}.{family}".rstrip("."), {}, find), __dir__


def dynamic_form(name: str, function: Builder, operands: Sequence[str], **facts: Any) -> None:
    """Register "dyn.name": the same function with some attributes as operands."""
    static = OPERATORS[name]
    given = {key: value for key, value in static.attributes.items() if key not in operands}
    OPERATORS[f"dyn.{name}"] = Operator(
        f"dyn.{name}",
        _checked_builder(f"dyn.{name}", inspect.unwrap(function), tuple(operands)),
        tuple(operands),
        given,
        static.renamed,
        static.ignored | (set(static.attributes) & set(operands)),
        **{each: getattr(static, each) for each in _OF_BOTH_FORMS} | facts,
    )


_OF_BOTH_FORMS = ("how", "pattern", "precision", "dtype_attribute", "keeps_order")


def unavailable(name: str, reason: str) -> Builder:
    """Register an unsupported operator, with the reason in one sentence."""

    def refuse(*_args: Any, **_kwargs: Any) -> Any:
        raise UnsupportedRelayOperatorError(
            f"the Relay operator {name!r} is not supported: {reason}"
        )

    refuse.__name__ = refuse.__qualname__ = name.rsplit(".", 1)[-1]
    refuse.__doc__ = f"Not supported: {reason}"
    OPERATORS[name] = Operator(name, refuse, (), why_not=reason)
    return builder(name)(refuse)


def _caller(
    found: Operator,
    function: Builder,
    prepare: Mapping[str, Callable[[Any], Any]],
    wraps: bool | Callable[[Mapping[str, Any]], int],
) -> Builder:
    """Create the public builder, which sorts arguments into operands and attributes."""
    signature = inspect.signature(function)
    attribute_of = {
        found.renamed.get(attribute, attribute): attribute for attribute in found.attributes
    }

    @functools.wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("span", None)
        if _EXPANDING.get():
            return found.function(*args, **kwargs)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"Relay operator {found.name}: {error}") from None
        bound.apply_defaults()
        values = bound.arguments
        for parameter in attribute_of:
            value = as_expr(values[parameter])
            if isinstance(value, tvm.ir.GenericConst):
                value = value.value.numpy().tolist()
            values[parameter] = prepare[parameter](value) if parameter in prepare else value
        target = found
        if any(_is_tensor(values[parameter]) for parameter in attribute_of):
            target = lookup(f"dyn.{found.name}")
        operands = [_call_operand(target.name, each, values[each]) for each in target.operands]
        attrs = {
            attribute: _attribute(values[parameter])
            for parameter, attribute in attribute_of.items()
            if parameter not in target.operands
        }
        result = dialect.call(target.name, operands, attrs)
        if not wraps:
            return result
        fields = wraps(values) if callable(wraps) else _number_of_results(result)
        return TupleWrapper(result, fields) if fields else result

    return make


def _number_of_results(call: relax.Call) -> int:
    """Number of fields to unpack in an operator's result."""
    if not call.ty.is_missing():
        return len(call.ty.fields)
    found = lookup(str(call.op.name))
    if not found.results:
        raise UntypedVariableError(f"Relay operator {found}: an operand has no type")
    return found.results


def _is_tensor(value: Any) -> bool:
    """Whether an attribute is or contains an expression and must therefore be an operand."""
    if isinstance(value, (list, tuple)):
        return any(_is_tensor(item) for item in value)
    return isinstance(value, relax.Expr) and not isinstance(value.ty, tvm.ir.PrimType)


_OF_LISTS = frozenset(["concatenate", "einsum", "meshgrid", "stack"])
"""Operators on lists, which unpack an operand with several results."""


def _call_operand(name: str, operand: str, value: Any) -> relax.Expr:
    """Convert an operand to the expression stored in a call."""
    if isinstance(value, TupleWrapper) and name in _OF_LISTS:
        value = list(value)
    value = _operand(name, operand, value)
    if isinstance(value, relax.Expr):
        return value
    if value is None:
        value = np.zeros(0, "int64")
    if isinstance(value, (list, tuple)):
        return relax.const(np.array(value, None if value else "int64"), "int64")
    if isinstance(value, (bool, int, float, np.ndarray, np.generic)):
        return relax.const(value)
    raise TypeError(
        f"Relay operator {name}: argument {operand} must be an expression, not a "
        f"{type(value).__name__}; make a constant with relay.const"
    )


def _attribute(value: Any) -> Any:
    """Convert an attribute to the form stored in a call."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_attribute(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.dtype):
        return str(value)
    if isinstance(value, type) and issubclass(value, np.generic):
        return np.dtype(value).name
    return value


def _checked_builder(name: str, function: Builder, operands: tuple[str, ...]) -> Builder:
    """Wrap `function` with the checks shared by all operators."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"Relay operator {name}: {error}") from None
        bound.apply_defaults()
        values = bound.arguments
        for operand in operands:
            values[operand] = _operand(name, operand, values[operand])
        token = _EXPANDING.set(True)
        try:
            return with_symbolic_extents(infer_type(function(**values)))
        except BatonError as error:
            if getattr(error, "operator", ""):
                raise
            raise _with_operator_context(type(error), name, operands, values, str(error)) from error
        except (ValueError, TypeError, IndexError, KeyError, RuntimeError, AssertionError) as error:
            raise _with_operator_context(
                RelayTypeError, name, operands, values, str(error)
            ) from error
        finally:
            _EXPANDING.reset(token)

    return make


def _operand(operator_name: str, name: str, value: Any) -> Any:
    """Convert an operand to a typed expression; lists become tuples, other values are unchanged."""
    if isinstance(value, (list, tuple)) and any(
        isinstance(item, (relax.Expr, TupleWrapper)) for item in value
    ):
        value = relax.Tuple([infer_type_if_possible(as_expr(item)) for item in value])
    value = as_expr(value)
    if not isinstance(value, relax.Expr):
        return value
    if isinstance(value, relax.Var):
        return value  # the operator may determine its type
    try:
        return infer_type_if_possible(value)
    except BatonError as error:
        raise RelayTypeError(f"Relay operator {operator_name}, argument {name}: {error}") from error


def _with_operator_context(
    kind: type[BatonError],
    name: str,
    operands: Sequence[str],
    values: Mapping[str, Any],
    message: str,
) -> BatonError:
    """Add the operator's name and operand types to an error."""
    if not issubclass(kind, (RelayError, NotImplementedError)):
        kind = RelayTypeError
    types = ", ".join(
        f"{operand}: {type_of(values[operand])}"
        for operand in operands
        if isinstance(values.get(operand), relax.Expr)
    )
    error = kind(f"Relay operator {name}({types}): {_first_lines(message)}")
    error.operator = name  # type: ignore[attr-defined]
    return error


def _first_lines(message: str) -> str:
    """Shorten TVM's messages, which print whole operators before the actual text."""
    if message.startswith("In ir.Op("):
        message = message.rpartition("support_level=10), ")[2] or message
    return message.strip()


def get(name: str) -> tvm.ir.Op:
    """Return the operator as stored in calls: `relay.op.get("nn.conv2d")`."""
    return dialect.operator(name)
