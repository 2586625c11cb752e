"""AutoTVM's templates conv2d_transpose_nchw.cuda and conv1d_transpose_nchw.cuda."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.target import Target

from ...anchor import AnchorRule, inline_around, sblocks
from ...config import ConfigEntity, option, split
from ...conv_transpose import ConvTransposeWorkload
from ...strategy import anchor_attrs, register
from ..verified_rule import Checked
from .conv2d_template import BLOCK_ZYX, ZYX, is_float
from .template_loops import (
    accumulate_in_registers,
    bind_all,
    bind_virtual,
    copy_in_runs,
    first_candidates,
    inline_before,
    own_loops,
    share,
    split_reduction,
    split_threads,
    unroll,
)

IMAGES = "conv2d_transpose_nchw.cuda"
SIGNALS = "conv1d_transpose_nchw.cuda"

# Factors that the fallback tries for rows and columns.
FALLBACK_TILES = range(5, 17)


# --- compute -----------------------------------------------------------------------------


def compute(
    w: ConvTransposeWorkload, config: ConfigEntity, rule: str, data: Any, weight: Any
) -> Any:
    """data (N, I, *size), weight (I, O, *kernel) -> (N, groups * O, *out_size)."""
    rank = w.rank
    front = [taps - 1 - pad for taps, pad in zip(w.kernel, w.padding, strict=False)]
    in_per_group = w.in_channels // w.groups

    def pixel(n: Any, c: Any, *place: Any) -> Any:
        """The input with zeros between its pixels and around them."""
        at = [position - before for position, before in zip(place, front, strict=True)]
        present = []
        for position, stride, extent in zip(at, w.strides, w.size, strict=True):
            present += [position >= 0, position < (extent - 1) * stride + 1]
            if stride > 1:
                present.append(position % stride == 0)
        source = (n, c, *(position // stride for position, stride in zip(at, w.strides)))
        return tirx.if_then_else(tirx.all(*present), data[source], tirx.const(0, data.dtype))

    dilated = [extent + taps - 1 for extent, taps in zip(w.out_size, w.kernel, strict=True)]
    padded = te.compute((w.batch, w.in_channels, *dilated), pixel, name="data_pad")
    rc = te.reduce_axis((0, in_per_group), "rc")
    taps = [te.reduce_axis((0, extent), f"r{axis}") for extent, axis in zip(w.kernel, "yx"[-rank:])]

    def element(n: Any, f: Any, *place: Any) -> Any:
        first = f // w.out_channels * in_per_group if w.groups > 1 else 0
        moved = [position + tap for position, tap in zip(place, taps, strict=True)]
        turned = [extent - 1 - tap for extent, tap in zip(w.kernel, taps, strict=True)]
        read = (n, first + rc, *moved)
        tap = (first + rc, f % w.out_channels if w.groups > 1 else f, *turned)
        product = padded[read].astype(w.out_dtype) * weight[tap].astype(w.out_dtype)
        return te.sum(product, axis=[rc, *taps])

    return te.compute(
        (w.batch, w.groups * w.out_channels, *w.out_size),
        element,
        name="conv_transpose",
        attrs=anchor_attrs(rule, config),
    )


# --- schedule ----------------------------------------------------------------------------


def _tiled(sch: Any, out: Any, config: ConfigEntity, axes: str) -> list[list[Any]]:
    """Loops over blocks, virtual threads and threads, one of each for every axis."""
    tiles = [
        split_threads(sch, loop, config.size(f"tile_{axis}"))
        for loop, axis in zip(sch.get_loops(out), axes, strict=True)
    ]
    block, virtual, thread, inner = (list(level) for level in zip(*tiles, strict=True))
    sch.reorder(*block, *virtual, *thread, *inner)
    return [block, virtual, thread]


class Images(AnchorRule):
    """Takes a fused function whose anchor is `conv2d_transpose_nchw.cuda`.

    blockIdx.z = n   blockIdx.y = f   blockIdx.x = y, x
      virtual n, f, y, x
        fuse_yx: threadIdx.z = n     threadIdx.y = f   threadIdx.x = y, x
        else:    threadIdx.z = n, f  threadIdx.y = y   threadIdx.x = x
          registers[n, f, y, x] = 0
          rc outer, rc middle, ry, rx
            dilated input and weights -> shared, each thread a run of elements
            rc inner, n, f, y, x: fma
          epilogue
    """

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        out = inline_around(sch, anchor)
        block, virtual, thread = _tiled(sch, out, config, "nfyx")
        blocks = [block[0], block[1], sch.fuse(*block[2:])]
        bind_all(sch, blocks, BLOCK_ZYX)
        bind_virtual(sch, virtual)
        n, f, y, x = (config.size(f"tile_{axis}")[2] for axis in "nfyx")
        if config.val("fuse_yx"):
            threads = [thread[0], thread[1], sch.fuse(*thread[2:])]
            extents = [n, f, y * x]
        else:
            threads = [sch.fuse(*thread[:2]), *thread[2:]]
            extents = [n * f, y, x]
        bind_all(sch, threads, ZYX)

        spatial = accumulate_in_registers(sch, anchor, threads[-1])[:4]
        rc, ry, rx = own_loops(sch, anchor)[4:]
        rco, rcm, rci = split_reduction(sch, rc, config.size("tile_rc"))
        sch.reorder(rco, rcm, ry, rx, rci, *spatial)
        copies = share(sch, anchor, (0, 1), rx)
        inline_before(sch, [name for name in sblocks(sch) if name == "data_pad"])
        for copy in copies:
            copy_in_runs(sch, copy, ZYX, extents)
        sch.decompose_reduction(anchor, rco)
        unroll(sch, blocks[0], config)
        return sch


class Signals(AnchorRule):
    """Takes a fused function whose anchor is `conv1d_transpose_nchw.cuda`.

    blockIdx.z = n   blockIdx.y = f   blockIdx.x = x
      virtual n, f, x
        n, f   threadIdx.x = x
          registers[n, f, x] = 0
          rc outer, rc middle, rx, rc inner, n, f, x: fma
          epilogue
    """

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        out = inline_around(sch, anchor)
        block, virtual, thread = _tiled(sch, out, config, "nfx")
        bind_all(sch, block, BLOCK_ZYX)
        bind_virtual(sch, virtual)
        sch.bind(thread[-1], "threadIdx.x")

        spatial = accumulate_in_registers(sch, anchor, thread[-1])[:3]
        rc, rx = own_loops(sch, anchor)[3:]
        rco, rcm, rci = split_reduction(sch, rc, config.size("tile_rc"))
        sch.reorder(rco, rcm, rx, rci, *spatial)
        inline_before(sch, [name for name in sblocks(sch) if name == "data_pad"])
        sch.decompose_reduction(anchor, rco)
        unroll(sch, block[0], config)
        return sch


# --- fallback ----------------------------------------------------------------------------


def images_fallback(w: ConvTransposeWorkload, _: Target) -> ConfigEntity:
    """Fallback values of conv2d_transpose_nchw.cuda."""
    rows, columns = (
        next((tile for tile in FALLBACK_TILES if extent % tile == 0), 1) for extent in w.out_size
    )
    ones = split(-1, 1, 1, 1)
    return ConfigEntity(
        {
            "tile_n": split(-1, 1, 1, 4) if w.batch > 1 else ones,
            "tile_f": split(-1, 1, 4, 1) if w.out_channels > 1 else ones,
            "tile_y": split(-1, 1, 1, rows),
            "tile_x": split(-1, columns, 1, 1),
            "tile_rc": split(-1, 1, 16),
            "auto_unroll_max_step": option(1500),
            "unroll_explicit": option(1),
            "fuse_yx": option(0),
        }
    )


def signals_fallback(w: ConvTransposeWorkload, _: Target) -> ConfigEntity:
    """Fallback values of conv1d_transpose_nchw.cuda."""
    splits = {"tile_n": 4, "tile_f": 4, "tile_x": 4, "tile_rc": 3}
    return first_candidates(splits, auto_unroll_max_step=64, unroll_explicit=0)


def supports(w: ConvTransposeWorkload, _: Target) -> bool:
    """Floating point, and no more padding than the kernel reaches; signals without groups."""
    front = all(p < taps for p, taps in zip(w.padding, w.kernel * 2, strict=True))
    return front and is_float(w.dtype, w.out_dtype) and (w.rank == 2 or w.groups == 1)


def _template(operator: str, name: str, fallback: Any, rule: Any) -> None:
    register(
        operator,
        "cuda",
        name,
        10,
        supports,
        fallback,
        lambda w, config, data, weight: compute(w, config, name, data, weight),
        ConvTransposeWorkload.autotvm_args,
        only_recorded=True,
        rule=Checked(name, rule),
    )


_template("nn.conv2d_transpose", IMAGES, images_fallback, Images())
_template("nn.conv1d_transpose", SIGNALS, signals_fallback, Signals())
