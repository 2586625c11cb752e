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
    mod: tvm.IRModule, desired_layouts: str | Sequence[str], ops: Sequence[str] | None = None
) -> tvm.IRModule:
    """Bring operators, convolutions by default, to layouts of activations or of weights as well.

    Parameters
    ----------
    desired_layouts : str or sequence of str
        "NHWC", or "NHWC:HWIO" with that of the weights: one for all operators or one for each.

    Raises
    ------
    TVMCException
        A text is not a layout, or their number is not that of the operators.
    """
    given = [desired_layouts] if isinstance(desired_layouts, str) else list(desired_layouts)
    names = list(ops or _LAYOUT_OPERATORS)
    if len(given) > 1 and (ops is None or len(given) != len(names)):
        raise TVMCException(
            f"desired layouts {', '.join(given)}: give one for all operators, or one for each of "
            "--desired-layout-ops"
        )
    layouts = {}
    for name, text in zip(names, given if len(given) > 1 else given * len(names)):
        data, _, kernel = text.partition(":")
        if data not in ("NCHW", "NHWC"):
            raise TVMCException(f"desired layout {text!r}: give NCHW or NHWC")
        layouts[name] = [data, kernel or "default"]
    return relay.transform.FoldConstant()(relay.transform.ConvertLayout(layouts)(mod))


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
    if options["desired_layout"]:
        mod = convert_graph_layout(mod, options["desired_layout"], options["desired_layout_ops"])
    return mod
