"""Padding and dilation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx, topi

from ....errors import RelayTypeError
from ....kernels.mirror_pad import repeating_pad
from .. import layout_rules, quantization
from ..op_def import INJECTIVE, REARRANGEMENT
from ..raising import Definitions, from_relax, int_list, typed_call
from ..registry import dynamic_form, operator
from ..shapes import (
    constant_value,
    dtype,
    extents,
    integers,
    number,
    rank,
    shape_values,
    with_shape,
)
from ..te_op import kernel
from ..typed_relax import op

_MODES = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}


def _pad_constant(
    data: te.Tensor, value: te.Tensor, before: list[Any], after: list[Any]
) -> te.Tensor:
    """Pad `data` with a value that is known at run time."""
    shape = [low + size + high for low, size, high in zip(before, data.shape, after)]

    def element(*at: Any) -> Any:
        inside = []
        for index, low, size in zip(at, before, data.shape):
            inside += [index >= low, index < low + size]
        place = [index - low for index, low in zip(at, before)]
        return tirx.if_then_else(tirx.all(*inside), data(*place), value())

    return te.compute(shape, element, name="pad", tag=topi.tag.INJECTIVE)


def _pad_border(data: te.Tensor, before: list[Any], after: list[Any], mode: str) -> te.Tensor:
    """Pad `data` by edge replication or reflection."""
    shape = [low + size + high for low, size, high in zip(before, data.shape, after)]
    return repeating_pad(data, before, shape, _MODES.get(mode, mode))


_pad_constant_kernel = kernel("nn.pad", _pad_constant)
_pad_border_kernel = kernel("nn.pad_border", _pad_border)


@operator(
    "nn.pad",
    ["data", "pad_value"],
    **REARRANGEMENT,
    layout=layout_rules.padding,
    quantized=quantization.pad,
)
def pad(
    data: relax.Expr, pad_width: Any, pad_value: Any = 0, pad_mode: str = "constant"
) -> relax.Expr:
    """Pad axis i of `data` by pad_width[i] = (before, after).

    Modes are "constant", "edge" and "reflect".
    """
    if pad_mode not in _MODES:
        raise RelayTypeError(f"pad_mode must be one of {', '.join(_MODES)}, not {pad_mode!r}")
    if isinstance(pad_width, relax.Expr):
        array = constant_value(pad_width)
        if array is None:
            flat = op.reshape(pad_width, [2 * rank(data)])
            return with_shape(flat, lambda dims: _pad(data, dims, pad_value, pad_mode))
        widths = [int(item) for item in array.ravel()]
    else:
        widths = [int(item) for pair in pad_width for item in shape_values(pair)]
    if len(widths) != 2 * rank(data):
        raise RelayTypeError(f"pad_width has {len(widths)} numbers for {rank(data)} dimensions")
    return _pad(data, widths, pad_value, pad_mode)


dynamic_form("nn.pad", pad, ["data", "pad_width", "pad_value"])


def _pad(data: relax.Expr, widths: list[Any], pad_value: Any, pad_mode: str) -> relax.Expr:
    before, after = widths[::2], widths[1::2]
    if pad_mode != "constant":
        return _pad_border_kernel(
            data, relax.ShapeExpr(before), relax.ShapeExpr(after), mode=pad_mode
        )
    array = constant_value(pad_value)
    static = all(isinstance(width, int) and width >= 0 for width in widths)
    value = pad_value if not isinstance(pad_value, relax.Expr) else None
    if array is not None:
        value = array.item()
    if static and value is not None and "int64" not in dtype(data):
        return op.nn.pad(data, widths, "constant", value)
    given = pad_value if isinstance(pad_value, relax.Expr) else number(pad_value, dtype(data))
    if dtype(given) != dtype(data):
        given = op.astype(given, dtype(data))
    if extents(given):
        given = op.reshape(given, [])
    return _pad_constant_kernel(data, given, relax.ShapeExpr(before), relax.ShapeExpr(after))


@operator("nn.mirror_pad", how="TE", pattern=INJECTIVE)
def mirror_pad(data: relax.Expr, pad_width: Any, mode: str = "SYMMETRIC") -> relax.Expr:
    """Mirror `data` at its border, including (SYMMETRIC) or excluding (REFLECT) the border."""
    if mode not in ("SYMMETRIC", "REFLECT"):
        raise RelayTypeError(f"mode must be SYMMETRIC or REFLECT, not {mode!r}")
    widths = [integers(pair, 2) for pair in pad_width]
    before, after = ([pair[side] for pair in widths] for side in (0, 1))
    return _pad_border_kernel(
        data, relax.ShapeExpr(before), relax.ShapeExpr(after), mode=mode.lower()
    )


_dilate = kernel("nn.dilate", topi.nn.dilate)


@operator("nn.dilate", how="TOPI", pattern=INJECTIVE)
def dilate(data: relax.Expr, strides: Sequence[int], dilation_value: float = 0.0) -> relax.Expr:
    """Insert strides[i] - 1 values between elements along axis i."""
    return _dilate(data, strides=integers(strides), dilation_value=float(dilation_value))


@from_relax("nn.pad")
def _pad_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    widths = int_list(call.attrs.pad_width) or []
    if str(call.attrs.pad_mode) != "constant" or min(widths, default=0) < 0:
        return None
    value = number(float(call.attrs.pad_value), dtype(call))
    pairs = [list(pair) for pair in zip(widths[::2], widths[1::2])]
    return typed_call(
        "nn.pad", [call.args[0], value], call.ty, pad_width=pairs, pad_mode="constant"
    )
