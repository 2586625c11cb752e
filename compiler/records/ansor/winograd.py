"""The Winograd convolution that Ansor tuned: NHWC, 3x3, weights transformed beforehand.

    data_pad -> input_tile -> data_pack (B) -> bgemm (weight) -> inverse (A) -> conv2d_winograd

Stage names, axes and constant tables are those of TOPI, since records number them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from tvm import sym, te, tirx
from tvm.topi.nn import pad
from tvm.topi.nn.winograd_util import winograd_transform_matrices

from schedules.generic.stages import substitute

from .dag import Operation
from .dag_to_primfunc import Replacement
from .packing import Packing

KERNEL = 3


@dataclass(frozen=True)
class WinogradForm:
    """A convolution of stride 1 with a 3x3 kernel, in tiles of m x m results."""

    data: Operation  # placeholder or compute in NHWC, and the weight in HWIO
    weight: Operation
    padding: tuple[int, int]  # rows above and columns to the left
    shape: tuple[int, ...]  # of the result, NHWC
    m: int

    @property
    def tiles(self) -> tuple[int, int]:
        return -(-self.shape[1] // self.m), -(-self.shape[2] // self.m)

    def replacement(self) -> Replacement:
        """Build the replacement of the convolution."""
        alpha = self.m + KERNEL - 1
        rows = [list(map(float, row)) for row in weight_matrix(self.m)]
        packing = Packing((
            ("matrix", rows, 0), ("matrix", rows, 1), ("transpose", [0, 1, 3, 2]),
        ))  # fmt: skip
        assert len(rows) == alpha
        return Replacement(self._build, {self.weight: packing})

    def texts(self) -> dict[str, str]:
        """Right-hand sides as TVM 0.18 simplified them, which TVM 0.27 does otherwise."""
        m, (rows, columns) = self.m, self.tiles
        if rows == columns == 1:
            tile = "data_pad[p, eps, nu, ci]"
            place = f"((n + floordiv(h, {m})) + floordiv(w, {m}))"
        else:
            row = f"floormod(floordiv(p, {columns}), {rows})"
            tile = (
                f"data_pad[floordiv(p, {rows * columns}), (({row}*{m}) + eps), "
                f"((floormod(p, {columns})*{m}) + nu), ci]"
            )
            place = f"((((n*{rows})*{columns}) + (floordiv(h, {m})*{columns})) + floordiv(w, {m}))"
        return {
            "input_tile": f"= {tile}",
            "conv2d_winograd": f"= inverse[floormod(h, {m}), floormod(w, {m}), {place}, co]",
        }

    def _build(self, tensor_of: Callable[[Operation], Any]) -> Any:
        batch, height, width, out_channels = self.shape
        in_channels = self.data.shape[3]
        m, (rows, columns) = self.m, self.tiles
        alpha, count = m + KERNEL - 1, batch * rows * columns
        dtype = str(self.data.buffer.dtype)
        output_table, input_table, _ = winograd_transform_matrices(m, KERNEL, dtype)
        top, left = self.padding
        below = rows * m + KERNEL - 1 - top - self.data.shape[1]
        right = columns * m + KERNEL - 1 - left - self.data.shape[2]
        data = pad(tensor_of(self.data), (0, top, left, 0), (0, below, right, 0), name="data_pad")
        tile = te.compute(
            (alpha, alpha, count, in_channels),
            lambda eps, nu, p, ci: data[
                p // (rows * columns), (p // columns) % rows * m + eps, p % columns * m + nu, ci
            ],
            name="input_tile",
        )
        r_a, r_b = te.reduce_axis((0, alpha), "r_a"), te.reduce_axis((0, alpha), "r_b")
        packed = te.compute(
            (alpha, alpha, count, in_channels),
            lambda eps, nu, p, ci: te.sum(
                tile[r_a, r_b, p, ci] * input_table[r_a, eps] * input_table[r_b, nu],
                axis=[r_a, r_b],
            ),
            name="data_pack",
        )
        weight = tensor_of(self.weight)
        channel = te.reduce_axis((0, in_channels), "ci")
        product = te.compute(
            (alpha, alpha, count, out_channels),
            lambda eps, nu, p, co: te.sum(
                packed[eps, nu, p, channel] * weight[eps, nu, co, channel], axis=[channel]
            ),
            name="bgemm",
        )
        s_a, s_b = te.reduce_axis((0, alpha), "r_a"), te.reduce_axis((0, alpha), "r_b")
        inverse = te.compute(
            (m, m, count, out_channels),
            lambda vh, vw, p, co: te.sum(
                product[s_a, s_b, p, co] * output_table[s_a, vh] * output_table[s_b, vw],
                axis=[s_a, s_b],
            ),
            name="inverse",
        )
        return te.compute(
            (batch, height, width, out_channels),
            lambda n, h, w, co: inverse[
                h % m, w % m, n * rows * columns + h // m * columns + w // m, co
            ],
            name="conv2d_winograd",
        )


@cache
def weight_matrix(m: int) -> np.ndarray:
    """The matrix G of F(m, 3): (m + 2) x 3, that belongs to TOPI's A and B."""
    table = winograd_transform_matrices(m, KERNEL, "float64")[2]
    analyzer = sym.Analyzer()
    i, j = (axis.var for axis in table.op.axis)
    values = [
        [
            float(analyzer.simplify(substitute(
                table.op.body[0], [(i, tirx.const(row, "int32")), (j, tirx.const(column, "int32"))]
            )).value)
            for column in range(KERNEL)
        ]
        for row in range(m + KERNEL - 1)
    ]  # fmt: skip
    return np.array(values)
