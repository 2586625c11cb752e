"""Builds the one operator that a record tuned, with the record's config, and checks its numbers.

Inputs are seeded; the right result is computed with numpy in double precision.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..errors import BatonError, RecordError
from .record import LoggedTask, MeasureInput, MeasureResult

if TYPE_CHECKING:
    import tvm

    from ..lowering.report import Report

# Largest error of a right result, relative to the largest element.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Outcome:
    """What became of one record.

    Attributes
    ----------
    source : str
        "topi:<log>:<line>".
    task : str
    built, right : bool
        Whether the operator was built from this very record, and computed the right numbers.
    reason : str
        Why not; empty when right.
    error : float
        Largest error relative to the largest element.
    """

    source: str
    task: str
    built: bool
    right: bool
    reason: str = ""
    error: float = 0.0


@dataclass(frozen=True)
class Program:
    """One operator as a module, the values of its parameters, and its result in float64."""

    mod: tvm.IRModule
    inputs: dict[str, np.ndarray]
    expected: np.ndarray


def rebuild(inp: MeasureInput, target: Any, seed: int = 0) -> Outcome:
    """Build the workload of a record under that record alone, run it on this machine, compare.

    Parameters
    ----------
    inp : MeasureInput
        A successful record; a failure of its build is part of the outcome.
    target : tvm.target.Target
        Of this machine, with a key that the record's target has.
    """
    task, source = inp.task, inp.config.source
    try:
        program = program_of(task, np.random.default_rng(seed))
        used, result = _run(inp, program, target)
    except BatonError as failure:
        return Outcome(source, task.name, False, False, str(failure).splitlines()[0])
    if not used:
        return Outcome(source, task.name, False, False, "no kernel took the record")
    error = float(np.abs(result - program.expected).max() / np.abs(program.expected).max())
    right = error <= TOLERANCE  # false for NaN
    reason = "" if right else f"relative error {error:.1e}"
    return Outcome(source, task.name, True, right, reason, error)


def program_of(task: LoggedTask, rng: np.random.Generator) -> Program:
    """The operator that a task tuned, on random values.

    Raises
    ------
    RecordError
        Baton has no template of that name, or none for these element types.
    """
    made = _PROGRAMS.get(task.name)
    if made is None:
        raise RecordError(f"no template {task.name}")
    types = [a[2] for a in task.args if isinstance(a, (list, tuple)) and a[:1] == ("TENSOR",)]
    if not {"float32", "float64"}.issuperset(types):
        raise RecordError(f"no template {task.name} for {' x '.join(types)}")
    return made(rng, *task.args)


def _run(inp: MeasureInput, program: Program, target: Any) -> tuple[bool, np.ndarray]:
    import tvm

    from ..lowering.build import build
    from ..runtime import graph_executor
    from .dispatcher import ApplyHistoryBest

    config = replace(inp.config, source="topi:rebuilt:1")
    alone = replace(inp, task=_four_sided(inp.task), config=config)
    records = ApplyHistoryBest([(alone, MeasureResult((1.0,), 0, 0.0, 0.0))])
    with records, tvm.transform.PassContext(opt_level=3):
        library = build(program.mod, target)
    report = cast("Report", library.report)
    used = any(kernel.source == config.source for kernel in report.kernels)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(**program.inputs)
    return used, module.get_output(0).numpy()


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
    from tvm import relax

    variables = [
        relax.Var(name, relax.TensorType(value.shape, str(value.dtype)))
        for name, value in inputs.items()
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", variables):
        with builder.dataflow():
            call = emit(*variables, *(relax.const(weight) for weight in weights))
            out = builder.emit_output(builder.emit(call))
        builder.emit_func_output(out)
    return builder.get()


def _values(rng: Any, tensor: Any) -> np.ndarray:
    _, shape, dtype = tensor
    return rng.uniform(-1, 1, shape).astype(dtype)


def _conv2d(
    rng: Any, data: Any, weight: Any, strides: Any, padding: Any, dilation: Any, *_: Any
) -> Program:
    from tvm import relax

    x, w = _values(rng, data), _values(rng, weight)
    padding = tuple(padding) * (4 // len(padding))
    groups = x.shape[1] // w.shape[1]

    def emit(x_var: Any, w_const: Any) -> Any:
        return relax.op.nn.conv2d(x_var, w_const, strides, padding, dilation, groups)

    expected = convolution(x, w, strides, padding, dilation)
    return Program(_module(emit, {"data": x}, [w]), {"data": x}, expected)


def _conv3d(
    rng: Any,
    data: Any,
    weight: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    *_: Any,
) -> Program:
    return _conv3d_in("NCDHW", "OIDHW", rng, data, weight, strides, padding, dilation, groups)


def _conv3d_channels_last(
    rng: Any,
    data: Any,
    weight: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    *_: Any,
) -> Program:
    return _conv3d_in("NDHWC", "DHWIO", rng, data, weight, strides, padding, dilation, groups)


def _conv3d_in(
    layout: str,
    kernel_layout: str,
    rng: Any,
    data: Any,
    weight: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Program:
    from tvm import relax

    x, w = _values(rng, data), _values(rng, weight)

    def emit(x_var: Any, w_const: Any) -> Any:
        return relax.op.nn.conv3d(
            x_var, w_const, strides, padding, dilation, groups, layout, kernel_layout
        )

    plain = x.transpose([layout.index(axis) for axis in "NCDHW"])
    plain_weight = w.transpose([kernel_layout.index(axis) for axis in "OIDHW"])
    expected = convolution(plain, plain_weight, strides, padding, dilation)
    expected = expected.transpose(["NCDHW".index(axis) for axis in layout])
    return Program(_module(emit, {"data": x}, [w]), {"data": x}, expected)


def _dense(rng: Any, data: Any, weight: Any, *_: Any) -> Program:
    from tvm import relax

    x, w = _values(rng, data), _values(rng, weight)

    def emit(x_var: Any, w_const: Any) -> Any:
        return relax.op.matmul(x_var, relax.op.permute_dims(w_const))

    expected = x.astype("float64") @ w.astype("float64").T
    return Program(_module(emit, {"data": x}, [w]), {"data": x}, expected)


def _batch_matmul(
    rng: Any,
    lhs: Any,
    rhs: Any,
    out_shape: Any,
    out_dtype: Any,
    transpose_a: Any = False,
    transpose_b: Any = True,
) -> Program:
    from tvm import relax

    values = {"a": _values(rng, lhs), "b": _values(rng, rhs)}
    flips = (transpose_a, transpose_b)

    def emit(*operands: Any) -> Any:
        read = [relax.op.permute_dims(x, [0, 2, 1]) if t else x for x, t in zip(operands, flips)]
        return relax.op.matmul(*read)

    a, b = (
        (x.transpose(0, 2, 1) if t else x).astype("float64") for x, t in zip(values.values(), flips)
    )
    return Program(_module(emit, values, []), values, a @ b)


_PROGRAMS: dict[str, Callable[..., Program]] = {
    "conv2d_NCHWc.x86": _conv2d,
    "depthwise_conv2d_NCHWc.x86": _conv2d,
    "group_conv2d_nchw.x86": _conv2d,
    "conv3d_ncdhw.x86": _conv3d,
    "conv3d_ndhwc.x86": _conv3d_channels_last,
    "dense_pack.x86": _dense,
    "dense_nopack.x86": _dense,
    "batch_matmul.x86": _batch_matmul,
}


def convolution(
    x: np.ndarray,
    weight: np.ndarray,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> np.ndarray:
    """Convolution of (N, C, *spatial) with (O, C/groups, *kernel), in float64.

    Parameters
    ----------
    padding
        Of every spatial axis the front, then of every one the back.
    """
    rank = len(strides)
    sides = list(zip(padding[:rank], padding[rank:], strict=True))
    padded = np.pad(x.astype("float64"), [(0, 0), (0, 0), *sides])
    batch, channels = padded.shape[:2]
    out_channels, per_group, *kernel = weight.shape
    groups = channels // per_group
    extents = [
        (size - (taps - 1) * step - 1) // stride + 1
        for size, taps, step, stride in zip(padded.shape[2:], kernel, dilation, strides)
    ]
    split = weight.astype("float64").reshape(groups, out_channels // groups, per_group, *kernel)
    total = np.zeros((batch, groups, out_channels // groups, math.prod(extents)))
    everything = slice(None)
    for tap in itertools.product(*map(range, kernel)):
        window: list[Any] = [
            slice(at * step, at * step + (extent - 1) * stride + 1, stride)
            for at, step, extent, stride in zip(tap, dilation, extents, strides)
        ]
        places: tuple[Any, ...] = (everything, everything, *window)
        read = padded[places]
        taps: tuple[Any, ...] = (everything, everything, everything, *tap)
        total += split[taps] @ read.reshape(batch, groups, per_group, -1)
    return total.reshape(batch, out_channels, *extents)
