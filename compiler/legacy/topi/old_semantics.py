"""Computes that TOPI has today and had until TVM 0.19 with other results or arguments.

TVM's own legalization of Relax operators goes on with today's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import tvm
from tvm import te, tirx
from tvm.relax.transform.legalize_ops import nn as legalized_nn
from tvm.relax.transform.legalize_ops import vision as legalized_vision

from ...errors import InputError
from ..patches import Patches

_topi = tvm.topi
_new_equal = te.Tensor.equal
_new_instance_norm = _topi.nn.instance_norm
_new_nms = _topi.vision.all_class_non_max_suppression
_SPATIAL = "DHW"


def patch(patches: Patches) -> None:
    """Set them in `tvm.topi`, `nn` and `vision`."""
    today = _copy(_topi, nn=_copy(_topi.nn), vision=_copy(_topi.vision))
    for module in (legalized_nn, legalized_vision):
        patches.set(module, "topi", today)
    for count, layout in ((1, "NCW"), (2, "NCHW"), (3, "NCDHW")):
        patches.set(_topi.nn, f"pool{count}d", _pool(count, layout))
    patches.set(_topi.nn, "batch_to_space_nd", batch_to_space_nd)
    patches.set(_topi.nn, "instance_norm", instance_norm)
    patches.set(_topi.vision, "all_class_non_max_suppression", all_class_non_max_suppression)
    patches.set(_topi, "round", round)
    patches.set(te.Tensor, "equal", _equal)


def _copy(module: ModuleType, **parts: Any) -> ModuleType:
    """A module with the same names and today's meanings."""
    copied = ModuleType(module.__name__)
    vars(copied).update(vars(module), **parts)
    return copied


def _pool(count: int, plain: str) -> Callable[..., te.Tensor]:
    """Pooling over windows of `count` axes."""
    today = getattr(_topi.nn, f"pool{count}d")

    def pool(
        data: te.Tensor,
        kernel: Sequence[int],
        stride: Sequence[int],
        dilation: Sequence[int],
        padding: Sequence[int],
        pool_type: str,
        ceil_mode: bool = False,
        layout: str = plain,
        count_include_pad: bool = True,
    ) -> te.Tensor:
        """Largest value or mean of each window.

        With `ceil_mode`, a last window counts that lies in the padding as a whole; today's leaves
        it out. A mean that includes the padding ends with the padding that was asked for.
        """
        if not ceil_mode:
            return today(
                data, kernel, stride, dilation, padding, pool_type,
                layout=layout, count_include_pad=count_include_pad,
            )  # fmt: skip
        further = [last + step - 1 for last, step in zip(padding[count:], stride)]
        pooled = today(
            data, kernel, stride, dilation, [*padding[:count], *further], pool_type,
            layout=layout, count_include_pad=count_include_pad,
        )  # fmt: skip
        if pool_type == "max" or not count_include_pad:
            return pooled
        sums = pooled.op.input_tensors[0]
        letters = [letter for letter in layout if letter.isalpha()]
        axes = [letters.index(letter) for letter in _SPATIAL[-count:]]

        def mean(*index: Any) -> Any:
            number: Any = 1
            for at, axis in enumerate(axes):
                first = index[axis] * stride[at] - padding[at]
                end = data.shape[axis] + padding[count + at] - 1
                last = tirx.min(first + (kernel[at] - 1) * dilation[at], end)
                number = number * (tirx.div(last - first, dilation[at]) + 1)
            return tirx.div(sums(*index), tirx.max(number, 1).astype(str(data.dtype)))

        return te.compute(pooled.shape, mean, name="pool_avg", tag=_topi.tag.ELEMWISE)

    return pool


def round(x: te.Tensor) -> te.Tensor:
    """The nearest integers; halves go away from zero, and with today's to the even number."""
    return te.compute(
        x.shape, lambda *index: te.round(x(*index)), name="T_round", tag=_topi.tag.ELEMWISE
    )


def batch_to_space_nd(
    data: te.Tensor,
    block_shape: Sequence[int],
    crop_begin_list: Sequence[int],
    crop_end_list: Sequence[int],
) -> te.Tensor:
    """Move batch blocks into the spatial axes of (batch, spatial..., rest...).

    Today's operator ends the process: it can't pad with a number.

    Raises InputError: the batch is no multiple of the blocks, or the lists do not fit the data.
    """
    blocks = [int(size) for size in block_shape]
    begins, ends = list(crop_begin_list), list(crop_end_list)
    count, batch = len(blocks), data.shape[0]
    if not len(begins) == len(ends) == count < len(data.shape):
        raise InputError(
            f"batch_to_space_nd: blocks {blocks}, crops {begins} and {ends} for {data.shape}: "
            "each spatial axis has one of each"
        )
    whole = 1
    for size in blocks:
        whole *= size
    if isinstance(batch, tirx.IntImm) and int(batch) % whole:
        raise InputError(f"batch_to_space_nd: a batch of {batch} is no multiple of {blocks}")
    fewer = tirx.floordiv(batch, whole)
    spatial = [
        extent * size - begin - end
        for extent, size, begin, end in zip(data.shape[1:], blocks, begins, ends)
    ]

    def element(sample: Any, *index: Any) -> Any:
        part: Any = 0
        places = []
        for place, size, begin in zip(index, blocks, begins):
            part = part * size + tirx.floormod(place + begin, size)
            places.append(tirx.floordiv(place + begin, size))
        return data(part * fewer + sample, *places, *index[count:])

    shape = [fewer, *spatial, *data.shape[1 + count :]]
    return te.compute(shape, element, name="batch_to_space_nd", tag=_topi.tag.INJECTIVE)


def instance_norm(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, *axes: Any, **options: Any
) -> te.Tensor:
    """`instance_norm(data, gamma, beta, axis, epsilon=1e-5)`: gamma and beta along `axis`.

    With today's arguments, `channel_axis` before `axis`, they are along the channels.
    """
    if "channel_axis" in options or isinstance(axes[0], int):
        return _new_instance_norm(data, gamma, beta, *axes, **options)
    return _topi.nn.layer_norm(data, gamma, beta, *axes, **options)


def all_class_non_max_suppression(
    boxes: te.Tensor,
    scores: te.Tensor,
    max_output_boxes_per_class: Any,
    iou_threshold: Any,
    score_threshold: Any,
    output_format: str = "onnx",
) -> Any:
    """As today's, but that "onnx" gives as many rows as there are boxes of all classes."""
    found = _new_nms(
        boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold, output_format
    )
    if output_format != "onnx":
        return found
    indices, counts = found
    batch, classes, number = scores.shape
    rows = indices.shape[0]
    padded = te.compute(
        (batch * classes * number, 3),
        lambda row, column: tirx.if_then_else(
            row < rows, indices[row, column], tirx.const(0, str(indices.dtype))
        ),
        name="all_indices",
    )
    return [padded, counts]


def _equal(self: te.Tensor, other: Any, span: Any = None) -> Any:
    """Whether a tensor without axes has a value."""
    element = self() if isinstance(self, te.Tensor) and not self.shape else self
    return element.equal(other, span) if element is not self else _new_equal(self, other, span)
