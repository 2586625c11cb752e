"""AutoTVM's CUDA templates of matrix products.

dense_small_batch.gpu   one block of threads for each element of the result
dense_large_batch.gpu   a tile of the result for each block
batch_matmul.cuda       the same for stacks of matrices
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tvm import te
from tvm.target import Target

from ...anchor import AnchorRule, register_anchor_rule
from ...config import ConfigEntity, option, split
from ...epilogue import Surroundings, inline_epilogue
from ...matmul import BatchMatmulWorkload, DenseWorkload, Operand
from ...strategy import anchor_attrs, register
from ...x86.matmul.matmul_tile import flatten_rows, view
from ...x86.templates.matmul_templates import plain_batch_matmul_args, transpose_weight
from ..verified_rule import Checked
from .conv2d_template import BLOCK_ZYX, is_float
from .template_loops import (
    accumulate_in_registers,
    bind_all,
    own_loops,
    share,
    split_reduction,
    split_threads,
    unroll,
)

SMALL_BATCH = "dense_small_batch.gpu"
LARGE_BATCH = "dense_large_batch.gpu"
BATCH_MATMUL = "batch_matmul.cuda"

# Fewer rows than this and AutoTVM's strategy does not offer the large batch.
LARGE_ROWS = 32
# Elements along k that a thread copies to shared memory at once.
RUN = 4


# --- compute -----------------------------------------------------------------------------


def compute_dense(
    w: DenseWorkload, config: ConfigEntity, rule: str, x: te.Tensor, weight: te.Tensor
) -> Any:
    """x (*lead, k), weight stored as `w.weight` says, a constant as (n, k) -> (*lead, n)."""
    if w.weight is None:
        w = replace(w, weight=Operand((w.n, w.k), (1, 0)))
    left, right = w.read_left(x), w.read_right(weight)
    k = te.reduce_axis((0, w.k), "k")
    product = te.compute(
        (w.m, w.n),
        lambda i, j: te.sum(left(None, i, k) * right(None, k, j), axis=[k]),
        name="dense",
        attrs=anchor_attrs(rule, config),
    )
    return view(product, (*w.lead, w.n), len(w.lead))


def compute_batch_matmul(
    w: BatchMatmulWorkload, config: ConfigEntity, lhs: te.Tensor, rhs: te.Tensor
) -> Any:
    """lhs and rhs stored as the workload's operands say -> (*batch, m, n)."""
    left, right = w.read_left(lhs), w.read_right(rhs)
    k = te.reduce_axis((0, w.k), "k")
    product = te.compute(
        (math.prod(w.batch), w.m, w.n),
        lambda b, i, j: te.sum(left(b, i, k) * right(b, k, j), axis=[k]),
        name="batch_matmul",
        attrs=anchor_attrs(BATCH_MATMUL, config),
    )
    return view(product, (*w.batch, w.m, w.n), 1)


# --- schedule ----------------------------------------------------------------------------


class SmallBatch(AnchorRule):
    """Takes a fused function whose anchor is `dense_small_batch.gpu`.

    blockIdx.y = row   blockIdx.x = column
      threadIdx.x over the inner part of k
        k: partial sum
      sum over the threads; thread 0 writes, with the epilogue
    """

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        parts = _surroundings(sch, anchor)
        if parts is None:
            return None
        flatten_rows(sch, parts)
        threads = min(config.size("tile_k")[-1], int(sch.get(sch.get_loops(anchor)[-1]).extent))
        row, column = sch.get_loops(parts.output)
        bind_all(sch, [row, column], BLOCK_ZYX[1:])
        sch.compute_at(anchor, column, preserve_unit_loops=True)
        sch.set_scope(anchor, 0, "shared")
        _, thread = sch.split(own_loops(sch, anchor)[-1], [None, threads])
        sch.bind(thread, "threadIdx.x")
        # The one result of a block is written by the one thread that passes this split's guard.
        one = sch.add_unit_loop(parts.output)
        _, thread = sch.split(one, [None, threads])
        sch.bind(thread, "threadIdx.x")
        return sch


class LargeBatch(AnchorRule):
    """Takes a fused function whose anchor is `dense_large_batch.gpu`.

    blockIdx.y = columns   blockIdx.x = rows
      virtual columns, rows
        threadIdx.y = columns   threadIdx.x = rows
          registers = 0
          ko
            both operands -> shared, two buffers in turn
            unrolled kt
              both operands -> registers
              ki, column, row: fma
          epilogue
    """

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        parts = _surroundings(sch, anchor)
        if parts is None:
            return None
        flatten_rows(sch, parts)
        row, column = sch.get_loops(parts.output)
        bx, vx, tx, xi = split_threads(sch, row, config.size("tile_x"))
        by, vy, ty, yi = split_threads(sch, column, config.size("tile_y"))
        sch.reorder(by, bx, vy, vx, ty, tx, yi, xi)
        bind_all(sch, [by, bx], BLOCK_ZYX[1:])
        bind_all(sch, [vy, vx], ("vthread.y", "vthread.x"))
        bind_all(sch, [ty, tx], ("threadIdx.y", "threadIdx.x"))

        xi, yi, k = accumulate_in_registers(sch, anchor, tx)
        ko, kt, ki = split_reduction(sch, k, config.size("tile_k"))
        sch.reorder(ko, kt, ki, yi, xi)
        sch.unroll(kt)
        copies = share(sch, anchor, (0, 1), ko)
        for operand in (0, 1):
            register = sch.cache_read(anchor, operand, "local")
            sch.compute_at(register, kt, preserve_unit_loops=True)
        threads = (config.size("tile_y")[2], config.size("tile_x")[2])
        for copy in copies:
            _copy_rows(sch, copy, threads, RUN)
        sch.decompose_reduction(anchor, ko)
        if int(sch.get(ko).extent) > 1:
            # Both copies of a step run while the step before it is computed.
            sch.annotate(ko, "software_pipeline_stage", [0, 0, 1])
            sch.annotate(ko, "software_pipeline_order", [0, 1, 2])
        return sch


class BatchMatmul(AnchorRule):
    """Takes a fused function whose anchor is `batch_matmul.cuda`.

    blockIdx.z = batch   blockIdx.y = rows   blockIdx.x = columns
      threadIdx.y = rows   threadIdx.x = columns
        registers = 0
        ko
          both operands -> shared
          ki
            both operands -> registers
            row, column: fma
        epilogue
    """

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        parts = _surroundings(sch, anchor)
        if parts is None:
            return None
        *batch, row, column = sch.get_loops(parts.output)
        by, ty, yi = split_threads(sch, row, config.size("tile_y"))
        bx, tx, xi = split_threads(sch, column, config.size("tile_x"))
        sch.reorder(*batch, by, bx, ty, tx, yi, xi)
        outermost = sch.fuse(*batch)
        bind_all(sch, [outermost, by, bx], BLOCK_ZYX)
        bind_all(sch, [ty, tx], ("threadIdx.y", "threadIdx.x"))

        *spatial, k = accumulate_in_registers(sch, anchor, tx)
        ko, ki = split_reduction(sch, k, config.size("tile_k"))
        sch.reorder(ko, ki, *spatial)
        copies = share(sch, anchor, (0, 1), ko)
        for operand in (0, 1):
            register = sch.cache_read(anchor, operand, "local")
            sch.compute_at(register, ki, preserve_unit_loops=True)
        for copy in copies:
            _copy_rows(sch, copy, (config.size("tile_y")[1], config.size("tile_x")[1]), None)
        sch.decompose_reduction(anchor, ko)
        unroll(sch, outermost, config)
        return sch


def _surroundings(sch: Any, anchor: Any) -> Surroundings | None:
    """Inlined producers and epilogue of the anchor; None where costly values would be repeated."""
    parts = inline_epilogue(sch, anchor)
    for block in parts.before:
        sch.compute_inline(block)
    return None if parts.repeated else parts


def _copy_rows(sch: Any, copy: Any, threads: tuple[int, int], run: int | None) -> None:
    """Threads copy together: threadIdx.y takes rows, threadIdx.x runs of the last axis.

    `threads`: extents of threadIdx.y and threadIdx.x.
    `run`: length of a run; None for one run a thread.
    """
    *outer, row, k = own_loops(sch, copy)
    ty, rows = sch.split(row, [threads[0], None])
    if run is None:
        tx, rest = sch.split(k, [threads[1], None])
        steps = [rest]
    else:
        step, tx, rest = sch.split(k, [None, threads[1], run])
        steps = [step, rest]
    sch.reorder(*outer, ty, tx, rows, *steps)
    sch.bind(ty, "threadIdx.y")
    sch.bind(tx, "threadIdx.x")


# --- fallback ----------------------------------------------------------------------------


def small_batch_fallback(w: DenseWorkload, _: Target) -> ConfigEntity:
    """Fallback values of dense_small_batch.gpu."""
    return ConfigEntity({"tile_k": split(-1, 64) if w.k > 64 else split(1, 64)})


def large_batch_fallback(w: DenseWorkload, _: Target) -> ConfigEntity:
    """Fallback values of dense_large_batch.gpu."""
    tiles = [split(-1, 2, 16, 2) if extent > 1 else split(1, 1, 1, 1) for extent in (w.m, w.n)]
    tile_k = split(-1, 8, 1) if w.k > 8 else split(-1, 1, 1)
    return ConfigEntity({"tile_x": tiles[0], "tile_y": tiles[1], "tile_k": tile_k})


def batch_matmul_fallback(w: BatchMatmulWorkload, _: Target) -> ConfigEntity:
    """Fallback values of batch_matmul.cuda."""
    rows, columns = math.gcd(w.m, 64), math.gcd(w.n, 64)
    return ConfigEntity(
        {
            "tile_y": split(-1, min(rows, 8), rows // min(rows, 8)),
            "tile_x": split(-1, min(columns, 8), columns // min(columns, 8)),
            "tile_k": split(-1, 8),
            "auto_unroll_max_step": option(16),
            "unroll_explicit": option(0),
        }
    )


def _dense(name: str, plevel: int, least_rows: int, fallback: Any, rule: Any) -> None:
    for constant in (True, False):
        register(
            "nn.dense",
            "cuda",
            name,
            plevel,
            lambda w, _, constant=constant: (
                w.rhs_dtype in ("", w.dtype)
                and is_float(w.dtype, w.out_dtype)
                and w.m >= least_rows
                and (w.weight is None) == constant
            ),
            fallback,
            lambda w, config, x, weight: compute_dense(w, config, name, x, weight),
            DenseWorkload.autotvm_args,
            transpose_weight if constant else None,
            only_recorded=True,
        )
    register_anchor_rule(name, Checked(name, rule))


_dense(SMALL_BATCH, 10, 1, small_batch_fallback, SmallBatch())
_dense(LARGE_BATCH, 5, LARGE_ROWS, large_batch_fallback, LargeBatch())


def _batch_matmul(plevel: int, supports: Any, task_args: Any) -> None:
    register(
        "nn.batch_matmul",
        "cuda",
        BATCH_MATMUL,
        plevel,
        lambda w, _: (
            w.rhs_dtype in ("", w.dtype) and is_float(w.dtype, w.out_dtype) and supports(w)
        ),
        batch_matmul_fallback,
        compute_batch_matmul,
        task_args,
        only_recorded=True,
    )


_batch_matmul(10, lambda w: True, BatchMatmulWorkload.autotvm_args)
_batch_matmul(9, lambda w: w.rhs.contiguous_columns, plain_batch_matmul_args)
register_anchor_rule(BATCH_MATMUL, Checked(BATCH_MATMUL, BatchMatmul()))
