"""Folding of explicit zero padding into the convolution that reads it."""

from __future__ import annotations

import tvm
from tvm import relax

from .constants import static_shape
from .rewrite import CallRule, rewrite_calls

CONVOLUTIONS = {
    "nn.conv1d": relax.op.nn.conv1d,
    "nn.conv2d": relax.op.nn.conv2d,
    "nn.conv3d": relax.op.nn.conv3d,
}


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
        widths = [int(width) for width in padded.attrs.pad_width]
        pairs = {axis: widths[2 * i : 2 * i + 2] for i, axis in enumerate(layout)}
        if min(widths) < 0 or any(pairs["N"]) or any(pairs["C"]):
            return None
        spatial = [axis for axis in layout if axis in "DHW"]
        ends = [pairs[axis][end] for end in (0, 1) for axis in spatial]
        attrs = call.attrs
        return CONVOLUTIONS[name](
            padded.args[0],
            call.args[1],
            strides=[int(stride) for stride in attrs.strides],
            padding=[int(old) + new for old, new in zip(attrs.padding, ends)],
            dilation=[int(factor) for factor in attrs.dilation],
            groups=int(attrs.groups),
            data_layout=layout,
            kernel_layout=str(attrs.kernel_layout),
            out_layout=str(attrs.out_layout),
            out_dtype=attrs.out_dtype,
        )
