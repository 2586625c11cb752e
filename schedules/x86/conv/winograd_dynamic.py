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

LARGE_TILE_L2S = 1
"""Largest U of large tiles, in L2 caches: small images read all of U for a few tiles, and small
tiles more than halve the elements of U."""
LINE = 16
"""Padding elements between points of V and M: power-of-two strides would share cache sets."""


@dataclass(frozen=True)
class Plan:
    """Tiling of a convolution with static channel counts."""

    m: int  # rows, and columns, of results per tile
    channels: int  # channels per pixel of the image and of the result
    outputs: int
    lanes: int  # size of a register tile; `rows` is the maximum number of image tiles in it
    vectors: int
    rows: int
    group_elements: int  # approximate number of elements of V and M of a group

    @property
    def points(self) -> int:
        """Input extent of a tile along one axis."""
        return self.m + TAPS - 1

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
        return algorithm((self.m, self.m), (TAPS, TAPS))


def plan(channels: int, outputs: int, target: Target) -> Plan | None:
    """Plan a float32 convolution; None if the channel counts are not multiples of the lanes."""
    machine = Machine.from_target(target)
    lanes = machine.lanes("float32")
    if channels % lanes or outputs % lanes:
        return None
    weight_bytes = 4 * channels * outputs
    large = (LARGE_TILE + TAPS - 1) ** 2 * weight_bytes <= LARGE_TILE_L2S * machine.l2_bytes
    m = LARGE_TILE if large else SMALL_TILE
    most = MOST_VECTORS if machine.vector_registers > 16 else MOST_VECTORS // 2
    vectors = largest_divisor(outputs // lanes, most)
    u_bytes = (m + TAPS - 1) ** 2 * weight_bytes
    # Each group reads U again; with groups of this size that takes no longer than the matmuls.
    group_bytes = max(machine.l2_bytes // 2, u_bytes)
    rows = tile_pixels(machine, vectors)
    return Plan(m, channels, outputs, lanes, vectors, rows, group_bytes // 4)


def pack_weight(weight: np.ndarray, plan: Plan) -> np.ndarray:
    """OIHW -> (points^2, panels, I, width), transformed in float64."""
    i = weight.shape[1]
    g = np.array(transform_matrices(plan.m, TAPS)[2])
    u = np.einsum("ay,bx,oiyx->abio", g, g, weight.astype("float64"), optimize=True)
    u = u.reshape(plan.points**2, i, plan.panels, plan.width).transpose(0, 2, 1, 3)
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
        lambda ins, outs: _Loops(plan, pads, ins, outs).build(),
        name="winograd",
        dtype=[image.dtype],
        attrs={"schedule_algorithm": plan.algorithm},
    )


class _Loops:
    """Emit the TIR loops of the kernel."""

    def __init__(self, plan: Plan, pads: tuple[int, ...], ins: Any, outs: Any) -> None:
        self.plan, self.pads = plan, pads
        self.ins, self.outs = ins, outs
        self.out_matrix, self.in_matrix, _ = transform_matrices(plan.m, TAPS)

    def build(self) -> Any:
        with IRBuilder() as builder:
            with T.serial(0, 1):  # the builder takes one statement
                self._groups()
            return builder.get()

    def _groups(self) -> None:
        plan = self.plan
        image, weight = self.ins
        self.image, self.weight = T.buffer_proxy(image), T.buffer_proxy(weight)
        (self.out,) = map(T.buffer_proxy, self.outs)
        self.inputs = image.shape[1], image.shape[2]
        count, *self.results = self.outs[0].shape[:3]
        tile_rows, columns = (
            tirx.floordiv(extent + (plan.m - 1), plan.m) for extent in self.results
        )
        every = count * tile_rows
        of_row = tirx.max(columns, 1) * (plan.points**2 * (plan.channels + plan.outputs))
        size = tirx.max(tirx.min(tirx.floordiv(plan.group_elements, of_row), every), 1)
        widths = plan.channels + plan.outputs
        elements = plan.points**2 * (size * columns * widths + 2 * LINE)
        memory = T.alloc_buffer((elements,), "float32")
        self.tile_rows, self.columns = self._name(tile_rows), self._name(columns)
        every, size = self._name(every), self._name(size)
        self.v_stride = self._name(size * self.columns * plan.channels + LINE)
        self.m_stride = self._name(size * self.columns * plan.outputs + LINE)
        self.m_start = self._name(plan.points**2 * self.v_stride)
        # A view: compacting a buffer would simplify its size with each index.
        view = T.decl_buffer((plan.points**2 * self.m_stride + self.m_start,), data=memory.data)
        self.memory = T.buffer_proxy(view)
        with T.serial(0, tirx.floordiv(every + (size - 1), size)) as group:
            start = group * size
            rows = self._name(tirx.min(size, every - start))
            with T.parallel(0, rows) as row:
                self._over_tiles(start, row, self._transform_input)
            with T.parallel(0, plan.points**2 * plan.panels) as task:
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
        y = self._name((every - n * self.tile_rows) * self.plan.m)
        # Half of the transform of a tile, row by row: registers would not hold it.
        self.half = self._allocate(self.plan.points**2 * self.plan.lanes)
        with T.serial(0, self.columns) as column:
            transform(row * self.columns + column, n, y, column * self.plan.m)

    def _half(self, row: Any, column: Any) -> Any:
        """Indices of a vector of `half`."""
        return self._vector((row * self.plan.points + column) * self.plan.lanes)

    def _load(self, vectors: Iterable[Any]) -> Callable[[int], Any]:
        """Load vectors, each once."""
        loaded = [T.Bind(each) for each in vectors]
        return lambda index: loaded[index]

    def _transform_input(self, tile: Any, n: Any, y: Any, x: Any) -> None:
        plan, matrix, points = self.plan, self.in_matrix, range(self.plan.points)
        height, width = self.inputs
        y, x = y - self.pads[0], x - self.pads[1]
        inside = tirx.all(y >= 0, x >= 0, y + plan.points <= height, x + plan.points <= width)

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
            with T.serial(0, plan.points) as b:
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
            with T.serial(0, plan.points) as a:
                data = self._load(self.half[self._half(a, b)] for b in points)
                for b in points:
                    start = (a * plan.points + b) * self.v_stride + tile * plan.channels
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
        values = self._name(point * self.v_stride + first * plan.channels)
        results = point * self.m_stride + first * plan.outputs + panel * plan.width
        results = self._name(self.m_start + results)
        parts, whole = list(itertools.product(range(rows), range(plan.vectors))), self._vector(0)
        sums = self._registers(rows, plan.vectors)
        for r, v in parts:
            sums[r, v][whole] = tirx.const(0.0, f"float32x{lanes}")
        step_bytes = 4 * plan.width
        marks = sum_blocks.marks(plan.points**2)
        marks |= {prefetch.STRIDE: step_bytes, prefetch.PANEL: step_bytes * plan.channels}
        with T.serial(0, plan.channels, annotations=marks) as i:
            for r, v in parts:
                value = self.memory[values + (r * plan.channels + i)]
                weight = self.weight[point, panel, i, self._vector(v * lanes)]
                sums[r, v][whole] = sums[r, v][whole] + T.broadcast(value, lanes) * weight
        for r, v in parts:
            place = self._vector(results + (r * plan.outputs + v * lanes))
            self.memory[place] = sums[r, v][whole]

    def _transform_output(self, tile: Any, n: Any, y: Any, x: Any) -> None:
        plan, matrix = self.plan, self.out_matrix
        points, results = range(plan.points), range(plan.m)
        height, width = self.results
        with T.serial(0, plan.outputs // plan.lanes) as chunk:
            channel = chunk * plan.lanes
            with T.serial(0, plan.points) as b:
                start = self.m_start + b * self.m_stride + tile * plan.outputs + channel
                places = (start + a * plan.points * self.m_stride for a in points)
                data = self._load(self.memory[self._vector(each)] for each in places)
                for a in results:
                    self.half[self._half(a, b)] = combine(matrix[a], data)
            with T.serial(0, tirx.min(plan.m, height - y)) as a:
                data = self._load(self.half[self._half(a, b)] for b in points)
                for b in results:
                    with T.If(x + b < width), T.Then():
                        place = n, y + a, x + b, self._vector(channel)
                        self.out[place] = combine(matrix[b], data)
