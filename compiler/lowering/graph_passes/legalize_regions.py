"""Legalization of ROI alignment on CPUs: all channels of a sample at once.

TVM's compute recomputes the position of each sample for each channel, and reads four scattered
elements. Here the image is channels-last. A region's cells are accumulated in a separate buffer and
written to the result once all samples are added.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, te, tirx, topi
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

LANES = 16
"""Channels that are summed at once, where their number is a multiple of this."""


def _align(
    data: te.Tensor,
    regions: te.Tensor,
    pooled_size: list[int],
    spatial_scale: float,
    sample_ratio: int,
    aligned: bool,
) -> te.Tensor:
    """Average the samples of each cell, for an image (n, height, width, channels)."""
    _, *size, channels = data.shape
    dtype = str(data.dtype)
    lanes = LANES if isinstance(channels, tirx.IntImm) and int(channels) % LANES == 0 else 1
    tiles, cells = tirx.floordiv(channels, lanes), pooled_size[0] * pooled_size[1]

    def build(ins: Any, outs: Any) -> Any:
        with IRBuilder() as builder:
            image, region = (T.buffer_proxy(each) for each in ins)
            result = T.buffer_proxy(outs[0])
            with T.parallel(0, regions.shape[0]) as row:
                # Padding avoids that cells map to the same few cache sets.
                shape = (cells, channels + LANES)
                sums = T.buffer_proxy(T.alloc_buffer(shape, dtype, scope="global"))
                axes = [
                    _Axis(region, row, axis, size[axis], pooled_size[axis], dtype)
                    for axis in (0, 1)
                ]
                for axis in axes:
                    axis.prepare(spatial_scale, sample_ratio, aligned)
                with T.serial(0, pooled_size[0]) as i, T.serial(0, pooled_size[1]) as j:
                    cell = i * pooled_size[1] + j
                    with T.serial(0, tiles) as tile, T.vectorized(0, lanes) as lane:
                        sums[cell, tile * lanes + lane] = tirx.const(0, dtype)
                    with T.serial(0, axes[0].samples) as row_sample:
                        axes[0].place(i, row_sample)
                        with T.serial(0, axes[1].samples) as column_sample:
                            axes[1].place(j, column_sample)
                            with T.If(tirx.And(axes[0].inside, axes[1].inside)), T.Then():
                                batch = tirx.Cast("int32", region[row, 0])
                                with T.serial(0, tiles) as tile, T.vectorized(0, lanes) as lane:
                                    channel = tile * lanes + lane
                                    total = sums[cell, channel]
                                    for y, down in axes[0].taps:
                                        for x, right in axes[1].taps:
                                            element = image[batch, y, x, channel]
                                            total = total + down * right * element
                                    sums[cell, channel] = total
                count = tirx.max(axes[0].samples * axes[1].samples, 1)
                share = tirx.const(1, dtype) / tirx.Cast(dtype, count)
                with (
                    T.serial(0, tiles) as tile,
                    T.serial(0, pooled_size[0]) as i,
                    T.serial(0, pooled_size[1]) as j,
                    T.vectorized(0, lanes) as lane,
                ):
                    channel = tile * lanes + lane
                    value = sums[i * pooled_size[1] + j, channel]
                    result[row, channel, i, j] = value * share
            return builder.get()

    return te.extern(
        [(regions.shape[0], channels, *pooled_size)],
        [data, regions],
        build,
        dtype=[dtype],
        name="roi_align",
    )


class _Axis:
    """Positions of a region's samples along one axis, as mutable variables of the loops."""

    def __init__(self, region: Any, row: Any, axis: int, size: Any, cells: int, dtype: str):
        self.ends = region[row, 2 - axis], region[row, 4 - axis]
        self.size, self.cells, self.dtype = size, cells, dtype
        self.numbers = T.buffer_proxy(T.alloc_buffer((4,), dtype, scope="local"))
        self.places = T.buffer_proxy(T.alloc_buffer((3,), "int32", scope="local"))

    def prepare(self, scale: float, ratio: int, aligned: bool) -> None:
        """Compute start and extent of a cell, and its number of samples."""
        start, end = (each * tirx.const(scale, self.dtype) for each in self.ends)
        span = end - start if aligned else tirx.max(end - start, tirx.const(1, self.dtype))
        self.numbers[0] = start
        self.numbers[1] = span / tirx.const(self.cells, self.dtype)
        count = tirx.Cast("int32", tirx.ceil(self.numbers[1]))
        self.places[2] = tirx.const(ratio, "int32") if ratio > 0 else tirx.max(count, 0)

    @property
    def samples(self) -> Any:
        return self.places[2]

    def place(self, cell: Any, sample: Any) -> None:
        """Compute the position of a sample in a cell."""
        half, zero = tirx.const(0.5, self.dtype), tirx.const(0, self.dtype)
        start, extent = self.numbers[0], self.numbers[1]
        at = (tirx.Cast(self.dtype, sample) + half) * extent
        at = start + tirx.Cast(self.dtype, cell) * extent + at / self._number(self.samples)
        self.numbers[2] = at
        last = self._number(self.size) - tirx.const(1, self.dtype)
        limited = tirx.max(tirx.min(self.numbers[2], last), zero)
        self.places[0] = tirx.Cast("int32", limited)
        self.places[1] = tirx.min(self.places[0] + 1, tirx.Cast("int32", self.size) - 1)
        self.numbers[3] = limited - self._number(self.places[0])

    @property
    def inside(self) -> Any:
        at, one = self.numbers[2], tirx.const(1, self.dtype)
        return tirx.And(at >= -one, at <= self._number(self.size))

    @property
    def taps(self) -> list[tuple[Any, Any]]:
        """The two neighbors and their weights."""
        part = self.numbers[3]
        return [(self.places[0], tirx.const(1, self.dtype) - part), (self.places[1], part)]

    def _number(self, value: Any) -> Any:
        return tirx.Cast(self.dtype, value)


def _roi_align(builder: Any, call: relax.Call) -> relax.Expr:
    data, regions = call.args
    attrs = call.attrs
    target = tvm.target.Target.current()
    is_plain = str(attrs["layout"]) == "NCHW" and str(attrs["mode"]) == "avg"
    is_float = str(data.ty.dtype) == str(regions.ty.dtype) in ("float32", "float64")
    if target is None or "cpu" not in target.keys or not is_plain or not is_float:
        return call.op.get_attr("FLegalize")(builder, call)
    last = builder.emit(builder.call_te(topi.transpose, data, [0, 2, 3, 1]))
    return builder.call_te(
        _align,
        last,
        regions,
        pooled_size=[int(each) for each in attrs["pooled_size"]],
        spatial_scale=float(attrs["spatial_scale"]),
        sample_ratio=int(attrs["sample_ratio"]),
        aligned=call.op.name.startswith("relax.") and bool(attrs["aligned"]),
        primfunc_name_hint="vision_roi_align",
    )


LEGALIZE = {"relax.vision.roi_align": _roi_align, "relay.vision.roi_align": _roi_align}
"""Replacements of TVM's legalizations by operator."""
