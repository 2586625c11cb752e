"""AutoTVM's template depthwise_conv2d_NCHWc.x86: the loop nests of old depthwise records."""

from __future__ import annotations

from typing import Any

from tvm import te
from tvm.target import Target

from ..anchor import AnchorRule, inline_around, register_anchor_rule, sblocks
from ..config import ConfigEntity, option, split
from ..conv2d import Conv2dWorkload, pad_data
from ..strategy import Implementation, anchor_attrs, register
from . import depthwise
from .conv2d import blocked_loops, oc_block_of
from .conv2d_template import MOST_PIXELS, largest_divisor, vectorize_block
from .machine import Machine

NAME = "depthwise_conv2d_NCHWc.x86"


# --- compute -----------------------------------------------------------------------------


def pack_weight(ops: Any, weight: Any, config: ConfigEntity, _: int) -> Any:
    """(C, 1, KH, KW) -> (C/tile_oc, KH, KW, tile_oc), whatever the block of the input."""
    return depthwise.pack_weight(ops, weight, config, oc_block_of(config))


def compute(w: Conv2dWorkload, config: ConfigEntity, data: Any, weight: Any) -> Any:
    """data (N, C/ib, H, W, ib) or (N, C, H, W), weight as packed -> (N, C/ob, OH, OW, ob)."""
    oc_block = int(weight.shape[3])
    padded = pad_data(data, w.padding)
    (sh, sw), (dh, dw) = w.strides, w.dilation
    kh = te.reduce_axis((0, w.kernel[0]), "kh")
    kw = te.reduce_axis((0, w.kernel[1]), "kw")

    def read(n: Any, chunk: Any, y: Any, x: Any, lane: Any) -> Any:
        channel = chunk * oc_block + lane
        if len(padded.shape) == 4:
            return padded[n, channel, y, x]
        ic_block = int(padded.shape[4])
        if ic_block == oc_block:
            return padded[n, chunk, y, x, lane]
        return padded[n, channel // ic_block, y, x, channel % ic_block]

    return te.compute(
        (w.batch, weight.shape[0], w.out_height, w.out_width, oc_block),
        lambda n, c, oh, ow, i: te.sum(
            read(n, c, oh * sh + kh * dh, ow * sw + kw * dw, i).astype(w.out_dtype)
            * weight[c, kh, kw, i].astype(w.out_dtype),
            axis=[kh, kw],
        ),
        name="depthwise_conv2d_NCHWc",
        attrs=anchor_attrs(NAME, config),
    )


# --- schedule ----------------------------------------------------------------------------


class DepthwiseTemplate(AnchorRule):
    """Takes a fused function whose anchor is `depthwise_conv2d_NCHWc.x86`.

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
        pad = sblocks(sch).get("data_pad")
        if pad is not None:
            loops = sch.get_loops(pad)
            if len(loops) == 5:
                vectorize_block(sch, loops[-1], target)
            sch.parallel(sch.fuse(*loops[:3]))

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
        if "unroll_kw" in config and config.val("unroll_kw"):  # TVM 0.6 did not have the knob
            sch.unroll(kw)
        sch.decompose_reduction(anchor, kh)
        return sch


# --- fallback ----------------------------------------------------------------------------


def fallback(w: Conv2dWorkload, target: Target) -> ConfigEntity:
    """Fallback values of the template."""
    channels = w.in_channels
    oc = largest_divisor(channels, Machine.from_target(target).lanes(w.out_dtype))
    ic = largest_divisor(channels, oc)
    tile_ow = largest_divisor(w.out_width, MOST_PIXELS - 1)
    return ConfigEntity(
        {
            "tile_ic": split(channels // ic, ic),
            "tile_oc": split(channels // oc, oc),
            "tile_ow": split(w.out_width // tile_ow, tile_ow),
            "unroll_kw": option(False),
        }
    )


register(
    "nn.conv2d",
    "cpu",
    Implementation(
        NAME,
        10,
        lambda w, _: w.is_depthwise and (w.is_float or w.is_integer),
        fallback,
        compute,
        Conv2dWorkload.autotvm_args,
        pack_weight,
    ),
)
register_anchor_rule(NAME, DepthwiseTemplate())
