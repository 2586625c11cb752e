"""Relax's operators as Relay's, for modules that importers made: what Relay's text shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax

from ...errors import RelayError
from ...graph.constants import integers, static_shape
from ..transform.build import constant, dtype, op

Rule = Callable[[relax.Call], relax.Expr]

_SAME = (
    *("abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atanh", "bitwise_and"),
    *("bitwise_not", "bitwise_or", "bitwise_xor", "ceil", "cos", "cosh", "divide"),
    *("equal", "erf", "exp", "floor", "floor_divide", "floor_mod", "greater", "greater_equal"),
    *("isfinite", "isinf", "isnan", "left_shift", "less", "less_equal", "log"),
    *("logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum"),
    *("mod", "multiply", "negative", "not_equal", "ones_like", "power", "right_shift", "round"),
    *("rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "subtract", "tan", "tanh", "trunc"),
    *("where", "zeros_like", "nn.relu"),
)


def raised(call: relax.Call) -> relax.Expr:
    """What a call of one of Relax's operators is in Relay's: a nested expression.

    Raises
    ------
    RelayError
        Relay's text has no form for it.
    """
    name = str(call.op.name).removeprefix("relax.")
    if name in _SAME:
        return op(name, *call.args)
    if name not in _RULES:
        raise RelayError(f"the Relax operator {call.op.name} has no form in Relay's text")
    return _RULES[name](call)


def _shape(expr: relax.Expr) -> list[int]:
    extents = static_shape(expr)
    if extents is None:
        raise RelayError(f"{expr.ty} has extents known at run time, which Relay's text has not")
    return list(extents)


def _list(values: Any) -> list[int] | None:
    return None if values is None else [int(each) for each in values]


def _number(expr: Any) -> float:
    value = getattr(expr, "value", expr)
    return float(value)


def _conv(name: str) -> Rule:
    def rule(call: relax.Call) -> relax.Expr:
        attrs = call.attrs
        out_dtype = str(attrs.out_dtype or "")
        options: dict[str, Any] = {
            "strides": _list(attrs.strides),
            "padding": _list(attrs.padding),
            "dilation": _list(attrs.dilation),
            "groups": int(attrs.groups),
            "data_layout": str(attrs.data_layout),
            "kernel_layout": str(attrs.kernel_layout),
            "out_dtype": "" if out_dtype in ("void", "None") else out_dtype,
        }
        if "transpose" in name:
            options["output_padding"] = _list(attrs.output_padding)
            options["channels"] = _channels(call)
            options["kernel_size"] = _kernel_size(call)
        if str(attrs.out_layout) != str(attrs.data_layout):
            options["out_layout"] = str(attrs.out_layout)
        return op(name, *call.args, **options)

    return rule


def _kernel_size(call: relax.Call) -> list[int]:
    layout, extents = str(call.attrs.kernel_layout), _shape(call.args[1])
    return [extents[layout.index(axis)] for axis in "DHW" if axis in layout]


def _channels(call: relax.Call) -> int:
    extents = _shape(call.args[1])
    return extents[str(call.attrs.kernel_layout).index("O")] * int(call.attrs.groups)


def _pool(name: str) -> Rule:
    def rule(call: relax.Call) -> relax.Expr:
        attrs = call.attrs
        options: dict[str, Any] = {
            "pool_size": _list(attrs.pool_size),
            "strides": _list(attrs.strides),
            "dilation": _list(attrs.dilation),
            "padding": _list(attrs.padding),
            "layout": str(attrs.layout),
            "ceil_mode": bool(attrs.ceil_mode),
        }
        if "avg" in name:
            options["count_include_pad"] = bool(attrs.count_include_pad)
        return op(name, call.args[0], **options)

    return rule


def _adaptive_pool(call: relax.Call) -> relax.Expr:
    size = _list(call.attrs.output_size)
    name = str(call.op.name).removeprefix("relax.")
    return op(name, call.args[0], output_size=size, layout=str(call.attrs.layout))


def _batch_norm(call: relax.Call) -> relax.Expr:
    attrs = call.attrs
    return op(
        "nn.batch_norm",
        *call.args,
        axis=int(attrs.axis),
        epsilon=float(attrs.epsilon),
        center=bool(attrs.center),
        scale=bool(attrs.scale),
    )


def _layer_norm(call: relax.Call) -> relax.Expr:
    attrs = call.attrs
    axes = _list(attrs.axes) or []
    if len(axes) != 1:
        raise RelayError(f"layer_norm over the axes {axes}: Relay's has one axis")
    options = {"axis": axes[0], "epsilon": float(attrs.epsilon)}
    center, scale = bool(attrs.center), bool(attrs.scale)
    return op("nn.layer_norm", *call.args, center=center, scale=scale, **options)


def _matmul(call: relax.Call) -> relax.Expr:
    """One of Relay's products of matrices, other ranks reshaped to two or three dimensions."""
    left, right = call.args
    a, b = _shape(left), _shape(right)
    result = _shape(call)
    kind = dtype(call)
    if len(a) < 2 or len(b) < 2:
        left = op("expand_dims", left, axis=0) if len(a) < 2 else left
        right = op("expand_dims", right, axis=1) if len(b) < 2 else right
        product = _product(left, right, kind)
    else:
        product = _product(left, right, kind)
    return product if _shape(product) == result else op("reshape", product, newshape=result)


def _product(left: relax.Expr, right: relax.Expr, kind: str) -> relax.Expr:
    a, b = _shape(left), _shape(right)
    if len(b) == 2:
        flat = left if len(a) == 2 else op("reshape", left, newshape=[-1, a[-1]])
        made = op("nn.matmul", flat, right, out_dtype=kind)
        return made if len(a) == 2 else op("reshape", made, newshape=[*a[:-1], b[-1]])
    rank = max(len(a), len(b)) - 2
    outer_a, outer_b = [1] * (rank + 2 - len(a)) + a[:-2], [1] * (rank + 2 - len(b)) + b[:-2]
    outer = [max(x, y) for x, y in zip(outer_a, outer_b)]
    batches = []
    for data, before, shape in ((left, outer_a, a), (right, outer_b, b)):
        if before != outer:
            data = op("broadcast_to", data, shape=[*outer, *shape[-2:]])
        if rank != 1:
            data = op("reshape", data, newshape=[math.prod(outer), *shape[-2:]])
        batches.append(data)
    made = op("nn.batch_matmul", *batches, out_dtype=kind, transpose_a=False, transpose_b=False)
    return made if rank == 1 else op("reshape", made, newshape=[*outer, a[-2], b[-1]])


def _gelu(call: relax.Call) -> relax.Expr:
    """x / 2 (1 + erf(x / sqrt(2)))."""
    data, kind = call.args[0], dtype(call)
    inner = op("erf", op("multiply", data, constant(math.sqrt(0.5), kind)))
    half = op("multiply", data, constant(0.5, kind))
    return op("multiply", half, op("add", inner, constant(1.0, kind)))


def _gelu_tanh(call: relax.Call) -> relax.Expr:
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    data, kind = call.args[0], dtype(call)
    cube = op("multiply", op("multiply", data, data), data)
    inner = op("add", data, op("multiply", cube, constant(0.044715, kind)))
    curve = op("tanh", op("multiply", inner, constant(math.sqrt(2 / math.pi), kind)))
    half = op("multiply", data, constant(0.5, kind))
    return op("multiply", half, op("add", curve, constant(1.0, kind)))


def _clip(call: relax.Call) -> relax.Expr:
    low, high = (_number(each) for each in call.args[1:])
    return op("clip", call.args[0], a_min=low, a_max=high)


def _unchanged(name: str) -> Rule:
    return lambda call: op(name, *call.args)


def _reduction(name: str) -> Rule:
    def rule(call: relax.Call) -> relax.Expr:
        axes = _list(call.attrs.axis)
        return op(name, call.args[0], axis=axes, keepdims=bool(call.attrs.keepdims))

    return rule


def _arg_reduction(name: str) -> Rule:
    def rule(call: relax.Call) -> relax.Expr:
        attrs = call.attrs
        axes = None if attrs.axis is None else [int(attrs.axis)]
        made = op(name, call.args[0], axis=axes, keepdims=bool(attrs.keepdims))
        return made if dtype(made) == dtype(call) else op("cast", made, dtype=dtype(call))

    return rule


def _strided_slice(call: relax.Call) -> relax.Expr:
    data, axes, begin, end, *strides = call.args
    values = [integers(list(each.fields)) for each in (axes, begin, end, *strides)]
    if any(each is None for each in values):
        raise RelayError("a slice whose bounds are known at run time has no form in Relay's text")
    steps = values[3] if len(values) > 3 else [1] * len(values[0] or ())
    return op(
        "strided_slice",
        data,
        begin=list(values[1] or ()),
        end=list(values[2] or ()),
        strides=list(steps or ()),
        axes=list(values[0] or ()),
        slice_mode="end",
    )


def _split(call: relax.Call) -> relax.Expr:
    parts = call.attrs.indices_or_sections
    sections = int(parts) if not hasattr(parts, "__len__") else _list(parts)
    return op("split", call.args[0], indices_or_sections=sections, axis=int(call.attrs.axis))


def _expand_dims(call: relax.Call) -> relax.Expr:
    return op("reshape", call.args[0], newshape=_shape(call))


_RULES: dict[str, Rule] = {
    **{f"relay.{name}": _unchanged(name) for name in ("fast_exp", "fast_tanh", "fast_erf")},
    "relay.nn.fast_softmax": lambda call: op(
        "nn.fast_softmax", call.args[0], axis=int(call.attrs["axis"])
    ),
    "argmax": _arg_reduction("argmax"),
    "argmin": _arg_reduction("argmin"),
    "astype": lambda call: op("cast", call.args[0], dtype=dtype(call)),
    "broadcast_to": lambda call: op("broadcast_to", call.args[0], shape=_shape(call)),
    "clip": _clip,
    "concat": lambda call: op("concatenate", call.args[0], axis=int(call.attrs.axis or 0)),
    "expand_dims": _expand_dims,
    "flatten": _expand_dims,
    "gather_elements": lambda call: op("gather", *call.args, axis=int(call.attrs.axis)),
    "gather_nd": lambda call: _gather_nd(call),
    "matmul": _matmul,
    "max": _reduction("max"),
    "mean": _reduction("mean"),
    "min": _reduction("min"),
    "nn.adaptive_avg_pool2d": _adaptive_pool,
    "nn.avg_pool1d": _pool("nn.avg_pool1d"),
    "nn.avg_pool2d": _pool("nn.avg_pool2d"),
    "nn.avg_pool3d": _pool("nn.avg_pool3d"),
    "nn.batch_norm": _batch_norm,
    "nn.conv1d": _conv("nn.conv1d"),
    "nn.conv2d": _conv("nn.conv2d"),
    "nn.conv2d_transpose": _conv("nn.conv2d_transpose"),
    "nn.conv3d": _conv("nn.conv3d"),
    "nn.gelu": _gelu,
    "nn.gelu_tanh": _gelu_tanh,
    "nn.layer_norm": _layer_norm,
    "nn.leakyrelu": lambda call: op("nn.leaky_relu", call.args[0], alpha=float(call.attrs.alpha)),
    "nn.log_softmax": lambda call: op("nn.log_softmax", call.args[0], axis=int(call.attrs.axis)),
    "nn.max_pool1d": _pool("nn.max_pool1d"),
    "nn.max_pool2d": _pool("nn.max_pool2d"),
    "nn.max_pool3d": _pool("nn.max_pool3d"),
    "nn.silu": lambda call: op("multiply", call.args[0], op("sigmoid", call.args[0])),
    "nn.softmax": lambda call: op("nn.softmax", call.args[0], axis=int(call.attrs.axis)),
    "permute_dims": lambda call: op("transpose", call.args[0], axes=_list(call.attrs.axes)),
    "prod": _reduction("prod"),
    "reshape": lambda call: op("reshape", call.args[0], newshape=_shape(call)),
    "split": _split,
    "squeeze": _expand_dims,
    "strided_slice": _strided_slice,
    "sum": _reduction("sum"),
    "take": lambda call: op("take", *call.args, axis=call.attrs.axis, mode=str(call.attrs.mode)),
}


def _gather_nd(call: relax.Call) -> relax.Expr:
    """Relay reads a position's coordinates along the first axis, Relax along the last."""
    data, indices = call.args
    rank = len(_shape(indices))
    first = op("transpose", indices, axes=[rank - 1, *range(rank - 1)])
    if int(call.attrs.batch_dims):
        raise RelayError("gather_nd with batches has no form in Relay's text")
    return op("gather_nd", data, first)
