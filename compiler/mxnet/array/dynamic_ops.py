"""Calls of operators with data-dependent output shapes.

A trace computes such an operator for the inputs that it is made with, and goes on with the shape
that its result has there; `DynamicOp` runs what was recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from compiler.mxnet.symbol.dynamic_pieces import host_results
from compiler.mxnet_format.graph import Node

from .engine import create_tensor, evaluate
from .value import Record, call_site, current_trace
from .wrap import from_host, wrap

if TYPE_CHECKING:
    from .ndarray import ndarray


def invoke_dynamic(op: str, inputs: Sequence[ndarray], attrs: Mapping[str, str]) -> list[ndarray]:
    """Compute a dynamic operator now, and record it in a trace that is under way.

    * `op`: one of `compiler.mxnet_format.data_dependent.DYNAMIC`.
    Raises ArrayError: the operator does not take the inputs.
    Raises DeferredComputeError: an input has no place in the trace.
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


def _host(array: ndarray) -> np.ndarray:
    tensor = array._value.tensor
    return np.from_dlpack(tensor) if array.device.is_cpu else tensor.numpy()
