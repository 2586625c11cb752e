"""AutoTVM's template group_conv2d_nchw.x86: the nest of conv2d_NCHWc.x86, group by group."""

from __future__ import annotations

import math
from typing import Any

from tvm.target import Target

from ...config import ConfigEntity, split
from ...conv2d import Conv2dWorkload, register_conv2d
from ..conv.conv2d import compute, pack_weight
from ..conv.register_tile import largest_divisor
from ..machine.cpu import Machine
from .conv2d_template import Conv2dTemplate, template_knobs

NAME = "group_conv2d_nchw.x86"


def task_args(w: Conv2dWorkload) -> tuple[Any, ...]:
    """Workload arguments: the groups stand where conv2d_NCHWc.x86 has its layouts."""
    data, weight, strides, padding, dilation, _, _, out_dtype = w.autotvm_args()
    return (data, weight, strides, padding, dilation, w.groups, out_dtype)


def within_groups(w: Conv2dWorkload, config: ConfigEntity) -> ConfigEntity:
    """Channel blocks that no group's end cuts in two.

    A record whose block spans groups never ran: the largest part that fits a group stands in.
    """
    ic = math.gcd(config.size("tile_ic")[-1], w.in_channels // w.groups)
    oc = math.gcd(config.size("tile_oc")[-1], w.out_channels // w.groups)
    blocks = {"tile_ic": split(w.in_channels // ic, ic), "tile_oc": split(w.out_channels // oc, oc)}
    knobs = {**config.knobs, **blocks}
    return ConfigEntity(knobs, config.source, config.is_fallback, config.cost)


def fallback(w: Conv2dWorkload, target: Target) -> ConfigEntity:
    """Fallback values of the template."""
    oc = largest_divisor(w.out_channels // w.groups, Machine.from_target(target).lanes(w.out_dtype))
    ic = largest_divisor(w.in_channels // w.groups, oc)
    return template_knobs(w, ic, oc, False)


register_conv2d(
    NAME,
    10,
    lambda w, _: w.groups > 1 and not w.is_depthwise and (w.is_float or w.is_integer),
    fallback,
    lambda w, config, data, weight: compute(w, config, NAME, data, weight),
    task_args=task_args,
    pack=pack_weight,
    rule=Conv2dTemplate(),
)
