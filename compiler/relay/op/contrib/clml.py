"""Qualcomm CLML backend of Relay's BYOC flow: NCHW layers with batch size 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax

from ....backends import Unsupported
from .register import register_pattern_table
from .tables import (
    Row,
    chain,
    dtype,
    has,
    has_code_generator,
    inner,
    is_depthwise,
    name_of,
    partition,
    shape,
    tensors,
    without_dropout,
)

_LARGEST = 32768


def _fits(expr: Any) -> bool:
    extents = shape(expr)
    single = not extents or extents[0] == 1
    small = len(extents) <= 4 and all(0 <= each <= _LARGEST for each in extents)
    return single and small and dtype(expr) not in ("int64", "int32")


def _plain(root: Any) -> bool:
    call = root.tuple_value if isinstance(root, relax.TupleGetItem) else root
    return _fits(call) and all(map(_fits, tensors(call)))


def _conv(root: Any) -> bool:
    clipped = name_of(root) == "clip"
    conv = inner(root, "nn.conv2d")
    groups, kernel = int(conv.attrs.groups), shape(conv.args[1])
    if not has(conv, data_layout="NCHW") or shape(conv)[0] != 1:
        return False
    depthwise = is_depthwise(conv)
    dilated = int(conv.attrs.dilation[0]) != 1 and kernel[2] == 3
    return (groups == 1 or depthwise) and not (depthwise and dilated and not clipped)


def _conv_transpose(root: Any) -> bool | Unsupported:
    return has(inner(root, "nn.conv2d_transpose"), data_layout="NCHW")


def _binary(call: Any) -> bool:
    left, right = call.args
    shapes = shape(left), shape(right)
    return not left.same_as(right) and shapes[0] == shapes[1] != () and _plain(call)


def _biased_dense(root: Any) -> bool:
    dense = root.args[0]
    return name_of(dense) == "nn.dense" and shape(dense)[0] == 1


def _dense(call: Any) -> bool:
    return all(len(shape(each)) == 2 for each in call.args)


def _padded(call: Any) -> bool:
    inside = not isinstance(call.args[0], relax.Var)
    return len(call.attrs.pad_width) == 4 and inside and _plain(call)


def _batches(call: Any) -> bool:
    return all(shape(each)[0] == 1 for each in call.args) and _plain(call)


def _with(**wanted: Any) -> Any:
    return lambda call: has(call, **wanted) and _plain(call)


@register_pattern_table("clml")
def clml_pattern_table() -> list[Row]:
    """Pattern table: convolutions with adjacent operators, dense with bias, single operators."""
    from ...dataflow_pattern import is_constant, is_op, is_tuple, is_tuple_get_item, wildcard

    def normalized(data: Any) -> Any:
        norm = is_op("nn.batch_norm")(data, *(is_constant() for _ in range(4)))
        return is_tuple_get_item(norm, 0)

    def layer(text: str) -> Any:
        biased = chain(f"{text} nn.bias_add(c)? add(c)?")
        active = chain("nn.relu?", normalized(biased) | biased)
        return is_op("clip")(active).has_attr({"a_min": 0.0, "a_max": 6.0}) | active

    rows: list[Row] = [
        ("clml.pad_conv2d", layer("nn.pad(c) nn.conv2d(c)"), _conv),
        ("clml.conv2d", layer("nn.conv2d(c)"), _conv),
        ("clml.conv2d_transpose", layer("nn.conv2d_transpose(c)"), _conv_transpose),
        ("clml.dense1d", chain("nn.dense(c) nn.bias_add|add(c)"), _biased_dense),
        ("clml.dense2d", chain("nn.dense(c)"), _dense),
        ("clml.pad", chain("nn.pad(c)"), _padded),
        ("clml.concat", chain("concatenate", is_tuple(None)), _with(axis=1)),
        ("clml.batch_norm", normalized(wildcard())),
        ("clml.softmax", chain("nn.softmax"), lambda c: len(shape(c)) in (2, 4) and _plain(c)),
        ("clml.batch_matmul", chain("nn.batch_matmul(_)"), _batches),
        (
            "clml.depth_to_space",
            chain("nn.depth_to_space"),
            lambda call: has(call, layout="NCHW", mode="DCR") and _fits(call),
        ),
        ("clml.upsampling", chain("nn.upsampling"), _with(method="bilinear")),
    ]
    for name in ("add", "subtract", "multiply", "divide", "minimum", "maximum"):
        rows.append((f"clml.{name}", chain(f"{name}(_)"), _binary))
    pools = "nn.avg_pool2d nn.max_pool2d nn.global_avg_pool2d nn.global_max_pool2d"
    for name in f"reshape {pools} nn.relu clip nn.batch_flatten".split():
        rows.append((f"clml.{name.removeprefix('nn.')}", chain(name), _plain))
    return rows


def is_clml_runtime_enabled() -> bool:
    """Whether functions for CLML can be built and run."""
    return has_code_generator("clml")


def partition_for_clml(mod: Any, params: Mapping[str, Any] | None = None, **_options: Any) -> Any:
    """Partition a module for CLML, with merged regions."""
    first = (without_dropout(), "FoldConstant")
    return partition(mod, params, "clml", clml_pattern_table(), first)
