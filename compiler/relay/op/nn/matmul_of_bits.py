"""Low-bit matmul with blockwise scales, which Relax lacks."""

from __future__ import annotations

from typing import Any

from tvm import te

from ..te_op import kernel


def _compute(
    data: te.Tensor, packed: te.Tensor, scales: te.Tensor, zeros: te.Tensor, bits: int,
    rounds: bool = False,
) -> te.Tensor:  # fmt: skip
    *lead, k = data.shape
    n, octets = int(packed.shape[0]), int(packed.shape[2])
    together = 8 // bits
    size = octets * together
    axis = te.reduce_axis((0, k), "k")

    def weight(column: Any, row: Any) -> Any:
        block, place = row // size, row % size
        octet = packed[column, block, place // together].astype("int32")
        whole = (octet >> (place % together * bits).astype("int32")) & ((1 << bits) - 1)
        return (whole.astype(data.dtype) - zeros[column, block]) * scales[column, block]

    def element(*at: Any) -> Any:
        place = (*at[:-1], axis)
        return te.sum(data[place] * weight(at[-1], axis), axis=[axis])

    return te.compute((*lead, n), element, name="matmul_of_bits")


matmul_of_bits = kernel("nn.matmul_of_bits", _compute)
"""data (..., k) times weights (n, k), quantized in blocks along k; result in data's dtype (..., n).

Operands: data; packed weights (n, blocks, bytes per block), uint8, low bits first; scales and zero
points (n, blocks) in data's dtype. Attributes: `bits`, 1, 2, 4 or 8; `rounds`, whether data may be
quantized to int8 with one scale per block.
"""
