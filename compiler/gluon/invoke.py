"""Calling an operator on arrays: its result is recorded, in a trace or for lazy evaluation."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.errors import ArrayError, ArrayTypeError
from compiler.mxnet.attributes import spell
from compiler.mxnet.dynamic import DYNAMIC
from compiler.runtime.library_operators import find

from .device import Device, current_device
from .engine import LONGEST_CHAIN, create_tensor, evaluate
from .infer import output_types
from .library_call import run_operator
from .value import Record, Value, call_site, current_trace

if TYPE_CHECKING:
    from .ndarray import ndarray

DTYPES = frozenset(
    [
        *("float16", "float32", "float64", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    ]
)


def invoke(
    op: str,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any] | None = None,
    *,
    device: Device | None = None,
    subgraphs: Sequence[Any] = (),
    name: str = "",
) -> list[ndarray]:
    """Record an operator; outside of traces one of a library runs at once, with a new state.

    Parameters
    ----------
    op : str
        MXNet's name of the operator, as in a symbol file.
    inputs : sequence of ndarray
    attrs : mapping of str to object
        Operator parameters; they are spelt as in a symbol file. None leaves one out.
    device : Device, optional
        Of an operator without inputs.
    subgraphs : sequence of Graph
        Bodies of control flow.
    name : str
        Of the node, in a trace.

    Returns
    -------
    list of ndarray
        One for each visible output.

    Raises
    ------
    ArrayTypeError
        An input is not an array.
    ArrayError
        Inputs are on different devices, or do not fit the operator.
    DeferredComputeError
        An input has no place in the trace that is under way.
    """
    texts = {key: spell(value) for key, value in (attrs or {}).items() if value is not None}
    if any(hasattr(each, "param") for each in inputs):
        from .unshaped import tell_shapes

        tell_shapes(op, texts, inputs)
    if op in DYNAMIC:
        from .dynamic_ops import invoke_dynamic

        return invoke_dynamic(op, inputs, texts)
    values = [_value(op, each) for each in inputs]
    place = values[0].device if values else device or current_device()
    if any(value.device != place for value in values):
        found = ", ".join(dict.fromkeys(repr(value.device) for value in values))
        raise ArrayError(
            f"{call_site()}: operator {op} reads arrays on several devices ({found}); move them "
            "with to_device"
        )
    trace = current_trace()
    if trace is not None:
        for value in values:
            if not value.has_history:
                trace.capture(value, op)
    library = find(op)
    if library is not None and trace is None:
        return [wrap(value) for value in run_operator(library, texts, values, place)]
    types = output_types(op, texts, values, subgraphs)
    record = Record(op, texts, values, types, place, trace is not None, subgraphs, name)
    if record.depth > LONGEST_CHAIN and trace is None:
        evaluate(values)
        record.depth = 1
    return [wrap(value) for value in record.values()]


def wrap(value: Value) -> ndarray:
    """An array that names a value."""
    array: ndarray = _new_array()
    array._value = value
    value.owner = weakref.ref(array)
    return array


def set_array_class(cls: type) -> None:
    """What `wrap` makes; `ndarray`'s module says so."""
    global _new_array
    _new_array = partial(object.__new__, cls)


_new_array: Callable[[], Any] = object


def _value(op: str, array: Any) -> Value:
    value = getattr(array, "_value", None)
    if not isinstance(value, Value):
        raise ArrayTypeError(
            f"{call_site()}: operator {op} takes arrays of compiler.np, not "
            f"{type(array).__name__}; convert it with np.array"
        )
    return value


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
