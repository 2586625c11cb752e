"""The rule for products and convolutions in float32, which keep every bit of it."""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.s_tir.dlight import ScheduleRule
from tvm.target import Target

from .. import device as devices
from .contraction import multiplied, take_apart
from .gemm_tiles import FMA_TILES, Plan, cheapest
from .implicit_gemm import kernel
from .intrinsics import FIRST_ARCH

FEWEST_COLUMNS = 8
"""Below, most of a tile would be empty. Few rows are better off with one all the same: reading the
other operand takes the time, and its tiles are copied ahead."""


class Float32Products(ScheduleRule):
    """Functions with one product of float32, element-wise work, and perhaps reductions of rows."""

    def apply(self, func: tirx.PrimFunc, target: Target, _: bool) -> s_tir.Schedule | None:
        """Schedule `func`; None when it is not a product that fills a tile."""
        device = devices.of(target)
        if device.limits.arch < FIRST_ARCH or multiplied(func) != {"float32"}:
            return None
        contraction = take_apart(func)
        if contraction is None or contraction.sum_dtype != "float32":
            return None
        if contraction.extent("j") < FEWEST_COLUMNS:
            return None
        plan = cheapest(FMA_TILES, contraction, device)
        if not isinstance(plan, Plan):
            return None
        return s_tir.Schedule(kernel(contraction, plan, target))
