"""Calling a strategy's callbacks and refusing what they must not return."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from compiler.errors import PartitionCallbackError

from .regions import UNMARKED
from .registry import Options, Strategy

if TYPE_CHECKING:
    import numpy as np

_RESERVED = ("global_symbol", "num_input", "Primitive")
"""Function attributes that TVM gives a meaning that would break the module."""


def claim_nodes(
    backend: str, strategy: Strategy, graph_json: str, size: int, options: Options
) -> list[int]:
    """Run `supported_ops` and check what it marked.

    Returns
    -------
    list of int
        One mark per node: -2, -1 or a subgraph number.

    Raises
    ------
    PartitionCallbackError
        The callback raised, or the marks are not `size` integers of at least -2.
    """
    where = f"partitioner {backend!r}, strategy {strategy.name!r}: supported_ops"
    ids = [UNMARKED] * size
    try:
        returned = strategy.supported_ops(graph_json, ids, dict(options))
    except Exception as error:
        raise PartitionCallbackError(f"{where} raised {_describe(error)}") from error
    marks: Any = ids if returned is None else returned
    if isinstance(marks, (str, bytes, Mapping)):
        raise PartitionCallbackError(f"{where} returned {marks!r}, not a list of integers or None")
    try:
        marks = list(marks)
    except TypeError as error:
        message = f"{where} returned {marks!r}, not a list of integers or None"
        raise PartitionCallbackError(message) from error
    if len(marks) != size:
        raise PartitionCallbackError(
            f"{where} left {len(marks)} ids for {size} nodes; there must be one per node"
        )
    return [_mark(where, node, mark) for node, mark in enumerate(marks)]


def accept(
    backend: str,
    strategy: Strategy,
    subgraph_json: str,
    subgraph_id: int,
    options: Options,
    args: Mapping[str, np.ndarray],
) -> dict[str, str] | None:
    """Run `accept_subgraph`, if the strategy has one.

    Returns
    -------
    dict of str to str, or None
        Attributes for the accepted function; None for a rejected subgraph.

    Raises
    ------
    PartitionCallbackError
        The callback raised, did not return a bool, or put an attribute that is no string or
        whose name is reserved.
    """
    attrs: dict[str, str] = {}
    if strategy.accept_subgraph is None:
        return attrs
    where = (
        f"partitioner {backend!r}, strategy {strategy.name!r}, subgraph {subgraph_id}: "
        "accept_subgraph"
    )
    try:
        accepted = strategy.accept_subgraph(
            subgraph_json, subgraph_id, dict(options), attrs, args, {}
        )
    except Exception as error:
        raise PartitionCallbackError(f"{where} raised {_describe(error)}") from error
    if type(accepted).__name__ not in ("bool", "bool_"):  # numpy's bool has either name
        raise PartitionCallbackError(f"{where} returned {accepted!r}, not True or False")
    if not accepted:
        return None
    for key, value in attrs.items():
        if not isinstance(key, str) or not key or not isinstance(value, str):
            raise PartitionCallbackError(
                f"{where} set attribute {key!r} to {value!r}; names and values must be str"
            )
        if key in _RESERVED or key.startswith("baton."):
            raise PartitionCallbackError(f"{where} set attribute {key!r}, whose name is reserved")
    return dict(attrs)


def _mark(where: str, node: int, mark: Any) -> int:
    try:
        value = operator.index(mark)
    except TypeError:
        value = None
    if value is None or isinstance(mark, bool) or value < UNMARKED:
        raise PartitionCallbackError(
            f"{where} set id {mark!r} for node {node}; an id is -2 (not claimed), "
            "-1 (any subgraph) or a subgraph number from 0 up"
        )
    return value


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
