"""Fold explicit padding into the convolution or pooling that reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from .constants import array_of, dtype_of
from .op_dialect import SharedRule
from .rewrite import call_pass

_CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.contrib_conv2d_NCHWc", "qnn.conv2d")
_POOLS = tuple(f"nn.{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3))


class PaddingRule(SharedRule):
    """Make padding of the spatial axes an attribute of the convolution or pooling after it.

    The pad value must be what the reader pads with: zero, a quantized convolution's zero point, or,
    for the maximum, the smallest number. An average must count the padding. A pool with `ceil_mode`
    keeps it, since windows that begin in its own padding are dropped. Padding that other calls read
    too is folded all the same: the reader then need not wait for it.

        before   lv = nn.pad(x, pad_width=[0, 0, 0, 0, 1, 1, 1, 1], pad_value=0)
                 lv1 = nn.conv2d(lv, w, padding=[0, 0, 0, 0])
        after    lv1 = nn.conv2d(x, w, padding=[1, 1, 1, 1])
    """

    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if name not in _CONVOLUTIONS and name not in _POOLS:
            return None
        pad = self.scope.match_call(call.args[0], "nn.pad")
        if pad is None or str(pad.attrs["pad_mode"]) != "constant":
            return None
        attrs = call.attrs
        if name in _POOLS and bool(attrs["ceil_mode"]):
            return None  # windows that begin in the pool's own padding are dropped
        layout = str(attrs["layout"] if name in _POOLS else attrs["data_layout"])
        axes = [letter for letter in layout if letter.isalpha()]
        spatial = [axis for axis, letter in enumerate(axes) if letter in "DHW"]
        widths = numbers(pad.attrs["pad_width"]).reshape(-1, 2)
        others = np.delete(widths, spatial, 0)
        if len(widths) != len(axes) or others.any() or (widths < 0).any():
            return None
        value = array_of(pad.args[1]) if len(pad.args) > 1 else float(pad.attrs["pad_value"])
        if value is None or not np.all(value == neutral(call, name)):
            return None
        own = full_padding(attrs["padding"], len(spatial))
        changes: dict[str, Any] = {"padding": [int(n) for n in own + widths[spatial].T.ravel()]}
        if "avg_pool" in name and not attrs["count_include_pad"]:
            if own.any():
                return None
            changes["count_include_pad"] = True
        return self.vocabulary.again(call, [pad.args[0], *call.args[1:]], **changes)


def neutral(call: relax.Call, name: str) -> Any:
    """The value that a convolution or pooling pads with; NaN if it is unknown."""
    if name == "qnn.conv2d":
        zero_point = array_of(call.args[2])
        return np.nan if zero_point is None else zero_point
    if "max_pool" in name:
        kind = np.dtype(dtype_of(call.args[0]))
        return np.finfo(kind).min if kind.kind == "f" else np.iinfo(kind).min
    return 0


def full_padding(padding: Any, rank: int) -> np.ndarray:
    """Padding of `rank` axes as all leading sides, then all trailing sides."""
    sides = numbers(padding)
    return np.tile(sides, 2 * rank // sides.size)


def numbers(attribute: Any) -> np.ndarray:
    """Flatten a number, or nested lists of numbers, to a vector."""
    if isinstance(attribute, (int, tvm.tirx.IntImm)):
        return np.array([int(attribute)])
    return np.concatenate([numbers(each) for each in attribute])


FoldExplicitPadding = call_pass("FoldExplicitPadding", 0, PaddingRule)
