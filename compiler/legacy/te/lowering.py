"""From a TE schedule and its arguments to a PrimFunc of loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.te import Tensor
from tvm.tirx import PrimFunc
from tvm.tirx.buffer import is_buffer_var

from ...errors import ScheduleError
from .bounds import Bounds
from .crossthread import race_of
from .schedule import Schedule
from .stage import Stage
from .statements import Statements

RACE = "baton.race"
"""Attribute of functions that are lowered to be printed: why they would compute wrong results."""


def schedule_to_function(
    schedule: Schedule,
    args: Sequence[Any],
    name: str = "main",
    binds: Mapping[Any, Any] | None = None,
    only_printed: bool = False,
) -> PrimFunc:
    """The function that a schedule computes.

    `args`: the function's parameters, in order. `name`: its global symbol. `binds`: buffers to use
    for tensors. `only_printed`: lower reductions whose parallel iterations would overwrite each
    other's results too; the function's attribute `RACE` says why it can't be built.
    Raises ScheduleError: a primitive does not fit, an input is missing among the arguments, or an
    argument is of another kind.
    """
    parameters, arguments = _arguments(schedule, args, dict(binds or {}))
    bounds = Bounds(schedule)
    body = Statements(bounds, arguments).make()
    attrs = {"global_symbol": name, "tirx.noalias": True, "s_tir": True}
    races = [race_of(bounds, stage) for stage in schedule.stages if stage.iter_var_attrs]
    if any(races):
        attrs[RACE] = next(filter(None, races))
        if not only_printed:
            raise ScheduleError(attrs[RACE])
    func = PrimFunc(parameters, body, attrs=tvm.ir.make_node("ir.DictAttrs", **attrs))
    if not any(_is_aligned(stage) for stage in schedule.stages):
        return func
    # The pass that shrinks buffers to what is accessed would take the padding out again.
    return tirx.transform.FlattenBuffer()(tvm.IRModule({name: func}))[name]


def _is_aligned(stage: Stage) -> bool:
    marks = (stage.iter_var_attrs.get(axis) for axis in stage.axes)
    return any(mark is not None and mark.alignment is not None for mark in marks)


def _arguments(
    schedule: Schedule, args: Sequence[Any], binds: dict[Any, Any]
) -> tuple[list[Any], dict[tuple[Stage, int], Any]]:
    """Parameters of the function, and the buffers of those that are tensors."""
    parameters: list[Any] = []
    buffers: dict[tuple[Stage, int], Any] = {}
    for tensor, buffer in binds.items():
        if tensor in schedule:
            buffers[schedule[tensor], int(tensor.value_index)] = buffer
    for arg in args:
        if isinstance(arg, Tensor) and arg not in schedule:  # an input that nothing reads
            given = binds.get(arg)
            unread = _declare(arg, arg.op.name, arg.shape) if given is None else given
            parameters.append(unread)
        elif isinstance(arg, Tensor):
            stage, index = schedule[arg], int(arg.value_index)
            buffer = buffers.get((stage, index))
            if buffer is None:
                suffix = f".v{index}" if arg.op.num_outputs > 1 else ""
                buffer = buffers[stage, index] = _declare(
                    arg, f"{stage.name}{suffix}", stage.laid_out(arg.shape)
                )
            parameters.append(buffer)
        elif isinstance(arg, tirx.Var) or is_buffer_var(arg):
            parameters.append(arg)
        else:
            raise ScheduleError(f"lower: argument {arg!r} is not a Tensor, Buffer or Var")
    return parameters, buffers


def _declare(tensor: Any, name: str, shape: Sequence[Any]) -> Any:
    return tirx.decl_buffer(shape, str(tensor.dtype), name, layout=None)
