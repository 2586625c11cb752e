"""Reductions over axes."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, tirx, topi

from ...errors import RelayTypeError
from ...ir.rewrite import operator_name
from ...kernels import arg_reduce
from ..expr import TupleWrapper, as_expr
from ..type_infer import infer_type
from . import layout_rules, quantization
from .op_def import FOLLOW, NEVER, REDUCTION
from .raising import Definitions, from_relax, int_list, typed_call
from .registry import builder, operator
from .shapes import axis_of, dtype, extents, is_float, number, rank, shape_tensor
from .te_op import kernel
from .transform import cast_to
from .typed_relax import op

Axes = int | Sequence[int] | None


def reduced_axes(data: relax.Expr, axis: Axes, exclude: bool) -> list[int]:
    """Axes to reduce; None and [] mean all. RelayTypeError if invalid or only `exclude` is set."""
    ndim = rank(data)
    if axis is None or (not isinstance(axis, int) and len(list(axis)) == 0):
        if exclude:
            raise RelayTypeError("exclude needs axes")
        return list(range(ndim))
    given = [axis] if isinstance(axis, int) else list(axis)
    axes = sorted({axis_of(each, ndim) for each in given})
    return [each for each in range(ndim) if each not in axes] if exclude else axes


def _axis_list(axis: Axes) -> Any:
    """Axes in the form stored in calls: a list, or None for all."""
    return [axis] if isinstance(axis, int) else axis


def _count(data: relax.Expr, axes: Sequence[int], name: str) -> relax.Expr:
    """Number of elements along axes, as a scalar of dtype `name`."""
    sizes = [extents(data)[axis] for axis in axes]
    if builtins.all(isinstance(size, int) for size in sizes):
        return number(math.prod(sizes), name)
    shape = shape_tensor(data, "int64")
    picked = op.take(shape, relax.const(list(axes), "int64"), 0, mode="clip")
    return cast_to(op.prod(picked), name)


def _reduction(
    name: str, what: str, function: Callable[..., relax.Expr], **facts: Any
) -> Callable[..., Any]:
    def make(
        data: relax.Expr, axis: Axes = None, keepdims: bool = False, exclude: bool = False
    ) -> relax.Expr:
        axes = reduced_axes(data, axis, exclude)
        if name in _OF_NOTHING and 0 in [extents(data)[each] for each in axes]:
            return _of_nothing(data, axes, bool(keepdims), _OF_NOTHING[name](dtype(data)))
        if axes and name in _OF_BOOL and dtype(data) == "bool":
            return _OF_BOOL[name](data, axis=axes, keepdims=bool(keepdims))
        return function(data, axes, bool(keepdims)) if axes else data

    doc = f"{what} over axes, all of them for None; the complement with `exclude`."
    return _registered(name, make, how="direct", doc=doc, **facts)


def _registered(name: str, make: Callable[..., Any], **facts: Any) -> Callable[..., Any]:
    facts = {"pattern": REDUCTION, "layout": layout_rules.reduction, **facts}
    return operator(name, prepare={"axis": _axis_list}, **facts)(make)


_OF_NOTHING: dict[str, Callable[[str], Any]] = {
    "sum": lambda name: 0,
    "prod": lambda name: 1,
    "max": lambda name: tirx.min_value(name).value,
    "min": lambda name: tirx.max_value(name).value,
}
"""Results of empty reductions, by dtype."""


def _of_nothing(data: relax.Expr, axes: list[int], keepdims: bool, value: Any) -> relax.Expr:
    shape = [1 if axis in axes else size for axis, size in enumerate(extents(data))]
    if not keepdims:
        shape = [size for axis, size in enumerate(shape) if axis not in axes]
    return op.full(shape, number(value, dtype(data)), dtype(data))


def _mean(data: relax.Expr, axes: list[int], keepdims: bool) -> relax.Expr:
    if is_float(dtype(data)):
        return op.mean(data, axes, keepdims)
    return op.divide(op.sum(data, axes, keepdims), _count(data, axes, dtype(data)))


_all = kernel("all", lambda data, axis, keepdims: topi.all(data, axis, keepdims))
_any = kernel("any", lambda data, axis, keepdims: topi.any(data, axis, keepdims))

_OF_BOOL = {"min": _all, "max": _any}
"""Boolean reductions equivalent to min and max."""

_EXTREME: dict[str, Any] = {"precision": FOLLOW, "quantized": quantization.same}
sum = _reduction("sum", "Sum", op.sum, precision=NEVER)
max = _reduction("max", "Largest element", op.max, **_EXTREME)
min = _reduction("min", "Smallest element", op.min, **_EXTREME)
mean = _reduction(
    "mean",
    "Arithmetic mean, truncated for integers",
    _mean,
    precision=NEVER,
    quantized=quantization.mean,
)
prod = _reduction("prod", "Product", op.prod)
all = _reduction(
    "all", "Conjunction", lambda data, axes, keepdims: _all(data, axis=axes, keepdims=keepdims)
)
any = _reduction(
    "any", "Disjunction", lambda data, axes, keepdims: _any(data, axis=axes, keepdims=keepdims)
)


def _arg_reduction(name: str, what: str) -> Callable[..., relax.Expr]:
    compute = kernel(name, getattr(arg_reduce, name))

    def make(
        data: relax.Expr,
        axis: Axes = None,
        keepdims: bool = False,
        exclude: bool = False,
        select_last_index: bool = False,
    ) -> relax.Expr:
        axes = reduced_axes(data, axis, exclude)
        found = compute(
            data, axis=axes, keepdims=bool(keepdims), select_last_index=bool(select_last_index)
        )
        return cast_to(infer_type(found), "int32")

    doc = f"Flat index (int32) of the {what} element over axes."
    return _registered(name, make, how="TOPI", precision=FOLLOW, doc=doc)


argmax = _arg_reduction("argmax", "largest")
argmin = _arg_reduction("argmin", "smallest")


@operator(
    "variance",
    2,
    prepare={"axis": _axis_list},
    pattern=REDUCTION,
    precision=NEVER,
    layout=layout_rules.reduction,
)
def _variance_about(
    data: relax.Expr,
    with_mean: relax.Expr,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> relax.Expr:
    """Mean squared distance from given means with reduced axes of extent 1."""
    axes = reduced_axes(data, axis, exclude)
    distance = op.subtract(data, with_mean)
    total = op.sum(op.multiply(distance, distance), axes, bool(keepdims))
    count = _count(data, axes, dtype(data))
    if unbiased:
        count = op.subtract(count, number(1, dtype(data)))
    return op.divide(total, count)


@builder("variance")
def variance(
    data: relax.Expr,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
    with_mean: relax.Expr | None = None,
) -> relax.Expr:
    """Variance; divided by n - 1 with `unbiased`."""
    about = mean(data, axis, True, exclude) if with_mean is None else with_mean
    return _variance_about(data, about, axis, keepdims, exclude, unbiased)


@builder("std")
def std(
    data: relax.Expr,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> relax.Expr:
    """Standard deviation."""
    return op.sqrt(variance(data, axis, keepdims, exclude, unbiased))


@builder("mean_variance")
def mean_variance(
    data: relax.Expr,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> TupleWrapper:
    """Mean and variance."""
    return _with_mean(data, axis, keepdims, exclude, unbiased, lambda value: value)


@builder("mean_std")
def mean_std(
    data: relax.Expr, axis: Axes = None, keepdims: bool = False, exclude: bool = False
) -> TupleWrapper:
    """Mean and standard deviation."""
    return _with_mean(data, axis, keepdims, exclude, False, op.sqrt)


def _with_mean(
    data: relax.Expr,
    axis: Axes,
    keepdims: bool,
    exclude: bool,
    unbiased: bool,
    finish: Callable[[relax.Expr], relax.Expr],
) -> TupleWrapper:
    about = mean(data, axis, True, exclude)
    spread = infer_type(finish(_variance_about(data, about, axis, keepdims, exclude, unbiased)))
    if not keepdims:
        about = op.squeeze(about, reduced_axes(data, axis, exclude))
    return TupleWrapper(infer_type(relax.Tuple([about, spread])), 2)


@builder("logsumexp")
def logsumexp(data: relax.Expr, axis: Axes = None, keepdims: bool = False) -> relax.Expr:
    """Numerically stable logarithm of the sum of exponentials."""
    from .tensor import add, exp, log, subtract
    from .transform import squeeze

    axes = reduced_axes(infer_type(as_expr(data)), axis, False)
    largest = max(data, axes, True)
    total = sum(exp(subtract(data, largest)), axes, True)
    result = add(log(total), largest)
    return result if keepdims else squeeze(result, axes)


def _reduction_from_relax(name: str) -> None:
    @from_relax(name)
    def rule(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
        axes, keepdims = int_list(call.attrs.axis), bool(call.attrs.keepdims)
        if 0 in extents(call.args[0]):
            return None  # min and max of empty tensors are infinite only in Relax
        return typed_call(name, call.args, call.ty, axis=axes, keepdims=keepdims)


for _name in ("sum", "prod", "max", "min"):
    _reduction_from_relax(_name)


@from_relax("mean")
def _mean_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    """Convert the mean over both spatial axes of images to global average pooling."""
    axes, keepdims = int_list(call.attrs.axis), bool(call.attrs.keepdims)
    ndim = call.args[0].ty.ndim
    if (
        keepdims
        and axes is not None
        and sorted(axis % ndim for axis in axes) == [2, 3]
        and ndim == 4
    ):
        return typed_call("nn.global_avg_pool2d", call.args, call.ty)
    if not is_float(dtype(call)):
        return None
    return typed_call("mean", call.args, call.ty, axis=axes, keepdims=keepdims)


@from_relax("argmax", "argmin")
def _arg_reduction_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    name = operator_name(call)
    axes = None if call.attrs.axis is None else [int(call.attrs.axis)]
    ty = relax.TensorType(call.ty.shape, "int32")
    found = typed_call(name, call.args, ty, axis=axes, keepdims=bool(call.attrs.keepdims))
    return typed_call("cast", [found], call.ty, dtype=dtype(call))
