"""Operators of libraries on arrays, outside of traces: run at once, as MXNet runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from compiler.errors import ArrayError, FrontendError
from compiler.runtime.library_operators import LibraryOperator

from ..device import Device, cpu
from .engine import create_tensor, tensor_of
from .infer import output_types
from .value import Value, call_site


def run_operator(
    operator: LibraryOperator, attrs: Mapping[str, str], inputs: Sequence[Value], device: Device
) -> list[Value]:
    """The results of one call, for which a stateful operator makes a new state.

    Raises ArrayError: the library rejects the call or fails in it; names the line that asks for it.
    """
    types = output_types(operator.name, attrs, inputs)
    given = [tensor_of(value) for value in inputs]
    if not device.is_cpu:
        given = [create_tensor(tensor.numpy(), cpu()) for tensor in given]
    results = [create_tensor(np.zeros(shape, dtype), cpu()) for shape, dtype in types]
    try:
        operator.engine(attrs, [(value.shape, value.dtype) for value in inputs])(given, results)
    except FrontendError as error:
        raise ArrayError(f"{call_site()}: {error}") from error
    if not device.is_cpu:
        results = [create_tensor(tensor.numpy(), device) for tensor in results]
    return [Value(shape, dtype, device, tensor) for (shape, dtype), tensor in zip(types, results)]
