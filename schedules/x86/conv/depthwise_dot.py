"""Depthwise 2-D convolution of bytes with dot products, on blocked layouts (NCHW[x]c) for x86.

A lane of `vpdpbusd` multiplies four bytes: a 2x2 square of pixels of its channel. The rows of a
tile are copied into squares,

    a row of pixels        c0 c1 .. | c0 c1 .. |            squares   c0 c0 c0 c0 | c1 c1 c1 c1 | ..
    and the one below it   c0 c1 .. | c0 c1 .. |      -->

and a 3x3 window overlaps 2x2 squares wherever it begins. With an odd stride, half of the windows
begin in the second row or column of a square, or in both. For these windows the weights are packed
again, shifted by a row or column, with zeros for the pixels outside the window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.target import Target

from ...anchor import AnchorRule, inline_around, sblocks
from ...config import ConfigEntity, options
from ...conv2d import Conv2dWorkload, register_conv2d
from ...strategy import anchor_attrs
from ..machine.cpu import Machine
from ..machine.dot_product import squares_dot_intrinsic, vnni_lanes
from .conv2d import extent_of
from .depthwise import block_of, is_parallel
from .skip_padding import EMPTY

NAME = "depthwise_conv2d_int8.x86"

MARK = "pragma_squares"
SIDE = 2  # pixels along a side of a square
EITHER = 2  # start of windows in a pair: 0 first pixel, 1 second, 2 either

# Kernels with fewer positions are not worth the copy.
LEAST_TAPS = 4
# Larger kernels loop over rows instead of unrolling them.
MOST_UNROLLED_TAPS = 121
# Cost of copying a row, in rows of results: COPIED_ROW, or FAR_ROW if the copies of a tile exceed
# L2 / SHARE_OF_L2.
COPIED_ROW, FAR_ROW, SHARE_OF_L2 = 0.15, 0.3, 8
# Maximum sums in registers; more do not hide more latency.
MOST_SUMS = 14


# --- compute -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Windows:
    """Alignment of windows with pixel pairs along one axis."""

    taps: int
    # Positions in a pair at which windows begin; the weights are packed once for each
    begins: tuple[int, ...]

    @staticmethod
    def of(taps: int, config: ConfigEntity, axis: str) -> Windows:
        begin = config.val(f"begin_{axis}")
        return Windows(taps, (0, 1) if begin == EITHER else (begin,))

    @property
    def pairs(self) -> int:
        """Maximum number of pairs that a window overlaps."""
        return (self.begins[-1] + self.taps - 1) // SIDE + 1

    def shifted(self, ops: Any, weight: Any, axis: int) -> Any:
        """Concatenate the weights along an axis, shifted and zero-padded for each begin."""
        around = [(0, 0)] * len(weight.shape)
        forms = []
        for begin in self.begins:
            around[axis] = (begin, self.pairs * SIDE - self.taps - begin)
            forms.append(ops.pad(weight, tuple(around)))
        return ops.concatenate(forms, axis)


def _pack(ops: Any, weight: Any, config: ConfigEntity, block: int) -> Any:
    """(C, 1, KH, KW) -> (C/block, begin, begin, pair, pair, block, 2, 2), C padded with zeros."""
    channels, _, *kernel = (int(extent) for extent in weight.shape)
    rows, columns = (
        Windows.of(taps, config, axis) for taps, axis in zip(kernel, "hw", strict=True)
    )
    if channels % block:
        weight = ops.pad(weight, ((0, -channels % block), (0, 0), (0, 0), (0, 0)))
    weight = columns.shifted(ops, rows.shifted(ops, weight, 2), 3)
    of_rows, of_columns = ((len(each.begins), each.pairs, SIDE) for each in (rows, columns))
    chunks = -(-channels // block)
    apart = ops.reshape(weight, (chunks, block, *of_rows, *of_columns))
    return ops.transpose(apart, (0, 2, 5, 3, 6, 1, 4, 7))


def _compute(w: Conv2dWorkload, config: ConfigEntity, data: Any, weight: Any) -> Any:
    """data (N, C/ib, H, W, ib) or (N, C, H, W), weight as packed -> (N, C/ob, OH, OW, ob)."""
    rows, columns = (
        Windows.of(taps, config, axis) for taps, axis in zip(w.kernel, "hw", strict=True)
    )
    block, lanes = int(weight.shape[5]), config.val("lanes")
    width = -(-w.out_width // config.val("tile_ow")) * config.val("tile_ow")
    top, left = _in_front(w)
    (sh, sw), (y0, x0) = w.strides, (top - w.padding[0], left - w.padding[1])
    height_read = ((w.out_height - 1) * sh + y0) // SIDE + rows.pairs
    width_read = ((width - 1) * sw + x0) // SIDE + columns.pairs
    squares = _squares(w, _in_blocks(w, data, block), lanes, height_read, width_read)
    qh, qw = (te.reduce_axis((0, each.pairs), "pair") for each in (rows, columns))
    dy, dx = te.reduce_axis((0, SIDE), "row"), te.reduce_axis((0, SIDE), "column")

    def element(n: Any, c: Any, oh: Any, ow: Any, lane: Any) -> Any:
        y, x = oh * sh + y0, ow * sw + x0
        forms = (
            y % SIDE if len(rows.begins) > 1 else 0,
            x % SIDE if len(columns.begins) > 1 else 0,
        )
        at = (n, c, y // SIDE + qh, x // SIDE + qw, lane // lanes, lane % lanes, dy, dx)
        of_tap = (c, *forms, qh, qw, lane, dy, dx)
        product = squares[at].astype(w.out_dtype) * weight[of_tap].astype(w.out_dtype)
        return te.sum(product, axis=[qh, qw, dy, dx])

    shape = (w.batch, weight.shape[0], w.out_height, width, block)
    products = rows.pairs * columns.pairs * SIDE * SIDE
    attrs = {EMPTY: [products - w.kernel[0] * w.kernel[1], products], **anchor_attrs(NAME, config)}
    conv = te.compute(shape, element, name="depthwise_conv2d_NCHWc", attrs=attrs)
    if width == w.out_width:
        return conv
    shape = (*shape[:3], w.out_width, block)
    return te.compute(shape, lambda *index: conv[index], name="conv2d_crop")


def _in_front(w: Conv2dWorkload) -> tuple[int, int]:
    """Rows and columns of padding before the image, rounded up to whole squares."""
    return -(-w.padding[0] // SIDE) * SIDE, -(-w.padding[1] // SIDE) * SIDE


def _in_blocks(w: Conv2dWorkload, data: Any, block: int) -> Any:
    """Convert the image to the channel block of the results."""
    lanes = [int(each) for each in data.shape[4:]]
    if lanes == [block]:
        return data

    def element(n: Any, c: Any, y: Any, x: Any, lane: Any) -> Any:
        channel = c * block + lane
        if not lanes:
            value = data[n, channel, y, x]
        else:
            value = data[n, channel // lanes[0], y, x, channel % lanes[0]]
        if not w.in_channels % block:
            return value
        return tirx.if_then_else(channel < w.in_channels, value, tirx.const(0, w.dtype))

    shape = (w.batch, -(-w.in_channels // block), w.height, w.width, block)
    return te.compute(shape, element, name="data_blocks")


def _squares(w: Conv2dWorkload, data: Any, lanes: int, height: int, width: int) -> Any:
    """Copy into squares: (N, C/b, height, width, b/lanes, lanes, 2, 2), height x width squares."""
    top, left = _in_front(w)
    beyond = tirx.const(w.pad_value, w.dtype)

    def element(n: Any, c: Any, y: Any, x: Any, vector: Any, lane: Any, dy: Any, dx: Any) -> Any:
        row, column = y * SIDE + dy - top, x * SIDE + dx - left
        value = data[n, c, row, column, vector * lanes + lane]
        of_row, of_rows = _inside(y, row, top, w.height, height)
        of_column, of_columns = _inside(x, column, left, w.width, width)
        columns = [tirx.likely(tirx.all(*of_columns))] if of_columns else []
        for conditions in (of_row + of_column, columns, of_rows):
            if conditions:
                value = tirx.if_then_else(tirx.all(*conditions), value, beyond)
        return value

    chunks, block = int(data.shape[1]), int(data.shape[4])
    shape = (w.batch, chunks, height, width, block // lanes, lanes, SIDE, SIDE)
    return te.compute(shape, element, name="data_squares")


def _inside(
    pair: Any, pixel: Any, before: int, extent: int, pairs: int
) -> tuple[list[Any], list[Any]]:
    """Conditions for a pixel and its pair, of the `pairs` read, to be inside the image.

    `before`: pixels before the image, rounded up to whole pairs.
    """
    of_pixel: list[Any] = []
    of_pair: list[Any] = []
    if before:
        of_pair.append(pair >= before // SIDE)
    if pairs * SIDE > before + extent:
        of_pair.append(pair < (before + extent + 1) // SIDE)
        if extent % SIDE:
            of_pixel.append(pixel < extent)
    return of_pixel, of_pair


# --- schedule ----------------------------------------------------------------------------


class DepthwiseDots(AnchorRule):
    """Schedule a fused function whose anchor is a depthwise conv2d of squares.

    parallel n, c, oh_tile
      copy the rows that the tile reads, padded, as squares
      oh, vector of lanes, ow_tile
        registers[tile_ow] = 0
        unrolled pairs of rows, pairs of columns, tile_ow: dot product in every lane
        epilogue of the tile
    """

    narrow_indices = True

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        out = inline_around(sch, anchor, keep=("data_blocks", "data_squares"))
        blocks, squares = (sblocks(sch).get(name) for name in ("data_blocks", "data_squares"))
        taps = config.val("taps")
        macs = taps * extent_of(sch, sch.get_loops(anchor)[:5])
        n, c, oh, ow, lane = sch.get_loops(out)
        lanes = config.val("lanes")
        oh_outer, oh_inner = sch.split(oh, [None, config.val("tile_oh")])
        is_ragged = int(sch.get(ow).extent) % config.val("tile_ow") > 0
        ow_outer, ow_inner = sch.split(ow, [None, config.val("tile_ow")])
        vector, lane = sch.split(lane, [None, lanes])
        sch.reorder(n, c, oh_outer, oh_inner, vector, ow_outer, ow_inner, lane)
        tile = sch.fuse(n, c, oh_outer)
        if is_parallel(macs, Machine.from_target(target)):
            sch.parallel(tile)
        sch.vectorize(lane)
        sch.unroll(ow_inner)
        if is_ragged:
            sch.annotate(ow_outer, "pragma_loop_partition_hint", 1)

        sch.compute_at(anchor, ow_outer, preserve_unit_loops=True)
        ow_inner, lane, qh, qw, *square = sch.get_loops(anchor)[-6:]
        sch.reorder(qh, qw, ow_inner, lane, *square)
        for loop in (qw, ow_inner) if taps > MOST_UNROLLED_TAPS else (qh, qw, ow_inner):
            sch.unroll(loop)
        sch.compute_at(squares, tile, preserve_unit_loops=True)
        if blocks is not None:
            sch.compute_at(blocks, tile, preserve_unit_loops=True)
            sch.vectorize(sch.get_loops(blocks)[-1])
        column, vector, copied = sch.get_loops(squares)[-5:-2]
        sch.annotate(column, "pragma_loop_partition_hint", 1)
        sch.unroll(vector)
        sch.annotate(copied, MARK, 1)

        start = sch.decompose_reduction(anchor, qh)
        sch.vectorize(sch.get_loops(start)[-1])
        sch.tensorize(lane, squares_dot_intrinsic(lanes))
        return sch


# --- fallback ----------------------------------------------------------------------------


def _supports(w: Conv2dWorkload, target: Target) -> bool:
    if not (w.is_depthwise and w.is_bytes) or w.dilation != (1, 1):
        return False
    if w.kernel[0] * w.kernel[1] < LEAST_TAPS:
        return False
    return vnni_lanes(target) > 0


def _fallback(w: Conv2dWorkload, target: Target) -> ConfigEntity:
    """Choose row tiles that divide the image and minimize the time of the busiest core."""
    machine, block = Machine.from_target(target), block_of(w, target)
    return options(
        oc_block=block,
        lanes=math.gcd(block, vnni_lanes(target)),
        taps=w.kernel[0] * w.kernel[1],
        begin_h=_begin(w.padding[0], w.strides[0]),
        begin_w=_begin(w.padding[1], w.strides[1]),
        tile_oh=_tile_oh(w, block, machine),
        tile_ow=_tile_ow(w.out_width),
    )


def _tile_oh(w: Conv2dWorkload, block: int, machine: Machine) -> int:
    """Choose rows per tile. Rows shared by two tiles are copied twice; all should stay in L2."""
    macs = w.batch * w.out_channels * w.out_height * w.out_width * w.kernel[0] * w.kernel[1]
    cores = machine.num_cores if is_parallel(macs, machine) else 1
    blocks = w.batch * -(-w.out_channels // block)
    row_bytes = block * (w.width + w.padding[1] + w.padding[3])

    def busiest(rows: int) -> float:
        read = (rows - 1) * w.strides[0] + w.kernel[0]
        is_near = read * row_bytes <= machine.l2_bytes // SHARE_OF_L2
        tasks = blocks * w.out_height // rows
        return -(-tasks // cores) * (rows + read * (COPIED_ROW if is_near else FAR_ROW))

    divisors = [rows for rows in range(1, w.out_height + 1) if w.out_height % rows == 0]
    # Other tiles would begin inside a square that they share with the previous tile.
    whole = [rows for rows in divisors if rows * w.strides[0] % SIDE == 0]
    return min([*whole, w.out_height], key=busiest)


def _begin(padding: int, stride: int) -> int:
    """Position in the first square at which windows begin; the image starts at a whole square."""
    return padding % SIDE if stride % SIDE == 0 else EITHER


def _tile_ow(width: int) -> int:
    """Choose the tile, in whole squares or all columns, with the fewest cycles per row."""
    if width <= MOST_SUMS:
        return width
    tiles = range(SIDE, MOST_SUMS + 1, SIDE)
    return min(tiles, key=lambda tile: (-(-width // tile) * (tile + 1.5), -tile))


register_conv2d(
    NAME, 20, _supports, _fallback, _compute, task_args=None, pack=_pack, rule=DepthwiseDots()
)
