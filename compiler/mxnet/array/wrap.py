"""Arrays made of values: the results of operators, and copies of host arrays."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.errors import ArrayTypeError
from compiler.mxnet_format import attributes

from ..device import Device, current_device
from .engine import create_tensor
from .value import Value, call_site

if TYPE_CHECKING:
    from .ndarray import ndarray

DTYPES = frozenset(attributes.DTYPES) - {"bfloat16"}


def wrap(value: Value) -> ndarray:
    """An array that names a value."""
    array: ndarray = _new_array()
    array._value = value
    value.owner = weakref.ref(array)
    return array


def set_array_class(cls: type) -> None:
    """Set the class that `wrap` instantiates; the module of `ndarray` calls it."""
    global _new_array
    _new_array = partial(object.__new__, cls)


_new_array: Callable[[], Any] = object


def dtype_name(dtype: Any, default: str = "float32") -> str:
    """Name of a dtype given as text, numpy dtype or type; None is the default."""
    if dtype is None:
        return default
    try:
        found = str(np.dtype(dtype))
    except TypeError as error:
        raise ArrayTypeError(f"{call_site()}: {dtype!r} is not a dtype") from error
    if found not in DTYPES:
        raise ArrayTypeError(f"{call_site()}: arrays can't have the dtype {found}")
    return found


def from_host(array: np.ndarray, device: Device | None = None) -> ndarray:
    """An array with a copy of a host array of a known dtype."""
    place = device or current_device()
    name = dtype_name(array.dtype)
    return wrap(Value(tuple(array.shape), name, place, create_tensor(array, place)))


def promote(*dtypes: str) -> str:
    """The dtype of arithmetic on arrays: floats win over integers, else numpy's rule."""
    distinct = set(dtypes)
    if len(distinct) == 1:
        return dtypes[0]
    floats = [dtype for dtype in distinct if dtype.startswith("float")]
    return str(np.result_type(*(floats or distinct)))
