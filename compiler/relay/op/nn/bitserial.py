"""Low-bit convolutions and matmuls."""

from __future__ import annotations

from typing import Any

from tvm import relax, topi

from ....errors import RelayTypeError
from ...type_infer import type_of
from .. import layout_rules
from ..op_def import FUSABLE, INJECTIVE
from ..registry import operator
from ..shapes import extents, number
from ..te_op import kernel
from ..transform import cast_to
from ..typed_relax import op
from .convolution import convolve

_bitpack = kernel("nn.bitpack", topi.nn.bitpack)


@operator("nn.bitpack", defaults={"bit_axis": -1}, how="TOPI", pattern=INJECTIVE)
def bitpack(
    data: relax.Expr,
    bits: int = 1,
    pack_axis: int = 1,
    bit_axis: int = 2,
    pack_type: str = "uint32",
    name: str = "BitPack",
) -> relax.Expr:
    """Pack the low bits of integers along an axis, one bit plane per index of a new axis."""
    return _bitpack(
        data,
        bits=int(bits),
        pack_axis=int(pack_axis),
        bit_axis=int(bit_axis),
        pack_type=pack_type,
        name=name or "BitPack",
    )


def _bits(data: relax.Expr, bits: int) -> relax.Expr:
    """Low bits of integers, as int32."""
    return op.bitwise_and(cast_to(data, "int32"), number(2**bits - 1, "int32"))


def _levels(weight: relax.Expr, bits: int, unipolar: bool) -> relax.Expr:
    """Values of weight bits: with `unipolar`, 0 bits count as -1."""
    value = _bits(weight, bits)
    if not unipolar:
        return value
    doubled = op.multiply(value, number(2, "int32"))
    return op.subtract(doubled, number(2**bits - 1, "int32"))


@operator(
    "nn.bitserial_conv2d",
    2,
    ignored=("kernel_size", "channels"),
    pattern=FUSABLE,
    layout=layout_rules.convolution,
)
def bitserial_conv2d(
    data: relax.Expr,
    weight: relax.Expr,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    channels: int | None = None,
    kernel_size: Any = (3, 3),
    activation_bits: int = 1,
    weight_bits: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    pack_dtype: str = "uint32",
    out_dtype: str = "int16",
    unipolar: bool = True,
) -> relax.Expr:
    """Low-bit convolution.

    A weight bit of 1 counts as 1; a 0 bit counts as -1 with `unipolar`, else as 0.
    """
    wanted = {"NCHW": "OIHW", "NHWC": "HWIO"}.get(data_layout)
    if wanted is None or kernel_layout not in ("", wanted):
        raise RelayTypeError(
            f"layouts must be NCHW with OIHW or NHWC with HWIO, not {data_layout} with "
            f"{kernel_layout}"
        )
    if len(extents(weight)) != 4:
        raise RelayTypeError(f"argument weight of type {type_of(weight)} is packed already")
    result = convolve(
        _bits(data, int(activation_bits)),
        _levels(weight, int(weight_bits), bool(unipolar)),
        2, strides, padding, 1, 1, None, None, data_layout, wanted, "", "int32",
    )  # fmt: skip
    return cast_to(result, out_dtype or "int16")


_bitserial_dense = kernel("nn.bitserial_dense", topi.nn.bitserial_dense)


@operator("nn.bitserial_dense", 2, ignored=("units",), how="TOPI", pattern=FUSABLE)
def bitserial_dense(
    data: relax.Expr,
    weight: relax.Expr,
    units: int | None = None,
    data_bits: int = 1,
    weight_bits: int = 1,
    pack_dtype: str = "uint32",
    out_dtype: str = "int16",
    unipolar: bool = True,
) -> relax.Expr:
    """Low-bit data * transposed weight, computed on packed bits.

    Differences of bit counts wrap around in `pack_dtype`, as in Relay.
    """
    return _bitserial_dense(
        data,
        weight,
        data_bits=int(data_bits),
        weight_bits=int(weight_bits),
        pack_dtype=pack_dtype or "uint32",
        out_dtype=out_dtype or "int16",
        unipolar=bool(unipolar),
    )
