"""Dense layers of bytes, or of bfloat16, on x86.

The loops are those of `dense`; a step of the reduction is one dot product (`dots`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import te
from tvm.target import Target

from ..anchor import register_anchor_rule
from ..config import ConfigEntity
from ..matmul import DenseWorkload
from ..strategy import Implementation, register
from . import dense
from .dots import BYTES, DOTS, Dot, accumulate, as_kept, dot_of, kept, knobs, machine_of
from .matmul_rules import Extents, plan
from .matmul_tile import TiledMatmul, register_tile, tiled_product, view

PACKED = {dot: f"dense_packed_{dot.name}.x86" for dot in DOTS}


def pack(dot: Dot, ops: Any, weight: Any, config: ConfigEntity) -> Any:
    """(k, n) -> (n / tile_n, k / size, tile_n, size), n padded with zeros to whole tiles."""
    panels = dense.pack_weight(ops, weight, config)
    tiles, k, columns = (int(extent) for extent in panels.shape)
    step = kept(dot, config)
    apart = ops.reshape(panels, (tiles, k // step.size, step.size, columns))
    return ops.transpose(apart, (0, 1, 3, 2)).astype(step.weight)


def compute(
    dot: Dot, rule: str, w: DenseWorkload, config: ConfigEntity, x: te.Tensor, panel: te.Tensor
) -> Any:
    """x (*lead, k), weight as packed -> (*lead, n), for the rule of that name."""
    extents, tile = (None, w.m, w.n, w.k), register_tile(config)
    columns, step = int(panel.shape[2]), kept(dot, config)

    def element(_: Any, k: Any, column: Any) -> Any:
        return panel[column // columns, k // step.size, column % columns, k % step.size]

    rows = dense.row_reader(w, as_kept(step.data, x))
    product = tiled_product(rule, config, extents, tile, rows, element, step)
    return view(product, (*w.lead, w.n), len(w.lead))


class TiledDotMatmul(TiledMatmul):
    """Takes a fused function whose anchor is a tiled product of dot products.

    The loop nest is that of floats; a step is a dot product in every lane.
    """

    def loops(self, sch: Any, anchor: Any) -> list[Any]:
        return list(sch.get_loops(anchor))[:-1]

    def multiply(self, sch: Any, anchor: Any, lane: Any, reduced: Any, target: Target) -> None:
        accumulate(sch, anchor, reduced, target)


def fallback(dot: Dot, w: DenseWorkload, target: Target) -> ConfigEntity:
    """By the cost rules of products of elements as large as a step."""
    own = knobs(dot, target)
    steps = w.k // kept(dot, ConfigEntity(own)).size
    extents, machine = Extents(1, w.m, w.n, steps, BYTES), machine_of(dot, target)
    config = plan(extents, target, w.out_dtype, w.weight, machine)
    return ConfigEntity({**config, **own})


def _supports(dot: Dot, w: DenseWorkload, target: Target) -> bool:
    """The element types of the dot product, constant weights, whole steps."""
    is_own = dot_of(w.dtype, w.rhs_dtype, w.out_dtype) == dot and dot.is_fast_on(target)
    return is_own and w.weight is None and w.k % dot.size == 0


for _dot in DOTS:
    register(
        "nn.dense",
        "cpu",
        Implementation(
            PACKED[_dot],
            16,
            partial(_supports, _dot),
            partial(fallback, _dot),
            partial(compute, _dot, PACKED[_dot]),
            DenseWorkload.stored_args,
            partial(pack, _dot),
        ),
    )
    register_anchor_rule(PACKED[_dot], TiledDotMatmul())
