"""Where the elements of a tensor lie in its buffer: `Stage.transform_layout`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import tirx


class _Separator:
    """Stands between the dimensions of memory that has several, in what a mapping returns."""

    def __repr__(self) -> str:
        return "AXIS_SEPARATOR"


AXIS_SEPARATOR = _Separator()


class Layout:
    """A one-to-one map from a tensor's indices to those of its buffer.

    `mapping`: (an index for each dimension) -> indices of the buffer. `AXIS_SEPARATOR` among them
    has no effect: all memory that Baton compiles for has one dimension. `shape`: the tensor's.
    `dtype`: of the indices.
    Raises tvm.error.InternalError, TypeError: elements of the buffer would be left over or used
    twice, or the mapping returns other things than indices.
    """

    def __init__(self, mapping: Callable[..., Any], shape: Sequence[Any], dtype: str) -> None:
        @functools.wraps(mapping)
        def flat(*args: Any, **kwargs: Any) -> Any:
            made = mapping(*args, **kwargs)
            made = list(made) if isinstance(made, (list, tuple, tvm.ir.Array)) else [made]
            indices = [each for each in made if each is not AXIS_SEPARATOR]
            return [tirx.const(i, dtype) if isinstance(i, int) else i for i in indices]

        self._map = tirx.IndexMap.from_func(flat, ndim=len(shape), index_dtype=dtype)
        self._inverse = self._map.inverse(list(shape))
        self.shape = list(self._map.map_shape(list(shape)))
        self.names = [
            str(i.name) if isinstance(i, tirx.Var) else f"axis{number}"
            for number, i in enumerate(self._map.final_indices)
        ]

    def physical(self, indices: Sequence[Any]) -> list[Any]:
        """Where an element of the tensor lies."""
        return list(self._map.map_indices(list(indices)))

    def logical(self, indices: Sequence[Any]) -> list[Any]:
        """Which element lies there."""
        return list(self._inverse.map_indices(list(indices)))
