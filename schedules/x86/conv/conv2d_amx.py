"""Direct 2-D convolution of bytes, or of bfloat16, by AMX tiles on blocked layouts.

Blocks of channels are rows of tiles: 64 bytes where that leaves few channels empty. Taps of a row
whose channels fill no more than a tile's row together are one step of the reduction: they lie side
by side in memory. A task sums some rows of an image by one block of output channels; `amx` makes
tiles of its loops. Images with short rows are flattened into one row, which also computes
unused pixels between the rows of the padded image.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import te
from tvm.target import Target

from ...anchor import AnchorRule, inline_around, sblocks
from ...config import ConfigEntity, options
from ...conv2d import Conv2dWorkload, pad_data, register_conv2d
from ...epilogue import is_costly
from ...strategy import anchor_attrs
from ..machine import amx
from ..machine.cpu import Machine
from ..machine.dot_product import DOTS, Dot, dot_of
from . import conv2d
from .register_tile import largest_divisor

NAMES = {dot: f"conv2d_amx_{dot.name}.x86" for dot in DOTS}

# Of one nest: the sums stay in L1 until they are read.
MOST_PIXELS = 64
# Of an image whose pixels are one row, where that takes clearly fewer cycles.
MOST_FLAT_PIXELS, CLEARLY_FEWER = 256, 0.95
# A task should take many times as long as setting the tiles' shapes, some 300 cycles.
TASK_MACS = 1 << 21
TASKS_PER_CORE = 4
# Channels of an image whose pixels are joined, a power of two.
FEW_CHANNELS = 8
# With fewer pixels most of a tile is idle, and dot products have as much from memory.
LEAST_PIXELS = 8


# --- compute -----------------------------------------------------------------------------


def _pack(dot: Dot, ops: Any, weight: Any, config: ConfigEntity, ic_block: int) -> Any:
    """OIHW -> (O/ob, groups of tiles, I/ib, KH, taps, tiles, k, 16, size), padded with zeros."""
    oc_block = conv2d.oc_block_of(config)
    o, i, kh, kw = (int(extent) for extent in weight.shape)
    weight = ops.pad(weight, ((0, -o % oc_block), (0, -i % ic_block), (0, 0), (0, 0)))
    o, i = -(-o // oc_block), -(-i // ic_block)
    taps, joined = (1, kw) if config.val("joined") else (kw, 1)
    of_tiles = (o, *amx.groups_of_tiles(oc_block), amx.TILE_COLUMNS)
    apart = ops.reshape(weight, (*of_tiles, i, ic_block, kh, taps, joined))
    # A step is made of joined taps with the channels of a block each.
    ordered = ops.transpose(apart, (0, 1, 4, 6, 7, 2, 8, 5, 3))
    k = joined * ic_block // dot.size
    shape = (*of_tiles[:2], i, kh, taps, of_tiles[2], k, dot.size, amx.TILE_COLUMNS)
    packed = ops.transpose(ops.reshape(ordered, shape), (0, 1, 2, 3, 4, 5, 6, 8, 7))
    return packed.astype(dot.weight)


def _compute(dot: Dot, w: Conv2dWorkload, config: ConfigEntity, data: Any, weight: Any) -> Any:
    """data (N, IC/ib, H, W, ib), weight as packed -> (N, OC/ob, OH, OW, ob)."""
    if config.val("flat"):
        return _compute_flat(dot, w, config, data, weight)
    beyond = -w.out_width % config.val("tile_ow")
    top, left, bottom, right = w.padding
    padding = (top, left, bottom, right + beyond * w.strides[1])
    padded = pad_data(data, padding, w.pad_value)
    (sh, sw), (dh, dw) = w.strides, w.dilation
    sums = _Sums(dot, w, config, weight)

    def element(n: Any, oc: Any, oh: Any, ow: Any, o: Any) -> Any:
        at = padded[
            n, sums.chunk_of(oc), oh * sh + sums.kh * dh, ow * sw + sums.tap * dw, sums.lane
        ]
        return sums.of(at, oc, o)

    height, width = w.out_height, w.out_width + beyond
    shape = (w.batch, weight.shape[0], height, width, conv2d.oc_block_of(config))
    attrs = anchor_attrs(NAMES[dot], config)
    conv = te.compute(shape, element, name="conv2d_NCHWc", attrs=attrs)
    if not beyond:
        return conv
    shape = (*shape[:3], w.out_width, shape[4])
    return te.compute(shape, lambda *index: conv[index], name="conv2d_crop")


def _compute_flat(dot: Dot, w: Conv2dWorkload, config: ConfigEntity, data: Any, weight: Any) -> Any:
    """Compute over the flattened pixels of the padded image."""
    padded = pad_data(data, w.padding, w.pad_value)
    n, chunks, height, width, lanes = (int(extent) for extent in padded.shape)
    shape = (n, chunks, height * width, lanes)
    (dh, dw), sums = w.dilation, _Sums(dot, w, config, weight)
    name = "data_flat" if padded.same_as(data) else "data_pad"
    flat = te.compute(
        shape, lambda n, c, p, lane: padded[n, c, p // width, p % width, lane], name=name
    )

    def element(n: Any, oc: Any, pixel: Any, o: Any) -> Any:
        at = pixel + sums.kh * (dh * width) + sums.tap * dw
        return sums.of(flat[n, sums.chunk_of(oc), at, sums.lane], oc, o)

    pixels = (w.out_height - 1) * width + w.out_width
    block, attrs = conv2d.oc_block_of(config), anchor_attrs(NAMES[dot], config)
    shape = (w.batch, int(weight.shape[0]), pixels, block)
    conv = te.compute(shape, element, name="conv2d_pixels", attrs=attrs)
    return te.compute(
        (*shape[:2], w.out_height, w.out_width, block),
        lambda n, oc, y, x, o: conv[n, oc, y * width + x, o],
        name="conv2d_NCHWc",
    )


class _Sums:
    """The reduction over packed weights.

    `chunk`, `kh`, `tap`: axes: blocks of input channels, and taps that are not joined.
    `lane`: channel of its block, beyond the last one in the next pixel.
    """

    def __init__(self, dot: Dot, w: Conv2dWorkload, config: ConfigEntity, weight: Any) -> None:
        self._dtype, self._weight = w.out_dtype, weight
        self._out_chunks = int(weight.shape[0]) // w.groups
        chunks, kh, taps, _, k = (int(extent) for extent in weight.shape[2:7])
        self.chunk = te.reduce_axis((0, chunks), "ic")
        self.kh, self.tap = te.reduce_axis((0, kh), "kh"), te.reduce_axis((0, taps), "kw")
        self._k, self._part = te.reduce_axis((0, k), "k"), te.reduce_axis((0, dot.size), "part")
        self.lane = self._k * dot.size + self._part

    def chunk_of(self, oc: Any) -> Any:
        """Block of input channels that a block of output channels reads, of its group."""
        return oc // self._out_chunks * int(self._weight.shape[2]) + self.chunk

    def of(self, value: Any, oc: Any, o: Any) -> Any:
        """Products of a value with the weights of a channel, summed."""
        of_group = int(self._weight.shape[5]) * amx.TILE_COLUMNS
        outer = (oc, o // of_group, self.chunk, self.kh, self.tap)
        inner = (o % of_group // amx.TILE_COLUMNS, self._k, o % amx.TILE_COLUMNS, self._part)
        place = (*outer, *inner)
        product = value.astype(self._dtype) * self._weight[place].astype(self._dtype)
        axes = [self.chunk, self.kh, self.tap, self._k, self._part]
        return te.sum(product, axis=axes)


# --- schedule ----------------------------------------------------------------------------


class AmxConv2d(AnchorRule):
    """Schedule a fused function whose anchor is a convolution by AMX.

    parallel n, oc, oh_task        [flat: parallel n, oc]
      oh, ow_tile
        tiles[rows, tile_ow, lanes] = 0
        ic_chunk, kh, tap
          tiles
        epilogue of the tiles
    """

    narrow_indices = True

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        out = inline_around(sch, anchor, keep=("data_pad",))
        pad = sblocks(sch).get("data_pad")
        n, oc, oh, ow, lane = conv2d.blocked_loops(sch, out)
        lanes = int(sch.get(lane).extent)
        is_parallel = conv2d.extent_of(sch, sch.get_loops(anchor)) >= conv2d.PARALLEL_MACS
        if config.val("flat"):
            task = at = sch.fuse(n, oc)
        else:
            task, oh, row = sch.split(oh, [None, config.val("task"), config.val("rows")])
            at, pixel = sch.split(ow, [None, config.val("tile_ow")])
            sch.reorder(n, oc, task, oh, at, row, pixel, lane)
            task = sch.fuse(n, oc, task)
        if is_parallel:
            sch.parallel(task)
        sch.compute_at(anchor, at, preserve_unit_loops=True)
        *tile, chunk, kh, tap, k, part = sch.get_loops(anchor)
        sch.reorder(chunk, kh, tap, *tile[-2 if config.val("flat") else -3 :], k, part)
        amx.by_tiles(sch, anchor, chunk)
        is_long = is_costly(sch.get(out)) and not amx.is_table(sch.get(out), target)
        width = amx.TILE_COLUMNS if is_long else amx.vector_of(lanes)
        _, vector = sch.split(lane, [None, width])
        sch.vectorize(vector)
        if pad is not None:
            *outer, lane = sch.get_loops(pad)
            sch.vectorize(lane)
            if is_parallel:
                sch.parallel(sch.fuse(*outer[:3]))
        return sch


# --- fallback ----------------------------------------------------------------------------


def input_block(w: Conv2dWorkload, dot: Dot) -> int:
    """Channels of a block of the image: joined ones are few."""
    if w.in_channels <= FEW_CHANNELS and w.dilation[1] == 1:
        return next(block for block in (4, 8) if w.in_channels <= block)
    return amx.channel_block(w.in_channels, dot)


def has_whole_groups(w: Conv2dWorkload, dot: Dot) -> bool:
    """Whether each group has whole ones of the blocks that all channels would be cut into."""
    counts = (w.in_channels, w.out_channels)
    blocks = [amx.channel_block(count, dot) for count in counts]
    return all(count // w.groups % block == 0 for count, block in zip(counts, blocks))


def _joins_taps(w: Conv2dWorkload, ic_block: int) -> bool:
    """Whether the taps of a row are one step: their channels lie side by side and are few."""
    return w.dilation[1] == 1 and w.kernel[1] * ic_block * w.item_bytes <= amx.STEP_BYTES


def _is_flat(w: Conv2dWorkload) -> bool:
    """Whether all pixels of an image in one row need fewer rows of tiles than row by row."""
    if w.strides != (1, 1):
        return False
    width = w.width + w.padding[1] + w.padding[3]
    pixels = (w.out_height - 1) * width + w.out_width
    by_row = w.out_height * amx.cycles_of_rows(w.out_width)
    return pixels <= MOST_FLAT_PIXELS and amx.cycles_of_rows(pixels) < CLEARLY_FEWER * by_row


def _supports(dot: Dot, w: Conv2dWorkload, target: Target) -> bool:
    is_own = dot_of(w.dtype, w.weight_dtype, w.out_dtype) == dot
    is_own = is_own and (w.groups == 1 or has_whole_groups(w, dot))
    is_large = w.out_height * w.out_width >= LEAST_PIXELS
    return is_own and is_large and amx.multiplies(dot, target)


def _fallback(dot: Dot, w: Conv2dWorkload, target: Target) -> ConfigEntity:
    machine = Machine.from_target(target)
    block, ic_block = amx.channel_block(w.out_channels, dot), input_block(w, dot)
    tile_ow = -(-w.out_width // -(-w.out_width // MOST_PIXELS))
    rows = largest_divisor(w.out_height, max(MOST_PIXELS // tile_ow, 1))
    row_macs = block * (w.in_channels // w.groups) * w.kernel[0] * w.kernel[1] * w.out_width
    chunks = -(-w.out_channels // block) * w.batch

    def suits(count: int) -> bool:
        tasks = w.out_height // (rows * count) * chunks
        is_enough = tasks >= TASKS_PER_CORE * machine.num_cores
        is_whole = w.out_height % (rows * count) == 0
        return is_whole and is_enough and rows * count * row_macs <= TASK_MACS

    return options(
        oc_block=block,
        ic_block=ic_block,
        joined=_joins_taps(w, ic_block),
        flat=_is_flat(w),
        tile_ow=tile_ow,
        rows=rows,
        task=next(filter(suits, range(w.out_height // rows, 1, -1)), 1),
    )


def _cycles(dot: Dot, w: Conv2dWorkload, target: Target) -> float:
    """Estimate cycles of the tile products, overlapped with reading the weights."""
    machine = Machine.from_target(target)
    ic_block = input_block(w, dot)
    taps = 1 if _joins_taps(w, ic_block) else w.kernel[1]
    inputs = w.in_channels // w.groups
    steps = -(-inputs // ic_block) * w.kernel[0] * taps
    rows = w.out_height * amx.cycles_of_rows(w.out_width)
    if _is_flat(w):
        width = w.width + w.padding[1] + w.padding[3]
        rows = amx.cycles_of_rows((w.out_height - 1) * width + w.out_width)
    columns = -(-w.out_channels // amx.TILE_COLUMNS)
    weights = w.item_bytes * inputs * w.out_channels * w.kernel[0] * w.kernel[1]
    return machine.overlap_with_weights(w.batch * rows * columns * steps, weights)


for _dot in DOTS:
    register_conv2d(
        NAMES[_dot],
        15,
        partial(_supports, _dot),
        partial(_fallback, _dot),
        partial(_compute, _dot),
        task_args=None,
        pack=partial(_pack, _dot),
        cycles=partial(_cycles, _dot),
        rule=AmxConv2d(),
    )
