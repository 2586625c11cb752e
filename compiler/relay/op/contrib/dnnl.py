"""oneDNN backend of Relay's BYOC flow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ....backends import Unsupported
from .register import register_pattern_table
from .tables import (
    Row,
    attribute,
    chain,
    claim,
    dtype,
    gelu,
    mish,
    name_of,
    partition,
    shape,
    swish,
    tensors,
)

_ACTIVATIONS = {
    "relu": lambda data: chain("nn.relu", data),
    "tanh": lambda data: chain("tanh", data),
    "sigmoid": lambda data: chain("sigmoid", data),
    "clip": lambda data: chain("clip", data),
    "gelu": gelu,
    "swish": swish,
    "mish": mish,
    "": lambda data: data,
}
_ANCHORS = {
    "nn.conv1d": "conv1d",
    "nn.conv2d": "conv2d",
    "nn.conv3d": "conv3d",
    "nn.conv2d_transpose": "deconv2d",
    "nn.conv3d_transpose": "deconv3d",
    "nn.dense": "dense",
}


def _is_bias(call: Any) -> bool | Unsupported:
    """Whether an add has one addend per channel of a conv2d."""
    conv = call.args[0]
    if name_of(conv) != "nn.conv2d":
        return Unsupported(
            f"the addition is not of a nn.conv2d but of {name_of(conv) or 'a value'}"
        )
    channels, addends = shape(conv.args[1])[_filters(conv)], math.prod(shape(call.args[1]))
    if addends != channels:
        return Unsupported(f"{addends} addends are no bias of {channels} channels")
    return True


def _filters(conv: Any) -> int:
    return str(conv.attrs.kernel_layout).index("O")


def _takes_bias(root: Any) -> bool | Unsupported:
    if name_of(root) == "nn.relu":
        root = root.args[0]
    return True if name_of(root) != "add" else _is_bias(root)


def _takes_sum(root: Any) -> bool | Unsupported:
    if name_of(root) == "nn.relu":
        root = root.args[0]
    biased, other = root.args
    if name_of(biased) != "add":
        return Unsupported("there is no bias before the sum")
    if shape(biased) != shape(other):
        return Unsupported("the addends of the sum have different shapes")
    return _is_bias(biased)


def _quantized(name: str) -> Any:
    """Quantized matmul: scaled, clipped and rounded; optional bias, sum and zero point."""
    from ...dataflow_pattern import is_constant, is_op, wildcard

    zero = is_constant()
    anchor = is_op(name)(wildcard(), is_constant(), zero, zero, is_constant(), is_constant())
    scaled = chain("cast add(c)? multiply(c) clip multiply(c)?", anchor)
    summed = is_op("add")(scaled, is_op("multiply")(is_constant(), chain("cast"))) | scaled
    return chain("add(c)? cast", summed)


@register_pattern_table("dnnl")
def pattern_table() -> list[Row]:
    """Pattern table: matmuls with bias and activation, longest chains first."""
    rows: list[Row] = [
        ("dnnl.qnn.conv2d", _quantized("qnn.conv2d")),
        ("dnnl.qnn.dense", _quantized("qnn.dense")),
        ("dnnl.dense_bias_sum", chain("nn.dense(_) add(_) add(_)")),
        ("dnnl.conv2d_bias_sum_relu", chain("nn.conv2d(_) add(_) add(_) nn.relu"), _takes_sum),
        ("dnnl.conv2d_bias_sum", chain("nn.conv2d(_) add(_) add(_)"), _takes_sum),
    ]
    for bias in ("_bias", ""):
        for name, activation in _ACTIVATIONS.items():
            for anchor, title in _ANCHORS.items():
                if not bias and not name:
                    continue
                pattern = activation(chain(f"{anchor}(_) add(_)" if bias else f"{anchor}(_)"))
                row = (f"dnnl.{title}{bias}{'_' + name if name else ''}", pattern)
                rows.append(row if anchor == "nn.dense" else (*row, _takes_bias))
    return rows


def _supports(call: Any) -> bool | Unsupported:
    if any(dtype(each) == "int64" for each in tensors(call)):
        return Unsupported("an operand is int64")
    return True


def _supports_pool(call: Any) -> bool | Unsupported:
    if attribute(call, "ceil_mode"):
        return Unsupported("ceil_mode is set; oneDNN rounds the size of the result down")
    return _supports(call)


claim(
    "dnnl",
    {
        "nn.batch_norm nn.conv1d nn.conv2d nn.conv3d nn.conv2d_transpose nn.conv3d_transpose "
        "nn.dense nn.batch_matmul nn.global_avg_pool2d nn.relu nn.leaky_relu nn.softmax "
        "nn.layer_norm abs clip exp log sqrt round tanh sigmoid add multiply": _supports,
        "nn.max_pool2d nn.avg_pool2d nn.max_pool3d nn.avg_pool3d": _supports_pool,
    },
)


def partition_for_dnnl(
    mod: Any,
    params: Mapping[str, Any] | None = None,
    alter_layout: bool = True,
    prune_subgraphs: bool = True,
) -> Any:
    """Partition a module for oneDNN: biases as adds, folded batch norms, merged regions.

    `alter_layout` and `prune_subgraphs` are accepted without effect on layouts and regions.
    """
    del alter_layout, prune_subgraphs
    first = "CanonicalizeOps SimplifyInference FoldConstant FoldScaleAxis SimplifyExpr FoldConstant"
    return partition(mod, params, "dnnl", pattern_table(), first.split())
