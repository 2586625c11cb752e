"""cuDNN backend of Relay's BYOC flow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....backends import Unsupported
from .register import register_pattern_table
from .tables import Row, chain, dtype, has, needs, partition, shape


def _is_float(call: Any) -> bool:
    return dtype(call.args[0]) in ("float64", "float32", "float16")


def _cudnn_conv(call: Any) -> bool | Unsupported:
    top, left, bottom, right = (int(each) for each in call.attrs.padding)
    layouts = has(call, data_layout="NCHW", kernel_layout="OIHW")
    even = (top, left) == (bottom, right)
    return _is_float(call) and layouts and needs(even, "padding differs by side")


def _cudnn_log_softmax(call: Any) -> bool:
    return _is_float(call) and len(shape(call.args[0])) == 2 and int(call.attrs.axis) in (1, -1)


@register_pattern_table("cudnn")
def pattern_table() -> list[Row]:
    """Pattern table: softmax, and convolutions alone or with bias and relu."""
    return [
        ("cudnn.softmax", chain("nn.softmax"), _is_float),
        ("cudnn.log_softmax", chain("nn.log_softmax"), _cudnn_log_softmax),
        ("cudnn.conv2d_bias_act", chain("nn.conv2d(_) nn.bias_add(_) nn.relu?")),
        ("cudnn.conv2d", chain("nn.conv2d(_)"), _cudnn_conv),
    ]


def partition_for_cudnn(mod: Any, params: Mapping[str, Any] | None = None) -> Any:
    """Partition a module for cuDNN, one function per convolution or softmax."""
    return partition(mod, params, "cudnn", pattern_table())
