"""Transposed convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax

from ....errors import RelayTypeError
from ....ir.rewrite import operator_name
from ...type_infer import infer_type, type_of
from .. import quantization
from ..raising import Definitions, from_relax, int_list, typed_call
from ..registry import operator
from ..shapes import assign_type, dtype, extents, integers
from ..transform import cast_to
from ..typed_relax import op
from .convolution import CONVOLUTION, window_of
from .layouts import (
    PLAIN,
    convert,
    convolution_attributes,
    is_plain,
    paddings,
    permuted,
    window_attributes,
    with_signature,
)
from .padding import dilate

_TRANSPOSED: dict[int, Callable[..., relax.Expr]] = {
    1: op.nn.conv1d_transpose,
    2: op.nn.conv2d_transpose,
    3: op.nn.conv3d_transpose,
}


def _convolve_transposed(
    data: relax.Expr,
    weight: relax.Expr,
    count: int,
    strides: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    channels: Any,
    kernel_size: Any,
    data_layout: str,
    kernel_layout: str,
    out_layout: str,
    output_padding: Any,
    out_dtype: str,
) -> relax.Expr:
    """Transposed convolution in unblocked layouts; a dilated kernel has zeros between elements."""
    groups = int(groups)
    plain, plain_kernel = PLAIN["data"][count], PLAIN["transposed"][count]
    result_layout = out_layout or data_layout
    data = convert(data, data_layout, plain)
    in_channels = extents(data)[1]
    if weight.ty.is_missing():
        if channels is None or kernel_size is None or not is_plain(kernel_layout):
            raise RelayTypeError(
                "argument weight has no type; give it one, or give channels and kernel_size"
            )
        shape = [in_channels, int(channels) // groups, *integers(kernel_size, count)]
        assign_type(weight, permuted(shape, plain_kernel, kernel_layout), dtype(data))
    weight = convert(weight, kernel_layout, plain_kernel)
    if isinstance(in_channels, int) and extents(weight)[0] != in_channels:
        raise RelayTypeError(
            f"argument weight of type {type_of(weight)} takes {extents(weight)[0]} channels; data "
            f"has the type {type_of(data)}"
        )
    spread = integers(dilation, count)
    if any(step != 1 for step in spread):
        weight = dilate(weight, [1, 1, *spread])
    name = str(out_dtype or "") or dtype(data)
    if dtype(weight) != dtype(data):
        data, weight = cast_to(data, name), cast_to(weight, name)
    result = _TRANSPOSED[count](
        data,
        weight,
        strides=integers(strides, count),
        padding=paddings(padding, count),
        output_padding=integers(output_padding, count)[:count],  # 1-D calls may pass two values
        groups=groups,
        out_dtype=None if name == dtype(data) else name,
    )
    return convert(infer_type(result), plain, result_layout)


def _macs(attrs: dict[str, Any], data: Any, weight: Any, _result: Any) -> int:
    """Multiply-accumulates: each weight is applied at each data position."""
    places = [size for size, letter in zip(data, attrs["data_layout"]) if letter in "NHW"]
    return math.prod(weight) * math.prod(places)


def _transposed_convolution(count: int, where: str, **facts: Any) -> Callable[..., Any]:
    attributes = convolution_attributes(count, "transposed", output_padding=(0,) * count)

    def make(**values: Any) -> relax.Expr:
        return _convolve_transposed(count=count, **values)

    return operator(
        f"nn.conv{count}d_transpose",
        2,
        prepare=window_attributes(count),
        doc=f"Transposed convolution {where}.",
        **{**CONVOLUTION, **facts},
    )(with_signature(make, "data weight", attributes))


conv1d_transpose = _transposed_convolution(1, "along one axis", layout=None)
conv2d_transpose = _transposed_convolution(
    2,
    "over height and width",
    quantized=quantization.convolution,
    kernel_layouts={"NCHW": "IOHW", "NHWC": "HWIO"},
    macs=_macs,
)
conv3d_transpose = _transposed_convolution(
    3, "over depth, height and width", kernel_layouts={"NCDHW": "IODHW", "NDHWC": "DHWOI"}
)


@from_relax("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
def _transposed_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    attributes = window_of(call)
    if attributes is None:
        return None
    attributes["channels"] *= attributes["groups"]
    attributes["output_padding"] = int_list(call.attrs.output_padding)
    return typed_call(operator_name(call), call.args, call.ty, **attributes)
