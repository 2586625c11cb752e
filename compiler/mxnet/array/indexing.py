"""Indexing: `array[key]` recorded as operators, or read from a computed array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.errors import ArrayIndexError, ArrayTypeError

from .invoke import invoke
from .value import call_site, current_trace
from .wrap import from_host

if TYPE_CHECKING:
    from .ndarray import ndarray

# Codes of `_npx_reshape`: copy this extent, drop this axis of 1, copy the rest, join two.
_COPY, _DROP, _REST, _MERGE = -2, -3, -4, -5


def get(array: ndarray, key: Any) -> ndarray:
    """`array[key]`.

    In a trace: integers, slices, tuples of them, tuples of integer arrays, and one boolean array.
    Elsewhere everything that numpy takes.

    Raises ArrayIndexError: an index outside of the array.
    Raises ArrayTypeError: a key that can't be traced.
    """
    if current_trace() is not None:
        return _traced(array, key)
    if array._value.tensor is None and _is_basic(key):
        plain = _without_ellipsis(array, key if isinstance(key, tuple) else (key,))
        return _sliced(array, plain)
    try:
        return from_host(np.asarray(array._host()[host_key(key)]), array.device)
    except IndexError as error:
        raise ArrayIndexError(f"{call_site()}: {error}") from error


def host_key(key: Any) -> Any:
    """A key that numpy takes: arrays become host arrays."""
    if isinstance(key, tuple):
        return tuple(host_key(item) for item in key)
    return np.asarray(key) if hasattr(key, "_value") else key


def _is_integer(key: Any) -> bool:
    return isinstance(key, (int, np.integer)) and not isinstance(key, (bool, np.bool_))


def _is_basic(key: Any) -> bool:
    items = key if isinstance(key, tuple) else (key,)
    return all(_is_integer(k) or isinstance(k, slice) or k is None or k is ... for k in items)


def _traced(array: ndarray, key: Any) -> ndarray:
    items = key if isinstance(key, tuple) else (key,)
    if all(_is_integer(item) or isinstance(item, slice) for item in items):
        return _sliced(array, items)
    arrays = [item for item in items if hasattr(item, "_value")]
    if isinstance(key, tuple) and len(arrays) == len(items):
        kinds = {item.dtype.kind for item in arrays}
        if kinds <= {"i", "u"}:
            coordinates = invoke("stack", arrays, {"axis": 0, "num_args": len(arrays)})
            return invoke("gather_nd", [array, *coordinates])[0]
    if len(items) == 1 and arrays and arrays[0].dtype == np.bool_:
        return _masked(array, arrays[0])
    raise ArrayTypeError(
        f"{call_site()}: the index {key!r:.80} can't be traced; a trace takes integers, slices, "
        "tuples of them, tuples of integer arrays, and one boolean array"
    )


def _masked(array: ndarray, mask: ndarray) -> ndarray:
    """The elements, or slices along the last axes, at which a mask of the first axes holds."""
    extents = mask._value.shape
    if array._value.shape[: len(extents)] != extents:
        raise ArrayIndexError(
            f"{call_site()}: a mask of shape {extents} of an array of shape {array._value.shape}"
        )
    for _ in range(len(extents) - 1):
        array = invoke("_npx_reshape", [array], {"newshape": (_MERGE, _REST)})[0]
        mask = invoke("_npx_reshape", [mask], {"newshape": (_MERGE, _REST)})[0]
    return invoke("_contrib_boolean_mask", [array, mask], {"axis": 0})[0]


def _without_ellipsis(array: ndarray, items: tuple[Any, ...]) -> tuple[Any, ...]:
    if not any(item is ... for item in items):
        return items
    at = next(i for i, item in enumerate(items) if item is ...)
    rest = items[at + 1 :]
    named = sum(item is not None for item in (*items[:at], *rest))
    return (*items[:at], *[slice(None)] * (array.ndim - named), *rest)


def _sliced(array: ndarray, items: tuple[Any, ...]) -> ndarray:
    """Slices by the operator `slice`; then axes of integers go, and those of None come."""
    named = [item for item in items if item is not None]
    if len(named) > array.ndim:
        raise ArrayIndexError(f"{call_site()}: {len(named)} indices of {array.ndim} axes")
    parts: list[list[int | None]] = []
    for axis, item in enumerate(named):
        if isinstance(item, slice):
            bounds = [None if b is None else int(b) for b in (item.start, item.stop, item.step)]
        else:
            index = int(item)
            extent = array._value.shape[axis]
            if not -extent <= index < extent:
                raise ArrayIndexError(
                    f"{call_site()}: index {index} is out of bounds for axis {axis} with size "
                    f"{extent}"
                )
            if array._value.dynamic:  # -1 is to be the last one, however many there are
                bounds = [index, None if index == -1 else index + 1, None]
            else:
                bounds = [index % extent, index % extent + 1, None]
        parts.append(bounds)
    result = array
    if named and any(item != slice(None) for item in named):
        begin, end, step = map(list, zip(*parts))
        attrs: dict[str, Any] = {"begin": begin, "end": end}
        if any(each not in (None, 1) for each in step):
            attrs["step"] = step
        result = invoke("slice", [array], attrs)[0]
    if any(_is_integer(item) for item in named):
        codes = [_COPY if isinstance(item, slice) else _DROP for item in named]
        result = invoke("_npx_reshape", [result], {"newshape": [*codes, _REST]})[0]
    kept = [item for item in items if item is None or isinstance(item, slice)]
    for axis, item in enumerate(kept):
        if item is None:
            result = invoke("_npi_expand_dims", [result], {"axis": axis})[0]
    return result
