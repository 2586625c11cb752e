"""Normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, topi

from ....errors import RelayTypeError
from ....ir.rewrite import operator_name
from ...type_infer import type_of
from .. import layout_rules
from ..op_def import FOLLOW, FUSABLE, NEVER
from ..raising import Definitions, call_with_same_attrs, equivalent_call, from_relax, int_list
from ..reduce import reduced_axes
from ..registry import operator
from ..shapes import assign_type, axis_of, dtype, extents, number, rank
from ..te_op import kernel
from ..typed_relax import op
from .layouts import spread


def _vectors(data: relax.Expr, axis: int, **vectors: relax.Expr) -> int:
    """Normalize the axis and check that the vectors match its extent."""
    where = axis_of(axis, rank(data))
    size = extents(data)[where]
    for name, value in vectors.items():
        assign_type(value, [size], dtype(data))
        given = extents(value)
        if len(given) != 1 or (
            isinstance(given[0], int) and isinstance(size, int) and given[0] != size
        ):
            raise RelayTypeError(
                f"argument {name} of type {type_of(value)} must be a vector of {size} elements for "
                f"axis {axis} of data of type {type_of(data)}"
            )
    return where


@operator(
    "nn.batch_norm",
    5,
    wraps=True,
    results=3,
    how="direct",
    pattern=FUSABLE,
    precision=FOLLOW,
    layout=layout_rules.batch_norm,
)
def batch_norm(
    data: relax.Expr,
    gamma: relax.Expr,
    beta: relax.Expr,
    moving_mean: relax.Expr,
    moving_var: relax.Expr,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> relax.Expr:
    """Normalize with given mean and variance; returns the result, the mean and the variance."""
    where = _vectors(
        data, axis, gamma=gamma, beta=beta, moving_mean=moving_mean, moving_var=moving_var
    )
    if dtype(data) != "float32":
        return _batch_norm(
            data, gamma, beta, moving_mean, moving_var, where, epsilon, center, scale
        )
    return op.nn.batch_norm(
        data, gamma, beta, moving_mean, moving_var, where, float(epsilon), bool(center),
        bool(scale), training=False,
    )  # fmt: skip


def _batch_norm(
    data: relax.Expr,
    gamma: relax.Expr,
    beta: relax.Expr,
    mean: relax.Expr,
    variance: relax.Expr,
    axis: int,
    epsilon: float,
    center: bool,
    scale: bool,
) -> relax.Expr:
    """x * s + t in the data's dtype; Relax's batch_norm computes in float32."""
    shifted = op.add(variance, number(float(epsilon), dtype(data)))
    one = number(1.0, dtype(data))
    factor = op.divide(gamma if scale else one, op.sqrt(shifted))
    offset = op.negative(op.multiply(mean, factor))
    if center:
        offset = op.add(offset, beta)
    factor, offset = (spread(each, axis, rank(data)) for each in (factor, offset))
    return relax.Tuple([op.add(op.multiply(data, factor), offset), mean, variance])


def _others(data: relax.Expr, *axes: int) -> list[int]:
    return [axis for axis in range(rank(data)) if axis not in axes]


@operator("nn.instance_norm", 3, how="direct", layout=layout_rules.norm)
def instance_norm(
    data: relax.Expr,
    gamma: relax.Expr,
    beta: relax.Expr,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> relax.Expr:
    """Normalize over all axes except batch and channels."""
    where = _vectors(data, axis, gamma=gamma, beta=beta)
    return op.nn.instance_norm(
        data, gamma, beta, where, _others(data, 0, where), float(epsilon), bool(center), bool(scale)
    )


@operator("nn.layer_norm", 3, how="direct", precision=NEVER, layout=layout_rules.norm)
def layer_norm(
    data: relax.Expr,
    gamma: relax.Expr,
    beta: relax.Expr,
    axis: int = -1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> relax.Expr:
    """Normalize along one axis."""
    where = _vectors(data, axis, gamma=gamma, beta=beta)
    return op.nn.layer_norm(data, gamma, beta, [where], float(epsilon), bool(center), bool(scale))


@operator("nn.group_norm", 3, how="direct")
def group_norm(
    data: relax.Expr,
    gamma: relax.Expr,
    beta: relax.Expr,
    num_groups: int,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> relax.Expr:
    """Normalize over groups of channels."""
    where = _vectors(data, axis, gamma=gamma, beta=beta)
    return op.nn.group_norm(
        data, gamma, beta, int(num_groups), where, _others(data, 0, where), float(epsilon),
        bool(center), bool(scale),
    )  # fmt: skip


_lrn = kernel("nn.lrn", topi.nn.lrn)


@operator("nn.lrn", defaults={"alpha": 1e-4}, how="TOPI")
def lrn(
    data: relax.Expr,
    size: int = 5,
    axis: int = 1,
    bias: float = 2,
    alpha: float = 1e-5,
    beta: float = 0.75,
) -> relax.Expr:
    """Local response: x / (bias + alpha / size * sum of squares in a window of the axis)**beta."""
    return _lrn(
        data,
        size=int(size),
        axis=axis_of(axis, rank(data)),
        bias=float(bias),
        alpha=float(alpha),
        beta=float(beta),
    )


@operator("nn.l2_normalize", precision=NEVER, layout=layout_rules.l2_normalize)
def l2_normalize(
    data: relax.Expr, eps: float, axis: Sequence[int] | int | None = None
) -> relax.Expr:
    """x / sqrt(max(sum of squares over the axes, eps))."""
    axes: Any = reduced_axes(data, axis, False)
    total = op.sum(op.multiply(data, data), axes, True)
    floor = op.maximum(total, number(float(eps), dtype(data)))
    return op.divide(data, op.sqrt(floor))


@from_relax("nn.batch_norm")
def _batch_norm_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    return None if bool(call.attrs.training) else call_with_same_attrs("nn.batch_norm", call)


@from_relax("nn.layer_norm")
def _layer_norm_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    """Convert layer_norm to Relay, which supports only one axis."""
    axes = int_list(call.attrs.axes) or []
    return call_with_same_attrs("nn.layer_norm", call, axis=axes[0]) if len(axes) == 1 else None


@from_relax("nn.instance_norm", "nn.group_norm")
def _group_norm_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    return equivalent_call(operator_name(call), call.args, call, axis=int(call.attrs.channel_axis))
