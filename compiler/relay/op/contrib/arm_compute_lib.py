"""Arm Compute Library backend of Relay's BYOC flow: NHWC layers with batch size 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    has_code_generator,
    inner,
    is_depthwise,
    partition,
    shape,
)

_INTEGERS = ("uint8", "int8")
_ANY = ("float32", *_INTEGERS)


def _conv_of(call: Any, kinds: Sequence[str], result: str) -> bool | Unsupported:
    data, weight = call.args[:2]
    samples = len(shape(data)) == 4 and shape(data)[0] == 1 and len(shape(weight)) == 4
    plain = dtype(data) in kinds and dtype(weight) in kinds
    results = attribute(call, "out_dtype", "") in ("", result)
    known = samples and plain and results and has(call, data_layout="NHWC")
    if not known or not is_depthwise(call):
        return known and int(call.attrs.groups) == 1
    kernel, strides = shape(weight)[:2], [int(each) for each in call.attrs.strides]
    return kernel in ((3, 3), (5, 5)) and strides in ([1, 1], [2, 2])


def _conv(call: Any) -> bool | Unsupported:
    return _conv_of(call, ("float32",), "float32")


def _per_tensor(*values: Any) -> bool:
    """Whether all scales and zero points are scalars."""
    return all(shape(each) in ((), (1,)) for each in values)


def _qnn_conv(call: Any) -> bool | Unsupported:
    return _conv_of(call, _INTEGERS, "int32") and _per_tensor(*call.args[2:6])


def _dense_of(call: Any, kinds: Sequence[str], results: Sequence[str]) -> bool:
    data, weight = call.args[:2]
    plain = dtype(data) in kinds and dtype(weight) in kinds and len(shape(weight)) == 2
    return plain and attribute(call, "out_dtype", "") in results


def _dense(call: Any) -> bool:
    return _dense_of(call, ("float32",), ("", "float32"))


def _qnn_dense(call: Any) -> bool:
    return _dense_of(call, _INTEGERS, ("int32",)) and _per_tensor(*call.args[2:6])


def _pool(*kinds: str) -> Any:
    def check(call: Any) -> bool | Unsupported:
        return dtype(call.args[0]) in kinds and has(call, layout="NHWC", dilation=[1, 1])

    return check


def _requantized(root: Any) -> bool:
    return attribute(root, "out_dtype", "") in _INTEGERS


def _cast_pool(root: Any) -> bool:
    pool = root.args[0]
    return attribute(root, "dtype") in _INTEGERS and _pool("int32")(pool)


def _concatenated(call: Any) -> bool:
    return all(dtype(each) in _ANY for each in call.args[0].fields) and -4 <= call.attrs.axis < 4


def _qnn_add(call: Any) -> bool:
    return all(dtype(each) in _INTEGERS for each in call.args[:2]) and _per_tensor(*call.args[2:8])


def arm_compute_lib_pattern_table(disabled_ops: Sequence[str] = ("concatenate",)) -> list[Row]:
    """Pattern table: float and quantized convolutions with padding, bias and relu, dense with
    bias, pools between casts, and average pools of squares.

    `disabled_ops`: "concatenate" excludes concatenations.
    """
    from ...dataflow_pattern import is_expr, is_op, is_tuple, wildcard
    from ...expr import const

    squares = is_op("power")(wildcard(), is_expr(const(2.0)))
    quantized = "nn.bias_add(c)? nn.relu? qnn.requantize(__cc)"
    quantized_dense = "qnn.dense(ccccc) nn.bias_add(c)? qnn.requantize(__cc)"
    rows: list[Row] = [
        (
            "arm_compute_lib.conv2d",
            chain("nn.pad(_)? nn.conv2d(c) nn.bias_add(c)? nn.relu?"),
            lambda root: _conv(inner(root, "nn.conv2d")),
        ),
        (
            "arm_compute_lib.qnn_conv2d",
            chain(f"nn.pad(_)? qnn.conv2d(ccccc) {quantized}"),
            lambda root: _requantized(root) and _qnn_conv(inner(root, "qnn.conv2d")),
        ),
        (
            "arm_compute_lib.dense",
            chain("nn.dense(c) nn.bias_add(c)?"),
            lambda root: _dense(inner(root, "nn.dense")),
        ),
        (
            "arm_compute_lib.qnn_dense",
            chain(quantized_dense),
            lambda root: _requantized(root) and _qnn_dense(inner(root, "qnn.dense")),
        ),
        (
            "arm_compute_lib.avg_pool2d",
            chain("cast nn.avg_pool2d|nn.global_avg_pool2d cast"),
            _cast_pool,
        ),
        (
            "arm_compute_lib.l2_pool2d",
            chain("nn.avg_pool2d sqrt", squares),
            lambda root: _pool("float32")(root.args[0]),
        ),
    ]
    if "concatenate" not in disabled_ops:
        whole = chain("concatenate", is_tuple(None))
        rows.append(("arm_compute_lib.concatenate", whole, _concatenated))
    return rows


register_pattern_table("arm_compute_lib", arm_compute_lib_pattern_table)
claim(
    "arm_compute_lib",
    {
        "reshape": True,
        "nn.conv2d": _conv,
        "nn.dense": _dense,
        "nn.max_pool2d nn.global_max_pool2d": _pool(*_ANY),
        "nn.avg_pool2d nn.global_avg_pool2d": _pool("float32"),
        "maximum add": lambda call: all(dtype(each) == "float32" for each in call.args),
        "qnn.add": _qnn_add,
    },
)


def is_arm_compute_runtime_enabled() -> bool:
    """Whether functions for Arm Compute Library can be built and run."""
    return has_code_generator("arm_compute_lib")


def partition_for_arm_compute_lib(
    mod: Any,
    params: Mapping[str, Any] | None = None,
    disabled_ops: Sequence[str] = ("concatenate",),
    **_options: Any,
) -> Any:
    """Partition a module for Arm Compute Library, one function per layer."""
    table = arm_compute_lib_pattern_table(disabled_ops)
    return partition(mod, params, "arm_compute_lib", table, include_non_call_ops=False)
