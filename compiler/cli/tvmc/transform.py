"""What `tvmc` changes in a model before it is built: layouts and precision."""

from __future__ import annotations

from collections.abc import Sequence

import tvm

from compiler import relay

from . import TVMCException

_LAYOUT_OPERATORS = ("nn.conv2d", "nn.conv2d_transpose", "qnn.conv2d")


def convert_graph_layout(
    mod: tvm.IRModule, desired_layout: str, ops: Sequence[str] | None = None
) -> tvm.IRModule:
    """Bring convolutions to a layout of activations ("NHWC"), with weights ("NHWC:HWIO") or not.

    Raises
    ------
    TVMCException
        The text is not a layout.
    """
    data, _, kernel = desired_layout.partition(":")
    if data not in ("NCHW", "NHWC"):
        raise TVMCException(f"desired layout {desired_layout!r}: give NCHW or NHWC")
    layouts = {name: [data, kernel or "default"] for name in ops or _LAYOUT_OPERATORS}
    return relay.transform.ConvertLayout(layouts)(mod)


def convert_to_mixed_precision(mod: tvm.IRModule, calculation_type: str) -> tvm.IRModule:
    """Compute in half precision where Relay's rules allow it."""
    return relay.transform.ToMixedPrecision(calculation_type)(relay.transform.InferType()(mod))


def apply_graph_transforms(
    mod: tvm.IRModule,
    desired_layout: str | None = None,
    desired_layout_ops: Sequence[str] | None = None,
    mixed_precision: bool = False,
    mixed_precision_calculation_type: str | None = None,
) -> tvm.IRModule:
    """The module in the layout and precision that were asked for."""
    if mixed_precision:
        mod = convert_to_mixed_precision(mod, mixed_precision_calculation_type or "float16")
    if desired_layout:
        mod = convert_graph_layout(mod, desired_layout, desired_layout_ops)
    return mod
