"""Winograd convolution with fewer products at the point at infinity, on x86 with 16 registers.

Lavin and Gray (2015) as in `winograd`, F(m x m, r x r) with alpha = m + r - 1 points. Products at
infinity are the leading coefficients. Two cases need fewer of them than of other products, so
they are separate parts: M00 at finite points of rows and columns, M10 at infinity of rows, ...

1. Stride 2. Rows and columns of even and of odd numbers are two phases, each of which meets every
   other tap with stride 1: r = (kernel + 1) / 2 taps of even numbers, but r - 1 of odd ones, whose
   leading coefficient is zero. A tile of span = 2 alpha - 1 inputs has as many values in V.
2. Ragged images. The product at infinity counts for the last of m outputs alone; where the image
   ends before it, the last row or column of tiles has none.

    U = phases of the filter, transformed      weights, at build time
    V = T d T'                                 patches of the padded input
    M[a, b] = sum over phases and channels of U * V[2 a + phase, 2 b + phase]
    out = A' M A

A plain input (three channels) has too few channels for vectors. There the lanes are tiles of a row;
columns with the same place in a tile are put side by side when rows are padded.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import DataType, te, tirx
from tvm.target import Target

from ...anchor import AnchorRule, inline_around, register_anchor_rule, sblocks
from ...config import ConfigEntity
from ...conv2d import Conv2dWorkload
from ...strategy import anchor_attrs
from ...winograd import Matrix, algorithm, times, transform_matrices
from ..machine import sum_blocks
from ..machine.cpu import Machine
from ..machine.prefetch import stream_panels
from .conv2d import buffer_bytes
from .register_tile import macs_per_cycle, tile_pixels
from .winograd import (
    compute_in_tile,
    grid,
    keep_positions_apart,
    or_zero,
    split_in_order_of_memory,
    transformed_input,
    transformed_output,
    unroll_tile,
)

NAME = "conv2d_winograd_parts.x86"

# Reductions that are so short have no loops.
FEW_STEPS = 16
# Whether the row, and the column, is the point at infinity. Each part is a separate matmul, as the
# number of its phases differs.
PARTS = ((False, False), (False, True), (True, False), (True, True))
PRODUCTS = tuple(f"winograd_M{int(row)}{int(column)}" for row, column in PARTS)
STAGES = ("data_pad", "winograd_rows", "winograd_V", *PRODUCTS, "winograd_columns", "winograd_O")


# --- compute -----------------------------------------------------------------------------


def taps(kernel: int, stride: int) -> int:
    """Kernel positions of the first phase; with stride 2, the second phase has one less."""
    return -(-kernel // stride)


def phases(at_infinity: bool, stride: int) -> int:
    """Phases that have products at the point at infinity, or at any other."""
    return 1 if at_infinity else stride


def input_transform(m: int, r: int, stride: int) -> Matrix:
    """T (span, span): row stride * p + phase is what point p takes from the inputs of a phase."""
    _, b, _ = transform_matrices(m, r)
    span = stride * len(b) - stride + 1
    rows = [[0.0] * span for _ in range(span)]
    for p, row in enumerate(b):
        for phase in range(phases(p == len(b) - 1, stride)):
            for j, factor in enumerate(row):
                if factor:
                    rows[stride * p + phase][stride * j + phase] = factor
    return rows


def part_grid(w: Conv2dWorkload, m: int, part: tuple[bool, bool], trim: bool) -> tuple[int, int]:
    """Rows and columns of tiles of a part: without the last that the image cuts, if `trim`."""
    rows, columns = grid(w, m)
    return (
        rows - (trim and part[0] and rows > 1 and w.out_height % m > 0),
        columns - (trim and part[1] and columns > 1 and w.out_width % m > 0),
    )


def pack_weight(_: Any, weight: np.ndarray, config: ConfigEntity, ic_block: int) -> np.ndarray:
    """OIHW -> (rows, oc_tile): for each part, (points, O/oc_tile, phases, I); constants only."""
    m, oc_tile, s = config.val("m"), config.val("oc_tile"), config.val("stride")
    o, i, kernel, _ = weight.shape
    r = taps(kernel, s)
    _, _, g = transform_matrices(m, r)
    filters = np.zeros((s * r, s * r, o // oc_tile, i, oc_tile))
    filters[:kernel, :kernel] = weight.reshape(-1, oc_tile, i, kernel, kernel).transpose(
        3, 4, 0, 2, 1
    )
    # (y, x, O/oc_tile, phase of y, phase of x, I * oc_tile): G g G' is one product then
    split = filters.reshape(r, s, r, s, o // oc_tile, -1).transpose(0, 2, 4, 1, 3, 5)
    u = (np.kron(g, g) @ split.reshape(r * r, -1)).astype(weight.dtype)
    u = u.reshape(len(g), len(g), o // oc_tile, s, s, i, oc_tile)
    ends = {False: slice(0, -1), True: slice(-1, None)}
    parts = [
        u[ends[row], ends[column], :, : phases(row, s), : phases(column, s)].reshape(-1, oc_tile)
        for row, column in PARTS
    ]
    return np.concatenate(parts)


def compute(w: Conv2dWorkload, config: ConfigEntity, data: Any, weight: Any) -> Any:
    """data (N, IC/b, H, W, b) or (N, IC, H, W), weight as packed -> (N, OC/b, OH, OW, b)."""
    m, block, oc_tile = config.val("m"), config.val("oc_block"), config.val("oc_tile")
    stride = w.strides[0]
    r = taps(w.kernel[0], stride)
    a_matrix, _, _ = transform_matrices(m, r)
    alpha = m + r - 1
    rows, columns = grid(w, m)
    read_v = _reader_of_v(w, data, input_transform(m, r, stride), m, block, (rows, columns))
    oc_tiles = w.out_channels // oc_tile

    product, tiles_of, first_row = {}, {}, 0
    for part, name in zip(PARTS, PRODUCTS, strict=True):
        tiles_of[part] = part_grid(w, m, part, config.val("trim"))
        product[part] = _product(
            w, part, alpha, tiles_of[part], read_v, weight, first_row, name, config
        )
        points = [1 if at_infinity else alpha - 1 for at_infinity in part]
        first_row += points[0] * points[1] * oc_tiles * _steps(w, part)

    def element(part: tuple[bool, bool], n: Any, a: Any, b: Any, r: Any, t: Any, o: Any) -> Any:
        # What is read in place of a tile that has no product counts for outputs beyond the image.
        last_row, last_column = (extent - 1 for extent in tiles_of[part])
        r = tirx.min(r, last_row) if last_row < rows - 1 else r
        t = tirx.min(t, last_column) if last_column < columns - 1 else t
        return product[part][n, a, b, r, t, o]

    def read(n: Any, a: int, b: Any, *place: Any) -> Any:
        row = a == alpha - 1
        first = 0 if row else a
        before = element((row, False), n, first, tirx.min(b, alpha - 2), *place)
        return tirx.Select(b == alpha - 1, element((row, True), n, first, 0, *place), before)

    return transformed_output(w, read, (a_matrix, a_matrix), (rows, columns), block)


def _reader_of_v(
    w: Conv2dWorkload, data: Any, matrix: Matrix, m: int, block: int, tiles: tuple[int, int]
) -> Any:
    """A function that reads element (n, y, x, row, tile, channel) of V."""
    if len(data.shape) == 4:
        return _transform_plain(w, data, matrix, m, block, *tiles)
    step = w.strides[0] * m
    v = transformed_input(w, data, (matrix, matrix), (step, step), tiles, block)
    return lambda n, y, x, r, t, k: v[n, y, x, r, t, k // block, k % block]


def _transform_plain(
    w: Conv2dWorkload, data: Any, matrix: Matrix, m: int, lanes: int, rows: int, columns: int
) -> Any:
    """V of a plain input, with tiles of a row in the lanes, as such a function."""
    n, channels, span, step = w.batch, w.in_channels, len(matrix), w.strides[0] * m
    vectors = -(-columns // lanes)
    beyond = -(-span // step) - 1
    padded = te.compute(
        (n, channels, rows * step + span - step, step, vectors * lanes + beyond),
        lambda n, c, y, place, t: or_zero(w, y, t * step + place, lambda y, x: data[n, c, y, x]),
        name="data_pad",
    )

    def place(n: Any, c: Any, y: Any, t: Any, x: Any) -> Any:
        return padded[n, c, y, x % step, t + x // step]

    half = te.compute(
        (n, rows, channels, vectors, span, span, lanes),
        lambda n, r, c, t, a, x, i: times(
            matrix, a, lambda y: place(n, c, r * step + y, t * lanes + i, x)
        ),
        name="winograd_rows",
    )
    v = te.compute(
        (n, span, span, rows, channels, vectors, lanes),
        lambda n, a, b, r, c, t, i: times(matrix, b, lambda x: half[n, r, c, t, a, x, i]),
        name="winograd_V",
    )
    return lambda n, y, x, r, t, k: v[n, y, x, r, k, t // lanes, t % lanes]


def _attrs(w: Conv2dWorkload, config: ConfigEntity) -> dict[str, str]:
    m, stride = config.val("m"), w.strides[0]
    r = taps(w.kernel[0], stride)
    return anchor_attrs(NAME, config, algorithm((m, m), (r, r), of_phases=stride > 1))


def _steps(w: Conv2dWorkload, part: tuple[bool, bool]) -> int:
    """Steps of the reduction of a part."""
    stride = w.strides[0]
    return phases(part[0], stride) * phases(part[1], stride) * w.in_channels


def _product(
    w: Conv2dWorkload,
    part: tuple[bool, bool],
    alpha: int,
    tiles: tuple[int, int],
    read_v: Any,
    weight: Any,
    first_row: int,
    name: str,
    config: ConfigEntity,
) -> Any:
    """M of one part: (n, points, points, rows, columns, out channels)."""
    row, column = part
    stride = w.strides[0]
    oc_tile = config.val("oc_tile")
    oc_tiles = w.out_channels // oc_tile
    points = [1 if at_infinity else alpha - 1 for at_infinity in part]
    py = te.reduce_axis((0, phases(row, stride)), "py")
    px = te.reduce_axis((0, phases(column, stride)), "px")
    k = te.reduce_axis((0, w.in_channels), "k")

    def place(point: Any, at_infinity: bool, phase: Any) -> Any:
        return stride * (alpha - 1) if at_infinity else stride * point + phase

    def weight_row(a: Any, b: Any, o: Any) -> Any:
        panel = (a * points[1] + b) * oc_tiles + o // oc_tile
        step = (py * phases(column, stride) + px) * w.in_channels + k
        return first_row + panel * _steps(w, part) + step

    return te.compute(
        (w.batch, *points, *tiles, w.out_channels),
        lambda n, a, b, r, t, o: te.sum(
            read_v(n, place(a, row, py), place(b, column, px), r, t, k)
            * weight[weight_row(a, b, o), o % oc_tile],
            axis=[py, px, k],
        ),
        name=name,
        attrs=_attrs(w, config) if part == PARTS[0] else {},
    )


# --- schedule ----------------------------------------------------------------------------


class WinogradParts(AnchorRule):
    """Schedule a fused function whose anchor is a Winograd convolution in parts.

    plain input:                           blocked input:

        parallel: pad                          parallel: pad
        parallel n, row                        parallel n, ic_chunk, row: V of each tile
          V of the row                         parallel n, oc_group
          oc_group                               M of the group's channels
            M of the group's channels            O and epilogue, tile by tile
            O and epilogue, tile by tile
    """

    narrow_indices = True

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        machine = Machine.from_target(target)
        out = inline_around(sch, anchor, keep=STAGES)
        pad, half, v, *products, columns_done, tiles = (sblocks(sch)[name] for name in STAGES)
        is_plain = len(sch.get(pad).reads[0].source.shape) == 4

        for block in (v, *products):
            keep_positions_apart(sch, block)
        row, group = self._output(sch, out, config, is_plain)
        compute_in_tile(sch, tiles, out)
        compute_in_tile(sch, columns_done, tiles)
        row_of_tiles = int(sch.get(anchor).writes[0].source.shape[4])
        finite = int(sch.get(sch.get_loops(products[0])[1]).extent)  # those of an axis
        for product in products:
            sch.compute_at(product, group, preserve_unit_loops=True)
            self._product(sch, product, row_of_tiles, config, machine, (finite + 1) ** 2)

        if is_plain:
            sch.compute_at(v, row, preserve_unit_loops=True)
            y, x, r, c, t, lane = sch.get_loops(v)[-6:]
            sch.reorder(r, c, t, y, x, lane)
        else:
            n, y, x, r, t, c, lane = sch.get_loops(v)
            sch.reorder(n, c, r, t, y, x, lane)
            sch.parallel(sch.fuse(n, c, r))
        unroll_tile(sch, v)
        compute_in_tile(sch, half, v)

        n, c, y, x, last = sch.get_loops(pad)
        sch.parallel(sch.fuse(n, c, y))
        if is_plain:
            sch.reorder(last, x)
        else:
            sch.vectorize(last)
        return sch

    @staticmethod
    def _output(sch: Any, out: Any, config: ConfigEntity, is_plain: bool) -> tuple[Any, Any]:
        """Tile the output block; the parallel loop, and that under which M is computed."""
        m = config.val("m")
        n, c, h, w, lane = sch.get_loops(out)
        row, y = sch.split(h, [None, m])
        tile, x = sch.split(w, [None, m])
        oc_group, c = sch.split(c, [None, config.val("oc_group")])
        if is_plain:
            sch.reorder(n, row, oc_group, tile, c, y, x, lane)
            outer = sch.fuse(n, row)
            group = oc_group
        else:
            sch.reorder(n, oc_group, row, tile, c, y, x, lane)
            outer = group = sch.fuse(n, oc_group)
        sch.parallel(outer)
        sch.vectorize(lane)
        sch.unroll(x)
        sch.unroll(y)
        return outer, group

    @staticmethod
    def _product(
        sch: Any,
        product: Any,
        row_of_tiles: int,
        config: ConfigEntity,
        machine: Machine,
        points: int,
    ) -> None:
        """a, b, oc_tile, tiles: registers [tiles, oc_tile].

        Tiles are in memory order, and a smaller last register tile gets separate code. In a part
        without the last column of tiles, a register tile is a rectangle of tile rows and columns.
        """
        a, b, r, t, o, py, px, k = sch.get_loops(product)[-8:]
        vectors = config.val("oc_tile") // config.val("oc_block")
        extents = int(sch.get(r).extent), int(sch.get(t).extent)
        if extents[1] < row_of_tiles:
            size, tile_columns = whole_tile(extents, vectors, machine)
            row, row_inner = sch.split(r, [None, size])
            column, column_inner = sch.split(t, [None, tile_columns])
            outer, inner = [row, column], [row_inner, column_inner]
            size *= tile_columns
        else:
            size = min(config.val("tile_columns"), math.prod(extents))
            outer, inner = split_in_order_of_memory(sch, [r, t], size)
        oc, oc_inner = sch.split(o, [None, config.val("oc_tile")])
        vector, lane = sch.split(oc_inner, [None, config.val("oc_block")])
        unrolled = [vector, *inner] if vectors > size else [*inner, vector]
        channels = int(sch.get(k).extent)
        steps_in_all = channels * int(sch.get(py).extent) * int(sch.get(px).extent)
        few = steps_in_all <= FEW_STEPS
        steps = [py, px, k] if few else [py, px, *sch.split(k, [None, config.val("oc_block")])]
        sch.reorder(a, b, oc, *outer, *steps, *unrolled, lane)
        for loop in unrolled:
            sch.unroll(loop)
        sch.vectorize(lane)
        weights = sch.get(product).reads[1].source
        stride = config.val("oc_tile") * DataType(str(weights.dtype)).itemsize
        if few:
            for loop in steps:
                sch.unroll(loop)
        elif buffer_bytes(weights) > machine.l2_bytes // 2:
            rows = [(loop, int(sch.get(loop).extent)) for loop in outer]
            stream_panels(sch, rows, steps, steps_in_all * stride, stride)
        if not few:
            sum_blocks.mark(sch, steps[-2], points)
        sch.decompose_reduction(product, steps[0])


def whole_tile(extents: tuple[int, int], vectors: int, machine: Machine) -> tuple[int, int]:
    """Rows and columns of the fastest register tile that divides a grid of tiles."""
    most = tile_pixels(machine, vectors)
    sizes = [
        (rows, columns)
        for rows in range(1, extents[0] + 1)
        for columns in range(1, extents[1] + 1)
        if extents[0] % rows == 0 and extents[1] % columns == 0 and rows * columns <= most
    ]
    return max(sizes, key=lambda s: (macs_per_cycle(s[0] * s[1], s[0] * s[1], vectors, machine), s))


register_anchor_rule(NAME, WinogradParts())
