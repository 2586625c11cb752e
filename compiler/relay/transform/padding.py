"""Passes over padding around convolutions: FoldExplicitPadding, FlattenAtrousConv."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from ...graph.fold_explicit_padding import joined
from .. import dialect
from ..nest import rewrite
from .base import body_wise
from .build import again, array, dtype, is_op

_CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.contrib_conv2d_NCHWc", "qnn.conv2d")
_POOLS = [f"nn.{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)]


def FoldExplicitPadding() -> Any:
    """Move `nn.pad` into the padding of the convolution or pooling that alone reads it.

        conv2d(pad(x, [[0, 0], [0, 0], [1, 2], [1, 2]]), w) -> conv2d(x, w, padding=[1, 1, 2, 2])

    The pad value must be what the reader pads with: zero, a quantised convolution's zero point,
    or, for the maximum, the smallest number. An average must count the padding.
    """

    def change(_old: relax.Expr, new: relax.Expr) -> relax.Expr:
        if is_op(new, *_CONVOLUTIONS):
            return _folded(new, "data_layout")
        if is_op(new, *_POOLS):
            return _folded(new, "layout")
        return new

    return body_wise("FoldExplicitPadding", 0, lambda body: rewrite(body, change))


def _folded(reader: relax.Call, layout_key: str) -> relax.Expr:
    pad = reader.args[0]
    if not is_op(pad, "nn.pad"):
        return reader
    attrs, pad_attrs = dialect.attributes(reader), dialect.attributes(pad)
    value = array(pad.args[1]) if len(pad.args) > 1 else np.asarray(pad_attrs.get("pad_value", 0))
    if pad_attrs.get("pad_mode", "constant") != "constant" or value is None:
        return reader
    layout = str(attrs[layout_key])
    widths = [[int(side) for side in pair] for pair in pad_attrs["pad_width"]]
    own = _full_padding(attrs["padding"], sum(letter in "DHW" for letter in layout))
    sides = joined(layout, widths, own)
    if sides is None:
        return reader
    changes: dict[str, Any] = {}
    if not np.all(value == _neutral(reader)):
        return reader
    if "avg_pool" in dialect.relay_name(reader) and not attrs["count_include_pad"]:
        if any(own):
            return reader
        changes["count_include_pad"] = True
    return again(reader, [pad.args[0], *reader.args[1:]], padding=sides, **changes)


def _neutral(reader: relax.Call) -> Any:
    """What a reader pads with."""
    name = dialect.relay_name(reader)
    if name == "qnn.conv2d":
        zero_point = array(reader.args[2])
        return np.nan if zero_point is None else zero_point
    if "max_pool" in name:
        kind = np.dtype(dtype(reader.args[0]))
        return np.finfo(kind).min if kind.kind == "f" else np.iinfo(kind).min
    return 0


def _full_padding(padding: Any, rank: int) -> list[int]:
    """Padding as all the sides before, then all the sides behind."""
    sides = [int(each) for each in padding] if isinstance(padding, list) else [int(padding)]
    if len(sides) == 1:
        return sides * (2 * rank)
    return sides * 2 if len(sides) == rank else sides


def FlattenAtrousConv() -> Any:
    """Batches of a picture's phases around a convolution as one convolution with dilation.

    batch_to_space_nd(conv2d(space_to_batch_nd(x, b, p), w), b, c) -> conv2d(x, w, dilation=b)

    The convolution must move in single steps, without dilation and padding of its own.
    """

    def change(_old: relax.Expr, new: relax.Expr) -> relax.Expr:
        if not is_op(new, "nn.batch_to_space_nd"):
            return new
        conv = new.args[0]
        if not is_op(conv, "nn.conv2d", "qnn.conv2d"):
            return new
        spread = conv.args[0]
        if not is_op(spread, "nn.space_to_batch_nd"):
            return new
        made = _dilated(new, conv, spread)
        return new if made is None else made

    return body_wise("FlattenAtrousConv", 0, lambda body: rewrite(body, change))


def _dilated(gather: relax.Call, conv: relax.Call, spread: relax.Call) -> relax.Expr | None:
    before, attrs = dialect.attributes(spread), dialect.attributes(conv)
    after = dialect.attributes(gather)
    block = [int(each) for each in before["block_shape"]]
    neutral = float(before.get("pad_value") or 0)
    if len(block) != 2 or block != [int(each) for each in after["block_shape"]]:
        return None
    single = [int(each) for each in attrs["strides"]] == [1, 1]
    dense = [int(each) for each in attrs["dilation"]] == [1, 1]
    if not single or not dense or any(_full_padding(attrs["padding"], 2)):
        return None
    if attrs["data_layout"] != "NHWC" or not np.all(_neutral(conv) == neutral):
        return None
    sides = [
        int(before["paddings"][axis][side]) - int(after["crops"][axis][side])
        for side in (0, 1)
        for axis in (0, 1)
    ]
    if min(sides) < 0:
        return None
    return again(conv, [spread.args[0], *conv.args[1:]], padding=sides, dilation=block)
