"""AutoTVM's templates conv2d_nchw.cuda, depthwise_conv2d_nchw.cuda and group_conv2d_nchw.cuda."""

from __future__ import annotations

from typing import Any

from tvm import te
from tvm.target import Target

from ...anchor import AnchorRule, inline_around, sblocks
from ...config import ConfigEntity
from ...conv2d import Conv2dWorkload, pad_data
from ...strategy import anchor_attrs, register
from ..verified_rule import Checked
from .template_loops import (
    accumulate_in_registers,
    bind_all,
    bind_virtual,
    copy_in_runs,
    copy_in_turn,
    first_candidates,
    inline_before,
    own_loops,
    share,
    split_reduction,
    split_threads,
    unroll,
)

DIRECT = "conv2d_nchw.cuda"
DEPTHWISE = "depthwise_conv2d_nchw.cuda"
GROUPED = "group_conv2d_nchw.cuda"

ZYX = ("threadIdx.z", "threadIdx.y", "threadIdx.x")
BLOCK_ZYX = ("blockIdx.z", "blockIdx.y", "blockIdx.x")


# --- compute -----------------------------------------------------------------------------


def compute(w: Conv2dWorkload, config: ConfigEntity, rule: str, data: Any, weight: Any) -> Any:
    """data (N, I, H, W), weight (O, I / groups, KH, KW) -> (N, O, OH, OW)."""
    padded = pad_data(data, w.padding)
    (sh, sw), (dh, dw) = w.strides, w.dilation
    in_per_group, out_per_group = w.in_channels // w.groups, w.out_channels // w.groups
    ry = te.reduce_axis((0, w.kernel[0]), "ry")
    rx = te.reduce_axis((0, w.kernel[1]), "rx")
    rc = te.reduce_axis((0, in_per_group), "rc")
    single = rule == DEPTHWISE
    axes = [ry, rx] if single else [rc, ry, rx]

    def element(n: Any, f: Any, y: Any, x: Any) -> Any:
        step = 0 if single else rc
        channel = f // out_per_group * in_per_group + step if w.groups > 1 else step
        value = padded[n, channel, y * sh + ry * dh, x * sw + rx * dw].astype(w.out_dtype)
        return te.sum(value * weight[f, step, ry, rx].astype(w.out_dtype), axis=axes)

    return te.compute(
        (w.batch, w.out_channels, w.out_height, w.out_width),
        element,
        name="conv2d_nchw",
        attrs=anchor_attrs(rule, config),
    )


def direct_args(w: Conv2dWorkload) -> tuple[Any, ...]:
    """Workload arguments of conv2d_nchw.cuda and its depthwise form."""
    data, weight, strides, padding, dilation, _, _, out_dtype = w.autotvm_args()
    return (data, weight, strides, padding, dilation, out_dtype)


def depthwise_args(w: Conv2dWorkload) -> tuple[Any, ...]:
    """`direct_args` with the weights as (channels, multiplier, KH, KW)."""
    data, (tag, _, dtype), *rest = direct_args(w)
    shape = (w.in_channels, w.out_channels // w.in_channels, *w.kernel)
    return (data, (tag, shape, dtype), *rest)


def grouped_args(w: Conv2dWorkload) -> tuple[Any, ...]:
    """Workload arguments of group_conv2d_nchw.cuda."""
    *rest, out_dtype = direct_args(w)
    return (*rest, w.groups, out_dtype)


# --- schedule ----------------------------------------------------------------------------


class Direct(AnchorRule):
    """Takes a fused function whose anchor is `conv2d_nchw.cuda`.

    blockIdx.z = n, f    blockIdx.y = y    blockIdx.x = x
      virtual f, y, x
        threadIdx.z = f  threadIdx.y = y   threadIdx.x = x
          registers[f, y, x] = 0
          rc, ry, rx
            padded input and weights -> shared, each thread a run of elements
            rc, ry, rx, f, y, x: fma
          epilogue
    """

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        extents = [config.size(f"tile_{axis}")[2] for axis in "fyx"]
        out = inline_around(sch, anchor)
        blocks, thread = _bind_output(sch, out, config)

        spatial = accumulate_in_registers(sch, anchor, thread)[:4]
        reduced = own_loops(sch, anchor)[4:]
        outer, inner = [], []
        for loop, axis in zip(reduced, ("rc", "ry", "rx"), strict=True):
            chunk, step = split_reduction(sch, loop, config.size(f"tile_{axis}"))
            outer.append(chunk)
            inner.append(step)
        sch.reorder(*outer, *inner, *spatial)
        copies = share(sch, anchor, (0, 1), outer[-1])
        inline_before(sch, [name for name in sblocks(sch) if name == "data_pad"])
        for copy in copies:
            copy_in_runs(sch, copy, ZYX, extents)
        sch.decompose_reduction(anchor, outer[0])
        unroll(sch, blocks, config)
        return sch


class Depthwise(AnchorRule):
    """Takes a fused function whose anchor is `depthwise_conv2d_nchw.cuda`.

    blockIdx.z = n, f    blockIdx.y = y    blockIdx.x = x
      padded input and weights -> shared, neighboring threads neighboring elements
      virtual f, y, x
        threadIdx.z = f  threadIdx.y = y   threadIdx.x = x
          padded input and weights -> registers
          f, y, x, ry, rx: fma
          epilogue
    """

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        extents = [config.size(f"tile_{axis}")[2] for axis in "fyx"]
        out = inline_around(sch, anchor)
        blocks, thread = _bind_output(sch, out, config)

        reduced = accumulate_in_registers(sch, anchor, thread)[4:]
        copies = share(sch, anchor, (0, 1), sch.get_loops(out)[2])
        inline_before(sch, [name for name in sblocks(sch) if name == "data_pad"])
        for operand in (0, 1):
            register = sch.cache_read(anchor, operand, "local")
            sch.compute_at(register, thread, preserve_unit_loops=True)
        for copy in copies:
            copy_in_turn(sch, copy, ZYX, extents)
        sch.decompose_reduction(anchor, reduced[0])
        unroll(sch, blocks, config)
        return sch


class Grouped(AnchorRule):
    """Takes a fused function whose anchor is `group_conv2d_nchw.cuda`.

        blockIdx.z = n       blockIdx.y = group, f    blockIdx.x = y, x
          virtual n, group, f, y, x
            fuse_yx: threadIdx.z = n     threadIdx.y = f   threadIdx.x = y, x
            else:    threadIdx.z = n, f  threadIdx.y = y   threadIdx.x = x
              registers[n, f, y, x] = 0
              rc, ry, rx
                padded input and weights -> shared
                rc, ry, rx, n, f, y, x: fma
              epilogue

    AutoTVM gives tile_rx to the kernel's rows and tile_ry to its columns; so does this.
    """

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        out = inline_around(sch, anchor)
        per_group = _channels_of_a_group(sch, anchor, config)
        n, channel, y, x = sch.get_loops(out)
        g, f = sch.split(channel, [None, per_group])
        bn, vn, tn, ni = split_threads(sch, n, config.size("tile_n"))
        bg, vg = split_threads(sch, g, config.size("tile_g"))
        bf, vf, tf, fi = split_threads(sch, f, config.size("tile_f"))
        by, vy, ty, yi = split_threads(sch, y, config.size("tile_y"))
        bx, vx, tx, xi = split_threads(sch, x, config.size("tile_x"))
        virtual = [vn, vg, vf, vy, vx]
        sch.reorder(bn, bg, bf, by, bx, *virtual, tn, tf, ty, tx, ni, fi, yi, xi)
        blocks = [bn, sch.fuse(bg, bf), sch.fuse(by, bx)]
        bind_all(sch, blocks, BLOCK_ZYX)
        bind_virtual(sch, virtual)
        n_threads, f_threads, y_threads, x_threads = (
            config.size(f"tile_{axis}")[2] for axis in "nfyx"
        )
        if config.val("fuse_yx"):
            threads = [tn, tf, sch.fuse(ty, tx)]
            extents = [n_threads, f_threads, y_threads * x_threads]
        else:
            threads = [sch.fuse(tn, tf), ty, tx]
            extents = [n_threads * f_threads, y_threads, x_threads]
        bind_all(sch, threads, ZYX)

        spatial = accumulate_in_registers(sch, anchor, threads[-1])[:4]
        rc, ry, rx = own_loops(sch, anchor)[4:]
        rco, rci = split_reduction(sch, rc, config.size("tile_rc"))
        ryo, ryi = split_reduction(sch, ry, config.size("tile_rx"))
        rxo, rxi = split_reduction(sch, rx, config.size("tile_ry"))
        sch.reorder(rco, ryo, rxo, rci, ryi, rxi, *spatial)
        copies = share(sch, anchor, (0, 1), rxo)
        inline_before(sch, [name for name in sblocks(sch) if name == "data_pad"])
        for copy in copies:
            copy_in_turn(sch, copy, ZYX, extents)
        sch.decompose_reduction(anchor, rco)
        unroll(sch, blocks[0], config)
        return sch


def _bind_output(sch: Any, out: Any, config: ConfigEntity) -> tuple[Any, Any]:
    """Blocks and threads over channels, rows and columns; the outermost and the thread loop."""
    n, *axes = sch.get_loops(out)
    tiles = [
        split_threads(sch, loop, config.size(f"tile_{axis}"))
        for loop, axis in zip(axes, "fyx", strict=True)
    ]
    block, virtual, thread, inner = (list(level) for level in zip(*tiles, strict=True))
    sch.reorder(n, *block, *virtual, *thread, *inner)
    block[0] = sch.fuse(n, block[0])
    bind_all(sch, block, BLOCK_ZYX)
    bind_virtual(sch, virtual)
    bind_all(sch, thread, ZYX)
    return block[0], thread[-1]


def _channels_of_a_group(sch: Any, anchor: Any, config: ConfigEntity) -> int:
    """Output channels of one group, from the shapes of the padded input and the weights."""
    data, weight = (region.source.shape for region in sch.get(anchor).reads)
    groups = int(data[1]) // int(weight[1])
    return int(weight[0]) // groups


# --- fallback ----------------------------------------------------------------------------


def _direct_fallback(w: Conv2dWorkload, target: Target) -> ConfigEntity:
    splits = {**dict.fromkeys(("tile_f", "tile_y", "tile_x"), 4),
              **dict.fromkeys(("tile_rc", "tile_ry", "tile_rx"), 2)}  # fmt: skip
    return first_candidates(splits, auto_unroll_max_step=0, unroll_explicit=0)


def _depthwise_fallback(w: Conv2dWorkload, target: Target) -> ConfigEntity:
    splits = dict.fromkeys(("tile_f", "tile_y", "tile_x"), 4)
    return first_candidates(splits, auto_unroll_max_step=0, unroll_explicit=0)


def _grouped_fallback(w: Conv2dWorkload, target: Target) -> ConfigEntity:
    splits = {**dict.fromkeys(("tile_n", "tile_f", "tile_y", "tile_x"), 4), "tile_g": 2,
              **dict.fromkeys(("tile_rc", "tile_ry", "tile_rx"), 2)}  # fmt: skip
    return first_candidates(splits, auto_unroll_max_step=0, unroll_explicit=0, fuse_yx=0)


def _is_depthwise(w: Conv2dWorkload) -> bool:
    return w.groups > 1 and w.groups == w.in_channels


def is_float(dtype: str, out_dtype: str) -> bool:
    """Whether products and sums are of one floating-point type."""
    return dtype == out_dtype and dtype in ("float16", "float32", "float64")


def _template(name: str, supports: Any, fallback: Any, task_args: Any, rule: Any) -> None:
    register(
        "nn.conv2d",
        "cuda",
        name,
        10,
        lambda w, _: supports(w) and is_float(w.dtype, w.out_dtype),
        fallback,
        lambda w, config, data, weight: compute(w, config, name, data, weight),
        task_args,
        only_recorded=True,
        rule=Checked(name, rule),
    )


_template(DIRECT, lambda w: w.groups == 1, _direct_fallback, direct_args, Direct())
_template(DEPTHWISE, _is_depthwise, _depthwise_fallback, depthwise_args, Depthwise())
_template(
    GROUPED,
    lambda w: w.groups > 1 and not _is_depthwise(w),
    _grouped_fallback,
    grouped_args,
    Grouped(),
)
