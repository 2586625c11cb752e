"""Convolutions and products of quantized bits."""

from __future__ import annotations

from typing import Any

from tvm import relax, topi

from ....errors import RelayTypeError
from ..kernel import kernel
from ..registry import operator
from ..shapes import integers
from .layouts import paddings

_bitpack = kernel(
    "nn.bitpack",
    lambda data, bits, pack_axis, bit_axis, pack_type, name: topi.nn.bitpack(
        data, bits, pack_axis, bit_axis, pack_type, name
    ),
)


@operator("nn.bitpack", defaults={"bit_axis": -1}, how="TOPI")
def bitpack(
    data: relax.Expr,
    bits: int = 1,
    pack_axis: int = 1,
    bit_axis: int = 2,
    pack_type: str = "uint32",
    name: str = "BitPack",
) -> relax.Expr:
    """The lowest bits of numbers packed along an axis, bit by bit along a new one."""
    return _bitpack(
        data,
        bits=int(bits),
        pack_axis=int(pack_axis),
        bit_axis=int(bit_axis),
        pack_type=pack_type,
        name=name or "BitPack",
    )


def _bitserial_conv2d_compute(data: Any, weight: Any, layout: str, **attrs: Any) -> Any:
    function = getattr(topi.nn, f"bitserial_conv2d_{layout.lower()}")
    return function(
        data,
        weight,
        attrs["strides"],
        attrs["padding"],
        attrs["activation_bits"],
        attrs["weight_bits"],
        attrs["pack_dtype"],
        attrs["out_dtype"],
        attrs["unipolar"],
    )


_bitserial_conv2d = kernel("nn.bitserial_conv2d", _bitserial_conv2d_compute)


@operator("nn.bitserial_conv2d", 2, ignored=("kernel_size", "channels"), how="TOPI")
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
    """Convolution of numbers of a few bits, computed on packed bits."""
    wanted = {"NCHW": "OIHW", "NHWC": "HWIO"}.get(data_layout)
    if wanted is None or kernel_layout not in ("", wanted):
        raise RelayTypeError(
            f"layouts must be NCHW with OIHW or NHWC with HWIO, not {data_layout} with "
            f"{kernel_layout}"
        )
    return _bitserial_conv2d(
        data,
        weight,
        layout=data_layout,
        strides=integers(strides, 2),
        padding=paddings(padding, 2),
        activation_bits=int(activation_bits),
        weight_bits=int(weight_bits),
        pack_dtype=pack_dtype,
        out_dtype=out_dtype,
        unipolar=bool(unipolar),
    )


_bitserial_dense = kernel(
    "nn.bitserial_dense",
    lambda data, weight, **attrs: topi.nn.bitserial_dense(
        data,
        weight,
        attrs["data_bits"],
        attrs["weight_bits"],
        attrs["pack_dtype"],
        attrs["out_dtype"],
        attrs["unipolar"],
    ),
)


@operator("nn.bitserial_dense", 2, ignored=("units",), how="TOPI")
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
    """Product of matrices of numbers of a few bits, computed on packed bits."""
    return _bitserial_dense(
        data,
        weight,
        data_bits=int(data_bits),
        weight_bits=int(weight_bits),
        pack_dtype=pack_dtype,
        out_dtype=out_dtype,
        unipolar=bool(unipolar),
    )
