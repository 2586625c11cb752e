"""The last rule: opaque blocks, which can't be split among threads, as they are or in one thread.

Sorts, scans and the like arrive as blocks without iterators. Those written for a device launch
their own threads and are left alone. Of the others, a block that is one parallel loop gets a
kernel with a block for each iteration, and any other block a kernel with a single thread, which
is slow but right:

    block:  for i in parallel(n): body      ->   blockIdx.x = i, threadIdx.x = 0:  body
    block:  body                            ->   blockIdx.x = 0, threadIdx.x = 0:  body

A call to a host library can't run on a device; what is checked after this rule refuses it.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx
from tvm.ir import Range
from tvm.s_tir.dlight import ScheduleRule
from tvm.target import Target

from ..tir_visit import serial
from .verify import has_thread_bindings


class Opaque(ScheduleRule):
    """Any function whose body is a block."""

    def apply(self, func: tirx.PrimFunc, target: Target, _: bool) -> s_tir.Schedule | None:
        """Schedule `func`, one kernel for each statement outside of threads."""
        if has_thread_bindings(func):
            return s_tir.Schedule(func)
        realize = func.body
        if not isinstance(realize, s_tir.SBlockRealize):
            return None
        root = realize.block
        body = root.body
        statements = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
        kernels = [
            statement if has_thread_bindings(func.with_body(statement)) else _kernel(statement)
            for statement in statements
        ]
        block = s_tir.SBlock(
            root.iter_vars,
            root.reads,
            root.writes,
            root.name_hint,
            tirx.SeqStmt(kernels) if len(kernels) > 1 else kernels[0],
            root.init,
            root.alloc_buffers,
            root.match_buffers,
            root.annotations,
        )
        scheduled = func.with_body(
            s_tir.SBlockRealize(realize.iter_values, realize.predicate, block)
        )
        return s_tir.Schedule(scheduled)


def _kernel(statement: Any) -> tirx.For:
    """One statement as a kernel."""
    if isinstance(statement, tirx.For) and statement.kind == tirx.ForKind.PARALLEL:
        body = _thread(_unit_variable("thread"), 1, "threadIdx.x", serial(statement.body))
        return _thread(statement.loop_var, statement.extent, "blockIdx.x", body)
    body = _thread(_unit_variable("thread"), 1, "threadIdx.x", serial(statement))
    return _thread(_unit_variable("block"), 1, "blockIdx.x", body)


def _unit_variable(name: str) -> tirx.Var:
    return tirx.Var(name, "int32")


def _thread(variable: tirx.Var, extent: Any, tag: str, body: Any) -> tirx.For:
    zero = tirx.IntImm(variable.ty, 0)
    extent = tirx.IntImm(variable.ty, int(extent))
    axis = tirx.IterVar(
        Range(zero, extent), tirx.Var(variable.name, variable.ty), tirx.IterVar.ThreadIndex, tag
    )
    return tirx.For(variable, zero, extent, tirx.ForKind.THREAD_BINDING, body, axis)
