"""Direct 2-D convolution of uint8 images with int8 filters on blocked layouts.

The loops are those of `conv2d`; a step of the reduction multiplies four input channels at a time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import te
from tvm.target import Target

from ..anchor import register_anchor_rule
from ..config import ConfigEntity, option
from ..conv2d import Conv2dWorkload
from ..strategy import Implementation, register
from . import conv2d
from .int8_dot import BYTES, accumulate
from .machine import Machine
from .register_tile import macs_per_cycle, register_tile

DIRECT = "conv2d_direct_int8.x86"

# From this share of the speed of rows that are computed up to their last tile's end on, whole tiles
# are taken, for which nothing need be copied.
WHOLE_IS_ENOUGH = 0.8


def pack_weight(ops: Any, weight: Any, config: ConfigEntity, ic_block: int) -> Any:
    """OIHW -> (O/oc_block, I/ic_block, KH, KW, ic_block/4, oc_block, 4), padded with zeros."""
    packed = conv2d.pack_weight(ops, weight, config, ic_block)
    *outer, lanes, columns = (int(extent) for extent in packed.shape)
    rank = len(outer)
    apart = ops.reshape(packed, (*outer, lanes // BYTES, BYTES, columns))
    return ops.transpose(apart, (*range(rank), rank, rank + 2, rank + 1))


def compute(w: Conv2dWorkload, config: ConfigEntity, data: Any, weight: Any) -> Any:
    """data (N, IC/ib, H, W, ib), weight as packed -> (N, OC/ob, OH, OW, ob)."""
    beyond = -w.out_width % config.val("tile_ow")
    if not beyond:
        return conv2d.compute(w, config, DIRECT, data, weight)
    top, left, bottom, right = w.padding
    longer = replace(w, padding=(top, left, bottom, right + beyond * w.strides[1]))
    conv = conv2d.compute(longer, config, DIRECT, data, weight)
    shape = (*conv.shape[:3], w.out_width, conv.shape[4])
    return te.compute(shape, lambda *index: conv[index], name="conv2d_crop")


class DirectInt8Conv2d(conv2d.DirectConv2d):
    """Takes a fused function whose anchor is a direct conv2d of bytes on a blocked layout.

    The loop nest is that of floats; a step is a dot product of four bytes in every lane.
    """

    def loops(self, sch: Any, anchor: Any) -> list[Any]:
        return list(sch.get_loops(anchor))[:-1]

    def multiply(self, sch: Any, anchor: Any, lane: Any, reduced: Any, target: Target) -> None:
        accumulate(sch, anchor, reduced, target)


def supports(w: Conv2dWorkload, _: Target) -> bool:
    """uint8 by int8; groups of whole fours of channels."""
    per_group = w.in_channels // w.groups
    return w.is_bytes and not w.is_depthwise and (w.groups == 1 or per_group % BYTES == 0)


def fallback(w: Conv2dWorkload, target: Target) -> ConfigEntity:
    """As a convolution of floats, a step of which takes as long, but with whole tiles alone.

    A row that they do not divide well is computed up to the end of its last one.
    """
    machine = Machine.from_target(target)
    knobs = conv2d.direct_fallback(w, target)
    chunks = -(-w.out_channels // conv2d.oc_block_of(knobs)) if w.groups == 1 else 1
    tile, vectors = register_tile(w.out_width, chunks, machine, only_whole=True)
    ragged = knobs.val("tile_ow")
    count = knobs.val("oc_chunks")
    width = -(-w.out_width // ragged) * ragged
    speed = macs_per_cycle(width, ragged, count, machine) * w.out_width / width
    if macs_per_cycle(w.out_width, tile, vectors, machine) < WHOLE_IS_ENOUGH * speed:
        tile, vectors = ragged, count
    return ConfigEntity({**knobs, "tile_ow": option(tile), "oc_chunks": option(vectors)})


register(
    "nn.conv2d",
    "cpu",
    Implementation(
        DIRECT,
        15,
        supports,
        fallback,
        compute,
        Conv2dWorkload.autotvm_args,
        pack_weight,
    ),
)
register_anchor_rule(DIRECT, DirectInt8Conv2d())
