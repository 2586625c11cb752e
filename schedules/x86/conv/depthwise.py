"""Depthwise 2-D convolution on blocked layouts (NCHW[x]c) for x86.

One vector holds a block of channels. Float images with the channel block of the results are read
in place: kernel rows that only meet padding are skipped, and the first and last tile of a row get
separate code. For other images, the rows of a tile are padded in a buffer that stays in L1;
bfloat16 is converted to float32 there.
"""

from __future__ import annotations

from typing import Any

from tvm import DataType, te, tirx
from tvm.target import Target

from ...anchor import AnchorRule, inline_around, sblocks
from ...config import ConfigEntity, options
from ...conv2d import Conv2dWorkload, pad_data
from ...strategy import anchor_attrs, register
from ..machine import amx
from ..machine.cpu import Machine
from ..machine.dot_product import OF_BFLOAT16, Dot, dot_of
from .conv2d import PARALLEL_MACS, choose_oc_block
from .register_tile import best_tile
from .skip_padding import mark_taps, rows_of, skip_padding

DIRECT = "depthwise_conv2d_direct.x86"
OF_SHORT = "depthwise_conv2d_bf16.x86"

# Larger kernels read a padded copy: in place, a row of tiles would have their code three times.
MOST_TAPS_IN_PLACE = 49
# Maximum vectors of sums; with more, TVM would allocate memory for each tile.
MOST_SUMS = 14
# Cost of padding a row, in rows of results. Tiles are split to balance the cores if the busiest
# core then takes less than this share of the time.
PADDED_ROW, CLEARLY_LESS = 0.3, 0.9


# --- compute -----------------------------------------------------------------------------


def pack_weight(ops: Any, weight: Any, config: ConfigEntity, block: int) -> Any:
    """(C, 1, KH, KW) -> (C/block, KH, KW, block), C padded with zeros; data have the same block."""
    c, _, kh, kw = (int(d) for d in weight.shape)
    if c % block:
        weight = ops.pad(weight, ((0, -c % block), (0, 0), (0, 0), (0, 0)))
        c += -c % block
    return ops.transpose(ops.reshape(weight, (c // block, block, kh, kw)), (0, 2, 3, 1))


def _is_in_place(w: Conv2dWorkload) -> bool:
    """Whether an image with the channel block of the results is read without a padded copy."""
    is_short = _dot(w) is OF_BFLOAT16  # widen once, not per kernel position
    return bool(rows_of(w)) and not is_short and w.kernel[0] * w.kernel[1] <= MOST_TAPS_IN_PLACE


def _dot(w: Conv2dWorkload) -> Dot | None:
    return dot_of(w.dtype, w.weight_dtype, w.out_dtype)


def _copied_type(w: Conv2dWorkload) -> str:
    """Element type of the padded rows."""
    return w.out_dtype if _dot(w) is OF_BFLOAT16 else w.dtype


def compute(w: Conv2dWorkload, config: ConfigEntity, rule: str, data: Any, weight: Any) -> Any:
    """data (N, C/ib, H, W, ib) or (N, C, H, W), weight as packed -> (N, C/ob, OH, OW, ob)."""
    oc_block = int(weight.shape[3])
    is_read_in_place = _is_in_place(w) and [int(each) for each in data.shape[4:]] == [oc_block]
    copied = (w.padding, w.pad_value, _copied_type(w))
    padded = data if is_read_in_place else pad_data(data, *copied)
    (sh, sw), (dh, dw) = w.strides, w.dilation
    kh = te.reduce_axis((0, w.kernel[0]), "kh")
    kw = te.reduce_axis((0, w.kernel[1]), "kw")

    def read(n: Any, chunk: Any, y: Any, x: Any, lane: Any) -> Any:
        channel = chunk * oc_block + lane
        if is_read_in_place:
            row, column = y - w.padding[0], x - w.padding[1]
            inside_row = tirx.all(row >= 0, row < w.height)
            inside_column = tirx.likely(tirx.all(column >= 0, column < w.width))
            return tirx.if_then_else(
                tirx.all(inside_row, inside_column),
                data[n, chunk, row, column, lane],
                tirx.const(0, w.dtype),
            )
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
        attrs={**anchor_attrs(rule, config), **(rows_of(w, 5) if is_read_in_place else {})},
    )


# --- schedule ----------------------------------------------------------------------------


class DepthwiseConv2d(AnchorRule):
    """Schedule a fused function whose anchor is a depthwise conv2d on a blocked layout.

    parallel n, c, oh_tile
      pad the rows that the tile reads    [in place: not]
      oh, ow_tile
        registers[tile_ow, lanes] = 0
        unrolled kh, kw, tile_ow; vector lanes: fma
        epilogue of the tile
    """

    narrow_indices = True

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        out = inline_around(sch, anchor)
        pad = sblocks(sch).get("data_pad")

        n, c, oh, ow, lane = sch.get_loops(out)
        macs = 1
        for loop in sch.get_loops(anchor):
            macs *= int(sch.get(loop).extent)
        oh_outer, oh_inner = sch.split(oh, [None, config.val("tile_oh")])
        ow_outer, ow_inner = sch.split(ow, [None, config.val("tile_ow")])
        vector, lane = sch.split(lane, [None, _lanes(int(sch.get(lane).extent))])
        sch.reorder(n, c, vector, oh_outer, oh_inner, ow_outer, ow_inner, lane)
        tile = sch.fuse(n, c, vector, oh_outer)
        if is_parallel(macs, Machine.from_target(target)):
            sch.parallel(tile)
        sch.vectorize(lane)
        sch.unroll(ow_inner)
        sch.annotate(ow_outer, "pragma_loop_partition_hint", 1)

        sch.compute_at(anchor, ow_outer, preserve_unit_loops=True)
        ow_inner, lane, kh, kw = sch.get_loops(anchor)[-4:]
        sch.reorder(kh, kw, ow_inner, lane)
        sch.vectorize(lane)
        for loop in (kh, kw, ow_inner):
            sch.unroll(loop)
        rows_inside = mark_taps(sch, anchor, kh)
        sch.decompose_reduction(anchor, kh)
        if pad is not None:
            sch.compute_at(pad, tile, preserve_unit_loops=True)
            sch.vectorize(sch.get_loops(pad)[-1])
        return skip_padding(sch, rows_inside)


# --- fallback ----------------------------------------------------------------------------


def block_of(w: Conv2dWorkload, target: Target) -> int:
    """Choose the channel block: whole vectors, or what AMX tiles read if the target has them."""
    dot = _dot(w)
    if dot is not None and amx.multiplies(dot, target):
        return amx.channel_block(w.out_channels, dot)
    machine = Machine.from_target(target)
    if w.is_float:
        machine = machine.for_channels(w.out_channels)
    return choose_oc_block(w, machine.lanes(w.out_dtype))


def _lanes(block: int) -> int:
    """Lanes per vector; a block that AMX tiles read spans several vectors."""
    return amx.TILE_COLUMNS if block % amx.TILE_COLUMNS == 0 else block


def direct_fallback(w: Conv2dWorkload, target: Target) -> ConfigEntity:
    """Choose rows per tile: padded ones fit half of L1, cores stay busy; without padding, all."""
    machine = Machine.from_target(target)
    if w.is_float:
        machine = machine.for_channels(w.out_channels)
    block = block_of(w, target)
    padded = w.width + w.padding[1] + w.padding[3]
    row_bytes = int(DataType(_copied_type(w)).itemsize) * _lanes(block) * padded
    rows = max(machine.l1_bytes // 2 // row_bytes, w.kernel[0])
    tile_oh = max((rows - w.kernel[0]) // w.strides[0] + 1, 1)
    if _is_in_place(w):
        tile_oh = w.out_height
    tile_oh = best_tile(w.out_height, min(tile_oh, w.out_height))
    macs = w.batch * w.out_channels * w.out_height * w.out_width * w.kernel[0] * w.kernel[1]
    if is_parallel(macs, machine):
        tile_oh = _busy_rows(w, tile_oh, w.batch * -(-w.out_channels // _lanes(block)), machine)
    sums = min(machine.vector_registers // 2, MOST_SUMS)
    return options(oc_block=block, tile_oh=tile_oh, tile_ow=best_tile(w.out_width, sums))


def is_parallel(macs: int, machine: Machine) -> bool:
    """Whether to use threads: multiply-adds take twice as long here, so 4 cores need only half."""
    return macs >= (PARALLEL_MACS if machine.num_cores < 4 else PARALLEL_MACS // 2)


def _busy_rows(w: Conv2dWorkload, most: int, blocks: int, machine: Machine) -> int:
    """Rows per tile that clearly shorten the time of the busiest core, else `most`."""
    halo = w.kernel[0] - w.strides[0]
    padding = 0 if _is_in_place(w) else PADDED_ROW

    def busiest(rows: int) -> float:
        tasks = blocks * -(-w.out_height // rows)
        return -(-tasks // machine.num_cores) * (rows + padding * (rows + halo))

    best = min(range(most, 0, -1), key=busiest)
    return best if busiest(best) < CLEARLY_LESS * busiest(most) else most


def _register(name: str, supports: Any, pack: Any, task_args: Any = None) -> None:
    def compute_it(w: Conv2dWorkload, config: ConfigEntity, data: Any, weight: Any) -> Any:
        return compute(w, config, name, data, weight)

    fields = name, 15, supports, direct_fallback, compute_it, task_args, pack
    register("nn.conv2d", "cpu", *fields, rule=DepthwiseConv2d())


_register(
    DIRECT,
    lambda w, _: w.is_depthwise and (w.dtype == w.out_dtype == "float32" or w.is_bytes),
    pack_weight,
    Conv2dWorkload.autotvm_args,
)
_register(
    OF_SHORT,
    lambda w, _: w.is_depthwise and _dot(w) is OF_BFLOAT16,
    lambda ops, weight, config, block: pack_weight(ops, weight.astype("float32"), config, block),
)
