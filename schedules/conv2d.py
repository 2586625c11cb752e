"""Workload of a 2-D convolution, shared by every target's implementations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Conv2dWorkload:
    """Shapes and attributes of one conv2d call in NCHW / OIHW terms.

    Attributes
    ----------
    padding : (top, left, bottom, right)
    groups : int
        1 for a full convolution; `in_channels` for a depthwise one.
    dtype, out_dtype : str
        Element types of the operands and of the result.
    constant_weight : bool
        Whether the weights are known at build time.
    """

    batch: int
    in_channels: int
    height: int
    width: int
    out_channels: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int = 1
    dtype: str = "float32"
    out_dtype: str = "float32"
    constant_weight: bool = False

    @property
    def out_height(self) -> int:
        span = (self.kernel[0] - 1) * self.dilation[0] + 1
        return (self.height + self.padding[0] + self.padding[2] - span) // self.strides[0] + 1

    @property
    def out_width(self) -> int:
        span = (self.kernel[1] - 1) * self.dilation[1] + 1
        return (self.width + self.padding[1] + self.padding[3] - span) // self.strides[1] + 1

    @property
    def is_depthwise(self) -> bool:
        return self.groups > 1 and self.groups == self.in_channels == self.out_channels

    @property
    def is_pointwise(self) -> bool:
        return self.kernel == (1, 1) and not any(self.padding)

    def autotvm_args(self) -> tuple[Any, ...]:
        """Workload arguments as the x86 conv2d templates of AutoTVM write them."""
        data = ("TENSOR", (self.batch, self.in_channels, self.height, self.width), self.dtype)
        weight_shape = (self.out_channels, self.in_channels // self.groups, *self.kernel)
        weight = ("TENSOR", weight_shape, self.dtype)
        layouts = ("NCHW", "NCHW", self.out_dtype)
        return (data, weight, self.strides, self.padding, self.dilation, *layouts)
