"""Products with weights of a few bits each, whose blocks have scales: Relax has none."""

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
"""data (..., k) times weights (n, k) in blocks along k, as data's dtype (..., n).

Operands: data; packed weights (n, blocks, bytes of a block), uint8, low bits first; scales and zero
points (n, blocks) of the data's dtype. Attributes: `bits`, 1, 2, 4 or 8; `rounds`, whether the data
may be rounded to int8, each block by its largest element.
"""
