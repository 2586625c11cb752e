"""Convolutions, pooling, resizing and regions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..draft import Draft, Operand, Shape
from ..evaluate import EvaluationError


@dataclass
class Window:
    """A sliding window: the spatial shape it slides over, and its attributes."""

    space: Shape
    kernel: Shape
    attributes: dict[str, Any]


def draw_window(d: Draft, space: Shape | None = None, dilate: bool = True) -> Window:
    """A window of one to three dimensions, padded explicitly, automatically or not at all."""
    if space is None:
        rank = d.one_of([1, 2, 2, 2, 3])
        space = tuple(d.integer(1, 9 if rank < 3 else 5) for _ in range(rank))
    rank = len(space)
    kernel = tuple(min(d.one_of([1, 2, 3, 3, 5]), n + 2) for n in space)
    attributes: dict[str, Any] = {}
    if d.chance(0.5):
        attributes["strides"] = [d.integer(1, 3) for _ in space]
    if dilate and d.chance(0.3):
        attributes["dilations"] = [d.integer(1, 2) for _ in space]
    mode = d.one_of(["explicit", "explicit", "none", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if mode == "explicit":
        attributes["pads"] = [d.integer(0, max(kernel[i % rank] // 2, 0)) for i in range(2 * rank)]
    elif mode != "none":
        attributes["auto_pad"] = mode
    dilations = attributes.get("dilations", [1] * rank)
    pads = attributes.get("pads", [0] * 2 * rank)
    for i in range(rank):
        room = space[i] + pads[i] + pads[rank + i]
        if not mode.startswith("SAME") and (kernel[i] - 1) * dilations[i] + 1 > room:
            raise EvaluationError("the window is larger than what it slides over")
    return Window(space, kernel, attributes)


def _image(d: Draft, op: str) -> str:
    """A tensor of samples, channels and one to three spatial dimensions."""

    def new() -> Shape:
        rank = d.one_of([1, 2, 2, 2, 3])
        return (d.integer(1, 2), _channels(d), *(d.integer(1, 9 - 2 * rank) for _ in range(rank)))

    return d.tensor(d.allowed(op), lambda s: 3 <= len(s) <= 5 and 0 not in s, new)


def _channels(d: Draft) -> int:
    return int(d.one_of([1, 2, 3, 4, 8, 8, 16, 32]))


def conv(d: Draft, op: str) -> None:
    x = _image(d, op)
    _, channels, *space = d.shape_of(x)
    window = draw_window(d, tuple(space))
    groups = d.one_of([1, 1, 1, *[g for g in (2, 4, channels) if channels % g == 0]])
    out = groups * int(d.one_of([1, 2, 4, 8]))
    weights = d.new(d.dtype_of(x), (out, channels // groups, *window.kernel), constant=0.8)
    bias = [d.like(x, (out,))] if d.chance(0.5) else []
    kernel = list(window.kernel) if d.chance(0.7) else None
    d.add(op, [x, weights, *bias], kernel_shape=kernel, group=groups, **window.attributes)


def conv_transpose(d: Draft, op: str) -> None:
    x = _image(d, op)
    _, channels, *space = d.shape_of(x)
    rank = len(space)
    kernel = tuple(d.one_of([1, 2, 3]) for _ in space)
    # Only the reference evaluator has the other dtypes, and its groups are wrong.
    several = [g for g in (2, channels) if channels % g == 0 and d.dtype_of(x) == "float32"]
    groups = d.one_of([1, 1, *several])
    out = int(d.one_of([1, 2, 4]))
    weights = d.new(d.dtype_of(x), (channels, out, *kernel), constant=0.8)
    bias = [d.like(x, (out * groups,))] if d.chance(0.4) else []
    strides = [d.integer(1, 3) for _ in space]
    attributes: dict[str, Any] = {"strides": strides}
    if d.chance(0.3):
        attributes["dilations"] = [d.integer(1, 2) for _ in space]
    mode = d.one_of(["pads", "pads", "none", "SAME_UPPER", "SAME_LOWER", "output_shape"])
    if mode == "pads":
        attributes["pads"] = [d.integer(0, (kernel[i % rank] - 1) // 2) for i in range(2 * rank)]
    elif mode.startswith("SAME"):
        attributes["auto_pad"] = mode
    elif mode == "output_shape":
        attributes["output_shape"] = [n * s for n, s in zip(space, strides)]
    if d.chance(0.3):
        attributes["output_padding"] = [d.integer(0, s - 1) for s in strides]
    d.add(op, [x, weights, *bias], group=groups, **attributes)


def conv_integer(d: Draft, op: str) -> None:
    window = draw_window(d, tuple(d.integer(2, 7) for _ in range(2)))
    channels, out = d.integer(1, 4), d.integer(1, 4)
    x = d.new(d.one_of(["uint8", "int8"]), (1, channels, *window.space))
    weights = d.new(d.one_of(["uint8", "int8"]), (out, channels, *window.kernel))
    zeros: list[str] = []
    if d.chance(0.6):
        zeros = [d.fixed(d.integer(0, 5), d.dtype_of(x))]
        if d.chance(0.6):
            zeros.append(d.fixed(d.integer(0, 5), d.dtype_of(weights)))
    d.add(op, [x, weights, *zeros], **window.attributes)


def pooling(d: Draft, op: str) -> None:
    x = _image(d, op)
    space = d.shape_of(x)[2:]
    since = {"AveragePool": 19, "LpPool": 18, "MaxPool": 10}[op]
    window = draw_window(d, space, dilate=d.opset >= since)
    attributes = {**window.attributes, "kernel_shape": list(window.kernel)}
    if d.opset >= {"AveragePool": 10, "LpPool": 18, "MaxPool": 10}[op]:
        attributes["ceil_mode"] = d.one_of([None, 0, 1])
    outputs = 1
    if op == "AveragePool":
        attributes["count_include_pad"] = d.one_of([None, 0, 1])
    elif op == "LpPool":
        attributes["p"] = d.one_of([None, 1, 2, 3])
    elif d.opset >= 8 and d.chance(0.25):
        outputs = 2
        attributes["storage_order"] = d.one_of([None, 0, 1])
    d.add(op, [x], outputs, **attributes)


def global_pooling(d: Draft, op: str) -> None:
    p = {"p": d.one_of([None, 1, 2, 3])} if op == "GlobalLpPool" else {}
    x = _image(d, op)
    if op == "GlobalMaxPool" and d.dtype_of(x) != "float32" and len(d.shape_of(x)) != 4:
        raise EvaluationError("only the reference evaluator has it, and takes two axes for all")
    d.add(op, [x], **p)


def max_unpool(d: Draft, op: str) -> None:
    shape = (d.integer(1, 2), d.integer(1, 3), 2 * d.integer(1, 3), 2 * d.integer(1, 3))
    x = d.new(d.dtype(("float32",)), shape)
    pooled, indices = d.add("MaxPool", [x], 2, kernel_shape=[2, 2], strides=[2, 2])
    d.add(op, [pooled, indices], kernel_shape=[2, 2], strides=[2, 2])


def regions(d: Draft, op: str) -> None:
    n = d.integer(1, 2)
    x = d.new(d.dtype(d.allowed(op)), (n, d.integer(1, 3), d.integer(3, 8), d.integer(3, 8)))
    count = d.integer(1, 3)
    corners = d.rng.uniform(0, 4, (count, 2))
    boxes = np.concatenate([corners, corners + d.rng.uniform(0.5, 5, (count, 2))], 1)
    if op == "MaxRoiPool":
        boxes = np.concatenate([d.rng.integers(0, n, (count, 1)), np.round(boxes)], 1)
        rois = d.place(boxes.astype(d.dtype_of(x)), Operand("fixed"), 0.4)
        scale = d.one_of([None, 0.5, 1.0])
        d.add(op, [x, rois], pooled_shape=[2, d.integer(1, 3)], spatial_scale=scale)
        return
    rois = d.place(boxes.astype(d.dtype_of(x)), Operand("fixed"), 0.4)
    samples = d.index(0, n - 1, (count,))
    mode = d.one_of([None, "half_pixel", "output_half_pixel"]) if d.opset >= 16 else None
    d.add(
        op,
        [x, rois, samples],
        mode=d.one_of([None, "avg", "max"]),
        output_height=d.integer(1, 3),
        output_width=d.integer(1, 3),
        sampling_ratio=d.one_of([None, 0, 1, 2]),
        spatial_scale=d.one_of([None, 0.5, 1.0]),
        coordinate_transformation_mode=mode,
    )


def resize(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op), lambda s: len(s) == 4 and 0 not in s, lambda: _small_image(d))
    shape = d.shape_of(x)
    mode = d.one_of(["nearest", "nearest", "linear", "cubic" if d.opset >= 11 else "linear"])
    whole = d.opset < 18 or d.chance(0.6)
    scales = [float(d.one_of([0.5, 1.5, 2.0, 2.0, 3.0, 0.6])) for _ in range(2)]
    factors = [1.0, 1.0, *scales]
    sizes = [max(1, int(n * f)) for n, f in zip(shape, factors)]
    if d.opset == 10:
        d.add(op, [x, d.fixed(factors, "float32", 1.0)], mode=mode)
        return
    transforms = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", None]
    if d.opset >= 19:
        transforms.append("half_pixel_symmetric")
    nearest = [None, "floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]
    attributes: dict[str, Any] = {"coordinate_transformation_mode": d.one_of(transforms)}
    if mode == "nearest":
        attributes["nearest_mode"] = d.one_of(nearest)
    if mode == "cubic":
        attributes["cubic_coeff_a"] = d.one_of([None, -0.5])
        attributes["exclude_outside"] = d.one_of([None, 0, 1])
    if d.opset >= 18 and mode != "nearest":
        attributes["antialias"] = d.one_of([None, None, 0, 1])
    if not whole:
        factors, sizes, attributes["axes"] = scales, sizes[2:], [2, 3]
    empty = d.fixed([], "float32", 1.0)
    roi = "" if d.opset >= 13 else empty
    if d.chance(0.5):
        operands = [x, roi, d.fixed(factors, "float32", 1.0)]
    else:
        if d.opset >= 18:
            attributes["keep_aspect_ratio_policy"] = d.one_of([None, "stretch", "not_larger"])
        operands = [x, roi, "" if d.opset >= 13 else empty, d.fixed(sizes, constant=1.0)]
    d.add(op, operands, mode=mode, **attributes)


def _small_image(d: Draft) -> Shape:
    return d.integer(1, 2), d.integer(1, 3), d.integer(1, 6), d.integer(1, 6)


def upsample(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op), lambda s: len(s) == 4 and 0 not in s, lambda: _small_image(d))
    scales = [1.0, 1.0, float(d.one_of([1.0, 2.0, 1.5])), float(d.one_of([1.0, 2.0, 3.0]))]
    mode = d.one_of([None, "nearest", "linear"])
    if d.opset < 9:
        d.add(op, [x], mode=mode, scales=scales)
    else:
        d.add(op, [x, d.fixed(scales, "float32", 1.0)], mode=mode)


def grid_sample(d: Draft, op: str) -> None:
    n, c, h, w = _small_image(d)
    x = d.new(d.dtype(d.allowed(op)), (n, c, h, w))
    grid = d.new(d.dtype(d.allowed(op, 1)), (n, d.integer(1, 4), d.integer(1, 4), 2), "unit")
    modes = ["bilinear", "nearest", "bicubic"] if d.opset < 20 else ["linear", "nearest", "cubic"]
    d.add(
        op,
        [x, grid],
        mode=d.one_of([None, *modes]),
        padding_mode=d.one_of([None, "zeros", "border", "reflection"]),
        align_corners=d.one_of([None, 0, 1]),
    )


def non_max_suppression(d: Draft, op: str) -> None:
    n, classes, boxes = d.integer(1, 2), d.integer(1, 3), d.integer(1, 8)
    corners = d.rng.uniform(0, 5, (n, boxes, 2))
    both = np.concatenate([corners, corners + d.rng.uniform(0.5, 4, (n, boxes, 2))], 2)
    x = d.place(both.astype("float32"), Operand("fixed"), 0.3)
    scores = d.place(d.rng.random((n, classes, boxes)).astype("float32"), Operand("fixed"), 0.2)
    limits = [d.fixed(d.integer(1, 4)), d.fixed(0.4, "float32"), d.fixed(0.2, "float32")]
    center = d.one_of([None, 0, 1])
    d.add(op, [x, scores, *limits[: d.integer(1, 3)]], center_point_box=center)


MAKERS: dict[str, Callable[[Draft, str], None]] = {
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), pooling),
    **dict.fromkeys(("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"), global_pooling),
    **dict.fromkeys(("MaxRoiPool", "RoiAlign"), regions),
    "Conv": conv,
    "ConvInteger": conv_integer,
    "ConvTranspose": conv_transpose,
    "GridSample": grid_sample,
    "MaxUnpool": max_unpool,
    "NonMaxSuppression": non_max_suppression,
    "Resize": resize,
    "Upsample": upsample,
}
