"""`np`: numpy's functions over arrays that are computed lazily and can be traced."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as _np

from compiler.errors import ArrayError

from . import linalg, random
from .array.creation import (
    arange,
    array,
    as_shape,
    asarray,
    diag,
    empty,
    empty_like,
    eye,
    from_dlpack,
    from_numpy,
    full,
    full_like,
    identity,
    linspace,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from .array.elementwise import BINARY, UNARY, as_array, cast
from .array.invoke import invoke
from .array.ndarray import ndarray
from .array.operator_function import declare
from .array.value import call_site
from .array.wrap import dtype_name, promote
from .device import cpu, gpu, num_gpus

globals().update(BINARY)
globals().update(UNARY)
if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


pi, e, inf, nan, newaxis = math.pi, math.e, math.inf, math.nan, None
float16, float32, float64 = _np.float16, _np.float32, _np.float64
int8, int16, int32, int64 = _np.int8, _np.int16, _np.int32, _np.int64
uint8, uint16, uint32, uint64 = _np.uint8, _np.uint16, _np.uint32, _np.uint64
bool_ = _np.bool_
dtype = _np.dtype


# Element by element, what is not a plain function of one or two operands.


def around(a: ndarray, decimals: int = 0) -> ndarray:
    """Rounded, halves to even."""
    if decimals == 0:
        return invoke("_npi_around", [a])[0]
    scale = 10.0**decimals
    return invoke("_npi_around", [a * scale])[0] / scale


round = round_ = around


def clip(a: ndarray, a_min: float | None = None, a_max: float | None = None) -> ndarray:
    """Between a_min and a_max."""
    low = -math.inf if a_min is None else float(a_min)
    high = math.inf if a_max is None else float(a_max)
    return invoke("clip", [a], {"a_min": low, "a_max": high})[0]


def where(condition: ndarray, x: Any = None, y: Any = None, name: str = "") -> Any:
    """Elements of x where the condition holds, of y elsewhere; without those, positions."""
    if x is None or y is None:
        return nonzero(condition)
    first, second = as_array(_number_like(x, y)), as_array(_number_like(y, x))
    dtype = promote(first._value.dtype, second._value.dtype)
    inputs = [condition, cast(first, dtype), cast(second, dtype)]
    return invoke("_npi_where", inputs, name=name)[0]


def _number_like(value: Any, other: Any) -> Any:
    """A number as a constant of the other operand's dtype."""
    if isinstance(value, ndarray) or not isinstance(value, (int, float)):
        return value
    name = other._value.dtype if isinstance(other, ndarray) else "float32"
    if not name.startswith("float") and isinstance(value, float):
        name = "float32"
    return full((), value, name)


def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8) -> ndarray:
    """Whether elements are near to each other."""
    return abs_(a - b) <= atol + rtol * abs_(as_array(b))


def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8) -> bool:
    """Whether all elements are near to each other."""
    return bool(all(isclose(a, b, rtol, atol)))


def array_equal(a: ndarray, b: ndarray) -> bool:
    """Whether shapes and elements are the same."""
    return a.shape == b.shape and bool(all(a == b))


# Reductions.


def _wide(a: Any, dtype: Any) -> ndarray:
    """Cast booleans to integers for a sum."""
    found = as_array(a)
    if dtype is not None:
        return cast(found, dtype_name(dtype))
    return cast(found, "int64") if found._value.dtype == "bool" else found


def _coerce(inputs: list[Any], attrs: dict[str, Any]) -> None:
    inputs[:] = map(as_array, inputs)


def _reduced(inputs: list[Any], attrs: dict[str, Any]) -> ndarray | None:
    """Take the dtype of a sum into account; return the array itself for no axes."""
    inputs[0] = _wide(inputs[0], attrs.pop("dtype")) if "dtype" in attrs else as_array(inputs[0])
    if "ddof" in attrs and not inputs[0]._value.dtype.startswith("float"):
        inputs[0] = cast(inputs[0], "float32")
    return inputs[0] if attrs["axis"] in ((), []) else None


def _reduction(name: str, doc: str, attrs: str = "axis=None, keepdims=False") -> Any:
    return declare(f"_npi_{name}", f"{name}(a; {attrs})", doc, _reduced)


_SUMMED = "axis=None, dtype=None, keepdims=False"
_CENTERED = "axis=None, dtype=None, ddof=0, keepdims=False"
sum = _reduction("sum", "Sum over axes.", _SUMMED)
prod = _reduction("prod", "Product over axes.", _SUMMED)
mean = _reduction("mean", "Mean over axes.", _SUMMED)
max = amax = _reduction("max", "Maximum over axes.")
min = amin = _reduction("min", "Minimum over axes.")
var = _reduction("var", "Variance over axes.", _CENTERED)
std = _reduction("std", "Standard deviation over axes.", _CENTERED)
any = _reduction("any", "Whether any element is true.")
all = _reduction("all", "Whether all elements are true.")
argmax = _reduction("argmax", "Index of the maximum, of the flattened array without an axis.")
argmin = _reduction("argmin", "Index of the minimum, of the flattened array without an axis.")
cumsum = _reduction("cumsum", "Running sums.", "axis=None, dtype=None")


def average(a: Any, axis: Any = None, weights: Any = None) -> ndarray:
    """Weighted mean."""
    if weights is None:
        return mean(a, axis)
    return sum(a * weights, axis) / sum(weights, axis)


# Shapes.


def reshape(a: ndarray, newshape: Any, order: str = "C") -> ndarray:
    """Another shape; -1 is what is left."""
    if order != "C":
        raise ArrayError(f"{call_site()}: order {order!r} is not supported")
    shape = (newshape,) if isinstance(newshape, (int, _np.integer)) else tuple(newshape)
    return invoke("_npx_reshape", [a], {"newshape": shape})[0]


def ravel(a: ndarray) -> ndarray:
    """All elements along one axis."""
    return reshape(a, -1)


def _unplaced(inputs: list[Any], attrs: dict[str, Any]) -> None:
    del attrs["inplace"]


transpose = declare(
    "_npi_transpose",
    "transpose(a; axes=None)",
    "Axes in another order, reversed by default.",
    lambda inputs, attrs: attrs.update(axes=attrs["axes"] and tuple(attrs["axes"])),
)
expand_dims = declare(
    "_npi_expand_dims",
    "expand_dims(a; axis, inplace=False)",
    "A new axis of one; `inplace` is accepted, without effect.",
    _unplaced,
)
squeeze = declare(
    "_npi_squeeze",
    "squeeze(a; axis=None, inplace=False)",
    "Without axes of one; `inplace` is accepted, without effect.",
    _unplaced,
)
broadcast_to = declare(
    "_npi_broadcast_to",
    "broadcast_to(a; shape)",
    "Repeated to a shape.",
    lambda inputs, attrs: attrs.update(shape=as_shape(attrs["shape"])),
)


def swapaxes(a: ndarray, axis1: int, axis2: int) -> ndarray:
    """Two axes exchanged."""
    return invoke("_npi_swapaxes", [a], {"dim1": axis1, "dim2": axis2})[0]


def moveaxis(a: ndarray, source: Any, destination: Any) -> ndarray:
    """Axes moved to other positions."""
    marked = _np.empty(tuple(range(1, a.ndim + 1)), "bool")
    return transpose(a, [extent - 1 for extent in _np.moveaxis(marked, source, destination).shape])


def _together(arrays: Sequence[Any]) -> list[ndarray]:
    found = [as_array(each) for each in arrays]
    if not found:
        raise ArrayError(f"{call_site()}: no arrays to put together")
    name = promote(*(each._value.dtype for each in found))
    return [cast(each, name) for each in found]


def concatenate(seq: Sequence[Any], axis: int | None = 0) -> ndarray:
    """Join along an axis; without one, flattened."""
    found = _together(seq)
    if axis is None:
        found, axis = [ravel(each) for each in found], 0
    return invoke("_npi_concatenate", found, {"axis": axis, "num_args": len(found)})[0]


concat = concatenate


def stack(arrays: Sequence[Any], axis: int = 0) -> ndarray:
    """Join along a new axis."""
    found = _together(arrays)
    return invoke("_npi_stack", found, {"axis": axis, "num_args": len(found)})[0]


def atleast_2d(a: ndarray) -> ndarray:
    """With two axes at least."""
    return a if a.ndim > 1 else reshape(a, (1, -1))


def vstack(arrays: Sequence[Any]) -> ndarray:
    """Concatenate along the first axis, with two axes at least."""
    return concatenate([atleast_2d(as_array(each)) for each in arrays], 0)


def hstack(arrays: Sequence[Any]) -> ndarray:
    """Concatenate along the second axis, or the only one."""
    found = [as_array(each) for each in arrays]
    return concatenate(found, 0 if found[0].ndim <= 1 else 1)


def dstack(arrays: Sequence[Any]) -> ndarray:
    """Concatenate along the third axis."""
    found = [atleast_2d(as_array(each)) for each in arrays]
    return concatenate([each if each.ndim > 2 else expand_dims(each, 2) for each in found], 2)


def split(ary: ndarray, indices_or_sections: Any, axis: int = 0) -> list[ndarray]:
    """Parts along an axis: as many equal ones, or those that start at the indices."""
    sections = 0
    indices: tuple[int, ...] = ()
    if isinstance(indices_or_sections, (int, _np.integer)):
        sections = int(indices_or_sections)
        if sections < 1 or ary.shape[axis] % sections:
            raise ArrayError(f"{call_site()}: {sections} equal parts of axis {axis} of {ary.shape}")
    else:
        indices = tuple(int(i) for i in indices_or_sections)
    attrs = {"indices": indices, "axis": axis, "squeeze_axis": False, "sections": sections}
    return invoke("_split_v2", [ary], attrs)


def array_split(ary: ndarray, indices_or_sections: Any, axis: int = 0) -> list[ndarray]:
    """Parts along an axis, which need not be equal: the first ones are longer by 1."""
    if not isinstance(indices_or_sections, (int, _np.integer)):
        return split(ary, indices_or_sections, axis)
    bounds = _np.array_split(_np.arange(ary.shape[axis]), indices_or_sections)
    return split(ary, _np.cumsum([len(part) for part in bounds])[:-1], axis)


def vsplit(ary: ndarray, indices_or_sections: Any) -> list[ndarray]:
    """Parts along the first axis."""
    return split(ary, indices_or_sections, 0)


def hsplit(ary: ndarray, indices_or_sections: Any) -> list[ndarray]:
    """Parts along the second axis, or the only one."""
    return split(ary, indices_or_sections, 0 if ary.ndim == 1 else 1)


def dsplit(ary: ndarray, indices_or_sections: Any) -> list[ndarray]:
    """Parts along the third axis."""
    return split(ary, indices_or_sections, 2)


def _repetitions(inputs: list[Any], attrs: dict[str, Any]) -> None:
    inputs[0], attrs["reps"] = as_array(inputs[0]), as_shape(attrs["reps"])


tile = declare("tile", "tile(a; reps)", "Repetitions of the whole array.", _repetitions)
repeat = declare("repeat", "repeat(a; repeats, axis=None)", "Repetitions of each element.", _coerce)


def flip(m: ndarray, axis: Any = None) -> ndarray:
    """Backwards along axes, all of them by default."""
    axes = tuple(range(m.ndim)) if axis is None else axis
    return invoke("reverse", [m], {"axis": axes if isinstance(axes, tuple) else (axes,)})[0]


def roll(a: ndarray, shift: int, axis: int | None = None) -> ndarray:
    """Elements moved along an axis; those that leave come in at the other end."""
    if axis is None:
        return reshape(roll(ravel(a), shift, 0), a.shape)
    return invoke("_npi_roll", [a], {"shift": shift, "axis": axis})[0]


def pad(x: ndarray, pad_width: Any, mode: str = "constant", constant_values: float = 0) -> ndarray:
    """Padded with a constant, with the edge, or with a reflection."""
    widths = _np.broadcast_to(_np.asarray(pad_width), (x.ndim, 2))
    flat = tuple(int(width) for width in widths.reshape(-1))
    attrs = {"mode": mode, "pad_width": flat, "constant_value": float(constant_values)}
    return invoke("pad", [x], attrs)[0]


# Selection.


def take(a: ndarray, indices: Any, axis: int | None = None, mode: str = "clip") -> ndarray:
    """Slices at indices along an axis, or of the flattened array."""
    source, along = (ravel(a), 0) if axis is None else (a, axis)
    return invoke("_npi_take", [source, as_array(indices)], {"axis": along, "mode": mode})[0]


def _sorting_axis(inputs: list[Any], attrs: dict[str, Any]) -> None:
    attrs["axis"] = "None" if attrs["axis"] is None else attrs["axis"]


sort = declare("sort", "sort(a; axis=-1)", "Sorted along an axis.", _sorting_axis)
argsort = declare(
    "argsort", "argsort(a; axis=-1, dtype='int64')", "Indices in sorted order.", _sorting_axis
)
argwhere = declare(
    "_npx_nonzero", "argwhere(a)", "Indices of the elements that are not 0, a row each.", _coerce
)


def nonzero(a: ndarray) -> tuple[ndarray, ...]:
    """Positions of the elements that are not zero, one array for each axis."""
    rows = argwhere(a)
    return tuple(rows[:, axis] for axis in range(len(a._value.shape)))


def flatnonzero(a: ndarray) -> ndarray:
    """Positions of what is not zero in the flattened array."""
    return ravel(argwhere(ravel(a)))


def _unique(inputs: list[Any], attrs: dict[str, Any]) -> Any:
    found = invoke("_npi_unique", [as_array(inputs[0])], attrs)
    return found[0] if len(found) == 1 else tuple(found)


unique = declare(
    "_npi_unique",
    "unique(ar; return_index=False, return_inverse=False, return_counts=False, axis=None)",
    "The distinct elements, sorted, and what else is asked for.",
    _unique,
)


# Products.


def matmul(a: Any, b: Any) -> ndarray:
    """Matrix product; leading axes are broadcast."""
    first, second = _together([a, b])
    if not first.ndim or not second.ndim:
        raise ArrayError(f"{call_site()}: matmul of shapes {first.shape} and {second.shape}")
    return invoke("_npi_matmul", [first, second])[0]


def dot(a: Any, b: Any) -> ndarray:
    """numpy's dot."""
    return invoke("_npi_dot", _together([a, b]))[0]


def tensordot(a: ndarray, b: ndarray, axes: Any = 2) -> ndarray:
    """Sum over the last axes of one and the first of the other, or over pairs of axes."""
    if isinstance(axes, int):
        left, right = tuple(range(a.ndim - axes, a.ndim)), tuple(range(axes))
    else:
        left, right = (tuple(x) if isinstance(x, (tuple, list)) else (x,) for x in axes)
    attrs = {"a_axes_summed": left, "b_axes_summed": right}
    return invoke("_npi_tensordot", _together([a, b]), attrs)[0]


def inner(a: ndarray, b: ndarray) -> ndarray:
    """Product over the last axes."""
    return tensordot(a, b, ([a.ndim - 1], [b.ndim - 1]))


def outer(a: ndarray, b: ndarray) -> ndarray:
    """Products of all pairs."""
    return reshape(a, (-1, 1)) * reshape(b, (1, -1))


def vdot(a: ndarray, b: ndarray) -> ndarray:
    """Product of the flattened arrays."""
    return dot(ravel(a), ravel(b))


def einsum(subscripts: str, *operands: ndarray) -> ndarray:
    """Einstein's summation."""
    attrs = {"num_args": len(operands), "subscripts": subscripts}
    return invoke("_npi_einsum", _together(operands), attrs)[0]


def trace(a: ndarray, offset: int = 0) -> ndarray:
    """Sum of a matrix's diagonal."""
    return sum(diag(a, offset))


def diagonal(a: ndarray, offset: int = 0) -> ndarray:
    """A matrix's diagonal."""
    return diag(a, offset)


def _attribute(name: str) -> Any:
    return lambda a: getattr(as_array(a), name)


shape, ndim, size = _attribute("shape"), _attribute("ndim"), _attribute("size")


def abs_(x: Any) -> ndarray:
    """Absolute values."""
    return UNARY["absolute"](x)
