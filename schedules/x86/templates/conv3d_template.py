"""AutoTVM's templates conv3d_ncdhw.x86 and conv3d_ndhwc.x86.

A 3-D convolution without a tuning record uses them, too: the input is padded and blocked once
inside the kernel, the weights are packed ahead, and the result leaves in the caller's layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import te, tirx
from tvm.target import Target

from ...anchor import AnchorRule, inline_around, sblocks
from ...config import ConfigEntity, option, split
from ...conv3d import Conv3dWorkload
from ...strategy import anchor_attrs, register
from ..conv.register_tile import SPARE_REGISTERS, best_tile, largest_divisor
from ..machine.cpu import Machine
from .conv2d_template import vectorize_block

NCDHW = "conv3d_ncdhw.x86"
NDHWC = "conv3d_ndhwc.x86"


# --- compute -----------------------------------------------------------------------------


def blocks(w: Conv3dWorkload, config: ConfigEntity) -> tuple[int, int]:
    """Channel blocks of input and output: of the knobs' what no group's end cuts in two."""
    ic = math.gcd(config.size("tile_ic")[-1], w.in_channels // w.groups)
    oc = math.gcd(config.size("tile_oc")[-1], w.out_channels // w.groups)
    return ic, oc


def pack_weight(w: Conv3dWorkload, ops: Any, weight: Any, config: ConfigEntity) -> Any:
    """OIDHW or DHWIO -> (O/ob, I/ib, KD, KH, KW, ib, ob)."""
    ic, oc = blocks(w, config)
    if w.channels_last:
        weight = ops.transpose(weight, (4, 3, 0, 1, 2))
    shape = (w.out_channels // oc, oc, w.in_channels // w.groups // ic, ic, *w.kernel)
    return ops.transpose(ops.reshape(weight, shape), (0, 2, 4, 5, 6, 3, 1))


def compute(w: Conv3dWorkload, config: ConfigEntity, data: te.Tensor, weight: te.Tensor) -> Any:
    """data NCDHW or NDHWC as the workload says, weight as packed -> the same layout."""
    ic_block, oc_block = blocks(w, config)
    in_per_group, out_per_group = w.in_channels // w.groups, w.out_channels // w.groups
    vec = _blocked_data(w, data, ic_block)
    (sd, sh, sw), (dd, dh, dw) = w.strides, w.dilation
    ic = te.reduce_axis((0, in_per_group), "ic")
    kd, kh, kw = (te.reduce_axis((0, k), f"k{axis}") for k, axis in zip(w.kernel, "dhw"))

    def product(n: Any, oc: Any, od: Any, oh: Any, ow: Any, o: Any) -> Any:
        first = 0 if w.groups == 1 else (oc * oc_block // out_per_group) * in_per_group // ic_block
        element = vec[
            n,
            first + ic // ic_block,
            od * sd + kd * dd,
            oh * sh + kh * dh,
            ic % ic_block,
            ow * sw + kw * dw,
        ]
        taps = weight[oc, ic // ic_block, kd, kh, kw, ic % ic_block, o]
        return te.sum(element.astype(w.out_dtype) * taps.astype(w.out_dtype), [ic, kd, kh, kw])

    conv = te.compute(
        (w.batch, w.out_channels // oc_block, *w.out_size, oc_block),
        product,
        name="conv3d",
        attrs=anchor_attrs(NDHWC if w.channels_last else NCDHW, config),
    )

    def unpacked(n: Any, c: Any, d: Any, h: Any, x: Any) -> Any:
        return conv[n, c // oc_block, d, h, x, c % oc_block]

    if w.channels_last:
        return te.compute(
            (w.batch, *w.out_size, w.out_channels),
            lambda n, d, h, x, c: unpacked(n, c, d, h, x),
            name="conv3d_unpack",
        )
    return te.compute((w.batch, w.out_channels, *w.out_size), unpacked, name="conv3d_unpack")


def _blocked_data(w: Conv3dWorkload, data: te.Tensor, block: int) -> te.Tensor:
    """(N, C/block, padded D, padded H, block, padded W): a row's pixels lie side by side."""
    front, top, left = w.padding[:3]

    def element(n: Any, chunk: Any, d: Any, h: Any, lane: Any, x: Any) -> Any:
        at, channel = (d - front, h - top, x - left), chunk * block + lane
        value = data[(n, *at, channel) if w.channels_last else (n, channel, *at)]
        if not any(w.padding):
            return value
        inside = [tirx.all(i >= 0, i < extent) for i, extent in zip(at, w.size)]
        return tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, data.dtype))

    depth, height, width = w.padded
    shape = (w.batch, w.in_channels // block, depth, height, block, width)
    return te.compute(shape, element, name="data_vec")


# --- schedule ----------------------------------------------------------------------------


class Conv3dTemplate(AnchorRule):
    """Schedule a fused function whose anchor is a conv3d template.

    parallel n, ic_chunk, d, h
      ic, w: pad and block the input
    parallel n, oc_chunk, od, oh
      ow_outer
        ic_chunk, kd, kh, kw, ic        [unroll_kw: ic_chunk, kd, kh, ic, unrolled kw]
          unrolled tile_ow; vector oc: fma
        epilogue of the tile, in the caller's layout
    """

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        channels_last = str(sch.get(anchor).annotations["schedule_rule"]) == NDHWC
        weight = [int(dim) for dim in sch.get(anchor).reads[1].source.shape]
        ic_block, oc_block = weight[-2:]

        out = inline_around(sch, anchor, keep=("data_vec",))
        sch.parallel(sch.fuse(*sch.get_loops(sblocks(sch)["data_vec"])[:4]))
        axes = sch.get_loops(out)
        n, *spatial, c = axes if channels_last else (axes[0], *axes[2:], axes[1])
        od, oh, ow = spatial
        ow_outer, ow_inner = sch.split(ow, [None, config.size("tile_ow")[-1]])
        oc, lane = sch.split(c, [None, oc_block])
        sch.reorder(n, oc, od, oh, ow_outer, ow_inner, lane)
        sch.parallel(sch.fuse(n, oc, od, oh))
        vectorize_block(sch, lane, target)

        sch.compute_at(anchor, ow_outer, preserve_unit_loops=True)
        ow_inner, lane, ic, kd, kh, kw = sch.get_loops(anchor)[-6:]
        ic_chunk, ic = sch.split(ic, [None, ic_block])
        if config.val("unroll_kw"):
            sch.reorder(ic_chunk, kd, kh, ic, kw, ow_inner, lane)
            sch.unroll(kw)
        else:
            sch.reorder(ic_chunk, kd, kh, kw, ic, ow_inner, lane)
        vectorize_block(sch, lane, target)
        sch.unroll(ow_inner)
        sch.decompose_reduction(anchor, ic_chunk)
        return sch


# --- fallback ----------------------------------------------------------------------------


def fallback(w: Conv3dWorkload, target: Target) -> ConfigEntity:
    """Blocks as AutoTVM's fallback chose them, and a register tile that fills the registers.

    AutoTVM took at most 7 pixels, its search space at most 8; a tile that need not divide the
    row hides more of the multiply-adds' latency.
    """
    machine = Machine.from_target(target)
    oc = largest_divisor(w.out_channels // w.groups, machine.lanes(w.dtype))
    ic = largest_divisor(w.in_channels // w.groups, oc)
    width = w.out_size[2]
    tile_ow = best_tile(width, machine.vector_registers - SPARE_REGISTERS - 1)
    return ConfigEntity(
        {
            "tile_ic": split(w.in_channels // ic, ic),
            "tile_oc": split(w.out_channels // oc, oc),
            "tile_ow": split(-1, tile_ow),
            "unroll_kw": option(False),
        }
    )


def _supports(channels_last: bool) -> Callable[[Conv3dWorkload, Target], bool]:
    def supports(w: Conv3dWorkload, _: Target) -> bool:
        is_float = w.dtype in ("float32", "float64") and w.dtype == w.out_dtype
        return is_float and w.channels_last == channels_last

    return supports


for _name, _channels_last in ((NCDHW, False), (NDHWC, True)):
    register(
        "nn.conv3d",
        "cpu",
        _name,
        10,
        _supports(_channels_last),
        fallback,
        compute,
        Conv3dWorkload.autotvm_args,
        pack_weight,
        rule=Conv3dTemplate(),
    )
