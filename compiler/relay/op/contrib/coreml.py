"""Core ML backend of Relay's BYOC flow: `AnnotateTarget("coremlcompiler")`."""

from __future__ import annotations

from typing import Any

from ....backends import Unsupported
from .tables import claim, has, is_constant_expr


def _conv(call: Any) -> bool | Unsupported:
    layouts = has(call, kernel_layout="OIHW") or has(call, kernel_layout="HWIO")
    return is_constant_expr(call.args[1]) and layouts


claim(
    "coremlcompiler",
    {
        "add multiply clip expand_dims nn.relu nn.batch_flatten nn.softmax "
        "nn.global_avg_pool2d": True,
        "nn.conv2d": _conv,
    },
)
