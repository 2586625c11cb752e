"""Matrix products of bytes, or of bfloat16, on x86.

The loops are those of floats (`matmul_tile`); a step of the reduction is one dot product (`dots`).

    dense_packed_{int8, bf16}.x86    constant weights
    batch_matmul_dots.x86            two stacks of matrices of bytes, as attention has them
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from tvm.target import Target

from ...config import ConfigEntity
from ...matmul import (
    BatchMatmulWorkload,
    DenseWorkload,
    Product,
    register_batch_matmul,
    register_dense,
)
from ..machine.dot_product import (
    BYTES,
    DOTS,
    OF_BYTES,
    Dot,
    DotSteps,
    dot_of,
    in_steps,
    kept,
    knobs,
    machine_of,
)
from .dense import pack_weight
from .matmul_rules import Extents, plan
from .matmul_tile import TiledMatmul, product

PACKED = {dot: f"dense_packed_{dot.name}.x86" for dot in DOTS}
STACKS = "batch_matmul_dots.x86"


def pack(dot: Dot, ops: Any, weight: Any, config: ConfigEntity) -> Any:
    """(k, n) -> (n / tile_n, k / size, tile_n, size), n padded with zeros to whole tiles."""
    return in_steps(dot, ops, pack_weight(ops, weight, config), config)


class TiledDotMatmul(DotSteps, TiledMatmul):
    """Schedule a tiled product of dot products by the loop nest of floats."""

    def copy(self, sch: Any, panel: Any, lanes: int) -> None:
        """A loop over the columns of a step, which LLVM makes vectors that interleave rows."""
        sch.unroll(sch.get_loops(panel)[-1])


def fallback(dot: Dot, w: Product, target: Target) -> ConfigEntity:
    """Plan like a matmul whose elements have the size of a step."""
    own = knobs(dot, target, w.narrow if isinstance(w, DenseWorkload) else 0)
    extents = replace(Extents.of(w, kept(dot, ConfigEntity(own)).size), item=BYTES)
    config = plan(extents, target, w.out_dtype, w.right, machine_of(dot, target))
    return ConfigEntity({**config, **own})


def _supports(dot: Dot, w: DenseWorkload, target: Target) -> bool:
    """The element types of the dot product, constant weights, whole steps."""
    is_own = dot_of(w.dtype, w.rhs_dtype, w.out_dtype) == dot and dot.is_fast_on(target)
    return is_own and w.weight is None and w.k % dot.size == 0


def _supports_stacks(w: BatchMatmulWorkload, _: Target) -> bool:
    """uint8 by int8, whole steps that lie side by side in the left operand."""
    is_own = OF_BYTES.takes(w.dtype, w.rhs_dtype, w.out_dtype)
    return is_own and w.k % OF_BYTES.size == 0 and w.lhs.contiguous_columns


for _dot in DOTS:
    register_dense(
        PACKED[_dot],
        16,
        partial(_supports, _dot),
        partial(fallback, _dot),
        partial(product, PACKED[_dot], dot=_dot),
        pack=partial(pack, _dot),
        rule=TiledDotMatmul(),
    )
register_batch_matmul(
    STACKS,
    16,
    _supports_stacks,
    partial(fallback, OF_BYTES),
    partial(product, STACKS, dot=OF_BYTES),
    rule=TiledDotMatmul(),
)
