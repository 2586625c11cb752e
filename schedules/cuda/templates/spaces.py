"""The knobs of AutoTVM's CUDA templates: the candidates of TVM 0.18, in its order."""

from __future__ import annotations

from collections.abc import Callable

from tvm.target import Target

from ...config import SplitEntity
from ...conv2d import Conv2dWorkload
from ...conv_transpose import ConvTransposeWorkload
from ...matmul import BatchMatmulWorkload, DenseWorkload
from ...space import ConfigSpace, Define, register_space
from . import conv2d_template, conv_transpose_templates, matmul_templates, winograd_template

THREADED = 4  # factors: block, virtual thread, thread, inner


def _unrolling(cfg: ConfigSpace, steps: list[int]) -> None:
    cfg.define_knob("auto_unroll_max_step", steps)
    cfg.define_knob("unroll_explicit", [0, 1])


def _output_tiles(cfg: ConfigSpace, w: Conv2dWorkload) -> None:
    cfg.define_split("tile_f", w.out_channels, num_outputs=THREADED)
    cfg.define_split("tile_y", w.out_height, num_outputs=THREADED)
    cfg.define_split("tile_x", w.out_width, num_outputs=THREADED)


def _conv2d(cfg: ConfigSpace, w: Conv2dWorkload, _: Target) -> None:
    _output_tiles(cfg, w)
    cfg.define_split("tile_rc", w.in_channels)
    cfg.define_split("tile_ry", w.kernel[0])
    cfg.define_split("tile_rx", w.kernel[1])
    _unrolling(cfg, [0, 512, 1500])


def _depthwise(cfg: ConfigSpace, w: Conv2dWorkload, _: Target) -> None:
    _output_tiles(cfg, w)
    _unrolling(cfg, [0, 256, 1500])


def _grouped(cfg: ConfigSpace, w: Conv2dWorkload, _: Target) -> None:
    cfg.define_split("tile_n", w.batch, num_outputs=THREADED)
    cfg.define_split("tile_g", w.groups)
    cfg.define_split("tile_f", w.out_channels // w.groups, num_outputs=THREADED)
    cfg.define_split("tile_y", w.out_height, num_outputs=THREADED)
    cfg.define_split("tile_x", w.out_width, num_outputs=THREADED)
    cfg.define_split("tile_rc", w.in_channels // w.groups)
    cfg.define_split("tile_ry", w.kernel[0])
    cfg.define_split("tile_rx", w.kernel[1])
    _unrolling(cfg, [0, 512, 1500])
    cfg.define_knob("fuse_yx", [0, 1])


def _only_blocks(entity: SplitEntity) -> bool:
    return entity.size[1:] == (1, 1, 1)


def _winograd(cfg: ConfigSpace, w: Conv2dWorkload, _: Target) -> None:
    m = winograd_template.tile_size(w)
    tiles = w.batch * -(-w.out_height // m) * -(-w.out_width // m)
    alpha = m + w.kernel[0] - 1
    cfg.define_split("tile_b", alpha * alpha, num_outputs=THREADED, filter=_only_blocks)
    cfg.define_split("tile_y", w.out_channels, num_outputs=THREADED)
    cfg.define_split("tile_x", tiles, num_outputs=THREADED)
    cfg.define_split("tile_rc", w.in_channels)
    _unrolling(cfg, [0, 128, 1500])


def _small_batch(cfg: ConfigSpace, w: DenseWorkload, _: Target) -> None:
    cfg.define_split("tile_k", w.k)


def _large_batch(cfg: ConfigSpace, w: DenseWorkload, _: Target) -> None:
    cfg.define_split("tile_x", w.m, num_outputs=THREADED)
    cfg.define_split("tile_y", w.n, num_outputs=THREADED)
    cfg.define_split("tile_k", w.k, num_outputs=3)


def _batch_matmul(cfg: ConfigSpace, w: BatchMatmulWorkload, _: Target) -> None:
    cfg.define_split("tile_y", w.m, num_outputs=3)
    cfg.define_split("tile_x", w.n, num_outputs=3)
    cfg.define_split("tile_k", w.k)
    _unrolling(cfg, [8, 16, 32, 64])


def _conv2d_transpose(cfg: ConfigSpace, w: ConvTransposeWorkload, _: Target) -> None:
    height, width = w.out_size
    cfg.define_split("tile_n", w.batch, num_outputs=THREADED)
    cfg.define_split("tile_f", w.out_channels * w.groups, num_outputs=THREADED)
    cfg.define_split("tile_y", height, num_outputs=THREADED)
    cfg.define_split("tile_x", width, num_outputs=THREADED)
    cfg.define_split("tile_rc", w.in_channels // w.groups, num_outputs=3)
    _unrolling(cfg, [64, 512, 1500])
    cfg.define_knob("fuse_yx", [0, 1])


def _conv1d_transpose(cfg: ConfigSpace, w: ConvTransposeWorkload, _: Target) -> None:
    cfg.define_split("tile_n", w.batch, num_outputs=THREADED)
    cfg.define_split("tile_f", w.out_channels, num_outputs=THREADED)
    cfg.define_split("tile_x", w.out_size[0], num_outputs=THREADED)
    cfg.define_split("tile_rc", w.in_channels, num_outputs=3)
    _unrolling(cfg, [64, 512, 1500])


_SPACES: dict[str, Callable[..., None]] = {
    conv2d_template.DIRECT: _conv2d,
    conv2d_template.DEPTHWISE: _depthwise,
    conv2d_template.GROUPED: _grouped,
    winograd_template.NAME: _winograd,
    matmul_templates.SMALL_BATCH: _small_batch,
    matmul_templates.LARGE_BATCH: _large_batch,
    matmul_templates.BATCH_MATMUL: _batch_matmul,
    conv_transpose_templates.IMAGES: _conv2d_transpose,
    conv_transpose_templates.SIGNALS: _conv1d_transpose,
}
for _name, _define in _SPACES.items():
    _typed: Define = _define
    register_space(_name, _typed)
