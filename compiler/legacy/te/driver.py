"""`lower` and `build` of TVM 0.18, for TE schedules and for what they lower to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import tvm
import tvm_ffi
from tvm import IRModule, tirx
from tvm.ir import Call, Op
from tvm.target import Target
from tvm.tirx import PrimFunc

from schedules.tir_visit import nodes_of

from ...errors import ScheduleError
from ...lowering.kernel_passes.custom_lower_passes import added_passes, lower_loops
from ...target import parse
from .lowering import RACE, schedule_to_function
from .schedule import Schedule


def lower(
    inp: Any,
    args: Sequence[Any] | None = None,
    name: str = "main",
    binds: Mapping[Any, Any] | None = None,
    simple_mode: bool = False,
) -> IRModule:
    """Lower a schedule to loops over flat buffers, as far as that needs no target.

    `args`: of a TE schedule: the function's parameters. `name`: the function's. `simple_mode`:
    leave out what makes the loops hard to read: loops stay whole, buffers keep their shapes.
    Returns a module of one function, or of the functions of the module that was given. The passes
    that the PassContext's "tirx.add_lower_pass" holds, as (phase, pass), are run among the others:
    in phase 0 on loops as scheduled, 1 on flat buffers, 2 on unrolled loops, 3 at the end.
    Raises ScheduleError: a primitive does not fit, or the arguments do not.
    """
    mod = _module(inp, args, name, binds, only_printed=True)
    return lower_loops(mod, simple_mode, added_passes())


def _module(
    inp: Any, args: Any, name: str, binds: Mapping[Any, Any] | None, only_printed: bool = False
) -> IRModule:
    """A module of whatever can be lowered."""
    if isinstance(inp, Schedule):
        if args is None:
            raise ScheduleError(
                "the schedule's arguments are missing: give [inputs..., outputs...]"
            )
        return IRModule({name: schedule_to_function(inp, args, name, binds, only_printed)})
    if isinstance(inp, IRModule):
        return inp
    if isinstance(inp, PrimFunc):
        symbol = str(inp.attrs["global_symbol"]) if "global_symbol" in inp.attrs else name
        return IRModule({symbol: inp.with_attr("global_symbol", symbol)})
    if isinstance(getattr(inp, "mod", None), IRModule):
        return _named(inp.mod, name)
    raise ScheduleError(
        f"a {type(inp).__name__} can't be lowered: give a schedule, a PrimFunc or an IRModule"
    )


def _named(mod: IRModule, name: str) -> IRModule:
    """A module of one function, which gets another name."""
    functions = [function for _, function in mod.functions_items()]
    if len(functions) != 1:
        return mod
    return IRModule({name: functions[0].with_attr("global_symbol", name)})


def build(
    inputs: Any,
    args: Sequence[Any] | None = None,
    target: Any = None,
    target_host: Any = None,
    runtime: Any = None,
    name: str | None = "default_function",
    binds: Mapping[Any, Any] | None = None,
) -> tvm.runtime.Module:
    """Compile a schedule, a function or a module of functions.

    `args`: of a TE schedule: the function's parameters. `target`: in any form that
    `compiler.target.parse` reads; by default that of the surrounding `with Target(...)`, or else
    this machine's CPU. `target_host`: for the code around a GPU's kernels. `runtime`: with the
    option "system-lib", functions register themselves where their object code is linked into a
    program; else it has no effect. `name`: the function's; a module keeps its own names. Returns
    the compiled module. Calling it calls its only function.
    Raises ScheduleError: a primitive does not fit, or the arguments do not. Raises TargetError,
    BuildError: the target, or code generation.
    """
    name = name or "default_function"
    if isinstance(inputs, Mapping):
        mod, chosen = _heterogeneous(inputs, target_host)
    else:
        make = lower if added_passes() else _module
        mod = make(inputs, args, name, binds)
        chosen = _target(target, target_host)
    if runtime is not None and "system-lib" in runtime and runtime["system-lib"]:
        mod = mod.with_attr("system_lib_prefix", "")
    from ...lowering.kernel_passes.argument_checks import BFLOAT16_BITS
    from ...lowering.kernel_passes.pipeline import PIPELINE
    from ...target.nvcc import device_code

    for _, function in mod.functions_items():
        if function.attrs and RACE in function.attrs:
            raise ScheduleError(str(function.attrs[RACE]))
    mod = halves_away(mod).with_attr(BFLOAT16_BITS, True)
    is_cuda = str(chosen.kind.name) == "cuda"
    with device_code() if is_cuda else nullcontext():
        return tirx.build(mod, chosen, pipeline=PIPELINE)


def _target(target: Any, host: Any) -> Target:
    if target is None and Target.current() is None:
        target = "llvm"
    return parse(target, host)


def _heterogeneous(inputs: Mapping[Any, IRModule], host: Any) -> tuple[IRModule, Target]:
    """Functions for several targets in one module, each marked with its own."""
    functions: dict[str, Any] = {}
    targets = []
    for target, mod in inputs.items():
        chosen = parse(target, host)
        targets.append(chosen)
        for variable, function in mod.functions_items():
            functions[str(variable.name_hint)] = function.with_attr("target", chosen)
    return IRModule(functions), targets[0]


_ROUND = Op.get("tirx.round")


def halves_away(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with `round` computed of `trunc`; `nearbyint` keeps halves to even."""
    changed = {
        variable: _rounded(function)
        for variable, function in mod.functions_items()
        if isinstance(function, tirx.PrimFunc)
        and any(map(_is_round, nodes_of(function.body, Call)))
    }
    if not changed:
        return mod
    result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for variable, function in changed.items():
        result.update_func(variable, function)
    return result


def _is_round(call: Call) -> bool:
    return isinstance(call.op, Op) and call.op.same_as(_ROUND)


def _rounded(function: tirx.PrimFunc) -> tirx.PrimFunc:
    from ...relay.op.tensor import half_away

    def visit(call: Call) -> Any:
        if not _is_round(call):
            return call
        return half_away(call.args[0], str(call.ty.dtype))

    return function.with_body(tvm_ffi.structural_map(function.body, (Call, visit)))
