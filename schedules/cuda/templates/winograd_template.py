"""AutoTVM's template conv2d_nchw_winograd.cuda: Winograd convolution in three kernels.

As TVM's layout pass did, weights are transformed at build time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.target import Target

from ...anchor import AnchorRule, inline_around, sblocks
from ...config import ConfigEntity
from ...conv2d import Conv2dWorkload
from ...strategy import anchor_attrs, register
from ...winograd import algorithm, times, transform_matrices
from ..verified_rule import Checked
from .conv2d_template import BLOCK_ZYX, ZYX, direct_args
from .template_loops import (
    bind_all,
    bind_virtual,
    copy_in_turn,
    first_candidates,
    own_loops,
    share,
    split_reduction,
    split_threads,
    unroll,
)

NAME = "conv2d_nchw_winograd.cuda"

THREADS = 128  # of the transforms
STAGES = ("data_pad", "winograd_rows", "winograd_V", "winograd_M", "winograd_columns", "winograd_O")


def tile_size(w: Conv2dWorkload) -> int:
    """Rows and columns of an output tile, as the template chooses them."""
    return 4 if w.height % 8 == 0 else 2


# --- compute -----------------------------------------------------------------------------


def pack_weight(w: Conv2dWorkload, _: Any, weight: np.ndarray, __: ConfigEntity) -> np.ndarray:
    """OIHW -> (alpha^2, I, O), transformed in float64; constants only."""
    _, _, g = transform_matrices(tile_size(w), w.kernel[0])
    both_sides = np.kron(np.array(g), np.array(g))
    taps = weight.astype("float64").transpose(2, 3, 1, 0).reshape(both_sides.shape[1], -1)
    shape = (-1, w.in_channels, w.out_channels)
    return (both_sides @ taps).reshape(shape).astype(weight.dtype)


def compute(w: Conv2dWorkload, config: ConfigEntity, data: Any, weight: Any) -> Any:
    """data (N, I, H, W), weight as packed -> (N, O, OH, OW)."""
    m, r = tile_size(w), w.kernel[0]
    alpha = m + r - 1
    a_matrix, b_matrix, _ = transform_matrices(m, r)
    rows, columns = -(-w.out_height // m), -(-w.out_width // m)
    tiles = w.batch * rows * columns
    top, left, _, _ = w.padding

    padded = te.compute(
        (w.batch, w.in_channels, rows * m + r - 1, columns * m + r - 1),
        lambda n, c, y, x: tirx.if_then_else(
            tirx.all(y >= top, y < w.height + top, x >= left, x < w.width + left),
            data[n, c, y - top, x - left],
            tirx.const(0, w.dtype),
        ),
        name="data_pad",
    )

    def pixel(c: Any, p: Any, y: Any, x: Any) -> Any:
        n, row, column = p // (rows * columns), p // columns % rows, p % columns
        return padded[n, c, row * m + y, column * m + x]

    half = te.compute(
        (w.in_channels, tiles, alpha, alpha),
        lambda c, p, a, x: times(b_matrix, a, lambda y: pixel(c, p, y, x)),
        name="winograd_rows",
    )
    v = te.compute(
        (alpha * alpha, w.in_channels, tiles),
        lambda ab, c, p: times(b_matrix, ab % alpha, lambda x: half[c, p, ab // alpha, x]),
        name="winograd_V",
    )
    k = te.reduce_axis((0, w.in_channels), "rc")
    product = te.compute(
        (alpha * alpha, w.out_channels, tiles),
        lambda ab, o, p: te.sum(weight[ab, k, o] * v[ab, k, p], axis=[k]),
        name="winograd_M",
        attrs=anchor_attrs(NAME, config, algorithm((m, m), (r, r))),
    )
    columns_done = te.compute(
        (w.out_channels, tiles, m, alpha),
        lambda o, p, y, b: times(a_matrix, y, lambda a: product[a * alpha + b, o, p]),
        name="winograd_columns",
    )
    done = te.compute(
        (w.out_channels, tiles, m, m),
        lambda o, p, y, x: times(a_matrix, x, lambda b: columns_done[o, p, y, b]),
        name="winograd_O",
    )
    return te.compute(
        (w.batch, w.out_channels, w.out_height, w.out_width),
        lambda n, o, y, x: done[o, (n * rows + y // m) * columns + x // m, y % m, x % m],
        name="winograd_out",
    )


# --- schedule ----------------------------------------------------------------------------


class Winograd(AnchorRule):
    """Takes a fused function whose anchor is `conv2d_nchw_winograd.cuda`.

    blockIdx.x . threadIdx.x = channel, tile:  V of one tile, unrolled

    blockIdx.z = alpha^2   blockIdx.y = o   blockIdx.x = tile
      virtual alpha^2, o, tile
        threadIdx.z, y, x
          registers = 0
          rc:  U and V -> shared;  rc, alpha^2, o, tile: fma

    blockIdx.x . threadIdx.x = n, o, tile:  O of one tile and epilogue, unrolled
    """

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        out = inline_around(sch, anchor, keep=STAGES)
        _transform_input(sch)
        _multiply(sch, anchor, config)
        _transform_output(sch, out)
        return sch


def _transform_input(sch: Any) -> None:
    pad, half, v = (sblocks(sch)[name] for name in ("data_pad", "winograd_rows", "winograd_V"))
    ab, c, p = sch.get_loops(v)
    sch.reorder(c, p, ab)
    thread = _bind_flat(sch, [c, p])
    patch = sch.cache_read(half, 0, "local")
    for block in (half, patch):
        sch.compute_at(block, thread, preserve_unit_loops=True)
    sch.compute_inline(pad)
    sch.set_scope(half, 0, "local")
    sch.unroll(ab)
    for block in (half, patch):
        for loop in own_loops(sch, block)[-2:]:
            sch.unroll(loop)


def _multiply(sch: Any, anchor: Any, config: ConfigEntity) -> None:
    store = sch.cache_write(anchor, 0, "local")
    tiles = [
        split_threads(sch, loop, config.size(f"tile_{axis}"))
        for loop, axis in zip(sch.get_loops(store), "byx", strict=True)
    ]
    block, virtual, thread, inner = (list(level) for level in zip(*tiles, strict=True))
    sch.reorder(*block, *virtual, *thread, *inner)
    bind_all(sch, block, BLOCK_ZYX)
    bind_virtual(sch, virtual)
    bind_all(sch, thread, ZYX)

    sch.compute_at(anchor, thread[-1], preserve_unit_loops=True)
    *spatial, k = own_loops(sch, anchor)
    ko, ki = split_reduction(sch, k, config.size("tile_rc"))
    sch.reorder(ko, ki, *spatial)
    extents = [config.size(f"tile_{axis}")[2] for axis in "byx"]
    for copy in share(sch, anchor, (0, 1), ko):
        copy_in_turn(sch, copy, ZYX, extents)
    sch.decompose_reduction(anchor, ko)
    unroll(sch, block[0], config)


def _transform_output(sch: Any, out: Any) -> None:
    columns_done, done = (sblocks(sch)[name] for name in ("winograd_columns", "winograd_O"))
    m = int(sch.get(done).writes[0].source.shape[3])
    n, o, h, w = sch.get_loops(out)
    row, y = sch.split(h, [None, m])
    column, x = sch.split(w, [None, m])
    sch.reorder(n, o, row, column, y, x)
    thread = _bind_flat(sch, [n, o, row, column])
    for block in (done, columns_done):
        sch.compute_at(block, thread, preserve_unit_loops=True)
        sch.set_scope(block, 0, "local")
        for loop in own_loops(sch, block)[-2:]:
            sch.unroll(loop)
    sch.unroll(y)
    sch.unroll(x)


def _bind_flat(sch: Any, loops: list[Any]) -> Any:
    """One thread for each iteration; returns the thread's loop."""
    outer, thread = sch.split(sch.fuse(*loops), [None, THREADS])
    sch.bind(outer, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    return thread


# --- fallback ----------------------------------------------------------------------------


def fallback(w: Conv2dWorkload, target: Target) -> ConfigEntity:
    """Fallback values of the template."""
    splits = {"tile_b": 4, "tile_y": 4, "tile_x": 4, "tile_rc": 2}
    return first_candidates(splits, auto_unroll_max_step=0, unroll_explicit=0)


def supports(w: Conv2dWorkload, _: Target) -> bool:
    """Square kernels of 3 to 7, stride 1, float32, without groups, and constant weights."""
    return (
        w.constant_weight
        and w.is_float
        and w.dtype == "float32"
        and w.groups == 1
        and w.kernel[0] == w.kernel[1]
        and 2 < w.kernel[0] < 8
        and w.strides == w.dilation == (1, 1)
    )


register(
    "nn.conv2d",
    "cuda",
    NAME,
    5,
    supports,
    fallback,
    compute,
    direct_args,
    pack_weight,
    only_recorded=True,
    rule=Checked(NAME, Winograd()),
)
