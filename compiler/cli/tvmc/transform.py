"""Model transformations of `tvmc` before a build: layouts and precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm

from compiler import relay

from . import TVMCException

OPTIONS = (
    *("desired_layout", "desired_layout_ops"),
    *("mixed_precision", "mixed_precision_ops"),
    *("mixed_precision_calculation_type", "mixed_precision_acc_type"),
)
_LAYOUT_OPERATORS = ("nn.conv2d", "nn.conv2d_transpose", "qnn.conv2d")


def convert_graph_layout(
    mod: tvm.IRModule, desired_layouts: str | Sequence[str], ops: Sequence[str] | None = None
) -> tvm.IRModule:
    """Bring operators, convolutions by default, to layouts of activations or of weights as well.

    `desired_layouts`: "NHWC", or "NHWC:HWIO" with that of the weights: one for all operators or one
    for each.
    Raises TVMCException: a text is not a layout, or their number is not that of the operators.
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


_RULE = "FTVMMixedPrecisionConversionType"
_ALWAYS = 0


class MixedPrecision:
    """A context in which `relay.transform.ToMixedPrecision` always converts some operators.

    `ops`: their names. `acc_type`: what they sum in, and give.
    """

    def __init__(self, ops: Sequence[str], acc_type: str) -> None:
        self.ops, self.acc_type = list(ops), acc_type
        self._before: dict[str, Any] = {}

    def __enter__(self) -> MixedPrecision:
        for name in self.ops:
            op = relay.op.get(name)
            self._before[name] = op.get_attr(_RULE) if op.has_attr(_RULE) else None
            op.reset_attr(_RULE)
            op.set_attr(_RULE, lambda _call, short: [_ALWAYS, self.acc_type, short])
        return self

    def __exit__(self, *_: object) -> None:
        for name, before in self._before.items():
            op = relay.op.get(name)
            op.reset_attr(_RULE)
            if before is not None:
                op.set_attr(_RULE, before)
        self._before.clear()


def convert_to_mixed_precision(
    mod: tvm.IRModule,
    ops: Sequence[str] | None = None,
    calculation_type: str = "float16",
    acc_type: str | None = None,
) -> tvm.IRModule:
    """Compute in half precision where Relay's rules allow it, and in some operators always.

    `ops`: operators that are always converted; none without `acc_type`, else convolutions and
    dense. `acc_type`: what these sum in; `calculation_type` by default.
    """
    convert = relay.transform.ToMixedPrecision(calculation_type)
    typed = relay.transform.InferType()(mod)
    if ops is None and acc_type is None:
        return convert(typed)
    names = ("nn.conv2d", "nn.dense") if ops is None else ops
    with MixedPrecision(list(names), acc_type or calculation_type):
        return convert(typed)


def apply_graph_transforms(
    mod: tvm.IRModule, args: Mapping[str, Any] | None = None
) -> tvm.IRModule:
    """The module in the layout and precision that `OPTIONS` of the command ask for.

    Raises TVMCException: a layout is not one.
    """
    options = {name: (args or {}).get(name) for name in OPTIONS}
    if options["mixed_precision"]:
        mod = convert_to_mixed_precision(
            mod,
            options["mixed_precision_ops"],
            options["mixed_precision_calculation_type"] or "float16",
            options["mixed_precision_acc_type"],
        )
    if options["desired_layout"]:
        mod = convert_graph_layout(mod, options["desired_layout"], options["desired_layout_ops"])
    return mod
