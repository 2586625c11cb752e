"""What a hybrid function may call: each name with what it does on arrays, and on expressions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.ir import is_prim_expr


@dataclass(frozen=True)
class LoopRange:
    """Range of a loop of a hybrid function."""

    kind: str  # "serial", "parallel", "vectorize", "unroll", "const_range", or "bind" to a thread
    low: Any
    high: Any
    step: int = 1
    thread: str = ""  # the tag of the thread


def as_expr(value: Any) -> Any:
    """A Python number as a constant: int32, float32 or bool."""
    if is_prim_expr(value):
        return value
    if isinstance(value, (bool, np.bool_)):
        return tirx.const(bool(value), "bool")
    return tirx.const(value, "float32" if isinstance(value, (float, np.floating)) else "int32")


def _range(kind: str) -> Callable[..., LoopRange]:
    def make(low: Any, high: Any = None, step: int = 1) -> LoopRange:
        return LoopRange(kind, 0, low, step) if high is None else LoopRange(kind, low, high, step)

    return make


def _bind(tag: str, extent: Any) -> LoopRange:
    return LoopRange("bind", 0, extent, thread=str(tag))


def _ceil_div(a: Any, b: Any) -> Any:
    if is_prim_expr(a) or is_prim_expr(b):
        return tirx.ceildiv(as_expr(a), as_expr(b))
    return -(-a // b)


def max_num_threads(allow_none: bool = True) -> int:
    """How many threads a block of the current target may have."""
    target = tvm.target.Target.current(allow_none)
    return int(target.attrs.get("max_num_threads", 1)) if target is not None else 1


def _allocate(shape: Any, dtype: str = "float32", scope: str = "global") -> np.ndarray:
    return np.zeros(shape, str(dtype))


def _cast(dtype: str) -> Callable[[Any], Any]:
    return lambda value: as_expr(value).astype(dtype)


def _math(name: str) -> Callable[..., Any]:
    return lambda *values: getattr(tirx, name)(*map(as_expr, values))


def _fold(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A function of two as one of several."""

    def of_all(first: Any, *others: Any) -> Any:
        for other in others:
            first = function(as_expr(first), as_expr(other))
        return first

    return of_all


_DTYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
_NUMPYS = "ceil cos exp floor log power round sin sqrt tanh trunc"
_ON_ARRAYS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in _NUMPYS.split()},
    "erf": math.erf,
    "popcount": lambda value: bin(int(value)).count("1"),
    "rsqrt": lambda value: 1 / np.sqrt(value),
    "sigmoid": lambda value: 1 / (1 + np.exp(-value)),
}

# On numpy arrays.
EAGER: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("serial", "parallel", "vectorize", "unroll", "const_range"), range),
    "bind": lambda tag, extent: range(extent),
    "allocate": _allocate,
    "output_tensor": _allocate,
    "ceil_div": _ceil_div,
    "max_num_threads": max_num_threads,
    "likely": lambda condition: condition,
    **_ON_ARRAYS,
    **{dtype: getattr(np, dtype) for dtype in _DTYPES},
}

# On expressions. `allocate` and `output_tensor` add to the function, and are the parser's.
SYMBOLIC: dict[str, Callable[..., Any]] = {
    "range": _range("serial"),
    **{kind: _range(kind) for kind in ("serial", "parallel", "vectorize", "unroll", "const_range")},
    "bind": _bind,
    "ceil_div": _ceil_div,
    "max_num_threads": max_num_threads,
    "likely": lambda condition: tirx.likely(as_expr(condition)),
    "abs": _math("abs"),
    "max": _fold(tirx.max),
    "min": _fold(tirx.min),
    **{name: _math(name) for name in _ON_ARRAYS},
    **{dtype: _cast(dtype) for dtype in _DTYPES},
}
