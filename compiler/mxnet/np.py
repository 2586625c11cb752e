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


def where(condition: ndarray, x: Any = None, y: Any = None) -> Any:
    """Elements of x where the condition holds, of y elsewhere; without those, positions."""
    if x is None or y is None:
        return nonzero(condition)
    first, second = as_array(_number_like(x, y)), as_array(_number_like(y, x))
    name = promote(first._value.dtype, second._value.dtype)
    return invoke("_npi_where", [condition, cast(first, name), cast(second, name)])[0]


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


def _reduce(op: str, a: ndarray, axis: Any, keepdims: bool, **attrs: Any) -> ndarray:
    if isinstance(axis, (tuple, list)) and not axis:
        return a
    return invoke(op, [a], {"axis": axis, "keepdims": keepdims, **attrs})[0]


def _wide(a: Any, dtype: Any) -> ndarray:
    """Cast booleans to integers for a sum."""
    found = as_array(a)
    if dtype is not None:
        return cast(found, dtype_name(dtype))
    return cast(found, "int64") if found._value.dtype == "bool" else found


def sum(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> ndarray:
    """Sum over axes."""
    return _reduce("_npi_sum", _wide(a, dtype), axis, keepdims)


def prod(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> ndarray:
    """Product over axes."""
    return _reduce("_npi_prod", _wide(a, dtype), axis, keepdims)


def mean(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> ndarray:
    """Mean over axes."""
    return _reduce("_npi_mean", _wide(a, dtype), axis, keepdims)


def max(a: Any, axis: Any = None, keepdims: bool = False) -> ndarray:
    """Maximum over axes."""
    return _reduce("_npi_max", as_array(a), axis, keepdims)


def min(a: Any, axis: Any = None, keepdims: bool = False) -> ndarray:
    """Minimum over axes."""
    return _reduce("_npi_min", as_array(a), axis, keepdims)


amax, amin = max, min


def _float(a: Any) -> ndarray:
    found = as_array(a)
    return found if found._value.dtype.startswith("float") else cast(found, "float32")


def var(
    a: Any, axis: Any = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False
) -> ndarray:
    """Variance over axes."""
    return _reduce("_npi_var", _float(_wide(a, dtype)), axis, keepdims, ddof=ddof)


def std(
    a: Any, axis: Any = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False
) -> ndarray:
    """Standard deviation over axes."""
    return _reduce("_npi_std", _float(_wide(a, dtype)), axis, keepdims, ddof=ddof)


def any(a: Any, axis: Any = None, keepdims: bool = False) -> ndarray:
    """Whether any element is true."""
    return _reduce("_npi_any", as_array(a), axis, keepdims)


def all(a: Any, axis: Any = None, keepdims: bool = False) -> ndarray:
    """Whether all elements are true."""
    return _reduce("_npi_all", as_array(a), axis, keepdims)


def argmax(a: Any, axis: int | None = None, keepdims: bool = False) -> ndarray:
    """Position of the maximum, of the flattened array without an axis."""
    return _reduce("_npi_argmax", as_array(a), axis, keepdims)


def argmin(a: Any, axis: int | None = None, keepdims: bool = False) -> ndarray:
    """Position of the minimum, of the flattened array without an axis."""
    return _reduce("_npi_argmin", as_array(a), axis, keepdims)


def cumsum(a: Any, axis: int | None = None, dtype: Any = None) -> ndarray:
    """Running sums."""
    return invoke("_npi_cumsum", [_wide(a, dtype)], {"axis": axis})[0]


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


def transpose(a: ndarray, axes: Any = None) -> ndarray:
    """Axes in another order, reversed by default."""
    return invoke("_npi_transpose", [a], {"axes": None if axes is None else tuple(axes)})[0]


def swapaxes(a: ndarray, axis1: int, axis2: int) -> ndarray:
    """Two axes exchanged."""
    return invoke("_npi_swapaxes", [a], {"dim1": axis1, "dim2": axis2})[0]


def moveaxis(a: ndarray, source: Any, destination: Any) -> ndarray:
    """Axes moved to other positions."""
    marked = _np.empty(tuple(range(1, a.ndim + 1)), "bool")
    return transpose(a, [extent - 1 for extent in _np.moveaxis(marked, source, destination).shape])


def expand_dims(a: ndarray, axis: int, inplace: bool = False) -> ndarray:
    """A new axis of one; `inplace` is accepted, without effect."""
    return invoke("_npi_expand_dims", [a], {"axis": axis})[0]


def squeeze(a: ndarray, axis: Any = None, inplace: bool = False) -> ndarray:
    """Without axes of one; `inplace` is accepted, without effect."""
    return invoke("_npi_squeeze", [a], {"axis": axis})[0]


def broadcast_to(a: ndarray, shape: Any) -> ndarray:
    """Repeated to a shape."""
    return invoke("_npi_broadcast_to", [a], {"shape": as_shape(shape)})[0]


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


def tile(a: Any, reps: Any) -> ndarray:
    """Repetitions of the whole array."""
    return invoke("tile", [as_array(a)], {"reps": as_shape(reps)})[0]


def repeat(a: Any, repeats: int, axis: int | None = None) -> ndarray:
    """Repetitions of each element."""
    return invoke("repeat", [as_array(a)], {"repeats": repeats, "axis": axis})[0]


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


def sort(a: ndarray, axis: int | None = -1) -> ndarray:
    """Sorted along an axis."""
    return invoke("sort", [a], {"axis": "None" if axis is None else axis})[0]


def argsort(a: ndarray, axis: int | None = -1) -> ndarray:
    """Positions in sorted order."""
    return invoke("argsort", [a], {"axis": "None" if axis is None else axis, "dtype": "int64"})[0]


def argwhere(a: ndarray) -> ndarray:
    """Positions of the elements that are not zero, one row each."""
    return invoke("_npx_nonzero", [as_array(a)])[0]


def nonzero(a: ndarray) -> tuple[ndarray, ...]:
    """Positions of the elements that are not zero, one array for each axis."""
    rows = argwhere(a)
    return tuple(rows[:, axis] for axis in range(len(a._value.shape)))


def flatnonzero(a: ndarray) -> ndarray:
    """Positions of what is not zero in the flattened array."""
    return ravel(argwhere(ravel(a)))


def unique(
    ar: ndarray,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Any:
    """The distinct elements, sorted, and what else is asked for."""
    attrs = {
        "return_index": return_index,
        "return_inverse": return_inverse,
        "return_counts": return_counts,
        "axis": axis,
    }
    found = invoke("_npi_unique", [as_array(ar)], attrs)
    return found[0] if len(found) == 1 else tuple(found)


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


def shape(a: Any) -> tuple[int, ...]:
    """Extents."""
    return as_array(a).shape


def ndim(a: Any) -> int:
    """Number of axes."""
    return as_array(a).ndim


def size(a: Any) -> int:
    """Number of elements."""
    return as_array(a).size


def abs_(x: Any) -> ndarray:
    """Absolute values."""
    return UNARY["absolute"](x)
