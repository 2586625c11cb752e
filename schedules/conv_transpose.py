"""Workload of a transposed convolution of images or signals, shared by every target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .conv_shape import spread_size


@dataclass(frozen=True)
class ConvTransposeWorkload:
    """Shapes and attributes of one conv2d_transpose (NCHW, IOHW) or conv1d_transpose call."""

    batch: int
    in_channels: int
    size: tuple[int, ...]  # (height, width), or (width,) for signals
    out_channels: int  # channels of one group
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]  # all front pads, then all back pads
    beyond: tuple[int, ...]  # rows and columns added at the end ("output_padding")
    groups: int = 1
    dtype: str = "float32"
    out_dtype: str = "float32"

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.size)

    @property
    def out_size(self) -> tuple[int, ...]:
        """Spatial shape of the result."""
        return spread_size(self.size, self.kernel, self.strides, self.padding, self.beyond)

    def autotvm_args(self) -> tuple[Any, ...]:
        """Workload arguments as the CUDA templates of AutoTVM write them."""
        data = ("TENSOR", (self.batch, self.in_channels, *self.size), self.dtype)
        weight = ("TENSOR", (self.in_channels, self.out_channels, *self.kernel), self.dtype)
        args = (data, weight, self.strides, self.padding, self.out_dtype, self.beyond)
        return args if self.rank == 1 else (*args, self.groups)
