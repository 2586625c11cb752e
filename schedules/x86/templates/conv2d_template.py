"""AutoTVM's template conv2d_NCHWc.x86: the loop nests that old records were measured with."""

from __future__ import annotations

from typing import Any

from tvm import s_tir
from tvm.target import Target

from ...anchor import AnchorRule, inline_around, sblocks
from ...config import ConfigEntity, Knob, option, split
from ...conv2d import Conv2dWorkload, register_conv2d
from ..conv.conv2d import blocked_loops, compute, pack_weight
from ..conv.register_tile import largest_divisor
from ..machine.cpu import Machine

NAME = "conv2d_NCHWc.x86"

# AutoTVM's fallback looked for register tiles of fewer pixels than this.
MOST_PIXELS = 32
# Vectors shorter than this are not worth splitting an odd one for.
FEWEST_LANES = 4


class Conv2dTemplate(AnchorRule):
    """Schedule a fused function whose anchor is `conv2d_NCHWc.x86`; the nest follows the knobs.

    Kernel larger than 1x1, or grouped (the knob unroll_kw is there):

        parallel n, ic_chunk, ih: pad
        parallel n, oc_chunk, oh
          ow_outer
            ic_chunk, kh, kw, ic        [unroll_kw: ic_chunk, kh, ic, unrolled kw]
              unrolled tile_ow; vector oc: fma
            epilogue of the tile

    Kernel 1x1:

        parallel n, oc_chunk, oh_outer
          ow_outer, ic_chunk, ic
            unrolled tile_oh, tile_ow; vector oc: fma
          epilogue of the rows
    """

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        ic_block, kernel = self._extents(sch, anchor)
        out = inline_around(sch, anchor)
        pad_in_parallel(sch, target)
        if kernel == (1, 1) and "unroll_kw" not in config:
            self._pointwise(sch, anchor, out, config, ic_block, target)
        else:
            self._window(sch, anchor, out, config, ic_block, target)
        return sch

    @staticmethod
    def _extents(sch: s_tir.Schedule, anchor: Any) -> tuple[int, tuple[int, int]]:
        """ic_block and (KH, KW) of the packed weights (O/ob, I/ib, KH, KW, ib, ob)."""
        shape = [int(dim) for dim in sch.get(anchor).reads[1].source.shape]
        return shape[4], (shape[2], shape[3])

    @staticmethod
    def _window(
        sch: Any, anchor: Any, out: Any, config: ConfigEntity, ic_block: int, target: Target
    ) -> None:
        n, oc, oh, ow, lane = blocked_loops(sch, out)
        ow_outer, ow_inner = sch.split(ow, [None, config.size("tile_ow")[-1]])
        sch.reorder(n, oc, oh, ow_outer, ow_inner, lane)
        sch.parallel(sch.fuse(n, oc, oh))
        vectorize_block(sch, lane, target)
        sch.compute_at(anchor, ow_outer, preserve_unit_loops=True)
        ow_inner, lane, ic, kh, kw = sch.get_loops(anchor)[-5:]
        ic_chunk, ic = sch.split(ic, [None, ic_block])
        if config.val("unroll_kw"):
            sch.reorder(ic_chunk, kh, ic, kw, ow_inner, lane)
            sch.unroll(kw)
        else:
            sch.reorder(ic_chunk, kh, kw, ic, ow_inner, lane)
        vectorize_block(sch, lane, target)
        sch.unroll(ow_inner)
        sch.decompose_reduction(anchor, ic_chunk)

    @staticmethod
    def _pointwise(
        sch: Any, anchor: Any, out: Any, config: ConfigEntity, ic_block: int, target: Target
    ) -> None:
        tile_ow = config.size("tile_ow")[-1]
        tile_oh = config.val("tile_oh", 1)
        n, oc, oh, ow, lane = blocked_loops(sch, out)
        oh_outer, oh_inner = sch.split(oh, [None, tile_oh])
        ow_outer, ow_inner = sch.split(ow, [None, tile_ow])
        sch.reorder(n, oc, oh_outer, ow_outer, oh_inner, ow_inner, lane)
        rows = sch.fuse(n, oc, oh_outer)
        sch.parallel(rows)
        vectorize_block(sch, lane, target)
        sch.compute_at(anchor, rows, preserve_unit_loops=True)
        oh_inner, ow, lane, ic, kh, kw = sch.get_loops(anchor)[-6:]
        ow_outer, ow_inner = sch.split(ow, [None, tile_ow])
        ic_chunk, ic = sch.split(ic, [None, ic_block])
        sch.reorder(ow_outer, ic_chunk, kh, kw, ic, oh_inner, ow_inner, lane)
        vectorize_block(sch, lane, target)
        sch.unroll(ow_inner)
        sch.unroll(oh_inner)
        sch.decompose_reduction(anchor, ic_chunk)


def pad_in_parallel(sch: Any, target: Target) -> None:
    """Schedule the padding of the data, if any, as a separate loop nest."""
    pad = sblocks(sch).get("data_pad")
    if pad is not None:
        *outer, lane = sch.get_loops(pad)
        if len(outer) == 4:
            vectorize_block(sch, lane, target)
        sch.parallel(sch.fuse(*outer[:3]))


def vectorize_block(sch: Any, lane: Any, target: Target) -> None:
    """Vectorize the loop over a channel block, whatever length a record gave it.

    With AVX-512 LLVM masks a vector whose length is not a power of two; without, it moves such a
    vector element by element. There 12 channels are three vectors of 4: a third of the time.
    """
    length = int(sch.get(lane).extent)
    fitting = length & -length
    if FEWEST_LANES <= fitting < length and Machine.from_target(target).vector_bits < 512:
        vectors, lane = sch.split(lane, [None, fitting])
        sch.unroll(vectors)
    sch.vectorize(lane)


def fallback(w: Conv2dWorkload, target: Target) -> ConfigEntity:
    """Fallback values of the template: the largest divisors that fit the registers."""
    oc = largest_divisor(w.out_channels, Machine.from_target(target).lanes(w.out_dtype))
    return template_knobs(w, largest_divisor(w.in_channels, oc), oc, w.kernel == (1, 1))


def template_knobs(w: Conv2dWorkload, ic: int, oc: int, pointwise: bool) -> ConfigEntity:
    """Blocks of `ic` and `oc` channels, and the register tile of the one or the other nest."""
    knobs: dict[str, Knob] = {
        "tile_ic": split(w.in_channels // ic, ic),
        "tile_oc": split(w.out_channels // oc, oc),
    }
    if pointwise:
        tile_ow, tile_oh = few_pixels(w)
        knobs["tile_oh"] = option(tile_oh)
    else:
        tile_ow = largest_divisor(w.out_width, MOST_PIXELS - 1)
        knobs["unroll_kw"] = option(False)
    knobs["tile_ow"] = split(w.out_width // tile_ow, tile_ow)
    return ConfigEntity(knobs)


def few_pixels(w: Conv2dWorkload) -> tuple[int, int]:
    """Columns and rows of a pointwise convolution's register tile."""
    return next(
        (ow, oh)
        for ow in _divisors(w.out_width)
        for oh in _divisors(w.out_height)
        if ow * oh < MOST_PIXELS
    )


def _divisors(extent: int) -> list[int]:
    """Divisors, largest first."""
    return [d for d in range(extent, 0, -1) if extent % d == 0]


register_conv2d(
    NAME,
    10,
    lambda w, _: w.groups == 1 and (w.is_float or w.is_integer),
    fallback,
    lambda w, config, data, weight: compute(w, config, NAME, data, weight),
    pack=pack_weight,
    rule=Conv2dTemplate(),
)
