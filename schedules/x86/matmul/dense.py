"""Dense layers on x86: x (..., k) times one matrix (k, n).

dense_packed.x86  constant weights, packed into panels; the default for them
dense_tiled.x86   weights that are computed at run time; each task copies its panel
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm.target import Target

from ...config import ConfigEntity
from ...conv2d import INTEGERS
from ...matmul import DenseWorkload, Operand, register_dense
from ..machine.cpu import Machine
from .matmul_rules import Extents, cycles, fallback
from .matmul_tile import TiledMatmul, product, register_tile

PACKED = "dense_packed.x86"
TILED = "dense_tiled.x86"


def pack_weight(ops: Any, weight: Any, config: ConfigEntity) -> Any:
    """(k, n) -> (n / tile_n, k, tile_n), n padded with zeros to whole tiles."""
    tile_n = register_tile(config)[1]
    k, n = (int(d) for d in weight.shape)
    missing = -n % tile_n
    if missing:
        weight = ops.pad(weight, ((0, 0), (0, missing)))
    tiles = ops.reshape(weight, (k, (n + missing) // tile_n, tile_n))
    return ops.transpose(tiles, (1, 0, 2))


def packed_cycles(w: DenseWorkload, target: Target) -> float:
    """Estimate cycles on one core."""
    machine = Machine.from_target(target)
    return cycles(Extents.of(w), machine, machine.lanes(w.dtype))


def is_dot(m: int, rhs: Operand) -> bool:
    """Whether one row meets a transposed matrix: dot products, for which no copy pays."""
    return m == 1 and rhs.contiguous_rows


def is_float(w: Any) -> bool:
    """Whether the products and their sums are of one floating-point type with vectors."""
    types = {w.dtype, w.rhs_dtype or w.dtype, w.out_dtype}
    return types in ({"float32"}, {"float64"})


def is_integer(w: Any) -> bool:
    """Whether the operands are integers and their sums are int32."""
    return w.out_dtype == "int32" and {w.dtype, w.rhs_dtype or w.dtype} <= INTEGERS


register_dense(
    PACKED,
    15,
    lambda w, _: is_float(w) and w.weight is None,
    fallback,
    partial(product, PACKED),
    pack=pack_weight,
    cycles=packed_cycles,
    is_default=True,
    rule=TiledMatmul(),
)
register_dense(
    TILED,
    15,
    lambda w, _: is_float(w) and w.weight is not None and not is_dot(w.m, w.weight),
    fallback,
    partial(product, TILED),
    rule=TiledMatmul(),
)
