"""Pooling, and gradients of 2-D pooling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx, topi

from ....kernels import arg_reduce
from ...type_infer import infer_type
from .. import layout_rules, quantization
from ..op_def import FOLLOW, FUSABLE, NEVER
from ..raising import Definitions, from_relax, int_list, typed_call
from ..registry import operator
from ..shapes import extents, integers
from ..te_op import kernel
from ..typed_relax import op
from .layouts import (
    PLAIN,
    convert,
    is_plain,
    paddings,
    spatial_axes,
    window_attributes,
    with_signature,
)

_POOLING: dict[str, Any] = {"pattern": FUSABLE, "precision": FOLLOW, "layout": layout_rules.pooling}

_WHAT = {"max": "Largest value", "avg": "Mean"}


def _pool(kind: str, count: int, **facts: Any) -> Callable[..., Any]:
    """Max or average pooling over `count` spatial axes."""
    name = f"{kind}_pool{count}d"
    function = getattr(op.nn, name)
    plain, ones, zeros = PLAIN["data"][count], (1,) * count, (0,) * count

    def pool(
        data: relax.Expr,
        pool_size: Any,
        strides: Any,
        dilation: Any,
        padding: Any,
        layout: str,
        out_layout: str,
        ceil_mode: bool,
        **options: Any,
    ) -> relax.Expr:
        own = layout if is_plain(layout) else plain
        result = function(
            convert(data, layout, own),
            pool_size=integers(pool_size, count),
            strides=integers(strides, count),
            padding=paddings(padding, count),
            dilation=integers(dilation, count),
            ceil_mode=bool(ceil_mode),
            layout=own,
            **{key: bool(value) for key, value in options.items()},
        )
        return convert(infer_type(result), own, str(out_layout or "") or layout)

    attributes = {
        **{"pool_size": ones, "strides": ones, "dilation": ones, "padding": zeros},
        **{"layout": plain, "out_layout": "", "ceil_mode": False},
        **({"count_include_pad": False} if kind == "avg" else {}),
    }
    doc = f"{_WHAT[kind]} of windows over {count} spatial axes."
    facts = {**_POOLING, **facts, "how": "direct"}
    return operator(f"nn.{name}", prepare=window_attributes(count), doc=doc, **facts)(
        with_signature(pool, "data", attributes)
    )


max_pool1d = _pool("max", 1)
max_pool2d = _pool("max", 2, quantized=quantization.same)
max_pool3d = _pool("max", 3)
avg_pool1d = _pool("avg", 1)
avg_pool2d = _pool("avg", 2, quantized=quantization.avg_pool2d)
avg_pool3d = _pool("avg", 3)


def _max_pool_places(
    data: te.Tensor,
    shape: list[int],
    kernel: list[int],
    strides: list[int],
    dilations: list[int],
    before: list[int],
    first_axis_fastest: bool,
) -> te.Tensor:
    """Flat index of the first maximum of each window.

    NaN is larger than any number. With `first_axis_fastest`, the first spatial axis varies fastest.
    """
    rank = len(kernel)
    size = [int(extent) for extent in data.shape[2:]]
    order = range(rank) if first_axis_fastest else reversed(range(rank))
    pitch, pitches = 1, [0] * rank
    for axis in order:
        pitches[axis], pitch = pitch, pitch * size[axis]
    ranked = arg_reduce.comparable(data)
    lowest, none = tirx.min_value(ranked.dtype), tirx.max_value("int64")

    def over_windows(reduction: Any, candidate: Any, name: str) -> te.Tensor:
        """Reduce `candidate(key, flat index, output index)` over windows."""
        steps = [te.reduce_axis((0, extent), f"step_{axis}") for axis, extent in enumerate(kernel)]

        def element(*index: Any) -> Any:
            image, channel, *at = index
            places = [
                tirx.Cast("int64", at[axis] * strides[axis] + steps[axis] * dilations[axis])
                - before[axis]
                for axis in range(rank)
            ]
            inside = tirx.all(*(tirx.And(p >= 0, p < n) for p, n in zip(places, size)))
            flat = tirx.Cast("int64", image * data.shape[1] + channel) * pitch
            for place, factor in zip(places, pitches):
                flat = flat + place * factor
            # Padding positions must not be read.
            key = tirx.if_then_else(inside, ranked(image, channel, *places), lowest)
            return reduction(candidate(key, tirx.if_then_else(inside, flat, none), index), steps)

        return te.compute(tuple(shape), element, name=name)

    largest = over_windows(te.max, lambda key, place, index: key, "largest_in_window")
    return over_windows(
        te.min,
        lambda key, place, index: tirx.Select(key == largest(*index), place, none),
        "max_pool_places",
    )


max_pool_places = kernel("nn.max_pool_places", _max_pool_places)


def _global_pool(kind: str, count: int, **facts: Any) -> Callable[..., Any]:
    plain = PLAIN["data"][count]

    def make(data: relax.Expr, layout: str = plain, out_layout: str = "") -> relax.Expr:
        own = layout if is_plain(layout) else plain
        data = convert(data, layout, own)
        axes = spatial_axes(own)
        if kind == "max":
            result = op.max(data, axes, True)
        elif count == 2:
            result = op.nn.adaptive_avg_pool2d(data, [1, 1], own)
        else:
            result = op.mean(data, axes, True)
        return convert(infer_type(result), own, str(out_layout or "") or layout)

    doc = f"{_WHAT[kind]} over all {count} spatial axes, which stay with extent 1."
    return operator(f"nn.global_{kind}_pool{count}d", doc=doc, **facts)(make)


global_max_pool1d = _global_pool("max", 1)
global_max_pool2d = _global_pool("max", 2, **_POOLING)
global_max_pool3d = _global_pool("max", 3)
global_avg_pool1d = _global_pool("avg", 1)
global_avg_pool2d = _global_pool(
    "avg", 2, **{**_POOLING, "precision": NEVER, "quantized": quantization.global_mean}
)
global_avg_pool3d = _global_pool("avg", 3)

_ADAPTIVE = {1: topi.nn.adaptive_pool1d, 2: topi.nn.adaptive_pool, 3: topi.nn.adaptive_pool3d}


def _adaptive_pool(kind: str, count: int, **facts: Any) -> Callable[..., Any]:
    name = f"adaptive_{kind}_pool{count}d"
    plain = PLAIN["data"][count]
    compute = kernel(
        f"nn.{name}",
        lambda data, output_size, layout: _ADAPTIVE[count](data, output_size, kind, layout),
    )

    def make(
        data: relax.Expr, output_size: Any = None, layout: str = plain, out_layout: str = ""
    ) -> relax.Expr:
        own = layout if is_plain(layout) else plain
        data = convert(data, layout, own)
        if output_size is None or (not isinstance(output_size, int) and not list(output_size)):
            size = [extents(data)[axis] for axis in spatial_axes(own)]
        else:
            size = integers(output_size, count)
            size = size * count if len(size) == 1 else size
        if kind == "avg":
            result = getattr(op.nn, name)(data, size, own)
        else:
            result = compute(data, output_size=size, layout=own)
        return convert(infer_type(result), own, str(out_layout or "") or layout)

    doc = f"Pooling to `output_size` along {count} axes; None keeps the size."
    own = {"how": "direct", "precision": NEVER} if kind == "avg" else {"how": "TOPI"}
    return operator(f"nn.{name}", doc=doc, **{**_POOLING, **own, **facts})(make)


adaptive_max_pool1d = _adaptive_pool("max", 1)
adaptive_max_pool2d = _adaptive_pool("max", 2)
adaptive_max_pool3d = _adaptive_pool("max", 3)
adaptive_avg_pool1d = _adaptive_pool("avg", 1, quantized=quantization.mean_pool)
adaptive_avg_pool2d = _adaptive_pool("avg", 2)
adaptive_avg_pool3d = _adaptive_pool("avg", 3)

_pool_grad = kernel("nn.pool_grad", topi.nn.pool_grad)


def _gradient(kind: str) -> Callable[..., Any]:
    def gradient(
        out_grad: relax.Expr,
        data: relax.Expr,
        pool_size: Any,
        strides: Any,
        padding: Any,
        layout: str,
        ceil_mode: bool,
        count_include_pad: bool = False,
        **_without_effect: Any,
    ) -> relax.Expr:
        return _pool_grad(
            out_grad,
            data,
            pool_type=kind,
            kernel=integers(pool_size, 2),
            stride=integers(strides, 2),
            padding=paddings(padding, 2),
            layout=layout,
            ceil_mode=bool(ceil_mode),
            count_include_pad=bool(count_include_pad),
        )

    attributes = {
        **{"pool_size": (1, 1), "strides": (1, 1), "padding": (0, 0)},
        **{"layout": "NCHW", "out_layout": "", "ceil_mode": False},
        **({"count_include_pad": False} if kind == "avg" else {}),
    }
    name = f"{kind}_pool2d"
    facts: dict[str, Any] = {"how": "TOPI", "pattern": FUSABLE, "ignored": ("dilation",)}
    doc = f"Gradient of {name} with respect to its input."
    return operator(f"nn.{name}_grad", 2, doc=doc, **facts)(
        with_signature(gradient, "out_grad data", attributes)
    )


max_pool2d_grad = _gradient("max")
avg_pool2d_grad = _gradient("avg")


def _pool_from_relax(kind: str, count: int) -> None:
    name = f"nn.{kind}_pool{count}d"

    @from_relax(name)
    def rule(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
        attrs = call.attrs
        if str(attrs.out_layout) not in ("", str(attrs.layout)):
            return None
        options = {"count_include_pad": bool(attrs.count_include_pad)} if kind == "avg" else {}
        return typed_call(
            name,
            call.args,
            call.ty,
            pool_size=int_list(attrs.pool_size),
            strides=int_list(attrs.strides),
            dilation=int_list(attrs.dilation),
            padding=paddings(int_list(attrs.padding), count),
            layout=str(attrs.layout),
            ceil_mode=bool(attrs.ceil_mode),
            **options,
        )


def _adaptive_pool_from_relax(count: int) -> None:
    @from_relax(f"nn.adaptive_avg_pool{count}d")
    def rule(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
        attrs = call.attrs
        size, layout = int_list(attrs.output_size), str(attrs.layout)
        if size is not None and set(size) == {1}:
            return typed_call(f"nn.global_avg_pool{count}d", call.args, call.ty, layout=layout)
        return typed_call(
            f"nn.adaptive_avg_pool{count}d", call.args, call.ty, output_size=size, layout=layout
        )


for _count in (1, 2, 3):
    _pool_from_relax("max", _count)
    _pool_from_relax("avg", _count)
    _adaptive_pool_from_relax(_count)
