"""Deep Q-network. Mnih et al., "Human-level control through deep reinforcement learning" (2015)."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from ...errors import RelayError
from ..expr import var
from ..op import nn
from .init import function_of, workload_of
from .layers import conv2d, conv_kernel_layout, dense_add_bias

_CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, kernel size and stride of the convolutions."""


def get_net(
    batch_size: int,
    num_actions: int = 18,
    image_shape: Sequence[int] = (4, 84, 84),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> relax.Function:
    """Build the network for images of `image_shape`, in the layout's order."""
    if layout not in ("NCHW", "NHWC"):
        raise RelayError(f"layout must be NCHW or NHWC, not {layout!r}")
    value: relax.Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    for index, (channels, size, stride) in enumerate(_CONVOLUTIONS, 1):
        value = conv2d(
            value,
            kernel_size=(size, size),
            strides=(stride, stride),
            padding=(0, 0),
            channels=channels,
            name=f"conv{index}",
            data_layout=layout,
            kernel_layout=conv_kernel_layout(layout),
        )
        value = nn.relu(nn.bias_add(value, var(f"conv{index}_bias"), axis=layout.index("C")))
    value = nn.relu(dense_add_bias(nn.batch_flatten(value), units=512, name="dense1"))
    net = dense_add_bias(value, units=num_actions, name="dense2")
    return function_of(net)


get_workload = workload_of(get_net)
