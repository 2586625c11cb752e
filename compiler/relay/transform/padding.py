"""Passes over padding around convolutions: FoldExplicitPadding, FlattenAtrousConv."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from ...ir.fold_explicit_padding import PaddingRule, full_padding, neutral
from .. import dialect
from ..nested_expressions import rewrite
from .base import body_wise, rule_wise
from .build import again, is_op


def FoldExplicitPadding() -> Any:
    """Fold `nn.pad` into the padding of the convolution or pooling that uses it.

    conv2d(pad(x, [[0, 0], [0, 0], [1, 2], [1, 2]]), w) -> conv2d(x, w, padding=[1, 1, 2, 2])
    """
    return rule_wise("FoldExplicitPadding", 0, PaddingRule)


def FlattenAtrousConv() -> Any:
    """Replace a convolution between space_to_batch_nd and batch_to_space_nd with a dilated one.

    batch_to_space_nd(conv2d(space_to_batch_nd(x, b, p), w), b, c) -> conv2d(x, w, dilation=b)

    The convolution must have stride 1 and no dilation or padding.
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
    padded_by = float(before.get("pad_value") or 0)
    if len(block) != 2 or block != [int(each) for each in after["block_shape"]]:
        return None
    single = [int(each) for each in attrs["strides"]] == [1, 1]
    dense = [int(each) for each in attrs["dilation"]] == [1, 1]
    if not single or not dense or full_padding(attrs["padding"], 2).any():
        return None
    if attrs["data_layout"] != "NHWC" or not np.all(
        neutral(conv, dialect.relay_name(conv)) == padded_by
    ):
        return None
    sides = [
        int(before["paddings"][axis][side]) - int(after["crops"][axis][side])
        for side in (0, 1)
        for axis in (0, 1)
    ]
    if min(sides) < 0:
        return None
    return again(conv, [spread.args[0], *conv.args[1:]], padding=sides, dilation=block)
