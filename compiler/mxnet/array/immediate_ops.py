"""Operators that run at once: those with data-dependent output shapes, and those of libraries.

A trace computes a dynamic operator for the inputs that it is made with, and goes on with the shape
that its result has there; `DynamicOp` runs what was recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from compiler.errors import ArrayError, FrontendError
from compiler.mxnet.symbol.dynamic_pieces import host_results
from compiler.mxnet_format.graph import Node
from compiler.runtime.library_operators import LibraryOperator

from ..device import Device, cpu
from .engine import create_tensor, evaluate, tensor_of
from .infer import output_types
from .value import Record, Value, call_site, current_trace
from .wrap import from_host, wrap

if TYPE_CHECKING:
    from .ndarray import ndarray


def invoke_dynamic(op: str, inputs: Sequence[ndarray], attrs: Mapping[str, str]) -> list[ndarray]:
    """Compute an operator of `data_dependent.DYNAMIC` now, and record it in a trace under way.

    Raises ArrayError: the operator does not take the inputs. Raises DeferredComputeError: an input
    has no place in the trace.
    """
    values = [array._value for array in inputs]
    device, trace = values[0].device, current_trace()
    if trace is not None:
        for value in values:
            if not value.has_history:
                trace.capture(value, op)
    evaluate(values)
    results = host_results(Node(op, call_site(), attrs=dict(attrs)), map(_host, inputs))
    if trace is None:
        return [from_host(each, device) for each in results]
    trace.dynamic = trace.dynamic or call_site()
    types = [(tuple(each.shape), str(each.dtype)) for each in results]
    made = Record(op, attrs, values, types, device, traced=True).values()
    for value, result in zip(made, results):
        value.tensor = create_tensor(result, device)
        value.dynamic = True
    return [wrap(value) for value in made]


def run_operator(
    operator: LibraryOperator, attrs: Mapping[str, str], inputs: Sequence[Value], device: Device
) -> list[Value]:
    """The results of one call, in a new state; raise ArrayError, naming the line, if it fails."""
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


def _host(array: ndarray) -> np.ndarray:
    tensor = array._value.tensor
    return np.from_dlpack(tensor) if array.device.is_cpu else tensor.numpy()
