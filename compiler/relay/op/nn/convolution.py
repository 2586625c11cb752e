"""Convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax, topi

from ....errors import RelayTypeError
from ....ir.rewrite import operator_name
from ...type_infer import infer_type, type_of
from .. import layout_rules, quantization
from ..op_def import ALWAYS, FUSABLE
from ..raising import Definitions, from_relax, int_list, shape_of, typed_call
from ..registry import operator
from ..shapes import assign_type, dtype, extents, integers
from ..te_op import kernel
from ..transform import cast_to
from ..typed_relax import op
from .layouts import (
    PLAIN,
    convert,
    convolution_attributes,
    is_plain,
    packed,
    paddings,
    permuted,
    window_attributes,
    with_signature,
)

_CONVOLUTIONS: dict[int, Callable[..., relax.Expr]] = {
    1: op.nn.conv1d,
    2: op.nn.conv2d,
    3: op.nn.conv3d,
}


def convolve(
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
    out_dtype: str,
) -> relax.Expr:
    """Convolution over `count` spatial axes, in any layouts.

    The type of an untyped weight is inferred from `channels` and `kernel_size`. A depthwise weight
    (C_in, multiplier, ...) becomes Relax's (C_in * multiplier, 1, ...). Blocked layouts are
    converted to unblocked ones and back.
    """
    groups = int(groups)
    kernel_size = None if kernel_size is None else integers(kernel_size, count)
    plain, plain_kernel = PLAIN["data"][count], PLAIN["kernel"][count]
    result_layout = out_layout or data_layout
    if not is_plain(data_layout):
        data, data_layout = convert(data, data_layout, plain), plain
    in_channels = permuted(extents(data), data_layout, plain)[1]
    if weight.ty.is_missing():
        _infer_weight(weight, data, in_channels, groups, channels, kernel_size, kernel_layout)
    weight, kernel_layout = _plain_weight(weight, kernel_layout, plain_kernel, groups, in_channels)
    _check_weight(
        data, weight, kernel_layout, plain_kernel, groups, channels, kernel_size, in_channels
    )
    name = str(out_dtype or "") or dtype(data)
    if dtype(weight) != dtype(data):
        data, weight = cast_to(data, name), cast_to(weight, name)
    result = _CONVOLUTIONS[count](
        data,
        weight,
        strides=integers(strides, count),
        padding=paddings(padding, count),
        dilation=integers(dilation, count),
        groups=groups,
        data_layout=data_layout,
        kernel_layout=kernel_layout,
        out_dtype=_accumulator(name, dtype(data)),
    )
    return convert(cast_to(infer_type(result), name), data_layout, result_layout)


def _accumulator(out_dtype: str, data_dtype: str) -> str | None:
    """Accumulator dtype: bfloat16 is accumulated in float32 and rounded once."""
    if out_dtype == "bfloat16":
        return "float32"
    return None if out_dtype == data_dtype else out_dtype


def _infer_weight(
    weight: relax.Expr,
    data: relax.Expr,
    in_channels: Any,
    groups: int,
    channels: Any,
    kernel_size: Any,
    kernel_layout: str,
) -> None:
    if channels is None or kernel_size is None:
        raise RelayTypeError(
            "argument weight has no type; give it one, or give channels and kernel_size"
        )
    plain = "OI" + "DHW"[-len(integers(kernel_size)) :]
    shape = [int(channels), in_channels // groups, *integers(kernel_size)]
    assign_type(weight, packed(shape, plain, kernel_layout), dtype(data))


def _plain_weight(
    weight: relax.Expr, layout: str, plain: str, groups: int, in_channels: Any
) -> tuple[relax.Expr, str]:
    """Convert a weight to an unblocked layout; depthwise filters get one input channel."""
    if not is_plain(layout):
        weight, layout = convert(weight, layout, plain), plain
    outer, inner, *size = permuted(extents(weight), layout, plain)
    if groups > 1 and outer == groups == in_channels and inner != 1:
        weight = convert(weight, layout, plain)
        return op.reshape(weight, [outer * inner, 1, *size]), plain
    return weight, layout


def _check_weight(
    data: relax.Expr,
    weight: relax.Expr,
    layout: str,
    plain: str,
    groups: int,
    channels: Any,
    kernel_size: Any,
    in_channels: Any,
) -> None:
    """Raise unless the weight fits the data and the attributes."""
    outer, inner, *size = permuted(extents(weight), layout, plain)
    problem = ""
    if isinstance(in_channels, int) and isinstance(inner, int) and inner * groups != in_channels:
        problem = f"takes {inner} channels in each of {groups} groups"
    elif channels is not None and isinstance(outer, int) and int(channels) != outer:
        problem = f"makes {outer} channels, the attribute channels says {int(channels)}"
    elif kernel_size is not None and len(list(kernel_size)) and integers(kernel_size) != size:
        problem = f"has the kernel size {size}, the attribute kernel_size says {list(kernel_size)}"
    if problem:
        raise RelayTypeError(
            f"argument weight of type {type_of(weight)} {problem}; data has the type "
            f"{type_of(data)}"
        )


def _macs(attrs: dict[str, Any], _data: Any, weight: Any, result: Any) -> int:
    """Multiply-accumulates: each weight is applied at each output position."""
    places = [size for size, letter in zip(result, attrs["data_layout"]) if letter in "NHW"]
    return math.prod(weight) * math.prod(places)


CONVOLUTION: dict[str, Any] = {
    "how": "direct",
    "pattern": FUSABLE,
    "precision": ALWAYS,
    "layout": layout_rules.convolution,
}
"""Operator record fields shared by convolutions and transposed convolutions."""


def _convolution(count: int, where: str, **facts: Any) -> Callable[..., Any]:
    attributes = convolution_attributes(count)
    if count == 1:
        attributes.update(strides=1, padding=0, dilation=1)
    return operator(
        f"nn.conv{count}d",
        2,
        prepare=window_attributes(count),
        doc=f"Convolution {where}.",
        **{**CONVOLUTION, **facts},
    )(with_signature(lambda **values: convolve(count=count, **values), "data weight", attributes))


conv1d = _convolution(1, "along one axis")
conv2d = _convolution(
    2,
    "over height and width",
    quantized=quantization.convolution,
    kernel_layouts={"NCHW": "OIHW", "NHWC": "HWIO", "HWNC": "HWOI"},
    macs=_macs,
)
conv3d = _convolution(
    3, "over depth, height and width", kernel_layouts={"NCDHW": "OIDHW", "NDHWC": "DHWIO"}
)


@operator(
    "nn.conv2d_backward_weight",
    2,
    # The call has conv2d's attributes; data, weight and result are those of this convolution.
    renamed={
        "data_layout": "grad_layout",
        "kernel_layout": "data_layout",
        "out_layout": "kernel_layout",
    },
    pattern=FUSABLE,
    layout=layout_rules.convolution,
    kernel_layouts={"NCHW": "OIHW", "NHWC": "HWIO"},
)
def conv2d_backward_weight(
    grad: relax.Expr,
    data: relax.Expr,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Any = None,
    grad_layout: str = "NCHW",
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_dtype: str = "",
) -> relax.Expr:
    """Gradient of conv2d with respect to its weight.

    Computed as a convolution of the data with the gradient. Images and channels are exchanged,
    and so are strides and dilation: (C, N, H, W) * (O, N, h, w) -> (C, O, kh, kw). Groups use one
    grouped convolution over data with the channels of each group on the batch axis.
    """
    if kernel_size is None:
        raise RelayTypeError("kernel_size must be given")
    groups = int(groups)
    grad, data = convert(grad, grad_layout, "NCHW"), convert(data, data_layout, "NCHW")
    batch = extents(grad)[0]
    _, in_channels, *size = extents(data)
    each = in_channels // groups
    data = op.reshape(data, [batch, groups, each, *size])
    data = op.permute_dims(data, [2, 1, 0, 3, 4])
    data = op.reshape(data, [each, groups * batch, *size])
    grad = op.permute_dims(grad, [1, 0, 2, 3])
    full = op.nn.conv2d(
        data,
        grad,
        strides=integers(dilation, 2),
        padding=paddings(padding, 2),
        dilation=integers(strides, 2),
        groups=groups,
    )
    cut = op.strided_slice(full, [2, 3], [0, 0], integers(kernel_size, 2), [1, 1])
    result = convert(op.permute_dims(cut, [1, 0, 2, 3]), "OIHW", kernel_layout)
    return cast_to(result, out_dtype) if out_dtype else result


def _deformable(data: Any, offset: Any, weight: Any, data_layout: str, **attrs: Any) -> Any:
    function = getattr(topi.nn, f"deformable_conv2d_{data_layout.lower()}")
    return function(data, offset, weight, **attrs)


_deformable_kernel = kernel("nn.deformable_conv2d", _deformable)


@operator(
    "nn.deformable_conv2d",
    3,
    prepare=window_attributes(2),
    how="TOPI",
    pattern=FUSABLE,
    layout=layout_rules.deformable,
)
def deformable_conv2d(
    data: relax.Expr,
    offset: relax.Expr,
    weight: relax.Expr,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    deformable_groups: int = 1,
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Any = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> relax.Expr:
    """Deformable convolution: kernel positions are shifted by offsets and read bilinearly."""
    in_channels = extents(data)[data_layout.index("C")]
    if weight.ty.is_missing():
        size = None if kernel_size is None else integers(kernel_size, 2)
        _infer_weight(weight, data, in_channels, int(groups), channels, size, kernel_layout)
    if offset.ty.is_missing():
        taps = permuted(extents(weight), kernel_layout, "OIHW")[2:]
        batch, _, *image = permuted(extents(data), data_layout, "NCHW")
        before_after = paddings(padding, 2)
        result = [
            (extent + before_after[i] + before_after[i + 2] - dilated * (taps[i] - 1) - 1) // step
            + 1
            for i, (extent, dilated, step) in enumerate(
                zip(image, integers(dilation, 2), integers(strides, 2))
            )
        ]
        moved = [batch, 2 * int(deformable_groups) * taps[0] * taps[1], *result]
        assign_type(offset, permuted(moved, "NCHW", data_layout), dtype(data))
    if data_layout not in ("NCHW", "NHWC"):
        data, data_layout = convert(data, data_layout, "NCHW"), "NCHW"
    wanted = "OIHW" if data_layout == "NCHW" else "HWIO"
    result = _deformable_kernel(
        data,
        offset,
        convert(weight, kernel_layout, wanted),
        strides=integers(strides, 2),
        padding=paddings(padding, 2),
        dilation=integers(dilation, 2),
        deformable_groups=int(deformable_groups),
        groups=int(groups),
        data_layout=data_layout,
        out_dtype=str(out_dtype or "") or dtype(data),
    )
    return convert(infer_type(result), data_layout, out_layout or data_layout)


_correlation = kernel("nn.correlation", topi.nn.correlation_nchw)


@operator("nn.correlation", 2, how="TOPI", pattern=FUSABLE, layout=layout_rules.with_layout(2))
def correlation(
    data1: relax.Expr,
    data2: relax.Expr,
    kernel_size: int = 1,
    max_displacement: int = 1,
    stride1: int = 1,
    stride2: int = 1,
    padding: Any = (0, 0),
    is_multiply: bool = True,
    layout: str = "NCHW",
) -> relax.Expr:
    """Correlation (or distance) of patches of two feature maps at all displacements."""
    if layout != "NCHW":
        raise RelayTypeError(f"layout must be NCHW, not {layout}")
    return _correlation(
        data1,
        data2,
        kernel_size=int(kernel_size),
        max_displacement=int(max_displacement),
        stride1=int(stride1),
        stride2=int(stride2),
        padding=integers(padding, 1),
        is_multiply=bool(is_multiply),
    )


@from_relax("nn.conv1d", "nn.conv2d", "nn.conv3d")
def _convolution_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    attributes = window_of(call)
    if attributes is None:
        return None
    return typed_call(operator_name(call), call.args, call.ty, **attributes)


def window_of(call: relax.Call) -> dict[str, Any] | None:
    """Attributes of a Relax convolution under Relay's names; None for a dynamic weight shape."""
    attrs = call.attrs
    layout, weight = str(attrs.kernel_layout), shape_of(call.args[1])
    if weight is None or not is_plain(layout):
        return None
    count = len(layout) - 2
    size = [weight[layout.index(axis)] for axis in "DHW"[-count:]]
    channels = weight[layout.index("O")]
    result = dtype(call)
    attributes: dict[str, Any] = {
        "strides": int_list(attrs.strides),
        "padding": paddings(int_list(attrs.padding), count),
        "dilation": int_list(attrs.dilation),
        "groups": int(attrs.groups),
        "channels": channels,
        "kernel_size": size,
        "data_layout": str(attrs.data_layout),
        "kernel_layout": layout,
        "out_dtype": "" if result == dtype(call.args[0]) else result,
    }
    if str(attrs.out_layout) not in ("", str(attrs.data_layout)):
        attributes["out_layout"] = str(attrs.out_layout)
    return attributes
