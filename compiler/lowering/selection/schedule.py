"""Schedule every kernel, and report the origin of each schedule."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.target import Target

from schedules import dynamic_rows, rules
from schedules.cuda.gemm.tensor_cores import TF32
from schedules.cuda.launches import correct_launches
from schedules.x86.conv.skip_padding import skipped_flops
from schedules.x86.reduction import row_kernels

from ...errors import BuildError
from ...ir.rewrite import expressions_in, relax_functions
from ...primfuncs.fusion_pattern import called_kernel
from ...primfuncs.query import count_flops
from ...records.auto_scheduler.record import Record, replay
from ...support.progress import report_progress
from ...tvm_workarounds.float_differences import keep_differences
from ...tvm_workarounds.index_guard import guard_indices
from ..codegen.concat_in_place import CONCATENATES, is_profitable
from ..codegen.device_placement import HOST, device_kind
from ..codegen.reshape_to_view import VIEW, is_reshape
from ..kernel_passes.inf_reduction_init import pad_with_infinity, start_at_infinity
from ..kernel_passes.vector_rounding import vectorize_rounding
from ..offloaded_functions import backends, call_counts, new_global_var
from ..report import Kernel

logger = logging.getLogger("baton.lowering")

SCHEDULED_BY = "baton.scheduled_by"
"""Attribute of a kernel that is scheduled already: the source of its schedule, for the report."""
ALGORITHM = "baton.algorithm"
"""Another one of such a kernel, also for the report."""


def schedule_kernels(
    mod: tvm.IRModule,
    chosen_targets: Mapping[str, Target],
    operators: Mapping[str, list[str]],
    records: Mapping[str, Any],
    fast_math: bool,
    tf32: bool = False,
    failed: set[str] | None = None,
) -> tuple[tvm.IRModule, list[Kernel]]:
    """Schedule every TIR function of the module for the target of the function that calls it.

    `operators`: operators of each kernel, for the report. `records`: auto_scheduler record of each
    Relax function that holds one recorded kernel. `fast_math`: exp, tanh, erf and related functions
    become polynomials. `tf32`: tensor cores may compute float32 products. `failed`: sources of
    AutoTVM records that could not schedule their kernel are added.
    """
    claimed = backends(mod)
    functions = dict(mod.functions_items())
    scheduled: dict[str, tvm.tirx.PrimFunc] = {}
    report = []
    calls_of = _calls(mod)
    total = sum(map(len, calls_of.values()))
    for caller, calls in calls_of.items():
        renamed = {}
        for name, count in calls.items():
            target = chosen_targets[caller]
            may_round = tf32 and target.kind.name == "cuda"
            func = mod[name].with_attr(TF32, True) if may_round else mod[name]
            recorded = rules.source(func)
            func, entry = _kernel(func, name, target, records.get(caller), fast_math)
            if failed is not None and entry.source != recorded and is_recorded_source(recorded):
                failed.add(recorded)
            is_free = not entry.source.startswith("auto_scheduler")
            is_concat = entry.target == "llvm" and operators[name] == ["concatenate"]
            if is_free and is_concat and is_profitable(func, target):
                func = func.with_attr(CONCATENATES, True)
            if is_free and is_reshape(mod[name], operators[name]):
                func = func.with_attr(VIEW, True)
            gvar = mod.get_global_var(name)
            if name in scheduled and not tvm_ffi.structural_equal(scheduled[name], func):
                gvar = renamed[name] = new_global_var(f"{name}_{caller}", gvar.ty)
            scheduled.setdefault(name, func)
            functions[gvar] = func
            entry.name, entry.calls = gvar.name_hint, count
            entry.operators = list(operators[name])
            entry.backend = claimed.get(caller, "")
            report.append(entry)
            report_progress("schedule kernels", len(report), total)
        if renamed:
            gvar = mod.get_global_var(caller)
            functions[gvar] = _Redirect(renamed).visit_expr(mod[caller])
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos), report


@relax.expr_functor.mutator
class _Redirect(relax.expr_functor.PyExprMutator):
    """Calls the kernels of this function's own target instead of those they replace."""

    def __init__(self, renamed: Mapping[str, Any]) -> None:
        super().__init__()
        self.renamed = renamed

    def visit_global_var_(self, op: Any) -> Any:
        return self.renamed.get(op.name_hint, op)


def is_recorded_source(source: str) -> bool:
    """Whether a source is a record of a log."""
    return source.startswith("topi:") and source != rules.GENERIC_SOURCE


def _calls(mod: tvm.IRModule) -> dict[str, Counter[str]]:
    """For each Relax function, how often an inference has it call each kernel, in that order."""
    times = call_counts(mod)
    counts: dict[str, Counter[str]] = {}
    for gvar, function in relax_functions(mod):
        calls = counts[gvar.name_hint] = Counter()
        for callee in map(called_kernel, expressions_in(function)):
            if callee is not None:
                calls[callee] += times[gvar.name_hint]
    return counts


def _kernel(
    func: tvm.tirx.PrimFunc, name: str, target: Target, record: Any | None, fast_math: bool
) -> tuple[tvm.tirx.PrimFunc, Kernel]:
    """A kernel; over any number of rows it is made of static ones."""
    rows = dynamic_rows.rows_of(func) if target.kind.name == "llvm" else None
    chosen = None if rows is None else row_kernels.static_kernels(rows, target)
    if rows is None or chosen is None:
        if not dynamic_rows.is_symbolic(func):
            return _schedule(func, name, target, record, fast_math)
        plain = rules.without_anchor(func)  # the rules of anchors take known extents
        made, entry = _schedule(plain, name, target, record, fast_math)
        entry.algorithm = rules.algorithm(func)
        return made, entry
    kernels, tilings = chosen
    made = {size: _schedule(each, name, target, None, fast_math) for size, each in kernels.items()}
    whole = dynamic_rows.assemble(rows, {size: each for size, (each, _) in made.items()}, tilings)
    _, entry = made[max(made)]
    entry.flops, entry.bytes = None, count_bytes(func)
    return whole.with_attr("target", target), entry


def _schedule(
    func: tvm.tirx.PrimFunc, name: str, target: Target, record: Any | None, fast_math: bool
) -> tuple[tvm.tirx.PrimFunc, Kernel]:
    """Schedule by auto_scheduler record or rule; without a rule, serial, as report and log note."""
    kind = str(target.kind.name)
    entry = Kernel(name, [], "unscheduled", "none", kind, "", 1, count_flops(func))
    entry.bytes = count_bytes(func)
    func = pad_with_infinity(func)
    applied = func.attrs.get(SCHEDULED_BY) if func.attrs else None
    if applied is not None:
        entry.implementation, entry.source = "auto_scheduler", str(applied)
        entry.algorithm = str(func.attrs[ALGORITHM])
    elif isinstance(record, Record):
        func = replay(record, func, target)
        entry.implementation, entry.source = "auto_scheduler", record.source
    else:
        skipped, scheduled = skipped_flops(func), rules.schedule(func, target)
        if scheduled is None and device_kind(target) != HOST:
            raise BuildError(
                f"kernel {name} has no schedule for {kind}; give its operators to the CPU: "
                "partition(mod, 'llvm', ops=...)"
            )
        if scheduled is None:
            logger.warning("kernel %s has no schedule for %s", name, kind)
        else:
            func, entry.config = scheduled.func, scheduled.config
            entry.implementation, entry.source = scheduled.rule, scheduled.source
            entry.operands, entry.instruction = scheduled.operands, scheduled.instruction
            entry.flops = entry.flops and entry.flops - skipped
        entry.algorithm = rules.algorithm(func) if scheduled is None else scheduled.algorithm
    func = keep_differences(func)
    if kind == "cuda":
        func = correct_launches(func)
    if kind == "llvm":  # reductions across the threads of a GPU are still to be recognized
        func = vectorize_rounding(start_at_infinity(func))
    if fast_math and kind == "llvm":
        from schedules.x86.machine import fast_math as polynomials

        func = polynomials.approximate(func, target)
    return guard_indices(func).with_attr("target", target), entry


def count_bytes(func: tvm.tirx.PrimFunc) -> int:
    """Bytes of all operands and results of static shape."""
    total = 0
    for buffer in func.params:
        if not isinstance(buffer.ty, tvm.tirx.buffer.BufferType):
            continue
        elements = 1
        for dim in buffer.shape:
            elements *= int(getattr(dim, "value", 0))
        total += elements * tvm.DataType(buffer.dtype).itemsize
    return total
