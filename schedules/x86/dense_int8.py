"""Dense layers of uint8 rows with int8 weights on x86.

The loops are those of `dense`; a step of the reduction multiplies four bytes at a time.
"""

from __future__ import annotations

from typing import Any

from tvm import te
from tvm.target import Target

from ..anchor import register_anchor_rule
from ..config import ConfigEntity
from ..matmul import DenseWorkload
from ..strategy import Implementation, register
from . import dense
from .int8_dot import BYTES, accumulate
from .matmul_rules import Extents, plan
from .matmul_tile import TiledMatmul, register_tile, tiled_product, view

PACKED = "dense_packed_int8.x86"


def pack_weight(ops: Any, weight: Any, config: ConfigEntity) -> Any:
    """(k, n) -> (n / tile_n, k / 4, tile_n, 4), n padded with zeros to whole tiles."""
    panels = dense.pack_weight(ops, weight, config)
    tiles, k, columns = (int(extent) for extent in panels.shape)
    apart = ops.reshape(panels, (tiles, k // BYTES, BYTES, columns))
    return ops.transpose(apart, (0, 1, 3, 2))


def compute(w: DenseWorkload, config: ConfigEntity, x: te.Tensor, panel: te.Tensor) -> Any:
    """x (*lead, k), weight as packed -> (*lead, n)."""
    extents, tile = (None, w.m, w.n, w.k), register_tile(config)
    columns = int(panel.shape[2])

    def element(_: Any, k: Any, column: Any) -> Any:
        return panel[column // columns, k // BYTES, column % columns, k % BYTES]

    rows = dense.row_reader(w, x)
    product = tiled_product(PACKED, config, extents, tile, rows, element, BYTES)
    return view(product, (*w.lead, w.n), len(w.lead))


class TiledInt8Matmul(TiledMatmul):
    """Takes a fused function whose anchor is a tiled product of bytes.

    The loop nest is that of floats; a step is a dot product of four bytes in every lane.
    """

    def loops(self, sch: Any, anchor: Any) -> list[Any]:
        return list(sch.get_loops(anchor))[:-1]

    def multiply(self, sch: Any, anchor: Any, lane: Any, reduced: Any, target: Target) -> None:
        accumulate(sch, anchor, reduced, target)


def fallback(w: DenseWorkload, target: Target) -> ConfigEntity:
    """By the cost rules of products of int32, one of which is as large as four bytes."""
    return plan(Extents(1, w.m, w.n, w.k // BYTES, BYTES), target, w.out_dtype, w.weight)


def supports(w: DenseWorkload, _: Target) -> bool:
    """uint8 by constant int8, whole steps."""
    types = (w.dtype, w.rhs_dtype, w.out_dtype)
    return types == ("uint8", "int8", "int32") and w.weight is None and w.k % BYTES == 0


register(
    "nn.dense",
    "cpu",
    Implementation(PACKED, 16, supports, fallback, compute, DenseWorkload.stored_args, pack_weight),
)
register_anchor_rule(PACKED, TiledInt8Matmul())
