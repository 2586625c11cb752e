"""Generator of a DCGAN.

Radford, Metz and Chintala, "Unsupervised Representation Learning with Deep Convolutional Generative
Adversarial Networks" (2015).
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from ...errors import RelayError
from .. import op
from ..expr import var
from ..op import nn
from .init import function_of, workload_of
from .layers import batch_norm_infer, conv2d_transpose

_EPSILON = 1e-5 + 1e-12
_KERNEL_LAYOUTS = {"NCHW": "IOHW", "NHWC": "HWOI"}


def deconv2d(
    data: relax.Expr,
    channels: int,
    size: int,
    name: str,
    layout: str = "NCHW",
    kernel: int = 4,
    stride: int = 2,
) -> relax.Expr:
    """Transposed convolution to `size` rows and columns."""
    pad = (kernel - 1) // 2
    extra = (size + 2 * pad - kernel) % stride
    return conv2d_transpose(
        data,
        channels=channels,
        kernel_size=(kernel, kernel),
        strides=(stride, stride),
        padding=(pad, pad),
        output_padding=(extra, extra),
        data_layout=layout,
        kernel_layout=_KERNEL_LAYOUTS[layout],
        name=name,
    )


def get_net(
    batch_size: int,
    random_len: int = 100,
    oshape: Sequence[int] = (3, 64, 64),
    ngf: int = 128,
    code: relax.Expr | None = None,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> relax.Function:
    """Build the generator of images of `oshape` (channels first) from vectors of `random_len`."""
    if tuple(oshape[-2:]) != (64, 64):
        raise RelayError(f"only images of 64 x 64 are generated, not {tuple(oshape)}")
    if layout not in _KERNEL_LAYOUTS:
        raise RelayError(f"layout must be NCHW or NHWC, not {layout!r}")
    if code is None:
        code = var("data", dtype=dtype, shape=(batch_size, random_len))
    value = nn.relu(nn.dense(code, weight=var("dense_weight"), units=4 * 4 * ngf * 8))
    shape = (-1, ngf * 8, 4, 4) if layout == "NCHW" else (-1, 4, 4, ngf * 8)
    value = op.reshape(value, newshape=shape)
    for index, (factor, size) in enumerate(((4, 8), (2, 16), (1, 32)), 2):
        value = deconv2d(value, ngf * factor, size, f"g{index}_deconv", layout)
        value = batch_norm_infer(
            value,
            epsilon=_EPSILON,
            scale=False,
            axis=layout.index("C"),
            name=f"g{index}_batch_norm",
        )
        value = nn.relu(value)
    net = op.tanh(deconv2d(value, oshape[0], 64, "g5_deconv", layout))
    return function_of(net)


get_workload = workload_of(get_net, None, "batch_size oshape ngf random_len layout dtype")
