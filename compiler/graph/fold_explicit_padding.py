"""Folding of explicit zero padding into the convolution that reads it."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax

from .constants import static_shape
from .rewrite import CallRule, rewrite_calls

CONVOLUTIONS = {
    "nn.conv1d": relax.op.nn.conv1d,
    "nn.conv2d": relax.op.nn.conv2d,
    "nn.conv3d": relax.op.nn.conv3d,
}


def joined(
    layout: str, widths: Sequence[Sequence[int]], padding: Sequence[int]
) -> list[int] | None:
    """What a window over padded data pads the data by: all sides before, then all behind.

    Parameters
    ----------
    layout : str
        Of the data, e.g. "NCHW" or "NCHW8c".
    widths
        (before, after) of each axis, as the explicit padding has them.
    padding
        What the window itself pads by.

    Returns
    -------
    None where an axis is padded that no window moves along, or is cut.
    """
    spatial = [axis for axis, letter in enumerate(layout) if letter in "DHW"]
    others = [pair for axis, pair in enumerate(widths) if axis not in spatial]
    if any(map(any, others)) or min(map(min, widths)) < 0:
        return None
    extra = [widths[axis][side] for side in (0, 1) for axis in spatial]
    return [own + more for own, more in zip(padding, extra)]


@tvm.transform.module_pass(opt_level=0, name="FoldExplicitPadding")
class FoldExplicitPadding:
    """Make zero padding of the spatial axes an attribute of the convolution after it.

    Padding that other calls read too is folded all the same: the convolution then need not wait
    for it.

    Before::

        lv = nn.pad(x, pad_width=[0, 0, 0, 0, 1, 1, 1, 1], pad_value=0)
        lv1 = nn.conv2d(lv, w, padding=[0, 0, 0, 0])

    After::

        lv1 = nn.conv2d(x, w, padding=[1, 1, 1, 1])
    """

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """Fold in every Relax function."""
        return rewrite_calls(mod, _Fold)


class _Fold(CallRule):
    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if name not in CONVOLUTIONS:
            return None
        padded = self.scope.call_of(call.args[0], "nn.pad")
        layout = str(call.attrs.data_layout)
        if padded is None or static_shape(padded.args[0]) is None or len(layout) != padded.ty.ndim:
            return None
        if str(padded.attrs.pad_mode) != "constant" or float(padded.attrs.pad_value) != 0.0:
            return None
        attrs = call.attrs
        widths = [int(width) for width in padded.attrs.pad_width]
        sides = joined(layout, list(zip(widths[::2], widths[1::2])), list(map(int, attrs.padding)))
        if sides is None:
            return None
        return CONVOLUTIONS[name](
            padded.args[0],
            call.args[1],
            strides=[int(stride) for stride in attrs.strides],
            padding=sides,
            dilation=[int(factor) for factor in attrs.dilation],
            groups=int(attrs.groups),
            data_layout=layout,
            kernel_layout=str(attrs.kernel_layout),
            out_layout=str(attrs.out_layout),
            out_dtype=attrs.out_dtype,
        )
