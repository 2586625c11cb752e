"""Winograd convolution over images with dynamic extents, as one kernel on x86.

Uses the arithmetic of `winograd`, F(m x m, r x r), on channels-last images. The loops are written
by hand, since no schedule primitive tiles an unknown number of tiles:

    for each group of rows of tiles, whose V and M, in one buffer, stay in a cache:
      parallel rows of tiles:             V = B' d B     vectors of channels
      parallel points, panels of U:       M = V U        register tiles of tiles x channels
      parallel rows of tiles:             A' M A         vectors of channels

Rows of tiles of all images form one sequence. The size of the register tiles is chosen to make
them nearly equal; the last one is shifted back to end with the last tile of the group.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import sym, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T
from tvm.target import Target

from ...winograd import algorithm, combine, transform_matrices
from ..machine import prefetch, sum_blocks
from ..machine.cpu import Machine
from .register_tile import largest_divisor, tile_pixels

TAPS = 3
"""Kernel size along both axes; strides are 1."""
LARGE_TILE, SMALL_TILE = 4, 2
MOST_VECTORS = 4

LARGE_TILE_L2S = 80
"""Largest U of large tiles, in L2 caches: its size is four times that of the weights."""
SMALL_TILE_L2S = 1
"""Largest U, in L2 caches, that is worth reading whatever the number of tiles."""
FEW_TILES = 20
"""Tiles of a matmul that takes as long as reading its U from memory. Zen 3, 2026-11: with 512
channels, large tiles take 1.9 times as long for 4x4 images, the same for 10x10, 0.7 for 20x20."""
LINE = 16
"""Padding elements between points of V and M: power-of-two strides would share cache sets."""


@dataclass(frozen=True)
class Plan:
    """Tiling of a convolution with static channel counts."""

    tiles: tuple[int, ...]  # rows, and columns, of results per tile; U is that of the first one
    channels: int  # channels per pixel of the image and of the result
    outputs: int
    lanes: int  # size of a register tile; `rows` is the maximum number of image tiles in it
    vectors: int
    rows: int
    l2_bytes: int

    @property
    def width(self) -> int:
        """Output channels in a panel of weights."""
        return self.lanes * self.vectors

    @property
    def panels(self) -> int:
        return self.outputs // self.width

    @property
    def algorithm(self) -> str:
        """Name of the algorithm in the report."""
        return " or ".join(algorithm((m, m), (TAPS, TAPS)) for m in self.tiles)

    def u_elements(self, m: int) -> int:
        """Number of elements of U that tiles of m x m results use."""
        return (m + TAPS - 1) ** 2 * self.channels * self.outputs

    def group_elements(self, m: int) -> int:
        """Approximate number of elements of V and M of a group."""
        # Each group reads U again; with groups of this size that takes no longer than the matmuls.
        return max(self.l2_bytes // 8, self.u_elements(m))


def plan(channels: int, outputs: int, target: Target) -> Plan | None:
    """Plan a float32 convolution; None if the channel counts are not multiples of the lanes."""
    machine = Machine.from_target(target)
    lanes = machine.lanes("float32")
    if channels % lanes or outputs % lanes:
        return None
    u_bytes = (LARGE_TILE + TAPS - 1) ** 2 * 4 * channels * outputs
    tiles: tuple[int, ...] = LARGE_TILE, SMALL_TILE
    if u_bytes <= SMALL_TILE_L2S * machine.l2_bytes:
        tiles = (LARGE_TILE,)
    elif u_bytes > LARGE_TILE_L2S * machine.l2_bytes:
        tiles = (SMALL_TILE,)
    most = MOST_VECTORS if machine.vector_registers > 16 else MOST_VECTORS // 2
    vectors = largest_divisor(outputs // lanes, most)
    rows = tile_pixels(machine, vectors)
    return Plan(tiles, channels, outputs, lanes, vectors, rows, machine.l2_bytes)


def pack_weight(weight: np.ndarray, plan: Plan) -> np.ndarray:
    """OIHW -> (points^2, panels, I, width), transformed in float64."""
    i, m = weight.shape[1], plan.tiles[0]
    g = np.array(transform_matrices(m, TAPS)[2])
    u = np.einsum("ay,bx,oiyx->abio", g, g, weight.astype("float64"), optimize=True)
    u = u.reshape((m + TAPS - 1) ** 2, i, plan.panels, plan.width).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(u, weight.dtype)


def compute(image: te.Tensor, weight: te.Tensor, pads: tuple[int, ...], plan: Plan) -> te.Tensor:
    """image (n, h, w, I), packed weight -> (n, h', w', O); `pads`: above, left, below, right."""
    count, height, width, _ = image.shape
    top, left, below, right = pads
    lost, simplify = TAPS - 1, sym.Analyzer().simplify  # same form as in later kernels
    places = simplify(height + top + below - lost), simplify(width + left + right - lost)
    shape = (count, *places, plan.outputs)
    return te.extern(
        [shape],
        [image, weight],
        lambda ins, outs: _kernel(plan, pads, ins, outs),
        name="winograd",
        dtype=[image.dtype],
        attrs={"schedule_algorithm": plan.algorithm},
    )


def _kernel(plan: Plan, pads: tuple[int, ...], ins: Any, outs: Any) -> Any:
    """TIR of the kernel, which chooses the tiles by their number."""
    with IRBuilder() as builder:
        with T.serial(0, 1):  # the builder takes one statement
            every = [_Loops(plan, m, pads, ins, outs) for m in plan.tiles]
            if len(every) == 1:
                every[0].emit()
            else:
                large, small = every
                with T.If(large.cost < small.cost):
                    with T.Then():
                        large.emit()
                    with T.Else():
                        small.emit()
        return builder.get()


class _Loops:
    """Emit the loops over tiles of m x m results."""

    def __init__(self, plan: Plan, m: int, pads: tuple[int, ...], ins: Any, outs: Any) -> None:
        self.plan, self.m, self.pads = plan, m, pads
        self.ins, self.outs = ins, outs
        self.points = m + TAPS - 1
        self.out_matrix, self.in_matrix, g = transform_matrices(m, TAPS)
        # The points of small tiles are among those of large ones, up to a factor.
        of_u = transform_matrices(plan.tiles[0], TAPS)[2]
        last = len(self.in_matrix) - 1
        factors = [mine[0] / of[0] for mine, of in zip(g[:last], of_u)] + [1.0]
        self.in_matrix = [[f * x for x in row] for f, row in zip(factors, self.in_matrix)]
        self.results = outs[0].shape[1:3]
        rows, columns = (tirx.floordiv(each + (m - 1), m) for each in self.results)
        self.tiles = outs[0].shape[0] * rows, rows, columns

    @property
    def cost(self) -> Any:
        """Estimate of the matmuls' time, which is at least that of reading U."""
        every, _, columns = self.tiles
        return tirx.max(every * columns, FEW_TILES) * self.points**2

    def _point_of_u(self, point: Any) -> Any:
        """Index of a point in U, whose last row and column are the point at infinity."""
        of_u = self.plan.tiles[0] + TAPS - 1
        down, across = tirx.floordiv(point, self.points), tirx.floormod(point, self.points)
        down, across = (
            each + tirx.floordiv(each, self.points - 1) * (of_u - self.points)
            for each in (down, across)
        )
        return down * of_u + across

    def emit(self) -> None:
        plan = self.plan
        image, weight = self.ins
        self.image, self.weight = T.buffer_proxy(image), T.buffer_proxy(weight)
        (self.out,) = map(T.buffer_proxy, self.outs)
        self.inputs = image.shape[1], image.shape[2]
        every, tile_rows, columns = self.tiles
        of_row = tirx.max(columns, 1) * (self.points**2 * (plan.channels + plan.outputs))
        size = tirx.max(tirx.min(tirx.floordiv(plan.group_elements(self.m), of_row), every), 1)
        widths = plan.channels + plan.outputs
        elements = self.points**2 * (size * columns * widths + 2 * LINE)
        memory = T.alloc_buffer((elements,), "float32")
        self.tile_rows, self.columns = self._name(tile_rows), self._name(columns)
        every, size = self._name(every), self._name(size)
        self.v_stride = self._name(size * self.columns * plan.channels + LINE)
        self.m_stride = self._name(size * self.columns * plan.outputs + LINE)
        self.m_start = self._name(self.points**2 * self.v_stride)
        # A view: compacting a buffer would simplify its size with each index.
        view = T.decl_buffer((self.points**2 * self.m_stride + self.m_start,), data=memory.data)
        self.memory = T.buffer_proxy(view)
        with T.serial(0, tirx.floordiv(every + (size - 1), size)) as group:
            start = group * size
            rows = self._name(tirx.min(size, every - start))
            with T.parallel(0, rows) as row:
                self._over_tiles(start, row, self._transform_input)
            with T.parallel(0, self.points**2 * plan.panels) as task:
                self._products(task, rows * self.columns)
            with T.parallel(0, rows) as row:
                self._over_tiles(start, row, self._transform_output)

    @staticmethod
    def _allocate(*shape: Any, dtype: str = "float32") -> Any:
        """Allocate a buffer; static sizes below 1 KB are placed on the stack or in registers."""
        return T.buffer_proxy(T.alloc_buffer(shape, dtype))

    def _name(self, value: Any) -> Any:
        """Bind an integer through memory: TVM would inline it, and then simplify each index."""
        slot = self._allocate(1, dtype=value.ty.dtype)
        slot[0] = value
        return T.Bind(slot[0])

    def _registers(self, *extents: int) -> dict[tuple[int, ...], Any]:
        """Allocate one buffer per vector: one buffer for all could exceed 1 KB."""
        indices = itertools.product(*map(range, extents))
        return {index: self._allocate(self.plan.lanes) for index in indices}

    def _vector(self, start: Any) -> Any:
        return T.ramp(start, 1, self.plan.lanes)

    def _over_tiles(self, start: Any, row: Any, transform: Callable[..., None]) -> None:
        """Apply a transform to each tile of a row of tiles."""
        every = self._name(start + row)
        n = self._name(tirx.floordiv(every, self.tile_rows))
        y = self._name((every - n * self.tile_rows) * self.m)
        # Half of the transform of a tile, row by row: registers would not hold it.
        self.half = self._allocate(self.points**2 * self.plan.lanes)
        with T.serial(0, self.columns) as column:
            transform(row * self.columns + column, n, y, column * self.m)

    def _half(self, row: Any, column: Any) -> Any:
        """Indices of a vector of `half`."""
        return self._vector((row * self.points + column) * self.plan.lanes)

    def _load(self, vectors: Iterable[Any]) -> Callable[[int], Any]:
        """Load vectors, each once."""
        loaded = [T.Bind(each) for each in vectors]
        return lambda index: loaded[index]

    def _transform_input(self, tile: Any, n: Any, y: Any, x: Any) -> None:
        plan, matrix, points = self.plan, self.in_matrix, range(self.points)
        height, width = self.inputs
        y, x = y - self.pads[0], x - self.pads[1]
        inside = tirx.all(y >= 0, x >= 0, y + self.points <= height, x + self.points <= width)

        def pixel(y: Any, x: Any, channel: Any) -> Any:
            return self.image[n, y, x, self._vector(channel)]

        def pixel_or_zero(y: Any, x: Any, channel: Any) -> Any:
            is_there = tirx.all(y >= 0, y < height, x >= 0, x < width)
            # The load is unconditional, so clamp its address to the nearest pixel in bounds.
            down = tirx.max(tirx.min(y, height - 1), 0)
            across = tirx.max(tirx.min(x, width - 1), 0)
            return tirx.Select(
                T.broadcast(is_there, plan.lanes),
                pixel(down, across, channel),
                tirx.const(0, f"float32x{plan.lanes}"),
            )

        def columns(read: Callable[[Any, Any, Any], Any], channel: Any) -> None:
            with T.serial(0, self.points) as b:
                data = self._load(read(y + a, x + b, channel) for a in points)
                for a in points:
                    self.half[self._half(a, b)] = combine(matrix[a], data)

        with T.serial(0, plan.channels // plan.lanes) as chunk:
            channel = chunk * plan.lanes
            with T.If(inside):
                with T.Then():
                    columns(pixel, channel)
                with T.Else():
                    columns(pixel_or_zero, channel)
            with T.serial(0, self.points) as a:
                data = self._load(self.half[self._half(a, b)] for b in points)
                for b in points:
                    start = (a * self.points + b) * self.v_stride + tile * plan.channels
                    self.memory[self._vector(start + channel)] = combine(matrix[b], data)

    def _products(self, task: Any, tiles: Any) -> None:
        """Multiply all tiles by one weight panel of one point."""
        most = self.plan.rows
        tiles = self._name(tiles)
        needed = tirx.max(tirx.floordiv(tiles + (most - 1), most), 1)
        each = self._name(tirx.floordiv(tiles + (needed - 1), needed))
        for rows in range(most, 0, -1):
            steps = tirx.floordiv(tiles + (rows - 1), rows)
            uses = T.serial(0, steps, annotations={prefetch.ROWS: prefetch.WHOLE})
            with T.If(each == rows), T.Then(), uses as step:
                self._register_tile(task, tirx.min(step * rows, tiles - rows), rows)

    def _register_tile(self, task: Any, first: Any, rows: int) -> None:
        plan, lanes = self.plan, self.plan.lanes
        point, panel = tirx.floordiv(task, plan.panels), tirx.floormod(task, plan.panels)
        u = self._point_of_u(point)
        values = self._name(point * self.v_stride + first * plan.channels)
        results = point * self.m_stride + first * plan.outputs + panel * plan.width
        results = self._name(self.m_start + results)
        parts = list(itertools.product(range(rows), range(plan.vectors)))
        whole = self._vector(0)
        sums = self._registers(rows, plan.vectors)
        for r, v in parts:
            sums[r, v][whole] = tirx.const(0.0, f"float32x{lanes}")
        step_bytes = 4 * plan.width
        marks = sum_blocks.marks(self.points**2)
        marks |= {prefetch.STRIDE: step_bytes, prefetch.PANEL: step_bytes * plan.channels}
        with T.serial(0, plan.channels, annotations=marks) as i:
            for r, v in parts:
                value = self.memory[values + (r * plan.channels + i)]
                weight = self.weight[u, panel, i, self._vector(v * lanes)]
                sums[r, v][whole] = sums[r, v][whole] + T.broadcast(value, lanes) * weight
        for r, v in parts:
            place = self._vector(results + (r * plan.outputs + v * lanes))
            self.memory[place] = sums[r, v][whole]

    def _transform_output(self, tile: Any, n: Any, y: Any, x: Any) -> None:
        plan, matrix = self.plan, self.out_matrix
        points, results = range(self.points), range(self.m)
        height, width = self.results
        with T.serial(0, plan.outputs // plan.lanes) as chunk:
            channel = chunk * plan.lanes
            with T.serial(0, self.points) as b:
                start = self.m_start + b * self.m_stride + tile * plan.outputs + channel
                places = (start + a * self.points * self.m_stride for a in points)
                data = self._load(self.memory[self._vector(each)] for each in places)
                for a in results:
                    self.half[self._half(a, b)] = combine(matrix[a], data)
            with T.serial(0, tirx.min(self.m, height - y)) as a:
                data = self._load(self.half[self._half(a, b)] for b in points)
                for b in results:
                    with T.If(x + b < width), T.Then():
                        place = n, y + a, x + b, self._vector(channel)
                        self.out[place] = combine(matrix[b], data)
