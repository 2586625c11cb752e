"""Dense layers on x86: x (..., k) times one matrix (k, n).

dense_packed.x86  constant weights, packed into panels; the default for them
dense_tiled.x86   weights that are computed at run time; each task copies its panel
"""

from __future__ import annotations

from typing import Any

from tvm import DataType, te
from tvm.target import Target

from ..anchor import register_anchor_rule
from ..config import ConfigEntity
from ..conv2d import INTEGERS
from ..matmul import DenseWorkload, Operand, unravel
from ..strategy import Implementation, register
from .machine import Machine
from .matmul_rules import Extents, cycles, plan
from .matmul_tile import (
    TiledMatmul,
    panel_reader,
    register_tile,
    run_time_reader,
    tiled_product,
    view,
)

PACKED = "dense_packed.x86"
TILED = "dense_tiled.x86"


# --- compute -----------------------------------------------------------------------------


def pack_weight(ops: Any, weight: Any, config: ConfigEntity) -> Any:
    """(k, n) -> (n / tile_n, k, tile_n), n padded with zeros to whole tiles.

    Parameters
    ----------
    ops
        Has numpy's `pad`, `reshape` and `transpose`: numpy itself for constants.
    config : ConfigEntity
        Of an implementation that takes packed weights; sets tile_n, or tile_x for AutoTVM's.
    """
    tile_n = packed_columns(config)
    k, n = (int(d) for d in weight.shape)
    missing = -n % tile_n
    if missing:
        weight = ops.pad(weight, ((0, 0), (0, missing)))
    tiles = ops.reshape(weight, (k, (n + missing) // tile_n, tile_n))
    return ops.transpose(tiles, (1, 0, 2))


def packed_columns(config: ConfigEntity) -> int:
    """Columns of one panel of the packed weight."""
    return int(config.size("tile_x")[-1] if "tile_x" in config else config.val("tile_n"))


def compute_packed(w: DenseWorkload, config: ConfigEntity, x: te.Tensor, panel: te.Tensor) -> Any:
    """x (*lead, k), weight as packed -> (*lead, n)."""
    extents = (None, w.m, w.n, w.k)
    tile = register_tile(config)
    product = tiled_product(PACKED, config, extents, tile, row_reader(w, x), panel_reader(panel))
    return view(product, (*w.lead, w.n), len(w.lead))


def compute_tiled(w: DenseWorkload, config: ConfigEntity, x: te.Tensor, weight: te.Tensor) -> Any:
    """x (*lead, k), weight stored as `w.weight` says -> (*lead, n)."""
    extents = (None, w.m, w.n, w.k)
    rhs = run_time_reader(config, extents, matrix_reader(w, weight))
    tile = register_tile(config)
    product = tiled_product(TILED, config, extents, tile, row_reader(w, x), rhs)
    return view(product, (*w.lead, w.n), len(w.lead))


def matrix_reader(w: DenseWorkload, weight: te.Tensor) -> Any:
    """Reads a weight that is stored as `w.weight` says as the matrix (k, n)."""
    assert w.weight is not None
    index = w.weight.index
    return lambda _, k, column: weight[index((), k, column)]


def row_reader(w: DenseWorkload, x: te.Tensor) -> Any:
    """Reads x as the matrix (m, k)."""

    def element(_: Any, row: Any, k: Any) -> Any:
        index = (*unravel(row, w.lead), k)
        return x[index]

    return element


# --- fallback ----------------------------------------------------------------------------


def fallback(w: DenseWorkload, target: Target) -> ConfigEntity:
    """Register tile and tasks by the cost rules of the tiled product."""
    extents = Extents(1, w.m, w.n, w.k, DataType(w.dtype).itemsize)
    return plan(extents, target, w.dtype, w.weight)


def packed_cycles(w: DenseWorkload, target: Target) -> float:
    """Of a core."""
    machine = Machine.from_target(target)
    extents = Extents(1, w.m, w.n, w.k, DataType(w.dtype).itemsize)
    return cycles(extents, machine, machine.lanes(w.dtype))


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


register(
    "nn.dense",
    "cpu",
    Implementation(
        PACKED,
        15,
        lambda w, _: is_float(w) and w.weight is None,
        fallback,
        compute_packed,
        DenseWorkload.stored_args,
        pack_weight,
        packed_cycles,
        is_default=True,
    ),
)
register(
    "nn.dense",
    "cpu",
    Implementation(
        TILED,
        15,
        lambda w, _: is_float(w) and w.weight is not None and not is_dot(w.m, w.weight),
        fallback,
        compute_tiled,
        DenseWorkload.stored_args,
    ),
)
register_anchor_rule(PACKED, TiledMatmul())
register_anchor_rule(TILED, TiledMatmul())
