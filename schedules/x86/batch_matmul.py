"""Products of stacks of matrices on x86, as attention has them.

Operands are read through axis permutations, so that transposed matrices and attention heads
split off by a reshape need no copy of their own.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import DataType, te
from tvm.target import Target

from ..anchor import register_anchor_rule
from ..config import ConfigEntity
from ..matmul import BatchMatmulWorkload, unravel
from ..strategy import Implementation, register
from .dense import is_dot, is_float
from .matmul_rules import Extents, plan
from .matmul_tile import (
    TiledMatmul,
    register_tile,
    run_time_reader,
    tiled_product,
    view,
)

TILED = "batch_matmul_tiled.x86"


# --- compute -----------------------------------------------------------------------------


def compute_tiled(
    w: BatchMatmulWorkload, config: ConfigEntity, lhs: te.Tensor, rhs: te.Tensor
) -> Any:
    """lhs and rhs stored as the workload's operands say -> (*batch, m, n)."""
    extents = (math.prod(w.batch), w.m, w.n, w.k)

    left, right = readers(w, lhs, rhs)
    rhs_reader = run_time_reader(config, extents, right)
    product = tiled_product(TILED, config, extents, register_tile(config), left, rhs_reader)
    return view(product, (*w.batch, w.m, w.n), 1)


def readers(w: BatchMatmulWorkload, lhs: te.Tensor, rhs: te.Tensor) -> tuple[Any, Any]:
    """Read the operands as (flat batch index, row, k) and (flat batch index, k, column)."""

    def left(b: Any, row: Any, k: Any) -> Any:
        return lhs[w.lhs.index(unravel(b, w.batch), row, k)]

    def right(b: Any, k: Any, column: Any) -> Any:
        return rhs[w.rhs.index(unravel(b, w.batch), k, column)]

    return left, right


# --- fallback ----------------------------------------------------------------------------


def fallback(w: BatchMatmulWorkload, target: Target) -> ConfigEntity:
    """Register tile and tasks by the cost rules of the tiled product."""
    extents = Extents(math.prod(w.batch), w.m, w.n, w.k, DataType(w.dtype).itemsize)
    return plan(extents, target, w.dtype, w.rhs)


register(
    "nn.batch_matmul",
    "cpu",
    Implementation(
        TILED,
        15,
        lambda w, _: is_float(w) and not is_dot(w.m, w.rhs),
        fallback,
        compute_tiled,
        BatchMatmulWorkload.stored_args,
    ),
)
register_anchor_rule(TILED, TiledMatmul())
