"""Operator calls on arrays, recorded in a trace or for lazy evaluation.

Operators with data-dependent output shapes and those of libraries run at once. A trace computes a
dynamic operator for the inputs that it is made with, and goes on with the shape that its result has
there; `DynamicOp` runs what was recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.errors import ArrayError, ArrayTypeError, FrontendError
from compiler.mxnet.symbol.dynamic_pieces import host_results
from compiler.mxnet_format.attributes import spell
from compiler.mxnet_format.data_dependent import DYNAMIC
from compiler.mxnet_format.graph import Node
from compiler.runtime.library_operators import LibraryOperator, find

from ..device import Device, cpu, current_device
from .engine import LONGEST_CHAIN, create_tensor, evaluate, tensor_of
from .infer import output_types, tell_shapes
from .value import Record, Trace, Value, call_site, current_trace
from .wrap import from_host, wrap

if TYPE_CHECKING:
    from .ndarray import ndarray


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

    `attrs` are spelled as in a symbol file; None leaves one out. `device` is that of an operator
    without inputs. `subgraphs` are bodies of control flow. `name` is the node's, in a trace.
    Returns one array for each visible output. Raises ArrayTypeError: an input is not an array.
    Raises ArrayError: inputs are on different devices, or do not fit the operator. Raises
    DeferredComputeError: an input can't be part of the current trace.
    """
    texts = {key: spell(value) for key, value in (attrs or {}).items() if value is not None}
    if any(hasattr(each, "param") for each in inputs):
        tell_shapes(op, texts, inputs)
    if op in DYNAMIC:
        return _invoke_dynamic(op, inputs, texts)
    values = [_value(op, each) for each in inputs]
    target = values[0].device if values else device or current_device()
    if any(value.device != target for value in values):
        found = ", ".join(dict.fromkeys(repr(value.device) for value in values))
        raise ArrayError(
            f"{call_site()}: operator {op} reads arrays on several devices ({found}); move them "
            "with to_device"
        )
    trace = _trace_of(values, op)
    library = find(op)
    if library is not None and trace is None:
        return [wrap(value) for value in _run_operator(library, texts, values, target)]
    types = output_types(op, texts, values, subgraphs)
    record = Record(op, texts, values, types, target, trace is not None, subgraphs, name)
    if record.depth > LONGEST_CHAIN and trace is None:
        evaluate(values)
        record.depth = 1
    return [wrap(value) for value in record.values()]


def _value(op: str, array: Any) -> Value:
    value = getattr(array, "_value", None)
    if not isinstance(value, Value):
        raise ArrayTypeError(
            f"{call_site()}: operator {op} takes arrays of compiler.mxnet.np, not "
            f"{type(array).__name__}; convert it with np.array"
        )
    return value


def _trace_of(values: Sequence[Value], op: str) -> Trace | None:
    """The current trace, if any, which captures values that it does not know."""
    trace = current_trace()
    if trace is not None:
        for value in values:
            if not value.has_history:
                trace.capture(value, op)
    return trace


def _invoke_dynamic(op: str, inputs: Sequence[ndarray], attrs: Mapping[str, str]) -> list[ndarray]:
    """Compute an operator of `data_dependent.DYNAMIC` now, and record it in a trace under way.

    Raises ArrayError: the operator does not take the inputs. Raises DeferredComputeError: an input
    has no place in the trace.
    """
    values = [array._value for array in inputs]
    device, trace = values[0].device, _trace_of(values, op)
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


def _run_operator(
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
