"""Elementwise operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper

from .. import values
from ..draft import DTYPES, FLOATS, INTEGERS, Draft, Shape, broadcastable
from ..known import names

Attributes = Callable[[Draft], dict[str, Any]]


def _real(d: Draft, low: float, high: float) -> float | None:
    """An attribute's value, or None to leave the default."""
    return None if d.chance(0.4) else round(float(d.rng.uniform(low, high)), 3)


UNARY: dict[str, Attributes] = {
    **dict.fromkeys(
        names(
            "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Cos Cosh Erf Exp Floor HardSwish "
            "Identity IsNaN Log Mish Neg Not Reciprocal Relu Round Sigmoid Sign Sin Sinh Softplus "
            "Softsign Sqrt Tan Tanh"
        ),
        lambda d: {},
    ),
    "Celu": lambda d: {"alpha": _real(d, 0.1, 3)},
    "Elu": lambda d: {"alpha": _real(d, 0.1, 3)},
    "Gelu": lambda d: {"approximate": d.one_of([None, "none", "tanh"])},
    "HardSigmoid": lambda d: {"alpha": _real(d, 0.05, 1), "beta": _real(d, -1, 1)},
    "IsInf": lambda d: {
        "detect_positive": d.one_of([None, 0, 1]),
        "detect_negative": d.one_of([None, 0, 1]),
    },
    "LeakyRelu": lambda d: {"alpha": _real(d, -0.5, 1.5)},
    "Selu": lambda d: {"alpha": _real(d, 0.5, 2), "gamma": _real(d, 0.5, 2)},
    "Shrink": lambda d: {"bias": _real(d, -1, 1), "lambd": _real(d, 0, 1)},
    "ThresholdedRelu": lambda d: {"alpha": _real(d, -1, 1)},
}


def unary(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op))
    d.add(op, [x], **UNARY[op](d))


def partner(d: Draft, shape: Shape) -> Shape:
    """A shape that broadcasts with another."""
    if d.chance(0.4):
        return shape
    drop = d.integer(0, len(shape))
    kept = [1 if d.chance(0.3) else extent for extent in shape[drop:]]
    if drop == 0 and len(kept) < 4 and d.chance(0.15):
        kept = [d.extent(4), *kept]
    return tuple(kept)


def second(d: Draft, op: str, x: str, allowed: tuple[str, ...], role: str = "data") -> str:
    """Another operand that broadcasts with `x`."""
    shape = d.shape_of(x)
    return d.tensor(
        allowed, lambda found: broadcastable(found, shape), lambda: partner(d, shape), 0.6, role
    )


def binary(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op))
    dtype = d.dtype_of(x)
    allowed = d.allowed(op, 1) if op == "Pow" and d.opset >= 12 else (dtype,)
    role = "divisor" if op in ("Div", "Mod") and dtype in INTEGERS else "data"
    y = second(d, op, x, allowed, role)
    attributes: dict[str, Any] = {}
    if op == "Mod":
        attributes["fmod"] = 1 if dtype in FLOATS else d.one_of([None, 0, 1])
    if op == "BitShift":
        attributes["direction"] = d.one_of(["LEFT", "RIGHT"])
    swapped = op not in ("Pow", "Div", "Mod") and d.chance(0.4)
    d.add(op, [y, x] if swapped else [x, y], **attributes)


def variadic(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op))
    others = [second(d, op, x, (d.dtype_of(x),)) for _ in range(d.integer(0, 2))]
    d.add(op, [x, *others])


def where(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op, 1))
    d.add(op, [second(d, op, x, ("bool",)), x, second(d, op, x, (d.dtype_of(x),))])


def cast(d: Draft, op: str) -> None:
    x = d.tensor()
    to = d.dtype(DTYPES)
    if op == "CastLike":
        d.add(op, [x, d.tensor((to,))])
    else:
        d.add(op, [x], to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))


def clip(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op))
    dtype = d.dtype_of(x)
    low, high = sorted(d.rng.integers(0 if dtype.startswith("u") else -3, 6, 2).tolist())
    if d.opset < 11:
        limits: dict[str, Any] = {"min": float(low), "max": float(high)}
        given: dict[str, Any] = {name: v for name, v in limits.items() if d.chance(0.7)}
        d.add(op, [x], **given)
        return
    bounds = [d.fixed(v, dtype, 0.6) if d.chance(0.7) else "" for v in (low, high)]
    while bounds and not bounds[-1]:
        bounds.pop()
    d.add(op, [x, *bounds])


def prelu(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op))
    shape = d.shape_of(x)
    if d.chance(0.5) and len(shape) >= 2:
        slope: Shape = (shape[1], *[1] * (len(shape) - 2))
    else:
        drop = d.integer(0, len(shape))
        slope = tuple(1 if d.chance(0.3) else extent for extent in shape[drop:])
    d.add(op, [x, d.like(x, slope)])


def dropout(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op))
    outputs = [True, d.chance(0.3)] if d.opset >= 10 else [True]
    if d.opset < 12:
        d.add(op, [x], outputs, ratio=_real(d, 0, 0.9))
    elif d.chance(0.5):
        training = [d.fixed(False, "bool")] if d.chance(0.5) else []
        d.add(op, [x, d.fixed(0.3, "float32"), *training], outputs)
    else:
        d.add(op, [x], outputs)


def constant(d: Draft, op: str) -> None:
    array = values.plain(d.rng, d.dtype(), d.shape())
    if d.opset >= 12 and d.chance(0.3) and array.ndim < 2 and array.dtype.kind in "if":
        suffix = "s" if array.ndim else ""
        if array.dtype.kind == "i" and (array.size or not suffix):
            d.add(op, [], **{f"value_int{suffix}": array.tolist()})
            return
    d.add(op, [], value=onnx.numpy_helper.from_array(array))


BINARY = names(
    "Add Sub Mul Div Pow Mod And Or Xor Equal Greater Less GreaterOrEqual LessOrEqual BitShift "
    "BitwiseAnd BitwiseOr BitwiseXor"
)

MAKERS: dict[str, Callable[[Draft, str], None]] = {
    **dict.fromkeys(UNARY, unary),
    **dict.fromkeys(BINARY, binary),
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), variadic),
    "Cast": cast,
    "CastLike": cast,
    "Clip": clip,
    "Constant": constant,
    "Dropout": dropout,
    "PRelu": prelu,
    "Where": where,
}
