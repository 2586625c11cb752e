"""AutoTVM's template conv2d_NCHWc_int8.x86: uint8 images by int8 weights into int32."""

from __future__ import annotations

from typing import Any

from tvm import te
from tvm.target import Target

from ...anchor import AnchorRule, inline_around, sblocks
from ...config import ConfigEntity
from ...conv2d import Conv2dWorkload, pad_data, register_conv2d
from ...strategy import anchor_attrs
from ..conv.conv2d import blocked_loops
from ..machine.dot_product import BYTES, accumulate
from .conv2d_template import template_knobs

NAME = "conv2d_NCHWc_int8.x86"

OC_BLOCK = 16  # what AutoTVM's knob tile_oc is a multiple of
IC_BLOCKS = (16, 12, 8, 4)


# --- compute -----------------------------------------------------------------------------


def pack_weight(ops: Any, weight: Any, config: ConfigEntity, ic_block: int) -> Any:
    """OIHW -> (O/oc_block, I/ic_block, KH, KW, ic_block/4, oc_block, 4)."""
    oc_block = config.size("tile_oc")[-1]
    o, i, kh, kw = (int(d) for d in weight.shape)
    shape = (o // oc_block, oc_block, i // ic_block, ic_block // BYTES, BYTES, kh, kw)
    return ops.transpose(ops.reshape(weight, shape), (0, 2, 5, 6, 3, 1, 4))


def compute(w: Conv2dWorkload, config: ConfigEntity, data: Any, weight: Any) -> Any:
    """data (N, IC/ib, H, W, ib), packed weight -> (N, OC/ob, OH, OW, ob), in whole tiles."""
    oc_block = int(weight.shape[5])
    tile_oh, tile_ow = _tile(config)
    below, beyond = -w.out_height % tile_oh, -w.out_width % tile_ow
    (sh, sw), (dh, dw) = w.strides, w.dilation
    top, left, bottom, right = w.padding
    padded = pad_data(data, (top, left, bottom + below * sh, right + beyond * sw), w.pad_value)
    kh = te.reduce_axis((0, w.kernel[0]), "kh")
    kw = te.reduce_axis((0, w.kernel[1]), "kw")
    chunk = te.reduce_axis((0, int(weight.shape[1])), "ic_outer")
    group = te.reduce_axis((0, int(weight.shape[4])), "ic_f")
    byte = te.reduce_axis((0, BYTES), "ic_s")

    def element(n: Any, oc: Any, y: Any, x: Any, o: Any) -> Any:
        row, column = y * sh + kh * dh, x * sw + kw * dw
        value = padded[n, chunk, row, column, group * BYTES + byte]
        tap = weight[oc, chunk, kh, kw, group, o, byte]
        product = value.astype(w.out_dtype) * tap.astype(w.out_dtype)
        return te.sum(product, axis=[kh, kw, chunk, group, byte])

    conv = te.compute(
        (w.batch, weight.shape[0], w.out_height + below, w.out_width + beyond, oc_block),
        element,
        name="conv2d_NCHWc_int8",
        attrs=anchor_attrs(NAME, config),
    )
    if not below and not beyond:
        return conv
    return te.compute(
        (w.batch, weight.shape[0], w.out_height, w.out_width, oc_block),
        lambda *index: conv[index],
        name="conv2d_crop",
    )


def _tile(config: ConfigEntity) -> tuple[int, int]:
    """Rows and columns of a register tile."""
    return config.val("tile_oh", 1), config.size("tile_ow")[-1]


# --- schedule ----------------------------------------------------------------------------


class Conv2dInt8Template(AnchorRule):
    """Schedule a fused function whose anchor is `conv2d_NCHWc_int8.x86`.

    Kernel larger than 1x1:                          Kernel 1x1:

        parallel n, ic_chunk, ih: pad                    parallel n, ic_chunk, ih: pad
        parallel n, oc_chunk, oh                         parallel n, oc_chunk, oh_outer
          ow_outer                                         ow_outer
            ic_outer, kh, kw, ic_f                           ic_outer, ic_f
            [unroll_kw: ic_outer, kh, ic_f, unrolled kw]
              unrolled tile_ow, oc_f                           unrolled tile_oh, tile_ow, oc_f
                dots of four bytes in every lane                 dots of four bytes
          epilogue of the row                              epilogue of the rows

    If tile_ow does not divide the row, each tile is followed by its epilogue.
    """

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        out = inline_around(sch, anchor)
        pad = sblocks(sch).get("data_pad")
        if pad is not None:
            sch.parallel(sch.fuse(*sch.get_loops(pad)[:3]))

        tile_oh, tile_ow = _tile(config)
        n, oc, oh, ow, lane = blocked_loops(sch, out)
        whole = int(sch.get(ow).extent) % tile_ow == 0
        oh_outer, oh_inner = sch.split(oh, [None, tile_oh])
        ow_outer, ow_inner = sch.split(ow, [None, tile_ow])
        sch.reorder(n, oc, oh_outer, ow_outer, oh_inner, ow_inner, lane)
        rows = sch.fuse(n, oc, oh_outer)
        sch.parallel(rows)
        sch.vectorize(lane)

        sch.compute_at(anchor, rows if whole else ow_outer, preserve_unit_loops=True)
        oh_inner, ow, lane, kh, kw, chunk, group, byte = sch.get_loops(anchor)[-8:]
        ow_outer, ow_inner = sch.split(ow, [None, tile_ow])
        if "tile_oh" in config:
            reduced = [kh, kw, chunk, group]
        elif config.val("unroll_kw"):
            reduced = [chunk, kh, group, kw]
            sch.unroll(kw)
        else:
            reduced = [chunk, kh, kw, group]
        sch.reorder(ow_outer, *reduced, oh_inner, ow_inner, lane, byte)
        sch.unroll(ow_inner)
        sch.unroll(oh_inner)
        accumulate(sch, anchor, reduced[0], target)
        return sch


# --- fallback ----------------------------------------------------------------------------


def fallback(w: Conv2dWorkload, target: Target) -> ConfigEntity:
    """Fallback values of the template."""
    ic = next(block for block in IC_BLOCKS if w.in_channels % block == 0)
    return template_knobs(w, ic, OC_BLOCK, w.kernel == (1, 1))


def supports(w: Conv2dWorkload, _: Target) -> bool:
    """uint8 by int8 into int32, without groups, on whole blocks of channels."""
    return (
        w.is_bytes
        and w.groups == 1
        and w.in_channels % BYTES == 0
        and w.out_channels % OC_BLOCK == 0
    )


register_conv2d(NAME, 12, supports, fallback, compute, pack=pack_weight, rule=Conv2dInt8Template())
