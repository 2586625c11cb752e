"""Programs of the one operator that a record tuned, with random inputs and a numpy reference."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .. import precision
from ..errors import RecordError
from ..records.autotvm.record import LoggedTask, MeasureInput
from ..records.measure_result import MeasureResult
from ..tvm_workarounds.block_builder import BlockBuilder
from .convolutions import transposed_convolution

if TYPE_CHECKING:
    import tvm

    from ..lowering.report import Report
    from ..runtime.factory import FactoryModule
    from .operators import Operator

_ELEMENT_TYPES = frozenset(("float32", "float64", "int8", "uint8"))


@dataclass(frozen=True)
class Program:
    """One operator as a module, its input values, and a function that computes its exact result."""

    mod: tvm.IRModule
    inputs: dict[str, np.ndarray]
    reference: Callable[[], np.ndarray]

    @functools.cached_property
    def expected(self) -> np.ndarray:
        """The exact result, computed when first read: float64, or int64 for integer operators."""
        return self.reference()


def program_of(task: LoggedTask, rng: np.random.Generator) -> Program:
    """Program of a task's operator; RecordError if no template has its name or element types."""
    from schedules import strategy

    from . import operators  # registers the implementations

    operator = strategy.operator_of(task.name) or task.name
    if operator not in operators.OPERATORS and operator not in _PROGRAMS:
        raise RecordError(f"no template {task.name}")
    tensors = [a for a in task.args if isinstance(a, (list, tuple)) and a[:1] == ("TENSOR",)]
    malformed = [tensor for tensor in tensors if len(tensor) != 3]
    if malformed:
        raise RecordError(f"malformed tensor {malformed[0]}; expected (TENSOR, shape, dtype)")
    types = [dtype for _, _, dtype in tensors]
    if not _ELEMENT_TYPES.issuperset(types):
        raise RecordError(f"no template {task.name} for {' x '.join(types)}")
    if operator in _PROGRAMS:
        return _PROGRAMS[operator](rng, *task.args)
    return _program(operators.OPERATORS[operator], task, rng)


def build_alone(inp: MeasureInput, program: Program, target: Any) -> tuple[FactoryModule, bool]:
    """Build a program under one record; return the library and whether a kernel used the record."""
    import tvm

    from ..lowering.build import build
    from ..records.autotvm.dispatcher import ApplyHistoryBest

    config = replace(inp.config, source="topi:rebuilt:1")
    alone = replace(inp, task=_four_sided(inp.task), config=config)
    records = ApplyHistoryBest([(alone, MeasureResult((1.0,), 0, 0.0, 0.0))])
    with records, tvm.transform.PassContext(opt_level=3, required_pass=[precision.STRASSEN]):
        library = build(program.mod, target)
    report = cast("Report", library.report)
    return library, any(kernel.source == config.source for kernel in report.kernels)


def _four_sided(task: LoggedTask) -> LoggedTask:
    """Expand a convolution's padding (height, width), which some tasks have, to four sides."""
    if "conv2d" not in task.name or len(task.args[3]) == 4:
        return task
    args = (*task.args[:3], task.args[3] * 2, *task.args[4:])
    return LoggedTask(task.name, args)


# --- programs ----------------------------------------------------------------------------


def _module(
    emit: Callable[..., Any], inputs: dict[str, np.ndarray], weights: Sequence[np.ndarray]
) -> tvm.IRModule:
    import tvm
    from tvm import relax

    from ..lowering.graph_passes.batch_provenance import ONE_SAMPLE

    variables = [
        relax.Var(name, relax.TensorType(value.shape, str(value.dtype)))
        for name, value in inputs.items()
    ]
    builder = BlockBuilder()
    with builder.function("main", variables):
        with builder.dataflow():
            call = emit(*variables, *(relax.const(weight) for weight in weights))
            out = builder.emit_output(builder.emit(call))
        builder.emit_func_output(out)
    # A record was measured without a network, so batch provenance is unknown: assume one element.
    return tvm.IRModule({"main": builder.get()["main"].with_attr(ONE_SAMPLE, True)})


def _program(operator: Operator, task: LoggedTask, rng: np.random.Generator) -> Program:
    w = operator.workload(task.name, task.args)
    values = operator.values(w, rng)
    data, weight = operator.stored(w, values)
    inputs, weights = {"data": data, "weight": weight}, []
    if operator.constant_weight(w):
        weights.append(inputs.pop("weight"))
    mod = _module(functools.partial(operator.call, w), inputs, weights)
    return Program(mod, inputs, lambda: operator.expected(w, values))


def _values(rng: Any, tensor: Any) -> np.ndarray:
    from .operators import random_values

    _, shape, dtype = tensor
    return random_values(rng, shape, dtype)


def _conv_transpose(
    rng: Any,
    data: Any,
    weight: Any,
    strides: Any,
    padding: Any,
    out_dtype: str,
    beyond: Any = (),
    groups: int = 1,
) -> Program:
    from tvm import relax

    rank = len(strides)
    x, w = _values(rng, data), _values(rng, weight)
    padding = tuple(padding) * (2 * rank // len(padding))
    beyond = tuple(beyond) or (0,) * rank
    operator = relax.op.nn.conv2d_transpose if rank == 2 else relax.op.nn.conv1d_transpose

    def emit(x_var: Any, w_const: Any) -> Any:
        return operator(x_var, w_const, strides, padding, beyond, groups=groups)

    def reference() -> np.ndarray:
        return transposed_convolution(x, w, strides, padding, beyond, groups)

    return Program(_module(emit, {"data": x}, [w]), {"data": x}, reference)


_PROGRAMS: dict[str, Callable[..., Program]] = {
    "nn.conv1d_transpose": _conv_transpose,
    "nn.conv2d_transpose": _conv_transpose,
}
"""Operators with templates that are not tuned here."""
