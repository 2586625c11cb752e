"""Convolutions to a few output channels for x86, with the pixels of a row as vector lanes.

Three channels of a color image fill no vector of channels, and 18 fill two and a quarter. Here a
vector holds neighboring pixels of one channel, and each step broadcasts one weight; a register
tile is `oc_tile` channels x `vectors` vectors of pixels. The output is plain; the input, plain or
in blocks of channels, is copied with its padding to (N, rows, tiles, C, columns of a tile), so that
a tile reads its channels contiguously: in planes, each channel would be on a separate page.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.target import Target

from ...anchor import AnchorRule, inline_around, sblocks
from ...config import ConfigEntity, options
from ...conv2d import Conv2dWorkload, register_conv2d
from ...strategy import anchor_attrs
from ..machine.cpu import Machine
from .conv2d import PARALLEL_MACS
from .register_tile import fewest_vectors, the_fewer, tiles_in_registers, with_empty_lanes

NAME = "conv2d_narrow.x86"

# Loads in a cycle of which about half straddle two cache lines, as vectors of pixels do.
UNALIGNED_LOADS = 1.3
# Vectors of pixels in a register tile at most.
MOST_VECTORS = 8
# Share of the blocks of channels, of the input times of the output, that is in use at most.
MOST_FILLED = 0.75
# Cycles to copy one element of the input.
COPY_CYCLES = 3


# --- compute -----------------------------------------------------------------------------


def pack_weight(ops: Any, weight: Any, config: ConfigEntity, ic_block: int) -> Any:
    """OIHW -> (O/oc_tile, KH, I, KW, oc_tile)."""
    tile = config.val("oc_tile")
    o, i, kh, kw = (int(d) for d in weight.shape)
    return ops.transpose(ops.reshape(weight, (o // tile, tile, i, kh, kw)), (0, 3, 2, 4, 1))


def compute(w: Conv2dWorkload, config: ConfigEntity, data: Any, weight: Any) -> Any:
    """data (N, C, H, W) or (N, C/b, H, W, b), weight as packed -> (N, O, OH, OW, 1)."""
    tile, (sh, _), (dh, dw) = config.val("oc_tile"), w.strides, w.dilation
    step = config.val("vectors") * config.val("lanes")
    tiles = -(-w.out_width // step)
    top, left = w.padding[:2]
    zero = tirx.const(0, data.dtype)

    def padded(n: Any, y: Any, tile_x: Any, c: Any, x: Any) -> Any:
        at = (y - top, tile_x * step + x - left)
        block = int(data.shape[4]) if len(data.shape) == 5 else 0
        value = data(n, c // block, *at, c % block) if block else data(n, c, *at)
        inside = [at[0] >= 0, at[0] < w.height, at[1] >= 0, at[1] < w.width]
        return tirx.if_then_else(tirx.all(*inside), value, zero)

    rows = (w.out_height - 1) * sh + (w.kernel[0] - 1) * dh + 1
    columns = step + (w.kernel[1] - 1) * dw
    image = te.compute((w.batch, rows, tiles, w.in_channels, columns), padded, name="data_pad")
    ic = te.reduce_axis((0, w.in_channels), "ic")
    kh = te.reduce_axis((0, w.kernel[0]), "kh")
    kw = te.reduce_axis((0, w.kernel[1]), "kw")
    conv = te.compute(
        (w.batch, w.out_channels, w.out_height, tiles, step),
        lambda n, oc, oh, tile_x, ow: te.sum(
            image[n, oh * sh + kh * dh, tile_x, ic, ow + kw * dw]
            * weight[oc // tile, kh, ic, kw, oc % tile],
            axis=[kh, ic, kw],
        ),
        name="conv2d_narrow",
        attrs=anchor_attrs(NAME, config),
    )
    return te.compute(
        (w.batch, w.out_channels, w.out_height, w.out_width, 1),
        lambda n, oc, oh, ow, _: conv[n, oc, oh, ow // step, ow % step],
        name="conv2d_cropped",
    )


# --- schedule ----------------------------------------------------------------------------


class NarrowConv2d(AnchorRule):
    """Schedule a fused function whose anchor is a conv2d with pixels as lanes.

    parallel n, rows: copy the input
    parallel n, oh
      oc_tile
        ow_tile
          registers[oc, vectors, lanes] = 0
          kh, ic, kw
            unrolled vectors, oc; vector lanes: fma
        epilogue of the row
    """

    narrow_indices = True

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        tile, vectors, lanes = (config.val(key) for key in ("oc_tile", "vectors", "lanes"))
        out = inline_around(sch, anchor)
        macs = 1
        for loop in sch.get_loops(anchor):
            macs *= int(sch.get(loop).extent)

        sums = sch.cache_write(anchor, 0, "local")
        n, oc, oh, ow_outer, ow, kh, ic, kw = sch.get_loops(anchor)
        oc_outer, oc_inner = sch.split(oc, [None, tile])
        ow_vector, lane = sch.split(ow, [vectors, lanes])
        # What is more stays outside: one of it is live at a time and meets all of the other.
        unrolled = [ow_vector, oc_inner] if vectors >= tile else [oc_inner, ow_vector]
        sch.reorder(n, oh, oc_outer, ow_outer, kh, ic, kw, *unrolled, lane)
        row = sch.fuse(n, oh)
        sch.reverse_compute_at(sums, ow_outer)
        sch.reverse_compute_at(out, oc_outer)
        for loop in (ow_vector, oc_inner):
            sch.unroll(loop)
        sch.vectorize(lane)
        _, stored = sch.split(sch.get_loops(sums)[-1], [None, lanes])
        sch.vectorize(stored)
        if macs >= PARALLEL_MACS:
            sch.parallel(row)
        column = sch.get_loops(out)[-1]
        if int(sch.get(column).extent) % lanes == 0:
            _, column = sch.split(column, [None, lanes])
            sch.vectorize(column)
        sch.decompose_reduction(anchor, kh)
        _schedule_pad(sch, sblocks(sch)["data_pad"], macs >= PARALLEL_MACS)
        return sch


def _schedule_pad(sch: Any, pad: Any, parallel: bool) -> None:
    n, y, *_ = sch.get_loops(pad)
    row = sch.fuse(n, y)
    if parallel:
        sch.parallel(row)


# --- fallback ----------------------------------------------------------------------------


def fallback(w: Conv2dWorkload, target: Target) -> ConfigEntity:
    """The register tile with the fewest cycles."""
    machine = Machine.from_target(target)
    _, tile, vectors = _best_tile(w, machine)
    return options(oc_block=1, oc_tile=tile, vectors=vectors, lanes=machine.lanes(w.dtype))


def _best_tile(w: Conv2dWorkload, machine: Machine) -> tuple[float, int, int]:
    """Cycles for one step of the reduction on a row, channels and vectors of the tile."""
    lanes = machine.lanes(w.dtype)
    counts = (count for count in range(1, w.out_channels + 1) if w.out_channels % count == 0)
    candidates = []
    for tile, vectors in tiles_in_registers(machine, counts, MOST_VECTORS, the_fewer):
        step = max(
            tile * vectors / machine.fmas,
            tile / 2 + vectors / UNALIGNED_LOADS,
            machine.core.fma_latency,
        )
        tiles = w.out_channels // tile * -(-w.out_width // (vectors * lanes))
        candidates.append((tiles * (step + machine.core.loop_cycles), tile, vectors))
    return min(candidates)


def supports(w: Conv2dWorkload, target: Target) -> bool:
    """Floating point, windows that move by one pixel along a row, channels that fill few blocks."""
    if not w.is_float or w.groups > 1 or w.strides[1] != 1 or w.kernel == (1, 1):
        return False
    lanes = Machine.from_target(target).lanes(w.dtype)
    chunks = -(-w.out_channels // fewest_vectors(w.out_channels, lanes))
    in_channels = with_empty_lanes(w.in_channels, lanes)
    return w.in_channels / in_channels * w.out_channels / (chunks * lanes) <= MOST_FILLED


def cycles(w: Conv2dWorkload, target: Target) -> float:
    """Estimate cycles on one core: best tile, copy of the input, and weights from memory."""
    machine = Machine.from_target(target)
    taps = w.kernel[0] * w.kernel[1]
    of_step, _, vectors = _best_tile(w, machine)
    step = vectors * machine.lanes(w.dtype)
    columns = -(-w.out_width // step) * (step + (w.kernel[1] - 1) * w.dilation[1])
    copied = COPY_CYCLES * w.strides[0] * w.in_channels * columns
    rows = w.batch * w.out_height
    weights = machine.weight_cycles(w.item_bytes * taps * w.in_channels * w.out_channels)
    return rows * (taps * w.in_channels * of_step + copied) + weights


register_conv2d(
    NAME,
    15,
    supports,
    fallback,
    compute,
    task_args=None,
    pack=pack_weight,
    cycles=cycles,
    rule=NarrowConv2d(),
)
