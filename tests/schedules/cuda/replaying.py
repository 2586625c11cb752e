"""Runs the kernel of a tuning record in the emulation and compares it with float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tvm import ir, relax, tirx
from tvm.target import Target

from compiler.autotvm import MeasureInput
from compiler.autotvm.single_op_program import Program, program_of
from compiler.lowering.graph_passes.fuse import called_kernel, fuse
from compiler.lowering.selection.select_implementations import select_implementations
from compiler.records.autotvm.dispatcher import ApplyHistoryBest
from compiler.records.measure_result import MeasureResult
from schedules import rules
from tests.schedules.cuda.checking import TARGET
from tests.schedules.cuda.emulation import Emulated


def scheduled_kernel(
    inp: MeasureInput, program: Program, arch: str = ""
) -> tuple[rules.Scheduled, list]:
    """The one kernel of the program built under the record, and the values of its operands."""
    target = Target({"kind": "cuda", "arch": arch}, host="llvm") if arch else TARGET
    records = ApplyHistoryBest([(inp, MeasureResult((1.0,), 0, 0.0, 0.0))])
    module = select_implementations(program.mod, "main", target, records.query)
    module, *_ = fuse(module, target)
    calls = []

    def visit(expr: relax.Expr) -> None:
        if called_kernel(expr) is not None:
            calls.append(expr)

    relax.analysis.post_order_visit(module["main"], visit)
    (call,) = calls
    kernel = module[called_kernel(call)]
    assert isinstance(kernel, tirx.PrimFunc)
    values = [
        arg.value.numpy() if isinstance(arg, ir.GenericConst) else program.inputs[arg.name]
        for arg in call.args[1].fields
    ]
    scheduled = rules.schedule(kernel, target)
    assert scheduled is not None
    return scheduled, values


def emulate_record(inp: MeasureInput, folder: Path) -> float:
    """Largest error of a record's kernel, relative to the largest element of its result."""
    program = program_of(inp.task, np.random.default_rng(0))
    scheduled, values = scheduled_kernel(inp, program)
    assert scheduled.rule == inp.task.name, f"{inp.task.name} became {scheduled.rule}"
    (found,) = Emulated(scheduled.func, TARGET, folder)(values)
    return float(np.abs(found - program.expected).max() / np.abs(program.expected).max())
