"""AutoTVM's template depthwise_conv2d_NCHWc.x86: the loop nests of old depthwise records."""

from __future__ import annotations

from typing import Any

from tvm.target import Target

from ...anchor import AnchorRule, inline_around
from ...config import ConfigEntity
from ...conv2d import Conv2dWorkload, register_conv2d
from ..conv import depthwise
from ..conv.conv2d import blocked_loops, oc_block_of
from ..conv.register_tile import largest_divisor
from ..machine.cpu import Machine
from .conv2d_template import pad_in_parallel, template_knobs, vectorize_block

NAME = "depthwise_conv2d_NCHWc.x86"


# --- compute -----------------------------------------------------------------------------


def pack_weight(ops: Any, weight: Any, config: ConfigEntity, _: int) -> Any:
    """(C, 1, KH, KW) -> (C/tile_oc, KH, KW, tile_oc), whatever the block of the input."""
    return depthwise.pack_weight(ops, weight, config, oc_block_of(config))


# --- schedule ----------------------------------------------------------------------------


class DepthwiseTemplate(AnchorRule):
    """Schedule a fused function whose anchor is `depthwise_conv2d_NCHWc.x86`.

    parallel n, ic_chunk, ih: pad
    n
      parallel oc_chunk, oh
        ow_outer
          kh, kw [unrolled if unroll_kw]
            unrolled tile_ow; vector oc: fma
          epilogue of the tile
    """

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        out = inline_around(sch, anchor)
        pad_in_parallel(sch, target)

        n, oc, oh, ow, lane = blocked_loops(sch, out)
        ow_outer, ow_inner = sch.split(ow, [None, config.size("tile_ow")[-1]])
        sch.reorder(n, oc, oh, ow_outer, ow_inner, lane)
        sch.parallel(sch.fuse(oc, oh))
        vectorize_block(sch, lane, target)
        sch.compute_at(anchor, ow_outer, preserve_unit_loops=True)
        ow_inner, lane, kh, kw = sch.get_loops(anchor)[-4:]
        sch.reorder(kh, kw, ow_inner, lane)
        vectorize_block(sch, lane, target)
        sch.unroll(ow_inner)
        if config.val("unroll_kw", False):  # TVM 0.6 did not have the knob
            sch.unroll(kw)
        sch.decompose_reduction(anchor, kh)
        return sch


# --- fallback ----------------------------------------------------------------------------


def fallback(w: Conv2dWorkload, target: Target) -> ConfigEntity:
    """Fallback values of the template."""
    oc = largest_divisor(w.in_channels, Machine.from_target(target).lanes(w.out_dtype))
    return template_knobs(w, largest_divisor(w.in_channels, oc), oc, False)


register_conv2d(
    NAME,
    10,
    lambda w, _: w.is_depthwise and (w.is_float or w.is_integer),
    fallback,
    lambda w, config, data, weight: depthwise.compute(w, config, NAME, data, weight),
    pack=pack_weight,
    rule=DepthwiseTemplate(),
)
