"""The rule for products and convolutions whose types tensor cores multiply."""

from __future__ import annotations

import logging

from tvm import s_tir, tirx
from tvm.s_tir.dlight import ScheduleRule
from tvm.target import Target

from ...anchor import block_names
from .. import device as devices
from ..device import Device
from .contraction import Contraction, multiplied, take_apart
from .gemm_tiles import MMA_TILES, WGMMA_TILES, Plan, cheapest
from .implicit_gemm import kernel
from .intrinsics import FIRST_ARCH, INSTRUCTIONS

_logger = logging.getLogger("baton.schedules")


TF32 = "baton.tf32"
"""Attribute of functions whose float32 products may keep 10 bits of what they multiply."""


def multiplies(target: Target, dtype: str, tf32: bool) -> bool:
    """Whether tensor cores of the target multiply the type; `tf32` allows rounding float32."""
    if target.kind.name != "cuda" or devices.of(target).limits.arch < FIRST_ARCH:
        return False
    return dtype in INSTRUCTIONS and (tf32 or dtype != "float32")


class TensorCores(ScheduleRule):
    """Functions with one float16, bfloat16 or byte product, and element-wise work around it.

    Rows of the result may be reduced, too, as norms do, where k is divided. A function may allow
    float32 too. Why such a product is left to another rule is logged.
    """

    def apply(self, func: tirx.PrimFunc, target: Target, _: bool) -> s_tir.Schedule | None:
        """Schedule `func`; None when it is not a product that tensor cores have."""
        device = devices.of(target)
        tf32 = bool(func.attrs and func.attrs.get(TF32))
        if not any(multiplies(target, dtype, tf32) for dtype in multiplied(func)):
            return None
        contraction = take_apart(func)
        if contraction is None:
            reason = "its form is not that of one product with element-wise work around it"
        else:
            made = _plan(contraction, device)
            if isinstance(made, Plan):
                return s_tir.Schedule(kernel(contraction, made, target))
            reason = made
        if contraction is None or contraction.rows is None:
            _logger.info("%s is not computed on tensor cores: %s", block_names(func), reason)
        return None


def _plan(contraction: Contraction, device: Device) -> Plan | str:
    """The cheapest plan, or why there is none."""
    a, b, sums = contraction.a.dtype, contraction.b.dtype, contraction.sum_dtype
    if a != b:
        return f"it multiplies {a} by {b}"
    if sums not in (a, INSTRUCTIONS[a].sum_dtype):
        return f"it sums {a} in {sums}"
    tiles = (*MMA_TILES, *WGMMA_TILES) if device.wgmma_bytes else MMA_TILES
    return cheapest(tiles, contraction, device)
