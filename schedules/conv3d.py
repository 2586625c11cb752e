"""Workload of a 3-D convolution, shared by every target's implementations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .conv_shape import window_places


@dataclass(frozen=True)
class Conv3dWorkload:
    """Shapes and attributes of one conv3d call."""

    batch: int
    in_channels: int
    size: tuple[int, int, int]
    out_channels: int
    kernel: tuple[int, int, int]
    strides: tuple[int, int, int]
    padding: tuple[int, int, int, int, int, int]
    dilation: tuple[int, int, int]
    groups: int = 1
    dtype: str = "float32"
    out_dtype: str = "float32"
    channels_last: bool = False  # NDHWC with DHWIO weights; else NCDHW with OIDHW

    @property
    def padded(self) -> tuple[int, int, int]:
        """Depth, height and width of the padded input."""
        d, h, w = (self.size[i] + self.padding[i] + self.padding[i + 3] for i in range(3))
        return d, h, w

    @property
    def out_size(self) -> tuple[int, int, int]:
        """Depth, height and width of the result."""
        d, h, w = map(window_places, self.padded, self.kernel, self.strides, self.dilation)
        return d, h, w

    def autotvm_args(self) -> tuple[Any, ...]:
        """Workload arguments as the x86 conv3d templates of AutoTVM write them."""
        per_group = self.in_channels // self.groups
        data: tuple[int, ...] = (self.batch, self.in_channels, *self.size)
        weight: tuple[int, ...] = (self.out_channels, per_group, *self.kernel)
        if self.channels_last:
            data = (self.batch, *self.size, self.in_channels)
            weight = (*self.kernel, per_group, self.out_channels)
        tensors = (("TENSOR", data, self.dtype), ("TENSOR", weight, self.dtype))
        windows = (self.strides, self.padding, self.dilation)
        return (*tensors, *windows, self.groups, self.out_dtype)
