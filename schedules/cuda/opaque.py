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

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Range, TensorLoad
from tvm.s_tir.dlight import ScheduleRule
from tvm.target import Target

from ..tir_visit import nodes_of, serial
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
        kernels: list[Any] = []
        workspaces = list(root.alloc_buffers)
        for statement in statements:
            if has_thread_bindings(func.with_body(statement)):
                kernels.append(statement)
            else:
                kernel, found = _kernel(_bare(statement))
                kernels.append(kernel)
                workspaces += found
        block = s_tir.SBlock(
            root.iter_vars,
            root.reads,
            root.writes,
            root.name_hint,
            tirx.SeqStmt(kernels) if len(kernels) > 1 else kernels[0],
            root.init,
            workspaces,
            root.match_buffers,
            root.annotations,
        )
        scheduled = func.with_body(
            s_tir.SBlockRealize(realize.iter_values, realize.predicate, block)
        )
        return s_tir.Schedule(scheduled)


def _bare(statement: Any) -> Any:
    """The body of a block without iterators and buffers; other statements unchanged."""
    if isinstance(statement, s_tir.SBlockRealize):
        block = statement.block
        if not (block.iter_vars or block.alloc_buffers or block.match_buffers):
            return _bare(block.body)
    return statement


def _kernel(statement: Any) -> tuple[tirx.For, list[tirx.Buffer]]:
    """One statement as a kernel, and the global memory that its blocks work in."""
    if isinstance(statement, tirx.For) and statement.kind == tirx.ForKind.PARALLEL:
        variable, extent, body = statement.loop_var, statement.extent, statement.body
    else:
        variable, extent, body = _unit_variable("block"), 1, statement
    # CUDA has no vectors of any number of lanes.
    body = serial(body, tirx.ForKind.PARALLEL, tirx.ForKind.VECTORIZED)
    body, workspaces = _with_workspaces(body, variable, extent)
    body = _thread(_unit_variable("thread"), 1, "threadIdx.x", body)
    return _thread(variable, extent, "blockIdx.x", body), workspaces


def _with_workspaces(body: Any, block: tirx.Var, blocks: Any) -> tuple[Any, list[tirx.Buffer]]:
    """The body with its own global memory as a part of buffers, one for each block.

    CUDA has no allocations of global memory inside of kernels.
    """
    parts = [
        each.buffer
        for each in nodes_of(body, tirx.AllocBuffer)
        if each.buffer.scope() in ("", "global")
    ]
    wholes = {
        part: tirx.decl_buffer([blocks, *part.shape], part.dtype, part.name) for part in parts
    }

    def load(node: TensorLoad) -> Any:
        if node.source not in wholes:
            return node
        return tirx.BufferLoad(wholes[node.source], [block, *node.indices])

    def store(node: tirx.BufferStore) -> tirx.BufferStore:
        if node.buffer not in wholes:
            return node
        return tirx.BufferStore(wholes[node.buffer], node.value, [block, *node.indices])

    def allocation(node: tirx.AllocBuffer) -> Any:
        return tirx.Evaluate(0) if node.buffer in wholes else node

    rules = [(TensorLoad, load), (tirx.BufferStore, store), (tirx.AllocBuffer, allocation)]
    return tvm_ffi.structural_map(body, rules), list(wholes.values())


def _unit_variable(name: str) -> tirx.Var:
    return tirx.Var(name, "int32")


def _thread(variable: tirx.Var, extent: Any, tag: str, body: Any) -> tirx.For:
    zero = tirx.IntImm(variable.ty, 0)
    extent = tirx.IntImm(variable.ty, int(extent)) if isinstance(extent, int) else extent
    axis = tirx.IterVar(
        Range(zero, extent), tirx.Var(variable.name, variable.ty), tirx.IterVar.ThreadIndex, tag
    )
    return tirx.For(variable, zero, extent, tirx.ForKind.THREAD_BINDING, body, axis)
