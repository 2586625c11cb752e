"""AutoTVM's templates dense_int8.x86 and batch_matmul_int8.x86: uint8 by int8 into int32.

Their forms for AMX tiles are not here: records with the knobs of those are refused.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import te
from tvm.target import Target

from ..anchor import AnchorRule, register_anchor_rule
from ..config import ConfigEntity, option, split
from ..epilogue import inline_epilogue
from ..matmul import BatchMatmulWorkload, DenseWorkload
from ..strategy import Implementation, anchor_attrs, register
from .batch_matmul import readers
from .dense import row_reader
from .dots import BYTES, accumulate
from .machine import Machine
from .matmul_tile import flatten_rows, schedule_alone, view

DENSE = "dense_int8.x86"
BATCH_MATMUL = "batch_matmul_int8.x86"

COLUMNS = 16  # of one panel of the packed right operand
FALLBACK_ROWS = 32
PACKED = "packed_rhs"


# --- compute -----------------------------------------------------------------------------


def pack_weight(ops: Any, weight: Any, _: ConfigEntity) -> Any:
    """(k, n) -> (n/16, k/4, 16, 4)."""
    k, n = (int(d) for d in weight.shape)
    tiles = ops.reshape(weight, (k // BYTES, BYTES, n // COLUMNS, COLUMNS))
    return ops.transpose(tiles, (2, 0, 3, 1))


def compute_dense(w: DenseWorkload, config: ConfigEntity, x: te.Tensor, panel: te.Tensor) -> Any:
    """x (*lead, k), weight as packed -> (*lead, n)."""

    def panel_of(_: Any, tile: Any, group: Any, lane: Any, byte: Any) -> Any:
        return panel[tile, group, lane, byte]

    product = _product(DENSE, config, (None, w.m, w.n, w.k), row_reader(w, x), panel_of)
    return view(product, (*w.lead, w.n), len(w.lead))


def compute_batch_matmul(
    w: BatchMatmulWorkload, config: ConfigEntity, lhs: te.Tensor, rhs: te.Tensor
) -> Any:
    """lhs and rhs stored as the workload's operands say -> (*batch, m, n)."""
    left, right = readers(w, lhs, rhs)
    batch = math.prod(w.batch)
    packed = te.compute(
        (batch, w.n // COLUMNS, w.k // BYTES, COLUMNS, BYTES),
        lambda b, tile, group, lane, byte: right(b, group * BYTES + byte, tile * COLUMNS + lane),
        name=PACKED,
    )

    def panel_of(b: Any, tile: Any, group: Any, lane: Any, byte: Any) -> Any:
        return packed[b, tile, group, lane, byte]

    product = _product(BATCH_MATMUL, config, (batch, w.m, w.n, w.k), left, panel_of)
    return view(product, (*w.batch, w.m, w.n), 1)


def _product(
    rule: str,
    config: ConfigEntity,
    extents: tuple[int | None, int, int, int],
    lhs: Any,
    panel_of: Any,
) -> te.Tensor:
    """The anchor: ([batch,] m, n), m rounded up to whole tiles whose last rows repeat the last."""
    batch, m, n, k = extents
    rows = config.size("tile_y")[-1]
    group = te.reduce_axis((0, k // BYTES), "ko")
    byte = te.reduce_axis((0, BYTES), "ki")

    def element(*index: Any) -> Any:
        *outer, i, j = index
        b = outer[0] if outer else None
        row = i if m % rows == 0 else te.min(i, m - 1)
        left = lhs(b, row, group * BYTES + byte).astype("int32")
        right = panel_of(b, j // COLUMNS, group, j % COLUMNS, byte).astype("int32")
        return te.sum(left * right, axis=[group, byte])

    matrix = (-(-m // rows) * rows, n)
    shape = matrix if batch is None else (batch, *matrix)
    return te.compute(shape, element, name="matmul_int8", attrs=anchor_attrs(rule, config))


# --- schedule ----------------------------------------------------------------------------


class Int8Product(AnchorRule):
    """Takes a fused function whose anchor is one of the templates of this file.

    [layout_trans_compute_root: parallel batch, n/16: pack the panel]
    parallel [batch,] yo, n/16
      [else: pack the panel]
      yi
        k/4: dots of four bytes in 16 lanes
        epilogue of the 16 columns
    """

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        batched = len(sch.get_loops(anchor)) == 5
        parts = inline_epilogue(sch, anchor, keep=(PACKED,))
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
            if str(sch.get(block).name_hint) != PACKED:
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


def dense_fallback(w: DenseWorkload, _: Target) -> ConfigEntity:
    """Fallback values of dense_int8.x86."""
    return ConfigEntity({"tile_y": split(-1, min(FALLBACK_ROWS, w.m))})


def batch_matmul_fallback(w: BatchMatmulWorkload, _: Target) -> ConfigEntity:
    """Fallback values of batch_matmul_int8.x86."""
    tile_y = split(-1, min(FALLBACK_ROWS, w.m))
    return ConfigEntity({"tile_y": tile_y, "layout_trans_compute_root": option(0)})


def packed_args(w: DenseWorkload) -> tuple[Any, ...]:
    """Workload arguments of dense_int8.x86, whose weight TVM's layout pass had packed."""
    data, (tag, _, dtype), bias, out_dtype = w.autotvm_args()
    shape = (w.n // COLUMNS, w.k // BYTES, COLUMNS, BYTES)
    return (data, (tag, shape, dtype), bias, out_dtype)


def _supports(w: DenseWorkload | BatchMatmulWorkload) -> bool:
    types = (w.dtype, w.rhs_dtype, w.out_dtype)
    return types == ("uint8", "int8", "int32") and w.n % COLUMNS == 0 and w.k % BYTES == 0


register(
    "nn.dense",
    "cpu",
    Implementation(
        DENSE,
        13,
        lambda w, _: _supports(w) and w.weight is None,
        dense_fallback,
        compute_dense,
        packed_args,
        pack_weight,
    ),
)
register(
    "nn.batch_matmul",
    "cpu",
    Implementation(
        BATCH_MATMUL,
        13,
        lambda w, _: _supports(w),
        batch_matmul_fallback,
        compute_batch_matmul,
        BatchMatmulWorkload.autotvm_args,
    ),
)
register_anchor_rule(DENSE, Int8Product())
register_anchor_rule(BATCH_MATMUL, Int8Product())
