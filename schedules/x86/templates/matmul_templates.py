"""AutoTVM's x86 templates of matrix products, so that its tuning records apply.

dense_pack.x86    packed weights (n / bn, k, bn), register tile over rows
dense_nopack.x86  weights (n, k) as they are; partial sums in the vector lanes
batch_matmul.x86  the same for stacks of matrices

Factors of a record multiply to the extents; with others, a tile beyond the extent computes
unused values, or adds zeros along k. The first factor of a split is never used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tvm import te, tirx
from tvm.target import Target

from ...anchor import AnchorRule, register_anchor_rule
from ...config import ConfigEntity, split
from ...epilogue import inline_epilogue
from ...matmul import BatchMatmulWorkload, DenseWorkload, Operand, Product
from ...strategy import register
from ..conv.register_tile import largest_divisor
from ..machine.cpu import Machine
from ..matmul.dense import is_float, is_integer, pack_weight
from ..matmul.matmul_tile import flatten_rows, product, schedule_alone, tiled_product, view

DENSE_PACK = "dense_pack.x86"
DENSE_NOPACK = "dense_nopack.x86"
BATCH_MATMUL = "batch_matmul.x86"

# A body of more unrolled multiply-adds than this costs more to compile and to fetch than it saves.
MAX_UNROLLED = 512


# --- compute -----------------------------------------------------------------------------


def compute_pack(w: DenseWorkload, config: ConfigEntity, x: te.Tensor, panel: te.Tensor) -> Any:
    """x (*lead, k), weight as `pack_weight` packs it, run-time ones too -> (*lead, n)."""
    return product(DENSE_PACK, replace(w, weight=None), config, x, panel)


def compute_nopack(w: DenseWorkload, config: ConfigEntity, x: te.Tensor, weight: te.Tensor) -> Any:
    """x (*lead, k), weight stored as `w.weight` says, a constant as (n, k) -> (*lead, n)."""
    if w.weight is None:
        w = replace(w, weight=Operand((w.n, w.k), (1, 0)))
    return view(_padded_product(DENSE_NOPACK, w, config, x, weight), w.shape, len(w.lead))


def transpose_weight(ops: Any, weight: Any, _: ConfigEntity) -> Any:
    """(k, n) -> (n, k)."""
    return ops.transpose(weight, (1, 0))


def compute_batch_matmul(
    w: BatchMatmulWorkload, config: ConfigEntity, lhs: te.Tensor, rhs: te.Tensor
) -> Any:
    """lhs and rhs stored as the workload's operands say -> (*batch, m, n)."""
    return view(_padded_product(BATCH_MATMUL, w, config, lhs, rhs), w.shape, 1)


def _padded_product(
    rule: str, w: Product, config: ConfigEntity, x: te.Tensor, rhs: te.Tensor
) -> te.Tensor:
    """A product of whole tiles: the last column is repeated, and k is filled up with zeros."""
    batch, m, n, k = w.extents
    tile_m, tile_n, lanes = (config.size(f"tile_{axis}")[-1] for axis in "yxk")
    read_left, read_right = w.read_left(x), w.read_right(rhs)

    def left(b: Any, row: Any, step: Any) -> Any:
        if k % lanes == 0:
            return read_left(b, row, step)
        value = read_left(b, row, te.min(step, k - 1)).astype(w.out_dtype)
        return tirx.if_then_else(step < k, value, tirx.const(0, w.out_dtype))

    def right(b: Any, step: Any, column: Any) -> Any:
        step = step if k % lanes == 0 else te.min(step, k - 1)
        return read_right(b, step, column if n % tile_n == 0 else te.min(column, n - 1))

    whole = (batch, m, n, -(-k // lanes) * lanes)
    return tiled_product(rule, config, whole, (tile_m, tile_n), w.out_dtype, left, right)


def plain_batch_matmul_args(w: BatchMatmulWorkload) -> tuple[Any, ...]:
    """Workload arguments of (b, m, k) times (b, k, n) as it is."""
    lhs, (_, _, dtype), out, out_dtype, *_ = w.autotvm_args()
    rhs = ("TENSOR", (math.prod(w.rhs.batch), w.k, w.n), dtype)
    return (lhs, rhs, out, out_dtype, False, False)


# --- schedule ----------------------------------------------------------------------------


class DensePack(AnchorRule):
    """Schedule a fused function whose anchor is a product with dense_pack.x86's knobs.

    Loop nest, with t = tile_inner[-1]; records before 2021 lack tile_inner, have t = 1, and their
    tasks go rows first:

        parallel xt, yt
          yo, xo
            registers[yi, xi] = 0
            ko
              unrolled yi / t, ki, t; vector xi: fma
            epilogue of the tile: unrolled yi, vector xi
    """

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        lanes = Machine.from_target(target).lanes("float32")
        parts = inline_epilogue(sch, anchor)
        flatten_rows(sch, parts)

        i, j = sch.get_loops(parts.output)
        yt, yo, yi = sch.split(i, [None, *config.size("tile_y")[1:]])
        xt, xo, xi = sch.split(j, [None, *config.size("tile_x")[1:]])
        tasks = (xt, yt) if "tile_inner" in config else (yt, xt)
        sch.reorder(*tasks, yo, xo, yi, xi)
        sch.parallel(sch.fuse(*tasks))
        sch.vectorize(xi)
        if not parts.costly_output:
            sch.unroll(yi)
        for block in reversed(parts.repeated):
            sch.compute_at(block, xo, preserve_unit_loops=True)
            sch.vectorize(sch.get_loops(block)[-1])
        sch.compute_at(anchor, xo, preserve_unit_loops=True)
        self._accumulate(sch, anchor, config)
        for block in parts.before:
            schedule_alone(sch, block, lanes, parallel=True)
        return sch

    @staticmethod
    def _accumulate(sch: Any, anchor: Any, config: ConfigEntity) -> None:
        yi, xi, k = sch.get_loops(anchor)[-3:]
        rows, steps = config.size("tile_y")[-1], config.size("tile_k")[-1]
        ko, ki = sch.split(k, [None, steps])
        inner = config.size("tile_inner")[-1] if "tile_inner" in config else 1
        y_outer, y_inner = sch.split(yi, [None, inner])
        if inner > 1:
            sch.reorder(ko, y_outer, ki, y_inner, xi)
        else:
            sch.reorder(ko, ki, y_outer, y_inner, xi)
        sch.vectorize(xi)
        if rows <= MAX_UNROLLED:
            sch.unroll(y_outer)
            sch.unroll(y_inner)
        if rows * steps <= MAX_UNROLLED:
            sch.unroll(ki)
        sch.decompose_reduction(anchor, ko)


class LaneReduction(AnchorRule):
    """Schedule a fused function whose anchor is a product with partial sums in the vector lanes.

    Loop nest, with v = tile_k[-1]; "k first" for dense_nopack.x86, "k last" for batch_matmul.x86:

        parallel [batch,] yo, xo
          partial[yi, xi, v] = 0
          k first: k > unrolled yi, xi > vector v; k last: yi, xi > k > vector v: fma
          yi, xi: sum over v            [k first: unrolled v]
          epilogue of the tile
    """

    def __init__(self, k_first: bool) -> None:
        self.k_first = k_first

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        tile_y, tile_x, tile_k = (config.size(f"tile_{axis}")[-1] for axis in "yxk")
        lanes = Machine.from_target(target).lanes("float32")
        batched = len(sch.get_loops(anchor)) == 4
        parts = inline_epilogue(sch, anchor)
        if not batched:
            flatten_rows(sch, parts)
        _, lane = sch.split(sch.get_loops(anchor)[-1], [None, tile_k])
        partial = sch.rfactor(lane, -1)

        *batch, i, j = sch.get_loops(parts.output)
        yo, yi = sch.split(i, [None, tile_y])
        xo, xi = sch.split(j, [None, tile_x])
        sch.reorder(*batch, yo, xo, yi, xi)
        task = sch.fuse(*batch, yo, xo)
        sch.parallel(task)
        for block in (*reversed(parts.repeated), anchor, partial):
            sch.compute_at(block, task, preserve_unit_loops=True)

        # compute_at makes loops in the order of the block's iterators: the rfactored one first.
        _, lane, *_, yi, xi = sch.get_loops(anchor)
        sch.reorder(yi, xi, lane)
        if self.k_first:
            sch.unroll(lane)
        _, lane, *_, yi, xi, k = sch.get_loops(partial)
        if self.k_first:
            sch.reorder(k, yi, xi, lane)
            if tile_y * tile_x <= MAX_UNROLLED:
                sch.unroll(yi)
                sch.unroll(xi)
        else:
            sch.reorder(yi, xi, k, lane)
        sch.vectorize(lane)
        sch.decompose_reduction(partial, k)
        for block in parts.before:
            schedule_alone(sch, block, lanes, parallel=True)
        return sch


# --- fallback ----------------------------------------------------------------------------


def _halved_divisor(extent: int) -> int:
    """8, halved until it divides."""
    return math.gcd(extent, 8)


def is_number(w: DenseWorkload | BatchMatmulWorkload) -> bool:
    """Types that the templates compute in."""
    return is_float(w) or is_integer(w)


def pack_fallback(w: DenseWorkload, target: Target) -> ConfigEntity:
    """TVM 0.18's values for a dense_pack.x86 without record."""
    lanes = Machine.from_target(target).lanes("float32")
    xi = largest_divisor(w.n, 2 * lanes)
    xo = 1
    while w.n // xi // xo > 4 and w.n // xi // xo % 2 == 0:
        xo *= 2
    yi = _halved_divisor(w.m)
    yo = _halved_divisor(w.m // yi)
    return ConfigEntity(
        {
            "tile_y": split(w.m // yi // yo, yo, yi),
            "tile_x": split(w.n // xi // xo, xo, xi),
            "tile_k": split(w.k, 1),
            "tile_inner": split(w.m // yi, yi),
        }
    )


def nopack_fallback(w: DenseWorkload, target: Target) -> ConfigEntity:
    """TVM 0.18's values for a dense_nopack.x86 without record."""
    lanes = largest_divisor(w.k, 2 * Machine.from_target(target).lanes("float32"))
    return ConfigEntity(
        {"tile_k": split(w.k // lanes, lanes), "tile_x": split(w.n, 1), "tile_y": split(1, w.m)}
    )


def batch_matmul_fallback(w: BatchMatmulWorkload, _: Target) -> ConfigEntity:
    """TVM 0.18's values for a batch_matmul.x86 without record, with a factor that divides k."""
    lanes = largest_divisor(w.k, 16)
    yi, xi = _halved_divisor(w.m), _halved_divisor(w.n)
    return ConfigEntity(
        {
            "tile_k": split(w.k // lanes, lanes),
            "tile_x": split(w.n // xi, xi),
            "tile_y": split(w.m // yi, yi),
        }
    )


def _takes(is_constant: bool) -> Callable[[DenseWorkload, Target], bool]:
    return lambda w, _: is_number(w) and (w.weight is None) == is_constant


_PACK = pack_fallback, compute_pack, DenseWorkload.autotvm_args, pack_weight
_NOPACK = nopack_fallback, compute_nopack, DenseWorkload.autotvm_args
register("nn.dense", "cpu", DENSE_PACK, 10, _takes(True), *_PACK, rule=DensePack())
# A weight that is computed at run time is packed at run time: only where a record says so.
register("nn.dense", "cpu", DENSE_PACK, 4, _takes(False), *_PACK)
register("nn.dense", "cpu", DENSE_NOPACK, 5, _takes(False), *_NOPACK, rule=LaneReduction(True))
register("nn.dense", "cpu", DENSE_NOPACK, 5, _takes(True), *_NOPACK, transpose_weight)


def _batch_matmul(plevel: int, supports: Callable[[Any], bool], task_args: Any) -> None:
    register(
        *("nn.batch_matmul", "cpu", BATCH_MATMUL, plevel),
        lambda w, _: is_number(w) and supports(w),
        *(batch_matmul_fallback, compute_batch_matmul, task_args),
    )


_batch_matmul(10, lambda w: True, BatchMatmulWorkload.autotvm_args)
# Relay's own batch_matmul could also say that its second operand is not transposed.
_batch_matmul(9, lambda w: w.rhs.contiguous_columns, plain_batch_matmul_args)
register_anchor_rule(BATCH_MATMUL, LaneReduction(k_first=False))
