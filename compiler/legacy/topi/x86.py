"""`tvm.topi.x86`, its `utils`, and `_fallback_schedule` for user-defined templates."""

from __future__ import annotations

from typing import Any

from tvm.target import Target

from ...target import parse
from . import names_of

__getattr__ = names_of("tvm.topi.x86", gpu=False)


def get_simd_32bit_lanes() -> int:
    """How many floats a vector of the current target's CPU holds; without one, of this CPU."""
    from schedules.x86.machine.cpu import Machine

    return Machine.from_target(current_target()).lanes("float32")


get_fp32_len = get_simd_32bit_lanes


def current_target() -> Target:
    """The target of the `with` around, else this machine's CPU."""
    return parse(Target.current() or "llvm")


def _fallback_schedule(cfg: Any, wkl: Any) -> None:
    """Set the knobs of an untuned config for the current target.

    `cfg`: gets "tile_ic", "tile_oc", "tile_ow", and "unroll_kw", or of a 1x1 convolution "tile_oh".
    `wkl`: what `_get_workload` of `tvm.topi.nn.conv2d` or of `depthwise_conv2d` gives.
    """
    from schedules.conv2d import Conv2dWorkload
    from schedules.x86.templates import conv2d_template, depthwise_template

    is_depthwise = not hasattr(wkl, "groups")
    workload = Conv2dWorkload(
        batch=1,
        in_channels=wkl.in_filter,
        height=wkl.height,
        width=wkl.width,
        out_channels=wkl.out_filter,
        kernel=(wkl.kernel_h, wkl.kernel_w),
        strides=(wkl.stride_h, wkl.stride_w),
        padding=(wkl.padt, wkl.padl, wkl.padb, wkl.padr),
        dilation=(wkl.dilation_h, wkl.dilation_w),
        groups=wkl.in_filter if is_depthwise else wkl.groups,
        dtype=str(wkl.in_dtype),
        out_dtype=str(wkl.out_dtype),
    )
    template = depthwise_template if is_depthwise else conv2d_template
    for name, knob in template.fallback(workload, current_target()).items():
        cfg[name] = knob
