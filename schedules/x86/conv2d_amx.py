"""Direct 2-D convolution of bytes, or of bfloat16, by AMX tiles on blocked layouts.

Blocks of channels are rows of tiles: 64 bytes where that leaves few channels empty. A task sums
some rows of an image by one block of output channels; `amx` makes tiles of its loops.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from tvm import te
from tvm.target import Target

from ..anchor import AnchorRule, inline_around, register_anchor_rule, sblocks
from ..config import ConfigEntity, option
from ..conv2d import Conv2dWorkload
from ..strategy import Implementation, register
from . import amx, conv2d, conv2d_dots
from .dots import DOTS, Dot, dot_of
from .machine import Machine
from .register_tile import largest_divisor

NAMES = {dot: f"conv2d_amx_{dot.name}.x86" for dot in DOTS}

VECTOR = 16  # channels of which a block has a multiple
MOST_PIXELS = 64  # of one nest
# A task should take many times as long as setting the tiles' shapes, some 300 cycles.
LEAST_TASK_MACS = 1 << 21
TASKS_PER_CORE = 4


def channel_block(channels: int, dot: Dot) -> int:
    """The smallest block, of whole vectors, with which as few blocks as possible are needed."""
    blocks = -(-channels // amx.steps_of(dot))
    vectors = -(-channels // VECTOR)
    return -(-vectors // blocks) * VECTOR


def _supports(dot: Dot, w: Conv2dWorkload, target: Target) -> bool:
    is_own = dot_of(w.dtype, w.weight_dtype, w.out_dtype) == dot
    return is_own and w.groups == 1 and amx.multiplies(dot, target)


def _fallback(dot: Dot, w: Conv2dWorkload, target: Target) -> ConfigEntity:
    machine = Machine.from_target(target)
    block = channel_block(w.out_channels, dot)
    parts = -(-w.out_width // MOST_PIXELS)
    tile_ow = -(-w.out_width // parts)
    rows = largest_divisor(w.out_height, max(MOST_PIXELS // tile_ow, 1))
    row_macs = block * w.in_channels * w.kernel[0] * w.kernel[1] * w.out_width
    chunks = -(-w.out_channels // block) * w.batch

    def suits(count: int) -> bool:
        tasks = w.out_height // (rows * count) * chunks
        is_enough = tasks >= TASKS_PER_CORE * machine.num_cores
        return w.out_height % (rows * count) == 0 and (
            is_enough and rows * count * row_macs <= LEAST_TASK_MACS
        )

    task = next(filter(suits, range(w.out_height // rows, 1, -1)), 1)
    return ConfigEntity(
        {
            "oc_block": option(block),
            "ic_block": option(channel_block(w.in_channels, dot)),
            "tile_ow": option(tile_ow),
            "rows": option(rows),
            "task": option(task),
        }
    )


def _compute(dot: Dot, w: Conv2dWorkload, config: ConfigEntity, data: Any, weight: Any) -> Any:
    """data (N, IC/ib, H, W, ib), weight as packed -> (N, OC/ob, OH, OW, ob)."""
    beyond = -w.out_width % config.val("tile_ow")
    if not beyond:
        return conv2d.compute(w, config, NAMES[dot], data, weight)
    top, left, bottom, right = w.padding
    longer = replace(w, padding=(top, left, bottom, right + beyond * w.strides[1]))
    conv = conv2d.compute(longer, config, NAMES[dot], data, weight)
    shape = (*conv.shape[:3], w.out_width, conv.shape[4])
    return te.compute(shape, lambda *index: conv[index], name="conv2d_crop")


class AmxConv2d(AnchorRule):
    """Takes a fused function whose anchor is a convolution by AMX.

        parallel n, oc, oh_task
          oh, ow_tile
            tiles[rows, tile_ow, lanes] = 0
            ic_chunk, kh, kw
              tiles
            epilogue of the tiles
    """

    narrow_indices = True

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        out = inline_around(sch, anchor, keep=("data_pad",))
        pad = sblocks(sch).get("data_pad")
        n, oc, oh, ow, lane = conv2d.blocked_loops(sch, out)
        macs = conv2d._extent(sch, sch.get_loops(anchor))
        lanes = int(sch.get(lane).extent)
        task, oh, row = sch.split(oh, [None, config.val("task"), config.val("rows")])
        ow_outer, pixel = sch.split(ow, [None, config.val("tile_ow")])
        sch.reorder(n, oc, task, oh, ow_outer, row, pixel, lane)
        at = sch.fuse(n, oc, task)
        is_parallel = macs >= conv2d.PARALLEL_MACS
        if is_parallel:
            sch.parallel(at)
        sch.compute_at(anchor, ow_outer, preserve_unit_loops=True)
        *_, row, pixel, channel, ic, kh, kw, part = sch.get_loops(anchor)
        chunk, k = sch.split(ic, [None, int(sch.get(anchor).reads[1].source.shape[4])])
        sch.reorder(chunk, kh, kw, row, pixel, channel, k, part)
        amx.by_tiles(sch, anchor, chunk)
        _, vector = sch.split(lane, [None, lanes if lanes & (lanes - 1) == 0 else VECTOR])
        sch.vectorize(vector)
        if pad is not None:
            loops = sch.get_loops(pad)
            if len(sch.get(pad).iter_vars) == 5:
                sch.vectorize(loops[-1])
            if is_parallel:
                sch.parallel(sch.fuse(*loops[:3]))
        return sch


def _cycles(dot: Dot, w: Conv2dWorkload, target: Target) -> float:
    """A fraction of what dot products take."""
    return conv2d_dots._cycles(dot, w, target) / 4


for _dot in DOTS:
    register(
        "nn.conv2d",
        "cpu",
        Implementation(
            NAMES[_dot],
            15,
            partial(_supports, _dot),
            partial(_fallback, _dot),
            partial(_compute, _dot),
            None,
            partial(conv2d_dots._pack, _dot),
            partial(_cycles, _dot),
        ),
    )
    register_anchor_rule(NAMES[_dot], AmxConv2d())
