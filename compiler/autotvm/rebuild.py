"""Builds the one operator that a record tuned, with the record's config, and checks its numbers.

Inputs are seeded; the right result is computed with numpy in double precision.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .. import precision
from ..errors import BatonError, RecordError
from ..records.autotvm.record import LoggedTask, MeasureInput, MeasureResult
from ..tvm_workarounds.block_builder import BlockBuilder
from .convolutions import exact, transposed_convolution

if TYPE_CHECKING:
    import tvm

    from ..lowering.report import Report
    from ..runtime.factory import FactoryModule
    from .operators import Operator

# Largest error of a right result, relative to the largest element.
TOLERANCE = 1e-4
_ELEMENT_TYPES = frozenset(("float32", "float64", "int8", "uint8"))


@dataclass(frozen=True)
class Outcome:
    """What became of one record.

    Attributes
    ----------
    source : str
        "topi:<log>:<line>".
    task : str
    built : bool
        Whether the operator was built from this very record.
    right : bool or None
        Whether it computed the right numbers; None where the machine lacks the device to run it.
    reason : str
        Why not; empty when right.
    error : float
        Largest error relative to the largest element.
    """

    source: str
    task: str
    built: bool
    right: bool | None
    reason: str = ""
    error: float = 0.0


@dataclass(frozen=True)
class Program:
    """One operator as a module, the values of its parameters, and what computes its exact result.

    A large operator's result takes long in numpy, so that only those who compare compute it.
    """

    mod: tvm.IRModule
    inputs: dict[str, np.ndarray]
    reference: Callable[[], np.ndarray]

    @functools.cached_property
    def expected(self) -> np.ndarray:
        """In float64, or in int64 for an operator on integers."""
        return self.reference()


def rebuild(inp: MeasureInput, target: Any, seed: int = 0) -> Outcome:
    """Build the workload of a record under that record alone, run it on this machine, compare.

    Parameters
    ----------
    inp : MeasureInput
        A successful record; a failure of its build is part of the outcome.
    target : tvm.target.Target
        With a key that the record's target has. Where this machine has no such device, the
        operator is built and not run.
    """
    task, source = inp.task, inp.config.source
    try:
        if not set(inp.target.keys) & set(map(str, target.keys)):
            keys = ", ".join(map(str, target.keys))
            raise RecordError(f"tuned for {inp.target}, which has no key of {keys}")
        program = program_of(task, np.random.default_rng(seed))
        library, used = build_alone(inp, program, target)
        used = used or task.name in _WITHOUT_KNOBS
        result = _run(library, program, target) if used else None
    except BatonError as failure:
        return Outcome(source, task.name, False, False, str(failure).splitlines()[0])
    if not used:
        return Outcome(source, task.name, False, False, "no kernel took the record")
    if result is None:
        return Outcome(source, task.name, True, None, "built; this machine has no device to run it")
    error = float(np.abs(result - program.expected).max() / np.abs(program.expected).max())
    tolerance = TOLERANCE if program.expected.dtype.kind == "f" else 0.0
    right = error <= tolerance  # false for NaN
    reason = "" if right else f"relative error {error:.1e}"
    return Outcome(source, task.name, True, right, reason, error)


def program_of(task: LoggedTask, rng: np.random.Generator) -> Program:
    """The operator that a task tuned, on random values.

    Raises
    ------
    RecordError
        Baton has no template of that name, or none for these element types.
    """
    from schedules import strategy

    from . import operators  # registers the implementations

    operator = strategy.operator_of(task.name) or task.name
    if operator not in operators.OPERATORS and operator not in _PROGRAMS:
        raise RecordError(f"no template {task.name}")
    tensors = [a for a in task.args if isinstance(a, (list, tuple)) and a[:1] == ("TENSOR",)]
    malformed = [tensor for tensor in tensors if len(tensor) != 3]
    if malformed:
        raise RecordError(f"malformed tensor {malformed[0]}: it is no (TENSOR, shape, dtype)")
    types = [dtype for _, _, dtype in tensors]
    if not _ELEMENT_TYPES.issuperset(types):
        raise RecordError(f"no template {task.name} for {' x '.join(types)}")
    if operator in _PROGRAMS:
        return _PROGRAMS[operator](rng, *task.args)
    return _program(operators.OPERATORS[operator], task, rng)


def build_alone(inp: MeasureInput, program: Program, target: Any) -> tuple[FactoryModule, bool]:
    """The library of a program built under one record, and whether a kernel took the record."""
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


def _run(library: FactoryModule, program: Program, target: Any) -> np.ndarray | None:
    """The first output on the target's device; None where this machine has none."""
    import tvm

    from ..runtime import graph_executor

    device = tvm.device("cuda" if target.kind.name == "cuda" else "cpu")
    if not device.exist:
        return None
    module = graph_executor.GraphModule(library["default"](device))
    module.run(**program.inputs)
    return module.get_output(0).numpy()


def _four_sided(task: LoggedTask) -> LoggedTask:
    """A convolution's padding with four sides; (height, width) is how transposed ones say it."""
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
    # A record was measured by itself; whether rows are of one sample is a matter of its network.
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


def _layout_transform(rng: Any, data: Any, before: str, after: str) -> Program:
    """Between NCHW and NCHW[b]c, in whole blocks."""
    from tvm import relax

    from .graph_tuner.transforms import PLAIN, Transform

    transform = Transform.from_args((data, before, after))
    if transform is None or transform.shape[1] % transform.after:
        raise RecordError(f"no template layout_transform from {before} to {after}")
    x = _values(rng, data)
    n, c, h, w = transform.shape
    blocks = (n, c // transform.after, transform.after, h, w)

    def moved(value: Any, transpose: Callable[..., Any], reshape: Callable[..., Any]) -> Any:
        if transform.before != PLAIN:
            value = reshape(transpose(value, [0, 1, 4, 2, 3]), transform.shape)
        if transform.after != PLAIN:
            value = transpose(reshape(value, blocks), [0, 1, 3, 4, 2])
        return value

    mod = _module(lambda v: moved(v, relax.op.permute_dims, relax.op.reshape), {"data": x}, [])
    return Program(mod, {"data": x}, lambda: exact(moved(x, np.transpose, np.reshape)))


_PROGRAMS: dict[str, Callable[..., Program]] = {
    "nn.conv1d_transpose": _conv_transpose,
    "nn.conv2d_transpose": _conv_transpose,
    "layout_transform": _layout_transform,
}
"""Operators that are not tuned here, and the task that has none."""
# Tasks without knobs, whose records only tell the time: there is no config to take.
_WITHOUT_KNOBS = frozenset(["layout_transform"])
