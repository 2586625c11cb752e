"""Products of two stacks of matrices of bytes on x86, as attention has them.

The loops are those of `batch_matmul`; a step of the reduction is one dot product (`dots`). Each
task copies its panel of the right operand with the bytes of a step side by side.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import te, tirx
from tvm.target import Target

from ..anchor import register_anchor_rule
from ..config import ConfigEntity
from ..matmul import BatchMatmulWorkload
from ..strategy import Implementation, register
from .batch_matmul import readers
from .dense_dots import TiledDotMatmul
from .dots import BYTES, OF_BYTES, as_kept, kept, knobs, machine_of
from .matmul_rules import Extents, plan
from .matmul_tile import PANEL, register_tile, tiled_product, view

NAME = "batch_matmul_dots.x86"


def compute(w: BatchMatmulWorkload, config: ConfigEntity, lhs: te.Tensor, rhs: te.Tensor) -> Any:
    """lhs and rhs stored as the workload's operands say -> (*batch, m, n)."""
    extents = (math.prod(w.batch), w.m, w.n, w.k)
    tile = register_tile(config)
    columns, step = tile[1], kept(OF_BYTES, config)
    left, right = readers(w, as_kept(step.data, lhs), rhs)

    def copied(b: Any, outer: Any, at: Any, lane: Any, part: Any) -> Any:
        column = outer * columns + lane
        value = right(b, at * step.size + part, column).astype(step.weight)
        if w.n % columns == 0:
            return value
        return tirx.if_then_else(tirx.likely(column < w.n), value, tirx.const(0, step.weight))

    shape = (extents[0], -(-w.n // columns), w.k // step.size, columns, step.size)
    panel = te.compute(shape, copied, name=PANEL)

    def element(b: Any, k: Any, column: Any) -> Any:
        return panel[b, column // columns, k // step.size, column % columns, k % step.size]

    product = tiled_product(NAME, config, extents, tile, left, element, step)
    return view(product, (*w.batch, w.m, w.n), 1)


class TiledDotBatchMatmul(TiledDotMatmul):
    """Takes a fused function whose anchor is a tiled product of dot products of two tensors."""

    def copy(self, sch: Any, panel: Any, lanes: int) -> None:
        """A loop over the columns of a step, which LLVM makes vectors that interleave rows."""
        sch.unroll(sch.get_loops(panel)[-1])


def fallback(w: BatchMatmulWorkload, target: Target) -> ConfigEntity:
    """By the cost rules of products of elements as large as a step."""
    own = knobs(OF_BYTES, target)
    steps = w.k // kept(OF_BYTES, ConfigEntity(own)).size
    extents = Extents(math.prod(w.batch), w.m, w.n, steps, BYTES)
    config = plan(extents, target, w.out_dtype, w.rhs, machine_of(OF_BYTES, target))
    return ConfigEntity({**config, **own})


def _supports(w: BatchMatmulWorkload, _: Target) -> bool:
    """uint8 by int8, whole steps that lie side by side in the left operand."""
    is_own = OF_BYTES.takes(w.dtype, w.rhs_dtype, w.out_dtype)
    return is_own and w.k % BYTES == 0 and w.lhs.contiguous_columns


register(
    "nn.batch_matmul",
    "cpu",
    Implementation(NAME, 16, _supports, fallback, compute, BatchMatmulWorkload.stored_args),
)
register_anchor_rule(NAME, TiledDotBatchMatmul())
