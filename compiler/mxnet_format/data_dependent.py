"""Operators whose results have shapes that depend on values, computed on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .attributes import is_none, parse_bool, parse_int
from .graph import Graph

Arrays = Sequence[np.ndarray]


def _nonzero(attrs: Mapping[str, str], arrays: Arrays) -> list[np.ndarray]:
    return [np.argwhere(arrays[0])]


def _boolean_mask(attrs: Mapping[str, str], arrays: Arrays) -> list[np.ndarray]:
    data, mask = arrays
    axis = parse_int(attrs.get("axis", "0"))
    if mask.ndim != 1 or mask.shape[0] != data.shape[axis]:
        raise ValueError(f"a mask of shape {mask.shape} of axis {axis} of {data.shape}")
    return [np.compress(mask.astype(bool), data, axis)]


def _unique(attrs: Mapping[str, str], arrays: Arrays) -> list[np.ndarray]:
    axis = attrs.get("axis", "None")
    flags = {key: parse_bool(attrs.get(key, "0")) for key in UNIQUE_FLAGS}
    along = None if is_none(axis) else parse_int(axis)
    found: Any = np.unique(arrays[0], axis=along, **flags)  # type: ignore[call-overload]
    return list(found) if isinstance(found, tuple) else [found]


UNIQUE_FLAGS = ("return_index", "return_inverse", "return_counts")
"""Attributes of `_npi_unique`, each of which asks for one more output."""

DYNAMIC: dict[str, Callable[[Mapping[str, str], Arrays], list[np.ndarray]]] = {
    "_contrib_boolean_mask": _boolean_mask,
    "_npi_boolean_mask": _boolean_mask,
    "_npi_nonzero": _nonzero,
    "_npi_unique": _unique,
    "_npx_nonzero": _nonzero,
}
"""Operator to what computes it, from its attributes and inputs; ValueError for wrong ones."""


def is_dynamic(graph: Graph) -> bool:
    """Whether a graph, or a subgraph in it, has such an operator."""
    return any(
        node.op in DYNAMIC or any(is_dynamic(body) for body in node.subgraphs)
        for node in graph.nodes
    )
