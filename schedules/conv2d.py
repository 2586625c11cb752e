"""Workload of a 2-D convolution, shared by every target's implementations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import DataType, te, tirx

from .conv_shape import window_places
from .strategy import register

INTEGERS = frozenset(("int8", "uint8", "int16", "uint16", "int32"))


@dataclass(frozen=True)
class Conv2dWorkload:
    """Shapes and attributes of one conv2d call in NCHW / OIHW terms."""

    batch: int
    in_channels: int
    height: int
    width: int
    out_channels: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int = 1  # 1 for a full convolution; `in_channels` for a depthwise one
    dtype: str = "float32"  # element types of the data and of the result
    out_dtype: str = "float32"
    constant_weight: bool = False  # whether the weights are known at build time
    weight_dtype: str = ""  # element type of the weights; empty where it is that of the data
    pad_value: int = 0  # padding of an integer image: its zero point
    # Steps of a dot product of bytes by these weights that fit int16
    # (`x86.dot_product.narrow_steps`)
    narrow: int = 0
    # No sum of products of bytes by these weights is larger, or smaller than minus that; 0 where
    # that is not known
    largest: int = 0

    @property
    def out_height(self) -> int:
        padded = self.height + self.padding[0] + self.padding[2]
        return window_places(padded, self.kernel[0], self.strides[0], self.dilation[0])

    @property
    def out_width(self) -> int:
        padded = self.width + self.padding[1] + self.padding[3]
        return window_places(padded, self.kernel[1], self.strides[1], self.dilation[1])

    @property
    def item_bytes(self) -> int:
        """Bytes of an element of the data."""
        return int(DataType(self.dtype).itemsize)

    @property
    def is_depthwise(self) -> bool:
        return self.groups > 1 and self.groups == self.in_channels == self.out_channels

    @property
    def is_float(self) -> bool:
        """Whether the operands and their sums are of one floating-point type with vectors."""
        types = {self.dtype, self.weight_dtype or self.dtype, self.out_dtype}
        return types in ({"float32"}, {"float64"})

    @property
    def is_integer(self) -> bool:
        """Whether the operands are integers and their sums are int32."""
        operands = {self.dtype, self.weight_dtype or self.dtype}
        return self.out_dtype == "int32" and operands <= INTEGERS

    @property
    def is_bytes(self) -> bool:
        """Whether uint8 images meet int8 filters, and their sums are int32."""
        return (self.dtype, self.weight_dtype, self.out_dtype) == ("uint8", "int8", "int32")

    @property
    def is_pointwise(self) -> bool:
        return self.kernel == (1, 1) and not any(self.padding)

    def autotvm_args(self) -> tuple[Any, ...]:
        """Workload arguments as the x86 conv2d templates of AutoTVM write them."""
        data = ("TENSOR", (self.batch, self.in_channels, self.height, self.width), self.dtype)
        weight_shape = (self.out_channels, self.in_channels // self.groups, *self.kernel)
        weight = ("TENSOR", weight_shape, self.weight_dtype or self.dtype)
        layouts = ("NCHW", "NCHW", self.out_dtype)
        return (data, weight, self.strides, self.padding, self.dilation, *layouts)


register_conv2d = partial(register, "nn.conv2d", "cpu", task_args=Conv2dWorkload.autotvm_args)
"""Add an implementation of conv2d on CPUs, a template of AutoTVM unless `task_args` is None."""


def pad_data(
    data: te.Tensor, padding: tuple[int, int, int, int], value: int = 0, dtype: str = ""
) -> te.Tensor:
    """Padding (top, left, bottom, right) of (N, C/b, H, W, b) or (N, C, H, W), as another type."""
    dtype = dtype or str(data.dtype)
    if not any(padding):
        if dtype == str(data.dtype):
            return data
        return te.compute(data.shape, lambda *at: data(*at).astype(dtype), name="data_pad")
    top, left, bottom, right = padding
    n, c, h, wd, *lanes = data.shape
    beyond = tirx.const(value, dtype)
    return te.compute(
        (n, c, h + top + bottom, wd + left + right, *lanes),
        lambda n, c, y, x, *lane: tirx.if_then_else(
            tirx.all(y >= top, y < h + top, x >= left, x < wd + left),
            data(n, c, y - top, x - left, *lane).astype(dtype),
            beyond,
        ),
        name="data_pad",
    )
