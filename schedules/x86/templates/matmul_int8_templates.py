"""AutoTVM's templates dense_int8.x86 and batch_matmul_int8.x86: uint8 by int8 into int32.

Records with knobs for AMX tiles are rejected.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import te
from tvm.target import Target

from ...anchor import AnchorRule
from ...config import ConfigEntity, option, split
from ...epilogue import inline_epilogue
from ...matmul import (
    BatchMatmulWorkload,
    DenseWorkload,
    Product,
    register_batch_matmul,
    register_dense,
)
from ..machine.cpu import Machine
from ..machine.dot_product import BYTES, OF_BYTES, accumulate
from ..matmul.matmul_tile import PANEL, flatten_rows, product, schedule_alone

DENSE = "dense_int8.x86"
BATCH_MATMUL = "batch_matmul_int8.x86"

COLUMNS = 16  # of one panel of the packed right operand
FALLBACK_ROWS = 32


# --- compute -----------------------------------------------------------------------------


def pack_weight(ops: Any, weight: Any, _: ConfigEntity) -> Any:
    """(k, n) -> (n/16, k/4, 16, 4)."""
    k, n = (int(d) for d in weight.shape)
    tiles = ops.reshape(weight, (k // BYTES, BYTES, n // COLUMNS, COLUMNS))
    return ops.transpose(tiles, (2, 0, 3, 1))


def compute(rule: str, w: Product, config: ConfigEntity, x: te.Tensor, rhs: te.Tensor) -> te.Tensor:
    """x times a weight as packed, or the other stack of matrices, which tasks pack."""
    return product(rule, w, config, x, rhs, OF_BYTES, (config.size("tile_y")[-1], COLUMNS))


# --- schedule ----------------------------------------------------------------------------


class Int8Product(AnchorRule):
    """Schedule a fused function whose anchor is one of the templates of this file.

    [layout_trans_compute_root: parallel batch, n/16: pack the panel]
    parallel [batch,] yo, n/16
      [else: pack the panel]
      yi
        k/4: dots of four bytes in 16 lanes
        epilogue of the 16 columns
    """

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        batched = len(sch.get_loops(anchor)) == 5
        parts = inline_epilogue(sch, anchor, keep=(PANEL,))
        if not batched:
            flatten_rows(sch, parts)

        *batch, i, j = sch.get_loops(parts.output)
        yo, yi = sch.split(i, [None, config.size("tile_y")[-1]])
        tile, lane = sch.split(j, [None, COLUMNS])
        sch.reorder(*batch, yo, tile, yi, lane)
        task = sch.fuse(*batch, yo, tile)
        sch.parallel(task)
        sch.vectorize(lane)
        for block in reversed(parts.repeated):
            sch.compute_at(block, yi, preserve_unit_loops=True)
            sch.vectorize(sch.get_loops(block)[-1])
        sch.compute_at(anchor, yi, preserve_unit_loops=True)
        lanes = Machine.from_target(target).lanes("int32")
        for block in parts.before:
            if str(sch.get(block).name_hint) != PANEL:
                schedule_alone(sch, block, lanes, parallel=True)
            elif config.val("layout_trans_compute_root"):
                sch.parallel(sch.fuse(*sch.get_loops(block)[:2]))
            else:
                sch.compute_at(block, task, preserve_unit_loops=True)
        lane, group, byte = sch.get_loops(anchor)[-3:]
        sch.reorder(group, lane, byte)
        accumulate(sch, anchor, group, target)
        return sch


# --- fallback ----------------------------------------------------------------------------


def fallback(w: Product, _: Target) -> ConfigEntity:
    """Fallback values of both templates."""
    tile_y = split(-1, min(FALLBACK_ROWS, w.m))
    return ConfigEntity({"tile_y": tile_y, "layout_trans_compute_root": option(0)})


def packed_args(w: DenseWorkload) -> tuple[Any, ...]:
    """Workload arguments of dense_int8.x86, whose weight TVM's layout pass had packed."""
    data, (tag, _, dtype), bias, out_dtype = w.autotvm_args()
    shape = (w.n // COLUMNS, w.k // BYTES, COLUMNS, BYTES)
    return (data, (tag, shape, dtype), bias, out_dtype)


def _supports(w: Product) -> bool:
    types = (w.dtype, w.rhs_dtype, w.out_dtype)
    return types == ("uint8", "int8", "int32") and w.n % COLUMNS == 0 and w.k % BYTES == 0


register_dense(
    *(DENSE, 13, lambda w, _: _supports(w) and w.weight is None, fallback),
    partial(compute, DENSE),
    task_args=packed_args,
    pack=pack_weight,
    rule=Int8Product(),
)
register_batch_matmul(
    *(BATCH_MATMUL, 13, lambda w, _: _supports(w), fallback, partial(compute, BATCH_MATMUL)),
    task_args=BatchMatmulWorkload.autotvm_args,
    rule=Int8Product(),
)
