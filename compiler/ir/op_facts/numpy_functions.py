"""Evaluation of Relax operators with numpy.

Each function takes the call and its tensor operands, and returns an array, a list of arrays for a
tuple, or None to leave the call as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ..constants import NUMPY_DTYPES, integers, numpy_type, static_shape

Folder = Callable[[relax.Call, list[np.ndarray]], Any]


def split(call: relax.Call, operands: list[np.ndarray]) -> list[np.ndarray]:
    sections = call.attrs.indices_or_sections
    axis = int(call.attrs.axis)
    if isinstance(sections, (int, tvm.tirx.IntImm)):
        extent = -(-operands[0].shape[axis] // int(sections))
        cuts = [extent * (i + 1) for i in range(int(sections) - 1)]
    else:
        cuts = [int(cut) for cut in sections]
    return np.split(operands[0], cuts, axis=axis)


def elementwise(function: Callable[..., np.ndarray]) -> Folder:
    return lambda call, operands: function(*operands)


def in_float64(function: Callable[[np.ndarray], np.ndarray]) -> Folder:
    """A function of one operand, rounded once from float64; None for integers."""

    def fold(call: relax.Call, operands: list[np.ndarray]) -> Any:
        return function(operands[0].astype("float64")) if operands[0].dtype.kind == "f" else None

    return fold


def reduction(function: Callable[..., np.ndarray], wide: bool) -> Folder:
    def fold(call: relax.Call, operands: list[np.ndarray]) -> Any:
        (data,) = operands
        if data.size == 0 or (function is np.mean and data.dtype.kind != "f"):
            return None
        axis = call.attrs.axis
        axes = None if axis is None else tuple(int(a) for a in axis)
        if wide and data.dtype.kind == "f":
            data = data.astype("float64")
        return function(data, axis=axes, keepdims=bool(call.attrs.keepdims))

    return fold


def right_shift(call: relax.Call, operands: list[np.ndarray]) -> Any:
    """None where a shift leaves no bit, which TVM does not define."""
    data, places = operands
    within = ((places >= 0) & (places < 8 * data.dtype.itemsize)).all()
    return np.right_shift(data, places) if within else None


def same_elements(call: relax.Call, operands: list[np.ndarray]) -> np.ndarray:
    return operands[0]


def astype(call: relax.Call, operands: list[np.ndarray]) -> Any:
    target, data = str(call.ty.dtype), operands[0]
    is_short = {target, str(data.dtype)} <= {"bfloat16", "float32"}
    if not is_short and (target not in NUMPY_DTYPES or str(data.dtype) not in NUMPY_DTYPES):
        return None
    if data.dtype.kind == "f" and target[0] in "iu" and not np.isfinite(data).all():
        return None
    return data.astype(numpy_type(target))


def divide(call: relax.Call, operands: list[np.ndarray]) -> Any:
    left, right = operands
    if left.dtype.kind == "f":
        return left / right
    if (right == 0).any():
        return None
    quotient = np.abs(left) // np.abs(right)
    return np.where((left < 0) != (right < 0), -quotient, quotient)  # as C truncates


def integer_division(function: Callable[..., np.ndarray]) -> Folder:
    """A division, which is left alone where a divisor is 0."""

    def fold(call: relax.Call, operands: list[np.ndarray]) -> Any:
        return function(*operands) if operands[1].all() else None

    return fold


def repeat(call: relax.Call, operands: list[np.ndarray]) -> Any:
    axis = call.attrs.axis
    return np.repeat(operands[0], int(call.attrs.repeats), None if axis is None else int(axis))


def leaky_relu(call: relax.Call, operands: list[np.ndarray]) -> Any:
    (data,) = operands
    return np.where(data > 0, data, data * data.dtype.type(call.attrs.alpha))


def power(call: relax.Call, operands: list[np.ndarray]) -> Any:
    base, exponent = operands
    return base.astype("float64") ** exponent if base.dtype.kind == "f" else None


def clip(call: relax.Call, operands: list[np.ndarray]) -> Any:
    bounds: list[Any] = [_immediate(argument) for argument in call.args[1:]]
    if None in bounds or operands[0].dtype.kind not in "fi":
        return None
    return np.clip(operands[0], *bounds)


def take(call: relax.Call, operands: list[np.ndarray]) -> Any:
    if len(operands) != 2:
        return None
    data, indices = operands
    axis = call.attrs.axis
    extent = data.size if axis is None else data.shape[int(axis)]
    if indices.size and not (indices.min() >= 0 and indices.max() < extent):
        return None  # each mode of take has its own answer outside the tensor
    return np.take(data, indices, axis=None if axis is None else int(axis))


def concat(call: relax.Call, operands: list[np.ndarray]) -> np.ndarray:
    axis = call.attrs.axis
    return np.concatenate(operands, axis=None if axis is None else int(axis))


def strided_slice(call: relax.Call, operands: list[np.ndarray]) -> Any:
    fields = []
    for argument in call.args[1:]:
        numbers = integers(argument.fields) if isinstance(argument, relax.Tuple) else None
        if numbers is None:
            return None
        fields.append(numbers)
    if len(fields) < 3:
        return None
    axes, begin, end = fields[:3]
    strides = fields[3] if len(fields) > 3 else (1,) * len(axes)
    if min(strides, default=1) < 1:
        return None
    data = operands[0]
    slices = [slice(None)] * data.ndim
    for axis, start, stop, step in zip(axes, begin, end, strides):
        slices[axis] = slice(start, stop, step)
    return data[tuple(slices)]


def matmul(call: relax.Call, operands: list[np.ndarray]) -> np.ndarray:
    left, right = operands
    wide = "float64" if left.dtype.kind == "f" else str(call.ty.dtype)
    return np.matmul(left.astype(wide), right.astype(wide))


def permute_dims(call: relax.Call, operands: list[np.ndarray]) -> np.ndarray:
    axes = call.attrs.axes
    return np.transpose(operands[0], None if axes is None else [int(axis) for axis in axes])


def broadcast_to(call: relax.Call, operands: list[np.ndarray]) -> np.ndarray:
    return np.broadcast_to(operands[0], static_shape(call) or ())


def filled(value: int) -> Folder:
    return lambda call, _: np.full(static_shape(call) or (), value, str(call.ty.dtype))


def arange(call: relax.Call, operands: list[np.ndarray]) -> Any:
    bounds: list[Any] = [_immediate(argument) for argument in call.args]
    return None if None in bounds else np.arange(*bounds).astype(str(call.ty.dtype))


def pad(call: relax.Call, operands: list[np.ndarray]) -> Any:
    if str(call.attrs.pad_mode) != "constant":
        return None
    widths = [int(width) for width in call.attrs.pad_width]
    pairs = list(zip(widths[::2], widths[1::2]))
    if min(widths, default=0) < 0:
        return None
    return np.pad(operands[0], pairs, constant_values=float(call.attrs.pad_value))


def tile(call: relax.Call, operands: list[np.ndarray]) -> Any:
    repeats = integers(call.attrs.repeats)
    return None if repeats is None else np.tile(operands[0], repeats)


def stack(call: relax.Call, operands: list[np.ndarray]) -> np.ndarray:
    return np.stack(operands, axis=int(call.attrs.axis or 0))


def layout_transform(call: relax.Call, operands: list[np.ndarray]) -> Any:
    """A layout change that only splits and reorders axes, e.g. OIHW to OIHW4i16o."""
    index_map = call.attrs.index_map
    data = operands[0]
    source = {variable: axis for axis, variable in enumerate(index_map.initial_indices)}
    factors: dict[int, int] = {}
    parts: list[tuple[int, int]] = []  # of each new axis: the old axis, and 0 outer or 1 inner
    for index in index_map.final_indices:
        variable, factor, inner = index, None, 0
        if isinstance(index, (tvm.tirx.FloorDiv, tvm.tirx.FloorMod)):
            if not isinstance(index.b, tvm.tirx.IntImm):
                return None
            variable, factor = index.a, int(index.b)
            inner = int(isinstance(index, tvm.tirx.FloorMod))
        axis = source.get(variable) if isinstance(variable, tvm.tirx.Var) else None
        if axis is None or (factor is not None and factors.setdefault(axis, factor) != factor):
            return None
        parts.append((axis, inner))
    complete = {
        (axis, inner) for axis in range(data.ndim) for inner in range(1 + (axis in factors))
    }
    if len(set(parts)) != len(parts) or set(parts) != complete:
        return None
    if any(data.shape[axis] % factor for axis, factor in factors.items()):
        return None  # padded: what it is padded with is the reader's choice
    shape: list[int] = []
    place: dict[tuple[int, int], int] = {}
    for axis, extent in enumerate(data.shape):
        factor = factors.get(axis, 1)
        place[axis, 0] = len(shape)
        shape.append(extent // factor)
        if axis in factors:
            place[axis, 1] = len(shape)
            shape.append(factor)
    return data.reshape(shape).transpose([place[part] for part in parts])


def _immediate(expr: Any) -> float | None:
    return expr.value if isinstance(expr, (tvm.tirx.IntImm, tvm.tirx.FloatImm)) else None
