"""Software prefetch of packed weights, which a kernel reads once and in order.

The hardware runs a few cache lines ahead and not beyond a page; from memory that hides a third of
the latency. A loop that a schedule annotates with `mark(...)` asks for the lines that it will read
some steps later:

    for k:                                   for k:
      acc += data[..., k] * weight[o, k, :]    prefetch weight[o, k + distance, :]
                                               acc += data[..., k] * weight[o, k, :]
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad

ANNOTATION = "baton.prefetch_bytes"

# One cache line, and how far ahead to ask: memory's latency times the rate at which a core's
# multiply-adds use weights.
LINE_BYTES = 64
DISTANCE_BYTES = 8192


def mark(sch: s_tir.Schedule, loop: Any) -> None:
    """Have `insert_prefetches` prefetch the last operand of the product in this loop."""
    sch.annotate(loop, ANNOTATION, DISTANCE_BYTES)


def insert_prefetches(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Put the prefetches into the loops that are marked; other functions stay as they are."""

    def rewrite(loop: Any) -> Any:
        if ANNOTATION not in loop.annotations:
            return loop
        distance = int(loop.annotations[ANNOTATION])
        annotations = {k: v for k, v in loop.annotations.items() if k != ANNOTATION}
        body = tirx.SeqStmt([*_prefetches(loop, distance), loop.body])
        return tirx.For(
            loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, annotations
        )

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, rewrite)))


def _prefetches(loop: Any, distance: int) -> list[Any]:
    """A prefetch for each line of weights that one iteration of the loop reads."""
    found: list[Any] = []

    def realize(node: Any) -> None:
        found.append(node)

    tvm_ffi.structural_walk(loop.body, (s_tir.SBlockRealize, realize))
    block = found[0].block
    loads: list[Any] = []
    tvm_ffi.structural_walk(block.body, (TensorLoad, lambda load: loads.append(load)))
    weight = loads[-1]
    values = dict(zip((iter_var.var for iter_var in block.iter_vars), found[0].iter_values))
    indices = [tirx.stmt_functor.substitute(index, values) for index in weight.indices]
    inner: list[Any] = []
    tvm_ffi.structural_walk(loop.body, (tirx.For, lambda inside: inner.append(inside)))
    print(loads, inner)
    return []
