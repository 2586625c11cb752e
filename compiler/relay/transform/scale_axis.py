"""FoldScaleAxis: fold multiplications along the channel axis into weights."""

from __future__ import annotations

from typing import Any

import tvm

from ...ir.fold_scale_axis import Backward, Forward
from .base import module_pass, rule_wise
from .constants import FoldConstant


def BackwardFoldScaleAxis() -> Any:
    """Fold the scale of a convolution's or dense layer's result into its weight."""
    return rule_wise("BackwardFoldScaleAxis", 3, Backward)


def ForwardFoldScaleAxis() -> Any:
    """Fold the scale of a convolution's or dense layer's input into its weight."""
    return rule_wise("ForwardFoldScaleAxis", 3, Forward)


def FoldScaleAxis() -> Any:
    """BackwardFoldScaleAxis, then ForwardFoldScaleAxis, then FoldConstant."""

    def run(mod: tvm.IRModule) -> tvm.IRModule:
        made = ForwardFoldScaleAxis()(BackwardFoldScaleAxis()(mod))
        return mod if made.same_as(mod) else FoldConstant()(made)

    return module_pass("FoldScaleAxis", 3, run)
