"""CUTLASS backend of Relay's BYOC flow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ....backends import Unsupported
from .register import register_pattern_table
from .tables import (
    Check,
    Row,
    chain,
    dtype,
    hard_swish,
    has,
    inner,
    is_depthwise,
    name_of,
    needs,
    partition,
    product,
    shape,
    swish,
)


def _same_kind(call: Any) -> bool | Unsupported:
    kinds = [dtype(each) for each in call.args[:2]]
    known = kinds[0] == kinds[1] in ("float16", "float32") or set(kinds) <= {"int8", "uint8"}
    return needs(known, f"dtypes are {' x '.join(kinds)}; equal floats or bytes work")


def _cutlass_dense(root: Any) -> bool | Unsupported:
    return _same_kind(inner(root, "nn.dense"))


def _cutlass_batch_matmul(call: Any) -> bool | Unsupported:
    return _same_kind(call) and has(call, transpose_a=False, transpose_b=True)


def _cutlass_conv(name: str, kernel_layout: str) -> Check:
    def check(root: Any) -> bool | Unsupported:
        conv = inner(root, name)
        layouts = has(conv, data_layout="NHWC", kernel_layout=kernel_layout)
        dense = needs(layouts and not is_depthwise(conv), "the convolution is depthwise")
        return layouts and _same_kind(conv) and dense

    return check


_takes_conv = _cutlass_conv("nn.conv2d", "OHWI")


def _through_first_operands(expr: Any) -> Iterator[Any]:
    """The calls from an expression upward."""
    while getattr(expr, "args", None):
        yield expr
        expr = expr.args[0]


def _cutlass_residual(binary: str) -> Check:
    def check(root: Any) -> bool | Unsupported:
        call = root if name_of(root) == binary else inner(root, binary)
        chains = [list(_through_first_operands(arg)) for arg in call.args]
        conv = next((each for one in chains for each in one if name_of(each) == "nn.conv2d"), None)
        if conv is None:
            return Unsupported("no nn.conv2d is added to the residual")
        both = all(any(each.same_as(conv) for each in one) for one in chains)
        fits = not both and shape(call.args[0]) == shape(call.args[1])
        return _takes_conv(conv) and needs(fits, "both addends need the convolution, or broadcast")

    return check


def _cutlass_gelu(data: Any, half: bool) -> Any:
    curve = chain("multiply(_) cast erf cast" if half else "multiply(_) erf", data)
    return product(chain("multiply(_) add(_)", curve), data)


@register_pattern_table("cutlass")
def pattern_table() -> list[Row]:
    """Pattern table: residual blocks, matmuls with bias and activation, conv2d and gradients."""
    dense = chain("nn.dense(_) add|nn.bias_add(_)")
    biased = chain("nn.conv2d(_) add|nn.bias_add(_)")
    convs = {
        "conv2d_bias_hardswish": hard_swish(biased),
        "conv2d_bias_silu": swish(biased),
        "conv2d_bias_relu": chain("nn.relu", biased),
        "conv2d_bias_sigmoid": chain("sigmoid", biased),
        "conv2d_bias": biased,
    }
    rows: list[Row] = []
    for last in ("_relu", ""):
        for name, pattern in convs.items():
            for binary in ("add", "multiply"):
                block = chain(f"{binary}(_)" + (" nn.relu" if last else ""), pattern)
                rows.append(
                    (f"cutlass.{name}_residual_{binary}{last}", block, _cutlass_residual(binary))
                )
    rows += [
        ("cutlass.dense_bias_gelu_fp16", _cutlass_gelu(dense, True), _cutlass_dense),
        ("cutlass.dense_bias_gelu_fp32", _cutlass_gelu(dense, False), _cutlass_dense),
        ("cutlass.dense_bias_relu", chain("nn.relu", dense), _cutlass_dense),
        ("cutlass.dense_bias", dense, _cutlass_dense),
        ("cutlass.dense", chain("nn.dense(_)"), _cutlass_dense),
        ("cutlass.batch_matmul", chain("nn.batch_matmul(_)"), _cutlass_batch_matmul),
    ]
    rows += [(f"cutlass.{name}", pattern, _takes_conv) for name, pattern in convs.items()]
    rows.append(("cutlass.conv2d", chain("nn.conv2d(_)"), _takes_conv))
    for name, layout in (("conv2d_transpose", "IHWO"), ("conv2d_backward_weight", "NHWC")):
        check = _cutlass_conv(f"nn.{name}", layout)
        rows.append((f"cutlass.{name}", chain(f"nn.{name}(_)"), check))
    return rows


def partition_for_cutlass(mod: Any, params: Mapping[str, Any] | None = None) -> Any:
    """Partition a module for CUTLASS; weights remain arguments."""
    first = ["SimplifyInference", "FoldConstant", "FoldScaleAxis"] if params is not None else []
    options = {"include_non_call_ops": False, "bind_constants": False}
    return partition(mod, params, "cutlass", pattern_table(), first, **options)
