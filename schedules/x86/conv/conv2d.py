"""Direct 2-D convolution on blocked layouts (NCHW[x]c) for x86.

The vector lanes run over a block of output channels; a register tile holds `tile_ow` pixels x
`oc_chunks` channel blocks, and each step broadcasts one input element against the packed weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tvm import DataType, te
from tvm.target import Target

from ...anchor import AnchorRule, inline_around, sblocks
from ...config import ConfigEntity, options
from ...conv2d import Conv2dWorkload, pad_data, register_conv2d
from ...epilogue import is_costly
from ...strategy import anchor_attrs
from ..machine import microkernel
from ..machine.cpu import SET_BYTES, SET_WAYS, Machine
from ..machine.prefetch import prefetch_tile, stream_panels
from .register_tile import (
    channel_block,
    fewest_vectors,
    macs_per_cycle,
    register_tile,
    with_empty_lanes,
)
from .skip_padding import mark_taps, rows_of, share_inside, skip_padding

DIRECT = "conv2d_direct.x86"
SPREAD = "data_spread"

# Tiles of image parts replace tiles of rows if they reach this share of their speed. Larger tasks
# are used if they keep this share of the busy cores.
AS_FAST = 0.98
# Channels become the outer loop if that keeps more than this many times the cores busy.
BUSIER = 1.25
# Limit a re-read image to 1/4 of L3, which is shared between cores.
IMAGE_SHARE_OF_L3 = 4
# Minimum tasks per core for parallel loops over output channel blocks or image parts.
TASKS_PER_CORE = 4
# Extra pixels in a spread copy of an image; minimum output channels for such a copy.
MORE_PIXELS, LEAST_CHANNELS_OF_COPY = 2, 128
# Minimum number of channel tiles that read a copied row.
LEAST_PASSES_OF_COPY = 4
# Maximum rows per task, whose padded input should leave half of L2 to the weights.
MOST_ROWS = 8
# Stride between copied rows of channel blocks, in elements: a multiple of 64, plus 32.
APART = (64, 32)
# Below this many multiply-adds a kernel runs on one thread: waking the pool costs more.
PARALLEL_MACS = 1_000_000


# --- compute -----------------------------------------------------------------------------


def pack_weight(ops: Any, weight: Any, config: ConfigEntity, ic_block: int) -> Any:
    """OIHW -> (O/oc_block, I/ic_block, KH, KW, ic_block, oc_block), O and I padded with zeros."""
    oc_block = oc_block_of(config)
    o, i, kh, kw = (int(d) for d in weight.shape)
    beyond_o, beyond_i = -o % oc_block, -i % ic_block
    if beyond_o or beyond_i:
        weight = ops.pad(weight, ((0, beyond_o), (0, beyond_i), (0, 0), (0, 0)))
    o, i = o + beyond_o, i + beyond_i
    shape = (o // oc_block, oc_block, i // ic_block, ic_block, kh, kw)
    return ops.transpose(ops.reshape(weight, shape), (0, 2, 4, 5, 3, 1))


def compute(
    w: Conv2dWorkload, config: ConfigEntity, rule: str, data: Any, weight: Any, kept: str = ""
) -> Any:
    """data (N, IC/ib, H, W, ib) or (N, IC, H, W), weight as packed -> (N, OC/ob, OH, OW, ob).

    A seventh weight axis holds the neighboring channels that one dot product sums. `kept` is the
    dtype in which data are multiplied, if it differs from the data's.
    """
    ic_block, oc_block = int(weight.shape[4]), int(weight.shape[5])
    together = [int(extent) for extent in weight.shape[6:]]
    ic_block *= math.prod(together)
    if config.val("flat", False):
        return _compute_flat(w, config, rule, data, weight)
    in_per_group, out_per_group = w.in_channels // w.groups, w.out_channels // w.groups
    (sh, sw), (dh, dw) = w.strides, w.dilation
    padded = pad_data(data, w.padding, w.pad_value, kept)
    if config.val("spread", False) and padded.same_as(data):
        padded = te.compute(data.shape, lambda *at: data(*at), name="data_pad")
    steps = int(weight.shape[4])
    ic = te.reduce_axis((0, int(weight.shape[1]) * steps), "ic")
    kh = te.reduce_axis((0, w.kernel[0]), "kh")
    kw = te.reduce_axis((0, w.kernel[1]), "kw")
    part = [te.reduce_axis((0, extent), "part") for extent in together]

    def read(n: Any, oc: Any, y: Any, x: Any) -> Any:
        first = 0 if w.groups == 1 else (oc * oc_block // out_per_group) * in_per_group
        if len(padded.shape) == 4:
            return padded[n, first + ic, y, x]
        lane = ic % steps * together[0] + part[0] if part else ic % steps
        return padded[n, first // ic_block + ic // steps, y, x, lane]

    def element(n: Any, oc: Any, oh: Any, ow: Any, o: Any) -> Any:
        value = read(n, oc, oh * sh + kh * dh, ow * sw + kw * dw)
        place = (oc, ic // steps, kh, kw, ic % steps, o, *part)
        product = value.astype(w.out_dtype) * weight[place].astype(w.out_dtype)
        return te.sum(product, axis=[ic, kh, kw, *part])

    shape = (w.batch, weight.shape[0], w.out_height, w.out_width, oc_block)
    attrs = {**anchor_attrs(rule, config), **rows_of(w)}
    return te.compute(shape, element, name="conv2d_NCHWc", attrs=attrs)


def _compute_flat(
    w: Conv2dWorkload, config: ConfigEntity, rule: str, data: Any, weight: Any
) -> Any:
    """Compute a pointwise convolution over flattened pixels, gathered first if strided."""
    ic_block, oc_block = int(weight.shape[4]), int(weight.shape[5])
    height, width = w.out_height, w.out_width
    (sh, sw), (n, c, _, _, *lanes) = w.strides, data.shape
    pixels = height * width
    spread = None
    if config.val("spread", False) and lanes:

        def copied(n: Any, c: Any, pixel: Any, lane: Any) -> Any:
            inside = te.min(pixel, pixels - 1)
            return data(n, c, inside // width * sh, inside % width * sw, lane)

        spread = te.compute((n, c, pixels + MORE_PIXELS, *lanes), copied, name=SPREAD)
    elif w.strides != (1, 1):
        data = te.compute(
            (n, c, height, width, *lanes),
            lambda n, c, y, x, *lane: data(n, c, y * sh, x * sw, *lane),
            name="data_pad",
        )
    ic = te.reduce_axis((0, int(weight.shape[1]) * ic_block), "ic")
    kh, kw = te.reduce_axis((0, 1), "kh"), te.reduce_axis((0, 1), "kw")

    def read(n: Any, pixel: Any) -> Any:
        if spread is not None:
            return spread[n, ic // ic_block, pixel, ic % ic_block]
        y, x = pixel // width, pixel % width
        if not lanes:
            return data[n, ic, y, x]
        return data[n, ic // ic_block, y, x, ic % ic_block]

    product = te.compute(
        (w.batch, weight.shape[0], pixels, oc_block),
        lambda n, oc, pixel, o: te.sum(
            read(n, pixel).astype(w.out_dtype)
            * weight[oc, ic // ic_block, kh, kw, ic % ic_block, o].astype(w.out_dtype),
            axis=[ic, kh, kw],
        ),
        name="conv2d_pixels",
        attrs=anchor_attrs(rule, config),
    )
    return te.compute(
        (w.batch, weight.shape[0], height, width, oc_block),
        lambda n, oc, y, x, o: product[n, oc, y * width + x, o],
        name="conv2d_NCHWc",
    )


# --- schedule ----------------------------------------------------------------------------


class DirectConv2d(AnchorRule):
    """Schedule a fused function whose anchor is a direct conv2d on a blocked layout.

    Loop nest (pad rows once per output row, weights streamed from L2):

        parallel n, oh_task     [channels_outer: parallel n, oc_chunk, oh; pad in a nest before]
          pad rows of these oh
          oc_chunk, oh, ow_tile      [flat: tiles of all pixels of the image]
            registers[oc_chunks, tile_ow, lanes] = 0
            ic_chunk, kh, kw, ic
              unrolled oc_chunks, tile_ow; vector lanes: fma
            epilogue of the tile

    A narrower last tile gets separate code: guards in the reduction would keep the tile out of
    registers, and whole tiles would compute unused pixels.
    """

    narrow_indices = True

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        tile_ow, oc_chunks = config.val("tile_ow"), config.val("oc_chunks")
        outer, task_rows = config.val("channels_outer"), config.val("rows", 1)
        out = inline_around(sch, anchor, keep=("data_pad", SPREAD))
        names = sblocks(sch)
        pad, spread = names.get("data_pad"), names.get(SPREAD)

        n, oc, oh, ow, lane = blocked_loops(sch, out)
        macs = extent_of(sch, sch.get_loops(anchor))
        out_rows = int(sch.get(oh).extent)
        if config.val("flat", False):
            n, oc, pixel, lane = _with_one_axis_of_pixels(sch, out)
            part, ow = sch.split(pixel, [config.val("pixel_parts", 1), None])
        is_ragged = int(sch.get(ow).extent) % tile_ow > 0
        ow_outer, ow_inner = sch.split(ow, [None, tile_ow])
        if is_ragged:
            sch.annotate(ow_outer, "pragma_loop_partition_hint", 1)
        channels = int(sch.get(oc).extent)
        oc_outer, oc_inner = sch.split(oc, [None, oc_chunks])
        if config.val("flat", False):
            sch.reorder(n, part, oc_outer, ow_outer, oc_inner, ow_inner, lane)
            row = sch.fuse(n, part, oc_outer)
            if channels % oc_chunks:
                sch.annotate(row, "pragma_loop_partition_hint", 1)
        elif outer:
            sch.reorder(n, oc_outer, oh, ow_outer, oc_inner, ow_inner, lane)
            row = sch.fuse(n, oc_outer, oh)
        else:
            oh, oh_inner = sch.split(oh, [None, task_rows])
            sch.reorder(n, oh, oc_outer, oh_inner, ow_outer, oc_inner, ow_inner, lane)
            row = sch.fuse(n, oh)
        if macs >= PARALLEL_MACS:
            sch.parallel(row)
        sch.vectorize(lane)
        sch.unroll(ow_inner)
        sch.unroll(oc_inner)

        sch.compute_at(anchor, ow_outer, preserve_unit_loops=True)
        inside = self.loops(sch, anchor)[-6 if config.val("flat", False) else -7 :]
        oc_inner, *_, ow_inner, lane, ic, kh, kw = inside
        ic_block = _ic_block(sch, anchor)
        ic_chunk, ic = sch.split(ic, [None, ic_block])
        ic, together = self.steps(sch, ic, config)
        # A plain input has its channels innermost: LLVM would unroll a short loop over kernel
        # columns and keep the pixels shared by neighboring columns, spilling registers.
        reduction = [ic_chunk, kh, kw, ic] if ic_block > 1 else [kh, kw, ic_chunk, ic]
        # The larger factor is outer: only one of its operands is live at a time.
        unrolled = [ow_inner, oc_inner] if tile_ow >= oc_chunks else [oc_inner, ow_inner]
        sch.reorder(*reduction, *unrolled, *together, lane)
        sch.unroll(ow_inner)
        sch.unroll(oc_inner)
        weights, machine = sch.get(anchor).reads[1].source, Machine.from_target(target)
        streams = buffer_bytes(weights) > machine.l2_bytes // 2
        if config.val("flat", False):
            streams = channels > oc_chunks
        elif not outer:
            streams &= task_rows > 1
        if streams:
            rows = [(ow_outer, int(sch.get(ow_outer).extent))]
            if not config.val("flat", False):
                rows.insert(0, (row, out_rows) if outer else (oh_inner, task_rows))
            chunk = buffer_bytes(weights) // int(weights.shape[0])
            stride = chunk // extent_of(sch, reduction)
            stream_panels(sch, rows, reduction, oc_chunks * chunk, stride)
        data, result = sch.get(anchor).reads[0].source, sch.get(out).writes[0].source
        is_large = max(map(buffer_bytes, (data, result))) > machine.l2_bytes
        is_strided = int(data.shape[2]) >= 2 * out_rows
        if is_large and (ic_block == 1 or not is_strided):
            prefetch_tile(sch, reduction[0])
        if pad is not None:
            _schedule_pad(sch, pad, row, outer, macs >= PARALLEL_MACS, config.val("spread", False))
        if spread is not None:
            *blocks, _, channel = sch.get_loops(spread)
            sch.vectorize(channel)
            if macs >= PARALLEL_MACS:
                sch.parallel(sch.fuse(*blocks))
        rows_inside = mark_taps(sch, anchor, kh)
        if is_costly(sch.get(out)):
            microkernel.keep_sums_in_memory(sch, reduction[0])
        self.multiply(sch, anchor, lane, reduction[0], target)
        return skip_padding(sch, rows_inside)

    def loops(self, sch: Any, anchor: Any) -> list[Any]:
        """Return the anchor's loops down to the one over kernel columns."""
        return list(sch.get_loops(anchor))

    def steps(self, _: Any, loop: Any, __: ConfigEntity) -> tuple[Any, list[Any]]:
        """Return the innermost loop over steps and the loops over steps done together, if any."""
        return loop, []

    def multiply(self, sch: Any, anchor: Any, lane: Any, reduced: Any, target: Target) -> None:
        """Vectorize one step over the lanes; initialize the sums before the loop `reduced`."""
        sch.vectorize(lane)
        sch.decompose_reduction(anchor, reduced)


def blocked_loops(sch: Any, out: Any) -> list[Any]:
    """Return loops n, channel block, h, w, lane; a plain layout has channel blocks of 1."""
    loops = list(sch.get_loops(out))
    if len(loops) == 4:
        loops[1], lane = sch.split(loops[1], [None, 1])
        loops.append(lane)
    return loops


def _with_one_axis_of_pixels(sch: Any, out: Any) -> list[Any]:
    """Flatten rows and columns; return loops n, channel block, pixel, lane."""
    width = int(sch.get(sch.get_loops(out)[3]).extent)
    sch.transform_block_layout(out, lambda n, oc, y, x, lane: (n, oc, y * width + x, lane))
    return list(sch.get_loops(out))


def _schedule_pad(
    sch: Any, pad: Any, row: Any, in_front: bool, parallel: bool, apart: bool
) -> None:
    if not in_front:
        sch.compute_at(pad, row, preserve_unit_loops=True)
        if apart:
            sch.storage_align(pad, 0, 1, *APART)
    loops = sch.get_loops(pad)
    if len(sch.get(pad).iter_vars) == 5:
        sch.vectorize(loops[-1])
    if in_front and parallel:
        sch.parallel(sch.fuse(*loops[:3]))


def _ic_block(sch: Any, anchor: Any) -> int:
    """Input channel block, from the packed weights (O/ob, I/ib, KH, KW, ib, ob)."""
    return int(sch.get(anchor).reads[1].source.shape[4])


def extent_of(sch: Any, loops: Iterable[Any]) -> int:
    return math.prod(int(sch.get(loop).extent) for loop in loops)


def buffer_bytes(buffer: Any) -> int:
    """Size of a tensor of static shape."""
    return math.prod(map(int, buffer.shape)) * DataType(str(buffer.dtype)).itemsize


# --- fallback ----------------------------------------------------------------------------


def direct_fallback(
    w: Conv2dWorkload, target: Target, machine: Machine | None = None
) -> ConfigEntity:
    """Choose the register tile from the register file, the loop order from the weight size.

    With rows outer, every output row reads all weights again: fine while they fit half of L2.
    Otherwise channels are outer, and the weights are read once. Channels are also outer if there
    are too few rows for the cores. Rows stay outer if the image exceeds its share of L3 and reading
    it for every channel tile costs more bytes than reading the weights for every row.

    flat: register tiles span rows. pixel_parts: number of parts of a flat image, each of whole
    tiles, that are separate tasks. spread: a pointwise convolution copies its input with channel
    blocks slightly further apart.
    """
    machine = _for_blocks(w, machine or Machine.from_target(target))
    lanes = machine.lanes(w.out_dtype)
    oc_block = choose_oc_block(w, lanes)
    chunks = _chunks(w, oc_block)
    weights = w.out_channels * (w.in_channels // w.groups) * w.kernel[0] * w.kernel[1]
    weight_bytes = w.item_bytes * weights
    outer = weight_bytes > machine.l2_bytes // 2 or w.groups > 1
    tile_ow, oc_chunks = register_tile(w.out_width, chunks, machine)
    image_bytes = w.item_bytes * w.in_channels * w.height * w.width
    passes = chunks // oc_chunks
    is_large = w.groups == 1 and image_bytes >= machine.l3_bytes // IMAGE_SHARE_OF_L3
    if is_large:
        outer &= weight_bytes * w.out_height >= image_bytes * passes
    rows, parts = w.batch * w.out_height, 1
    is_parallel = rows * w.out_width * weights >= PARALLEL_MACS
    needs_channels = is_parallel and machine.busy(rows * passes) > BUSIER * machine.busy(rows)
    flat = flat_tile(w, chunks, machine)
    outer |= needs_channels
    spread = is_large and not outer and w.is_pointwise and passes >= LEAST_PASSES_OF_COPY
    is_by_rows = not spread and not needs_channels and flat is None
    task = _task_rows(w, weight_bytes, machine) if is_by_rows else 1
    if flat is not None:
        outer, spread = True, crowds_caches(w, lanes, machine)
        parts, tile_ow, oc_chunks = flat
    return options(
        oc_block=oc_block,
        tile_ow=tile_ow,
        oc_chunks=oc_chunks,
        channels_outer=outer and task == 1,
        rows=task,
        flat=flat is not None,
        pixel_parts=parts,
        spread=spread,
    )


def _task_rows(w: Conv2dWorkload, weight_bytes: int, machine: Machine) -> int:
    """Choose the rows per task, which pads them once and reads each weight panel once.

    Returns 1 if neither saves time, if no larger size divides the rows, or if cores would be idle.
    """
    is_read_again = w.kernel[0] > 1 or weight_bytes > machine.l2_bytes // 2
    if w.groups > 1 or not is_read_again:
        return 1
    width = w.width + w.padding[1] + w.padding[3]

    def suits(rows: int) -> bool:
        height = (rows - 1) * w.strides[0] + (w.kernel[0] - 1) * w.dilation[0] + 1
        fits = w.item_bytes * w.in_channels * height * width <= machine.l2_bytes // 2
        tasks = w.batch * w.out_height // rows
        busy = machine.busy(tasks) >= AS_FAST * machine.busy(w.batch * w.out_height)
        return w.out_height % rows == 0 and fits and busy

    return next(filter(suits, range(min(MOST_ROWS, w.out_height // 2), 1, -1)), 1)


def direct_cycles(
    w: Conv2dWorkload, target: Target, speedup: float = 1, weight_bytes: int = 0
) -> float:
    """Estimate cycles: multiply-adds at the rate of the register tile, plus reading the weights.

    Pointwise convolutions overlap the two. Empty lanes of a partial channel block count as well.

    `speedup`: speed relative to multiply-adds in `w`'s dtype.
    `weight_bytes`: bytes per weight; 0 for the size of `w`'s dtype.
    """
    machine = _for_blocks(w, Machine.from_target(target))
    lanes = machine.lanes(w.dtype)
    per_group = w.in_channels // w.groups
    steps = with_empty_lanes(per_group, lanes)
    products = w.out_width * w.out_height * w.batch * w.kernel[0] * w.kernel[1] * steps
    vectors = w.groups * _chunks(w, choose_oc_block(w, lanes))
    computing = products * share_inside(w) * vectors / _rate(w, machine) / speedup
    weights = per_group * w.out_channels * w.kernel[0] * w.kernel[1]
    weights *= weight_bytes or w.item_bytes
    if w.is_pointwise:
        return machine.overlap_with_weights(computing, weights)
    return computing + machine.weight_cycles(weights)


def _chunks(w: Conv2dWorkload, oc_block: int) -> int:
    """Number of output channel blocks per group."""
    return max(-(-(w.out_channels // w.groups) // oc_block), 1)


def efficiency(w: Conv2dWorkload, machine: Machine) -> float:
    """Return the share of peak speed that the direct convolution's register tile reaches."""
    machine = _for_blocks(w, machine)
    return _rate(w, machine) / machine.fmas


def _for_blocks(w: Conv2dWorkload, machine: Machine) -> Machine:
    """Return the machine with vectors as wide as the output channel blocks."""
    is_float = w.is_float and w.dtype == "float32"
    return machine.for_channels(w.out_channels) if is_float and w.groups == 1 else machine


def _rate(w: Conv2dWorkload, machine: Machine) -> float:
    """Vector multiply-adds per cycle."""
    chunks = _chunks(w, choose_oc_block(w, machine.lanes(w.dtype)))
    flat = flat_tile(w, chunks, machine)
    if flat is not None:
        return macs_per_cycle(w.out_height * w.out_width // flat[0], *flat[1:], machine)
    return macs_per_cycle(w.out_width, *register_tile(w.out_width, chunks, machine), machine)


def crowds_caches(w: Conv2dWorkload, lanes: int, machine: Machine) -> bool:
    """Whether a tile's pixels of all channel blocks map to one L1 set, so that panels read L3.

    A copy with channel blocks slightly further apart costs less.
    """
    pixels = w.out_height * w.out_width
    stride = w.item_bytes * lanes * pixels
    return (
        stride % SET_BYTES == 0
        and w.in_channels // lanes > SET_WAYS
        and w.in_channels // lanes * stride > 2 * machine.l2_bytes
        and w.out_channels >= LEAST_CHANNELS_OF_COPY
    )


def flat_tile(w: Conv2dWorkload, chunks: int, machine: Machine) -> tuple[int, int, int] | None:
    """Return (image parts, pixels, vectors) for register tiles that span rows.

    A weight panel stays in L1 for all pixels while the next one is prefetched. Each panel reads
    the inputs once, from L2 or L3.

    Returns None if that saves no time: not pointwise, more than one group, not floating point, 32
    registers (a tile is then as wide as most short rows), or an image larger than half of L3.
    """
    pixels = w.out_height * w.out_width
    image_bytes = w.item_bytes * w.in_channels * pixels
    if not w.is_pointwise or w.groups > 1 or machine.vector_registers > 16 or not w.is_float:
        return None
    if image_bytes > machine.l3_bytes // 2:
        return None
    is_parallel = w.batch * pixels * w.in_channels * w.out_channels >= PARALLEL_MACS
    cores = machine.num_cores if is_parallel else 1
    if cores == 1 or chunks >= TASKS_PER_CORE * cores:
        return 1, *register_tile(pixels, chunks, machine, may_be_ragged=w.batch == 1)
    by_row = macs_per_cycle(w.out_width, *register_tile(w.out_width, chunks, machine), machine)
    for parts in (count for count in range(2, pixels + 1) if pixels % count == 0):
        tile, vectors = register_tile(pixels // parts, chunks, machine, only_whole=True)
        if parts * chunks // vectors >= TASKS_PER_CORE * cores:
            speed = macs_per_cycle(tile, tile, vectors, machine) / by_row
            return (parts, tile, vectors) if speed >= AS_FAST else None
    return None


def oc_block_of(config: ConfigEntity) -> int:
    """Return the output channel block from Baton's or AutoTVM's knobs."""
    return config.size("tile_oc")[-1] if "tile_oc" in config else config.val("oc_block")


def choose_oc_block(w: Conv2dWorkload, lanes: int) -> int:
    """Choose the block with the fewest vectors; for groups, one that divides their channels."""
    if w.groups > 1 and not w.is_depthwise:
        return channel_block(w.out_channels // w.groups, lanes)
    return fewest_vectors(w.out_channels, lanes)


def is_float_conv(w: Conv2dWorkload, _: Target) -> bool:
    """Whether the convolution is floating point and not depthwise (implemented separately)."""
    return w.is_float and not w.is_depthwise


register_conv2d(
    DIRECT,
    15,
    is_float_conv,
    direct_fallback,
    lambda w, config, data, weight: compute(w, config, DIRECT, data, weight),
    pack=pack_weight,
    cycles=direct_cycles,
    is_default=True,
    rule=DirectConv2d(),
)
