"""Quantized convolutions, matmuls and pooling with int32 accumulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tvm import relax

from ...type_infer import infer_type
from .. import layout_rules
from ..nn.contrib import contrib_dense_pack as plain_dense_pack
from ..nn.conv_transpose import conv2d_transpose as plain_conv2d_transpose
from ..nn.convolution import convolve
from ..nn.layouts import convolution_attributes, window_attributes, with_signature
from ..nn.linear import batch_matmul as plain_batch_matmul
from ..nn.linear import dense as plain_dense
from ..nn.pooling import avg_pool2d as plain_avg_pool2d
from ..op_def import FUSABLE
from ..registry import operator
from ..shapes import assign_type, dtype, extents
from ..transform import cast_to
from ..typed_relax import op
from .requantization import along, centerd, check_numbers, requantize, saturated


def _accumulator(out_dtype: str) -> str:
    return out_dtype or "int32"


def _less_zero(
    data: relax.Expr,
    zero_point: relax.Expr,
    scale: relax.Expr,
    axis: int,
    name: str,
    is_grouped: bool = False,
) -> relax.Expr:
    """data - zero_point in dtype `name`; with `is_grouped`, vector lengths are not checked."""
    check_numbers(dtype(data), scale, zero_point, None if is_grouped else data, axis)
    return centerd(data, zero_point, axis, name)


def _convolution(
    name: str,
    weight: str,
    plain: Callable[..., relax.Expr],
    doc: str,
    attributes: Mapping[str, Any],
    **facts: Any,
) -> Callable[..., relax.Expr]:
    """Convolution `plain` of quantized values, whose operand of weights has this name."""

    def make(
        data: relax.Expr,
        input_zero_point: relax.Expr,
        kernel_zero_point: relax.Expr,
        input_scale: relax.Expr,
        kernel_scale: relax.Expr,
        **values: Any,
    ) -> relax.Expr:
        kernel, wide = values.pop(weight), values.pop("out_dtype") or "int32"
        axis, is_grouped = values["kernel_layout"].index("O"), values["groups"] > 1
        return plain(
            _less_zero(data, input_zero_point, input_scale, values["data_layout"].index("C"), wide),
            _less_zero(kernel, kernel_zero_point, kernel_scale, axis, wide, is_grouped),
            **values,
            out_dtype=wide,
        )

    operands = f"data {weight} input_zero_point kernel_zero_point input_scale kernel_scale"
    facts = {"prepare": window_attributes(2), "layout": layout_rules.convolution, **facts}
    return operator(f"qnn.{name}", 6, doc=doc, **facts)(
        with_signature(make, operands, {**attributes, "out_dtype": "int32"})
    )


conv2d = _convolution(
    "conv2d",
    "kernel",
    partial(convolve, count=2),
    """Convolution of quantized values, without scales.

    Zero points are subtracted first, so that padding adds zeros.
    """,
    {"kernel_size": None, "channels": None, **convolution_attributes(2)},
    pattern=FUSABLE,
    kernel_layouts={"NCHW": "OIHW", "NHWC": "HWIO"},
)
conv2d_transpose = _convolution(
    "conv2d_transpose",
    "weight",
    plain_conv2d_transpose,
    "Transposed convolution of quantized values, without scales.",
    convolution_attributes(2, "transposed", output_padding=(0, 0)),
    kernel_layouts={"NCHW": "IOHW", "NHWC": "HWIO"},
)


@operator(
    "qnn.dense",
    6,
    pattern=FUSABLE,
    layout=layout_rules.fixed(["NC", "NC", "N", "N", "N", "N"], "NC"),
)
def dense(
    data: relax.Expr,
    weight: relax.Expr,
    input_zero_point: relax.Expr,
    kernel_zero_point: relax.Expr,
    input_scale: relax.Expr,
    kernel_scale: relax.Expr,
    units: int | None = None,
    out_dtype: str = "int32",
) -> relax.Expr:
    """data * transposed weight of quantized values, without scales."""
    name = _accumulator(out_dtype)
    if units is not None:
        assign_type(weight, [int(units), extents(data)[-1]], dtype(data))
    return plain_dense(
        _less_zero(data, input_zero_point, input_scale, -1, name),
        _less_zero(weight, kernel_zero_point, kernel_scale, 0, name),
        units,
        name,
    )


@operator("qnn.contrib_dense_pack", 6, pattern=FUSABLE, layout=layout_rules.dense_pack)
def contrib_dense_pack(
    data: relax.Expr,
    weight: relax.Expr,
    input_zero_point: relax.Expr,
    kernel_zero_point: relax.Expr,
    input_scale: relax.Expr,
    kernel_scale: relax.Expr,
    kernel_layout: str = "NC",
    units: int | None = None,
    out_dtype: str = "int32",
) -> relax.Expr:
    """dense with a packed weight layout."""
    name = _accumulator(out_dtype)
    return plain_dense_pack(
        centerd(data, input_zero_point, -1, name),
        centerd(weight, kernel_zero_point, 0, name),
        kernel_layout,
        units,
        name,
    )


@operator("qnn.batch_matmul", 6, ignored=("transpose_a", "transpose_b"), pattern=FUSABLE)
def batch_matmul(
    x: relax.Expr,
    y: relax.Expr,
    x_zero_point: relax.Expr,
    y_zero_point: relax.Expr,
    x_scale: relax.Expr,
    y_scale: relax.Expr,
    out_dtype: str = "int32",
) -> relax.Expr:
    """x * transposed y for each batch element, without scales."""
    name = _accumulator(out_dtype)
    return plain_batch_matmul(
        _less_zero(x, x_zero_point, x_scale, -1, name),
        _less_zero(y, y_zero_point, y_scale, -1, name),
        name,
        False,
        True,
    )


@operator(
    "qnn.avg_pool2d", 5, prepare=window_attributes(2), pattern=FUSABLE, layout=layout_rules.pooling
)
def avg_pool2d(
    data: relax.Expr,
    input_scale: relax.Expr,
    input_zero_point: relax.Expr,
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
    pool_size: Any,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NCHW",
    out_layout: str = "",
) -> relax.Expr:
    """Average pooling at the output's scale.

    The input is requantized first, since averages of integers are truncated.
    """
    zero = relax.const(0, "int32")
    value = requantize(data, input_scale, input_zero_point, output_scale, zero, out_dtype="int32")
    pooled = plain_avg_pool2d(  # TVM divides these sums by int64
        cast_to(infer_type(value), "int64"), pool_size, strides, dilation, padding, layout,
        out_layout, ceil_mode, count_include_pad,
    )  # fmt: skip
    center = cast_to(along(output_zero_point, data, -1), "int32")
    means = cast_to(infer_type(pooled), "int32")
    return saturated(op.add(means, center), dtype(data))
