"""Relay's operators for random programs: how each is drawn, and what it is in numpy.

A maker gets a `Draft` and appends one node or raises `Unfit`. The numpy functions compute in the
dtypes of their operands; `run_relay` runs them in double precision as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .run_relay import Draft

Maker = Callable[["Draft", str], None]

FLOATS, INTEGERS = ("float32", "float64"), ("int32", "int64", "int8")
NUMBERS = FLOATS + INTEGERS
ALL = (*NUMBERS, "bool")


class Unfit(Exception):
    """No value of the program fits the operator that was drawn."""


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[x.dtype])(x)


def _softmax(x: Any, axis: int) -> Any:
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def _axes(rank: int, axis: Any, exclude: bool) -> tuple[int, ...]:
    given = tuple(range(rank)) if axis is None else tuple(a % rank for a in axis)
    return (
        tuple(a for a in range(rank) if a not in given) if exclude and axis is not None else given
    )


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    def compute(x: Any, axis: Any, keepdims: bool, exclude: bool) -> Any:
        found = function(x, axis=_axes(x.ndim, axis, exclude), keepdims=keepdims)
        return np.asarray(found).astype(x.dtype)

    return compute


def _windows(x: Any, size: Any, strides: Any, padding: Any, fill: float) -> Any:
    (top, left), (height, width) = padding, size
    padded = np.pad(x, ((0, 0), (0, 0), (top, top), (left, left)), constant_values=fill)
    found = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
    return found[:, :, :: strides[0], :: strides[1]]


def _conv2d(x: Any, w: Any, strides: Any, padding: Any, **_: Any) -> Any:
    windows = _windows(x, w.shape[2:], strides, padding, 0)
    return np.einsum("nchwij,ocij->nohw", windows, w).astype(x.dtype)


def _layer_norm(x: Any, gamma: Any, beta: Any, axis: int, epsilon: float) -> Any:
    centerd = x - x.mean(axis, keepdims=True)
    return centerd / np.sqrt((centerd**2).mean(axis, keepdims=True) + epsilon) * gamma + beta


def _strided_slice(x: Any, begin: Any, end: Any, strides: Any) -> Any:
    return x[tuple(slice(b, e, s) for b, e, s in zip(begin, end, strides))]


NUMPY: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("exp", "tanh", "floor", "ceil", "sqrt", "log", "sin",
                                            "cos", "negative", "abs", "sign")},
    "atan": np.arctan, "erf": _erf, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x), "isnan": np.isnan, "isfinite": np.isfinite,
    "nn.relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "logical_not": np.logical_not,
    **{name: getattr(np, name) for name in ("add", "subtract", "multiply", "maximum", "minimum",
                                            "equal", "not_equal", "less", "less_equal", "greater",
                                            "greater_equal", "logical_and", "logical_or",
                                            "logical_xor")},
    "divide": np.divide, "where": np.where,
    "clip": lambda x, a_min, a_max: np.clip(x, a_min, a_max).astype(x.dtype),
    "nn.leaky_relu": lambda x, alpha: np.where(x > 0, x, x * x.dtype.type(alpha)),
    "cast": lambda x, dtype: x.astype(dtype),
    "sum": _reduced(np.sum), "mean": _reduced(np.mean), "max": _reduced(np.max),
    "min": _reduced(np.min), "any": _reduced(np.any), "all": _reduced(np.all),
    "argmax": lambda x, axis, keepdims: np.argmax(x, axis, keepdims=keepdims).astype("int32"),
    "argmin": lambda x, axis, keepdims: np.argmin(x, axis, keepdims=keepdims).astype("int32"),
    "transpose": lambda x, axes: np.transpose(x, axes),
    "reshape": lambda x, newshape: x.reshape(newshape),
    "expand_dims": lambda x, axis: np.expand_dims(x, axis),
    "squeeze": lambda x, axis: np.squeeze(x, tuple(axis)),
    "reverse": lambda x, axis: np.flip(x, axis),
    "tile": lambda x, reps: np.tile(x, reps),
    "repeat": lambda x, repeats, axis: np.repeat(x, repeats, axis),
    "concatenate": lambda *xs, axis: np.concatenate(xs, axis),
    "stack": lambda *xs, axis: np.stack(xs, axis),
    "broadcast_to": lambda x, shape: np.broadcast_to(x, shape),
    "strided_slice": _strided_slice,
    "take": lambda x, i, axis, mode: np.take(x, i, axis, mode="clip"),
    "nn.pad": lambda x, pad_width: np.pad(x, pad_width),
    "cumsum": lambda x, axis: np.cumsum(x, axis, dtype=x.dtype),
    "zeros_like": np.zeros_like, "ones_like": np.ones_like,
    "nn.softmax": _softmax, "nn.log_softmax": lambda x, axis: np.log(_softmax(x, axis)),
    "nn.dense": lambda x, w: x @ w.T,
    "nn.batch_matmul": lambda a, b, transpose_a, transpose_b: (
        (a.swapaxes(1, 2) if transpose_a else a) @ (b.swapaxes(1, 2) if transpose_b else b)
    ),
    "nn.bias_add": lambda x, b, axis: x + b.reshape(
        [-1 if a == axis % x.ndim else 1 for a in range(x.ndim)]
    ),
    "nn.layer_norm": _layer_norm,
    "nn.conv2d": _conv2d,
    "nn.max_pool2d": lambda x, pool_size, strides, padding: _windows(
        x, pool_size, strides, padding, -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    ).max((-1, -2)),
    "nn.global_avg_pool2d": lambda x: x.mean((2, 3), keepdims=True, dtype=x.dtype),
    "nn.batch_flatten": lambda x: x.reshape(x.shape[0], -1),
}  # fmt: skip
"""Operator to what it computes, of its operands and attributes."""


def _unary(dtypes: tuple[str, ...]) -> Maker:
    def make(draft: Draft, op: str) -> None:
        draft.add(op, [draft.value(dtypes)])

    return make


def _binary(dtypes: tuple[str, ...]) -> Maker:
    def make(draft: Draft, op: str) -> None:
        first = draft.value(dtypes)
        draft.add(op, draft.shuffled([first, draft.alike(first)]))

    return make


def _where(draft: Draft, op: str) -> None:
    first = draft.value(ALL)
    condition = draft.value(("bool",), shape=draft.shape(first), made=True)
    draft.add(op, [condition, first, draft.alike(first)])


def _clip(draft: Draft, op: str) -> None:
    low = draft.integer(-3, 2)
    draft.add(op, [draft.value(NUMBERS)], a_min=float(low), a_max=float(low + draft.integer(0, 5)))


def _leaky(draft: Draft, op: str) -> None:
    draft.add(op, [draft.value(FLOATS)], alpha=0.5)


def _cast(draft: Draft, op: str) -> None:
    draft.add(op, [draft.value((*INTEGERS, "bool", "float32"))], dtype=draft.pick(FLOATS))


def _reduce(dtypes: tuple[str, ...]) -> Maker:
    def make(draft: Draft, op: str) -> None:
        x = draft.value(dtypes, least=1)
        axis = draft.pick([None, draft.axes(x)])
        exclude = axis is not None and len(axis) < draft.rank(x) and draft.chance(0.2)
        draft.add(op, [x], axis=axis, keepdims=draft.chance(0.5), exclude=exclude)

    return make


def _arg(draft: Draft, op: str) -> None:
    x = draft.value(NUMBERS, least=1)
    draft.add(op, [x], axis=draft.axis(x), keepdims=draft.chance(0.5))


def _transpose(draft: Draft, op: str) -> None:
    x = draft.value(ALL, least=1)
    draft.add(op, [x], axes=draft.shuffled(list(range(draft.rank(x)))))


def _reshape(draft: Draft, op: str) -> None:
    x = draft.value(ALL)
    extents = draft.shuffled([n for n in draft.shape(x) if n > 1])
    while len(extents) > 1 and draft.chance(0.4):
        extents = [extents[0] * extents[1], *extents[2:]]
    draft.add(op, [x], newshape=[*extents, *[1] * draft.integer(0, 1)] or [1])


def _expand(draft: Draft, op: str) -> None:
    x = draft.value(ALL, most=4)
    draft.add(op, [x], axis=draft.integer(0, draft.rank(x)))


def _squeeze(draft: Draft, op: str) -> None:
    x = draft.value(ALL, least=1)
    ones = [axis for axis, n in enumerate(draft.shape(x)) if n == 1]
    if not ones:
        raise Unfit
    draft.add(op, [x], axis=[draft.pick(ones)])


def _reverse(draft: Draft, op: str) -> None:
    x = draft.value(ALL, least=1)
    draft.add(op, [x], axis=draft.axis(x))


def _tile(draft: Draft, op: str) -> None:
    x = draft.value(ALL, least=1)
    draft.add(op, [x], reps=[draft.integer(1, 2) for _ in draft.shape(x)])


def _repeat(draft: Draft, op: str) -> None:
    x = draft.value(ALL, least=1)
    draft.add(op, [x], repeats=draft.integer(1, 3), axis=draft.axis(x))


def _joined(draft: Draft, op: str) -> None:
    x = draft.value(ALL, least=1)
    others = [draft.value((draft.dtype(x),), shape=draft.shape(x), made=True) for _ in range(2)]
    draft.add(op, draft.shuffled([x, *others[: draft.integer(1, 2)]]), axis=draft.axis(x))


def _broadcast(draft: Draft, op: str) -> None:
    x = draft.value(ALL)
    shape = [n if n > 1 else draft.integer(1, 3) for n in draft.shape(x)]
    draft.add(op, [x], shape=[*[2] * draft.integer(0, 1), *shape] or [2])


def _slice(draft: Draft, op: str) -> None:
    x = draft.value(ALL, least=1)
    begin = [draft.integer(0, n - 1) for n in draft.shape(x)]
    end = [draft.integer(b + 1, n) for b, n in zip(begin, draft.shape(x))]
    draft.add(op, [x], begin=begin, end=end, strides=[draft.integer(1, 2) for _ in begin])


def _take(draft: Draft, op: str) -> None:
    x = draft.value(ALL, least=1)
    axis = draft.integer(0, draft.rank(x) - 1)
    indices = [draft.integer(0, draft.shape(x)[axis] - 1) for _ in range(draft.integer(1, 4))]
    draft.add(op, [x, draft.constant(np.array(indices, "int32"))], axis=axis, mode="clip")


def _pad(draft: Draft, op: str) -> None:
    x = draft.value(NUMBERS, least=1)
    draft.add(
        op, [x], pad_width=[[draft.integer(0, 1), draft.integer(0, 2)] for _ in draft.shape(x)]
    )


def _along(dtypes: tuple[str, ...]) -> Maker:
    def make(draft: Draft, op: str) -> None:
        x = draft.value(dtypes, least=1)
        draft.add(op, [x], axis=draft.axis(x))

    return make


def _dense(draft: Draft, op: str) -> None:
    x = draft.value(FLOATS, least=2, most=2)
    weight = (draft.integer(1, 9), draft.shape(x)[1])
    draft.add(op, [x, draft.value((draft.dtype(x),), shape=weight, made=True)])


def _batch_matmul(draft: Draft, op: str) -> None:
    a = draft.value(FLOATS, least=3, most=3)
    transposed, other = draft.chance(0.3), draft.chance(0.7)
    batch, rows, depth = draft.shape(a)
    depth, n = (rows if transposed else depth), draft.integer(1, 6)
    shape = (batch, n, depth) if other else (batch, depth, n)
    b = draft.value((draft.dtype(a),), shape=shape, made=True)
    draft.add(op, [a, b], transpose_a=transposed, transpose_b=other)


def _bias(draft: Draft, op: str) -> None:
    x = draft.value(FLOATS, least=2)
    axis = draft.axis(x)
    b = draft.value((draft.dtype(x),), shape=(draft.shape(x)[axis],), made=True)
    draft.add(op, [x, b], axis=axis)


def _norm(draft: Draft, op: str) -> None:
    x = draft.value(("float32",), least=2)
    scale = (draft.shape(x)[-1],)
    if scale[0] < 3:
        raise Unfit  # the quotient of two differences that are both rounding
    gamma, beta = (draft.value(("float32",), shape=scale, made=True) for _ in range(2))
    draft.add(op, [x, gamma, beta], axis=-1, epsilon=1e-2)


def _image(draft: Draft, dtypes: tuple[str, ...]) -> int:
    x = draft.value(dtypes, least=4, most=4)
    if min(draft.shape(x)[2:]) < 2:
        raise Unfit
    return x


def _conv(draft: Draft, op: str) -> None:
    x = _image(draft, ("float32",))
    size = draft.integer(1, 2)
    weight = (draft.integer(1, 9), draft.shape(x)[1], size, size)
    w = draft.value(("float32",), shape=weight, made=True)
    draft.add(op, [x, w], strides=[draft.integer(1, 2)] * 2, padding=[draft.integer(0, 1)] * 2,
              kernel_size=[size, size], channels=weight[0])  # fmt: skip


def _pool(draft: Draft, op: str) -> None:
    x = _image(draft, ("float32",))
    draft.add(op, [x], pool_size=[2, 2], strides=[draft.integer(1, 2)] * 2,
              padding=[draft.integer(0, 1)] * 2)  # fmt: skip


def _pool_all(draft: Draft, op: str) -> None:
    draft.add(op, [_image(draft, ("float32",))])


MAKERS: dict[str, Maker] = {
    **dict.fromkeys(("exp", "tanh", "floor", "ceil", "sqrt", "log", "sin", "cos", "atan", "erf",
                     "sigmoid", "rsqrt", "isnan", "isfinite"), _unary(FLOATS)),
    **dict.fromkeys(("negative", "abs", "sign", "nn.relu"), _unary((*FLOATS, "int32", "int64"))),
    "logical_not": _unary(("bool",)),
    **dict.fromkeys(("zeros_like", "ones_like"), _unary(ALL)),
    **dict.fromkeys(("add", "subtract", "multiply", "maximum", "minimum"), _binary(NUMBERS)),
    **dict.fromkeys(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
                    _binary(NUMBERS)),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), _binary(("bool",))),
    "divide": _binary(FLOATS), "where": _where, "clip": _clip, "nn.leaky_relu": _leaky,
    "cast": _cast, "sum": _reduce((*FLOATS, "int32", "int64")), "mean": _reduce(FLOATS),
    "max": _reduce(NUMBERS), "min": _reduce(NUMBERS), "any": _reduce(("bool",)),
    "all": _reduce(("bool",)), "argmax": _arg, "argmin": _arg, "transpose": _transpose,
    "reshape": _reshape, "expand_dims": _expand, "squeeze": _squeeze, "reverse": _reverse,
    "tile": _tile, "repeat": _repeat, "concatenate": _joined, "stack": _joined,
    "broadcast_to": _broadcast, "strided_slice": _slice, "take": _take, "nn.pad": _pad,
    "cumsum": _along((*FLOATS, "int32", "int64")), "nn.softmax": _along(FLOATS),
    "nn.log_softmax": _along(FLOATS), "nn.dense": _dense, "nn.batch_matmul": _batch_matmul,
    "nn.bias_add": _bias, "nn.layer_norm": _norm, "nn.conv2d": _conv, "nn.max_pool2d": _pool,
    "nn.global_avg_pool2d": _pool_all, "nn.batch_flatten": _unary(NUMBERS),
}  # fmt: skip
"""Operator to what draws it."""
