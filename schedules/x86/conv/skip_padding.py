"""Skip kernel rows of a convolution that only meet padding rows.

    kh                                 kh
      kw, ic: sums += ...       -->      if the image row that kernel row kh meets is inside
                                           kw, ic: sums += ...

For 7x7 images, this is a tenth of a 3x3 kernel, and most of a kernel with large dilation.
"""

from __future__ import annotations

import math
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from ...anchor import blocks
from ...conv2d import Conv2dWorkload
from ...generic.stages import substitute

ROWS = "image_rows"
"""Annotation of an anchor: stride, dilation, padding rows at the top, image rows, and the index of
its kernel row axis."""
EMPTY = "empty_products"
"""Annotation of an anchor: number of its products with zeros that pad steps; all products."""
_TAPS = "taps_of_rows"


def rows_of(w: Conv2dWorkload, tap_axis: int = 6) -> dict[str, list[int]]:
    """Return the annotation if kernel rows may meet only padding, else an empty dict.

    Weights that are not constant may be infinite or NaN; their products with zero padding are NaN.
    """
    if w.kernel[0] == 1 or not (w.padding[0] or w.padding[2]):
        return {}
    if not (w.is_float and w.constant_weight):
        return {}
    return {ROWS: [w.strides[0], w.dilation[0], w.padding[0], w.height, tap_axis]}


def share_inside(w: Conv2dWorkload) -> float:
    """Share of kernel rows, over all output rows, that meet rows of the image."""
    found = rows_of(w)
    return _share(w.out_height, w.kernel[0], found[ROWS]) if found else 1.0


def skipped_flops(func: tirx.PrimFunc) -> int:
    """Count the anchor's operations that the schedule will skip, or that multiply padding zeros."""
    for block in blocks(func):
        rows = [int(each) for each in block.annotations.get(ROWS, ())]
        if not rows and EMPTY not in block.annotations:
            continue
        extents = [int(axis.dom.extent) for axis in block.iter_vars]
        if rows:
            share = _share(extents[2], extents[rows[-1]], rows)
            return round(2 * math.prod(extents) * (1 - share))
        count, of = (int(each) for each in block.annotations[EMPTY])
        return round(2 * math.prod(extents) * count / of)
    return 0


def _share(out_rows: int, taps: int, rows: list[int]) -> float:
    stride, dilation, top, height, _ = rows
    met = 0
    for tap in range(taps):
        first = tap * dilation - top  # image row that the first output row meets
        start = min(max(-(first // stride), 0), out_rows)
        stop = min(max(-((first - height) // stride), 0), out_rows)
        met += max(stop - start, 0)
    return met / (out_rows * taps)


def mark_taps(sch: Any, anchor: Any, kh: Any) -> list[int]:
    """Mark the loop over kernel rows; return the anchor's annotation, or []."""
    rows = sch.get(anchor).annotations.get(ROWS, ())
    if rows:
        sch.annotate(kh, _TAPS, 1)
    return [int(each) for each in rows]


def skip_padding(sch: s_tir.Schedule, rows: list[int]) -> s_tir.Schedule:
    """Add the condition of annotation `rows` to the marked loop; the schedule is final.

    The anchor of `sch` has the axes n, channel block, row, ...
    """
    if not rows:
        return sch
    stride, dilation, top, height, tap_axis = rows

    def with_condition(loop: tirx.For) -> tirx.Stmt:
        if _TAPS not in loop.annotations:
            return loop
        realizes: list[Any] = []
        loops: list[Any] = []
        found = [(s_tir.SBlockRealize, realizes.append), (tirx.For, loops.append)]
        tvm_ffi.structural_walk(loop.body, found)
        row, tap = (realizes[0].iter_values[axis] for axis in (2, tap_axis))
        inside = [(each.loop_var, each.min) for each in loops]  # the row loop has one iteration
        met = substitute(row, inside) * stride + tap * dilation
        body = tirx.IfThenElse(tirx.all(met >= top, met < top + height), loop.body, None)
        marks = {key: value for key, value in loop.annotations.items() if key != _TAPS}
        return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, annotations=marks)

    func = sch.mod["main"]
    body = tvm_ffi.structural_map(func.body, (tirx.For, with_condition))
    return s_tir.Schedule(tvm.IRModule({"main": func.with_body(body)}))
