"""Operator calls on arrays, recorded in a trace or for lazy evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compiler.errors import ArrayError, ArrayTypeError
from compiler.mxnet_format.attributes import spell
from compiler.mxnet_format.data_dependent import DYNAMIC
from compiler.runtime.library_operators import find

from ..device import Device, current_device
from .engine import LONGEST_CHAIN, evaluate
from .immediate_ops import invoke_dynamic, run_operator
from .infer import output_types, tell_shapes
from .value import Record, Value, call_site, current_trace
from .wrap import wrap

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
        return invoke_dynamic(op, inputs, texts)
    values = [_value(op, each) for each in inputs]
    target = values[0].device if values else device or current_device()
    if any(value.device != target for value in values):
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
        return [wrap(value) for value in run_operator(library, texts, values, target)]
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
