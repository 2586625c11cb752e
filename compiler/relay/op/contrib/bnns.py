"""Apple BNNS backend of Relay's BYOC flow."""

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
    has,
    inner,
    is_constant_expr,
    name_of,
    needs,
    partition,
    product,
    shape,
)


def _is_float(call: Any, *ranks: int) -> bool | Unsupported:
    data = call.args[0]
    if len(shape(data)) not in ranks:
        return Unsupported(f"the rank is {len(shape(data))}; {' or '.join(map(str, ranks))} works")
    return needs(dtype(data) == "float32", f"dtype is {dtype(data)}; float32 works")


def _pool(call: Any) -> bool | Unsupported:
    return _is_float(call, 3, 4) and has(call, layout="NCHW")


def _weighted(call: Any, rank: int) -> bool | Unsupported:
    weight = call.args[1]
    plain = dtype(weight) == "float32" and len(shape(weight)) == rank
    result = attribute(call, "out_dtype", "") in ("", "float32")
    if not is_constant_expr(weight):
        return Unsupported("the weight is no constant")
    return needs(plain and result, f"weight and result must be float32, the weight of rank {rank}")


def _conv(call: Any) -> bool | Unsupported:
    return _is_float(call, 4) and _weighted(call, 4) and has(call, data_layout="NCHW")


def _dense(call: Any) -> bool | Unsupported:
    kind = dtype(call.args[0])
    return needs(kind == "float32", f"dtype is {kind}; float32 works") and _weighted(call, 2)


def _along_channels(call: Any) -> bool:
    """Whether an add or bias_add adds one constant per channel."""
    bias = call.args[1]
    if name_of(call) == "nn.bias_add":
        return is_constant_expr(bias) and int(call.attrs.axis) == 1
    extents = shape(bias)
    one = {4: (0, 2, 3), 3: (1, 2)}.get(len(extents))
    return is_constant_expr(bias) and one is not None and all(extents[i] == 1 for i in one)


def _conv_chain(root: Any) -> bool | Unsupported:
    while name_of(root) != "nn.conv2d":
        if name_of(root) in ("add", "nn.bias_add") and not _along_channels(root):
            return Unsupported("the addend is not one constant per channel")
        root = root.args[0]
    return _conv(root)


def _dense_chain(root: Any) -> bool | Unsupported:
    return _dense(inner(root, "nn.dense"))


def _instance_norm(call: Any) -> bool | Unsupported:
    constants = all(is_constant_expr(each) for each in call.args[1:3])
    axis = (int(call.attrs.axis), len(shape(call.args[0])))
    fits = constants and axis in ((0, 3), (1, 4))
    return _is_float(call, 3, 4) and needs(fits, "scale and shift must be constants per channel")


def _gelu(data: Any) -> Any:
    """GELU (tanh approximation) with its exact constants."""
    from ...dataflow_pattern import is_expr, is_op
    from ...expr import const

    def number(value: float) -> Any:
        return is_expr(const(value, "float32"))

    cubic = product(is_op("power")(data, number(3)), number(0.044715))
    curve = product(is_op("add")(cubic, data), number(math.sqrt(2 / math.pi)))
    curve = is_op("add")(is_op("tanh")(curve), number(1))
    return product(product(curve, number(0.5)), data)


@register_pattern_table("bnns")
def pattern_table() -> list[Row]:
    """Pattern table: convolutions with bias and activation, dense with bias and GELU."""
    bias = "nn.conv2d(_) add|nn.bias_add(_)"
    return [
        ("bnns.conv2d_bias_relu", chain(f"{bias} nn.relu"), _conv_chain),
        ("bnns.conv2d_relu", chain("nn.conv2d(_) nn.relu"), _conv_chain),
        ("bnns.conv2d_bias_sigmoid", chain(f"{bias} sigmoid"), _conv_chain),
        ("bnns.conv2d_sigmoid", chain("nn.conv2d(_) sigmoid"), _conv_chain),
        ("bnns.conv2d_bias", chain(bias), _conv_chain),
        ("bnns.dense_bias_gelu", _gelu(chain("nn.dense(_) add(_)")), _dense_chain),
        ("bnns.dense_bias", chain("nn.dense(_) add(_)"), _dense_chain),
    ]


claim(
    "bnns",
    {
        "nn.batch_matmul": True,
        "nn.max_pool2d nn.avg_pool2d nn.global_max_pool2d nn.global_avg_pool2d": _pool,
        "nn.conv2d": _conv,
        "nn.dense": _dense,
        "nn.instance_norm": _instance_norm,
    },
)


def partition_for_bnns(mod: Any, params: Mapping[str, Any] | None = None) -> Any:
    """Partition a module for BNNS, one function per layer."""
    first = "FoldConstant FoldScaleAxis DynamicToStatic AlterOpLayout FoldConstant"
    return partition(mod, params, "bnns", pattern_table(), first.split())
