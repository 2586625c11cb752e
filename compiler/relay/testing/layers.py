"""Operators with automatically named parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from ...errors import RelayError
from ..expr import var
from ..op import nn


def batch_norm_infer(
    data: relax.Expr,
    gamma: relax.Expr | None = None,
    beta: relax.Expr | None = None,
    moving_mean: relax.Expr | None = None,
    moving_var: relax.Expr | None = None,
    **kwargs: Any,
) -> relax.Expr:
    """Batch normalization for inference; `name=` is the prefix of created parameters."""
    name = kwargs.pop("name")
    given = {"gamma": gamma, "beta": beta, "moving_mean": moving_mean, "moving_var": moving_var}
    parameters = {
        key: var(f"{name}_{key}") if value is None else value for key, value in given.items()
    }
    return nn.batch_norm(data, **parameters, **kwargs)[0]


def _with_weight(operator: str) -> Callable[..., relax.Expr]:
    def layer(data: relax.Expr, weight: relax.Expr | None = None, **kwargs: Any) -> relax.Expr:
        prefix = kwargs.pop("name")
        weight = var(f"{prefix}_weight") if weight is None else weight
        return getattr(nn, operator)(data, weight, **kwargs)

    layer.__doc__ = f"{operator}; `name=` is the prefix of a created weight."
    return layer


conv2d, conv3d = _with_weight("conv2d"), _with_weight("conv3d")
conv2d_transpose = _with_weight("conv2d_transpose")


def dense_add_bias(
    data: relax.Expr,
    weight: relax.Expr | None = None,
    bias: relax.Expr | None = None,
    units: int | None = None,
    **kwargs: Any,
) -> relax.Expr:
    """dense and bias_add; `name=` is the prefix of created parameters."""
    name = kwargs.pop("name")
    weight = var(f"{name}_weight") if weight is None else weight
    bias = var(f"{name}_bias") if bias is None else bias
    return nn.bias_add(nn.dense(data, weight, units, **kwargs), bias, axis=-1)


_KERNEL_LAYOUTS = {
    "NCHW": ("OIHW", "OIHW"),
    "NCDHW": ("OIDHW", "OIDHW"),
    "NHWC": ("HWIO", "HWOI"),
    "NDHWC": ("DHWIO", "DHWOI"),
}


def conv_kernel_layout(data_layout: str, is_depthwise: bool = False) -> str:
    """Kernel layout that matches a data layout."""
    if data_layout not in _KERNEL_LAYOUTS:
        raise RelayError(f"there is no kernel layout for the data layout {data_layout!r}")
    return _KERNEL_LAYOUTS[data_layout][int(is_depthwise)]
