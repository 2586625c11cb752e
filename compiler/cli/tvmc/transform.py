"""What `tvmc` changes in a model before it is built: layouts and precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm

from compiler import relay

from . import TVMCException

OPTIONS = (
    *("desired_layout", "desired_layout_ops"),
    *("mixed_precision", "mixed_precision_calculation_type"),
)
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
    mod: tvm.IRModule, args: Mapping[str, Any] | None = None
) -> tvm.IRModule:
    """The module in the layout and precision that `OPTIONS` of the command ask for.

    Raises
    ------
    TVMCException
        A layout is not one.
    """
    options = {name: (args or {}).get(name) for name in OPTIONS}
    if options["mixed_precision"]:
        kind = options["mixed_precision_calculation_type"] or "float16"
        mod = convert_to_mixed_precision(mod, kind)
    layouts = options["desired_layout"] or ()
    for layout in [layouts] if isinstance(layouts, str) else layouts:
        mod = convert_graph_layout(mod, layout, options["desired_layout_ops"])
    return mod
