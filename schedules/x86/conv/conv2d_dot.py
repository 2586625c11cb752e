"""Direct 2-D convolution of bytes or bfloat16 on blocked layouts: `conv2d` by dot products."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from tvm import te
from tvm.target import Target

from ...config import ConfigEntity, option
from ...conv2d import Conv2dWorkload, register_conv2d
from ..machine.dot_product import (
    BYTES,
    DOTS,
    Dot,
    DotSteps,
    dot_of,
    in_steps,
    kept,
    knobs,
    machine_of,
    speedup,
)
from . import conv2d
from .register_tile import macs_per_cycle, register_tile

DIRECT = {dot: f"conv2d_direct_{dot.name}.x86" for dot in DOTS}

# From this share of the speed of rows that are computed up to their last tile's end on, whole tiles
# are taken, for which nothing need be copied.
WHOLE_IS_ENOUGH = 0.8


def _pack(dot: Dot, ops: Any, weight: Any, config: ConfigEntity, ic_block: int) -> Any:
    """OIHW -> (O/ob, I/ic_block, KH, KW, ic_block/size, ob, size), padded with zeros."""
    return in_steps(dot, ops, conv2d.pack_weight(ops, weight, config, ic_block), config)


def _compute(dot: Dot, w: Conv2dWorkload, config: ConfigEntity, data: Any, weight: Any) -> Any:
    """data (N, IC/ib, H, W, ib), weight as packed -> (N, OC/ob, OH, OW, ob)."""
    rule = DIRECT[dot]
    beyond = -w.out_width % config.val("tile_ow")
    as_what = kept(dot, config).data
    if not beyond:
        return conv2d.compute(w, config, rule, data, weight, as_what)
    top, left, bottom, right = w.padding
    longer = replace(w, padding=(top, left, bottom, right + beyond * w.strides[1]))
    conv = conv2d.compute(longer, config, rule, data, weight, as_what)
    shape = (*conv.shape[:3], w.out_width, conv.shape[4])
    return te.compute(shape, lambda *index: conv[index], name="conv2d_crop")


class DirectDotConv2d(DotSteps, conv2d.DirectConv2d):
    """Schedule a dot product conv2d on a blocked layout by the loop nest of floats."""


def _supports(dot: Dot, w: Conv2dWorkload, target: Target) -> bool:
    """Whether the dtypes match the dot product and each group has whole steps of channels."""
    if dot_of(w.dtype, w.weight_dtype, w.out_dtype) != dot or not dot.is_fast_on(target):
        return False
    per_group = w.in_channels // w.groups
    return not w.is_depthwise and (w.groups == 1 or per_group % dot.size == 0)


def fallback(dot: Dot, w: Conv2dWorkload, target: Target) -> ConfigEntity:
    """Choose the config of a float convolution, but with whole tiles, beyond the row if needed."""
    machine = machine_of(dot, target)
    config = conv2d.direct_fallback(w, target, machine)
    chunks = -(-w.out_channels // conv2d.oc_block_of(config)) if w.groups == 1 else 1
    tile, vectors = register_tile(w.out_width, chunks, machine, only_whole=True)
    ragged = config.val("tile_ow")
    count = config.val("oc_chunks")
    width = -(-w.out_width // ragged) * ragged
    speed = macs_per_cycle(width, ragged, count, machine) * w.out_width / width
    if macs_per_cycle(w.out_width, tile, vectors, machine) < WHOLE_IS_ENOUGH * speed:
        tile, vectors = ragged, count
    own = {"tile_ow": option(tile), "oc_chunks": option(vectors), **knobs(dot, target, w.narrow)}
    return ConfigEntity({**config, **own})


def _cycles(dot: Dot, w: Conv2dWorkload, target: Target) -> float:
    """Estimate cycles as for float32, adjusted for `speedup` and the bytes of the weights."""
    own = kept(dot, ConfigEntity(knobs(dot, target, w.narrow)))
    wide = replace(w, dtype="float32", weight_dtype="", out_dtype="float32")
    return conv2d.direct_cycles(wide, target, speedup(dot, target, w.narrow), BYTES // own.size)


for _dot in DOTS:
    register_conv2d(
        DIRECT[_dot],
        15,
        partial(_supports, _dot),
        partial(fallback, _dot),
        partial(_compute, _dot),
        pack=partial(_pack, _dot),
        cycles=partial(_cycles, _dot),
        is_default=True,
        rule=DirectDotConv2d(),
    )
