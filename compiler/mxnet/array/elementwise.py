"""Arithmetic, comparisons and functions of single elements, by their names in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.errors import ArrayTypeError

from .creation import array as new_array
from .invoke import invoke
from .ndarray import ndarray, reject_in_trace
from .value import call_site
from .wrap import from_host, promote

_NUMBERS = (int, float, np.number, np.bool_)
_FLOAT = "float32"


def is_operand(other: Any) -> bool:
    """Whether arithmetic takes it: an array, a number, a host array."""
    return hasattr(other, "_value") or isinstance(other, (*_NUMBERS, np.ndarray))


def cast(array: ndarray, dtype: str) -> ndarray:
    """The array, with another dtype where it has not that one."""
    return array if array._value.dtype == dtype else invoke("Cast", [array], {"dtype": dtype})[0]


def as_array(value: Any) -> ndarray:
    """An operand as an array; numbers get the default dtypes."""
    if hasattr(value, "_value"):
        return value
    if isinstance(value, (bool, np.bool_)):
        return from_host(np.asarray(value))
    if isinstance(value, _NUMBERS):
        dtype = "int64" if isinstance(value, (int, np.integer)) else _FLOAT
        return from_host(np.asarray(value, dtype))
    if isinstance(value, (list, tuple, np.ndarray)):
        return new_array(value)
    raise ArrayTypeError(f"{call_site()}: {type(value).__name__} is not an operand of arithmetic")


def _scalar_attrs(number: Any) -> dict[str, Any]:
    integer = isinstance(number, (int, np.integer, np.bool_))
    text = repr(int(number)) if integer else repr(float(number))
    return {"scalar": text, "is_int": integer}


def _binary(
    op: str, reversed_op: str | None, *, compares: bool = False, floats: bool = False
) -> Callable[..., ndarray]:
    """Function of two operands, at most one a number; symmetric ops need no `reversed_op`."""

    def function(x1: Any, x2: Any, out: Any = None) -> ndarray:
        _reject_out(out)
        first, second = hasattr(x1, "_value"), hasattr(x2, "_value")
        if second and not first and isinstance(x1, _NUMBERS):
            return scalar(x2, x1, reversed_op or op)
        if first and not second and isinstance(x2, _NUMBERS):
            return scalar(x1, x2, op)
        a, b = as_array(x1), as_array(x2)
        dtype = promote(a._value.dtype, b._value.dtype)
        if dtype == "bool" and not compares:
            dtype = "int64"
        if floats and not dtype.startswith("float"):
            dtype = _FLOAT
        return invoke(op, [cast(a, dtype), cast(b, dtype)])[0]

    def scalar(array: ndarray, number: Any, name: str) -> ndarray:
        dtype = array._value.dtype
        if dtype == "bool" or (not dtype.startswith("float") and not isinstance(number, _INTEGERS)):
            # An integer array and a fraction: both as floats.
            array = cast(array, _FLOAT if floats or not isinstance(number, _INTEGERS) else "int64")
        return invoke(f"{name}_scalar", [array], _scalar_attrs(number))[0]

    function.__doc__ = "Element by element, with broadcasting."
    return function


_INTEGERS = (int, np.integer, np.bool_)


def _reject_out(out: Any) -> None:
    if out is None:
        return
    reject_in_trace(out)
    raise ArrayTypeError(f"{call_site()}: out= is not supported; use the result")


def _logical(op: str, promoted: bool) -> Callable[..., ndarray]:
    def function(x1: Any, x2: Any) -> ndarray:
        a, b = as_array(x1), as_array(x2)
        if promoted:
            dtype = promote(a._value.dtype, b._value.dtype)
            a, b = cast(a, dtype), cast(b, dtype)
        return invoke(op, [a, b])[0]

    function.__doc__ = "Element by element, of truth values or bit by bit."
    return function


def _unary(op: str, floats: bool) -> Callable[..., ndarray]:
    def function(x: Any, out: Any = None) -> ndarray:
        _reject_out(out)
        array = as_array(x)
        if floats and not array._value.dtype.startswith("float"):
            array = cast(array, _FLOAT)
        return invoke(op, [array])[0]

    function.__doc__ = "Element by element."
    return function


_MIRRORED = {
    **{"equal": "equal", "not_equal": "not_equal", "less": "greater", "greater": "less"},
    **{"less_equal": "greater_equal", "greater_equal": "less_equal"},
}
BINARY: dict[str, Callable[..., Any]] = {
    **{name: _binary(f"_npi_{name}", None) for name in ("add", "multiply", "maximum", "minimum")},
    **{
        name: _binary(f"_npi_{name}", f"_npi_r{name}")
        for name in ("subtract", "mod", "power", "floor_divide")
    },
    "true_divide": _binary("_npi_true_divide", "_npi_rtrue_divide", floats=True),
    **{
        name: _binary(f"_npi_{name}", f"_npi_{reverse}", compares=True)
        for name, reverse in _MIRRORED.items()
    },
    **{
        f"{kind}_{name}": _logical(f"_npi_{kind}_{name}", promoted=kind == "bitwise")
        for kind in ("logical", "bitwise")
        for name in ("and", "or", "xor")
    },
    "hypot": _binary("_npi_hypot", None, floats=True),
    "arctan2": _binary("_npi_arctan2", "_npi_rarctan2", floats=True),
}
for _alias, _name in (
    ("divide", "true_divide"),
    ("remainder", "mod"),
    ("fmax", "maximum"),
    ("fmin", "minimum"),
):
    BINARY[_alias] = BINARY[_name]

_FLOAT_FUNCTIONS = (
    *("arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "cos", "cosh", "exp"),
    *("log", "sin", "sinh", "sqrt", "tan", "tanh", "log1p", "expm1", "log2", "log10", "cbrt"),
    *("reciprocal", "degrees", "radians"),
)
_SAME_FUNCTIONS = ("absolute", "ceil", "fix", "floor", "negative", "sign", "square", "trunc")

UNARY: dict[str, Callable[..., Any]] = {
    **{name: _unary(f"_npi_{name}", True) for name in _FLOAT_FUNCTIONS},
    **{name: _unary(f"_npi_{name}", False) for name in _SAME_FUNCTIONS},
    "rint": _unary("_npi_rint", False),
    "logical_not": _unary("_npi_logical_not", False),
    "isnan": _unary("_npi_isnan", False),
    "isinf": _unary("_npi_isinf", False),
    "isfinite": _unary("_npi_isfinite", False),
}
for _alias, _name in (
    ("abs", "absolute"),
    ("fabs", "absolute"),
    ("bitwise_not", "logical_not"),
    ("invert", "logical_not"),
    ("rad2deg", "degrees"),
    ("deg2rad", "radians"),
):
    UNARY[_alias] = UNARY[_name]
