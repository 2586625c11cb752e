"""Calling a strategy's callbacks and refusing what they must not return."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from compiler.backends import GraphPass, Options, Partitioner, Strategy
from compiler.errors import PartitionCallbackError, PartitionError

from .regions import UNMARKED
from .selector import Selector
from .timeout import within

if TYPE_CHECKING:
    import numpy as np

_RESERVED = ("global_symbol", "num_input", "Primitive")
"""Function attributes that TVM gives a meaning that would break the module."""


def check_options(partitioner: Partitioner, options: Options, timeout: float | None) -> None:
    """Let a partitioner refuse options.

    Raises PartitionError: it refuses them; with its reason.
    Raises PartitionCallbackError: the callback raised, took too long, or returned neither None nor
    a text.
    """
    check = partitioner.check_options
    if check is None:
        return
    where = f"partitioner {partitioner.name!r}: check_options"
    reason = _call(where, timeout, lambda: check(dict(options)))
    if reason is not None and not isinstance(reason, str):
        raise PartitionCallbackError(f"{where} returned {reason!r}, not None or a reason")
    if reason:
        raise PartitionError(f"partitioner {partitioner.name!r} refuses the options: {reason}")


def make_selector(
    backend: str, strategy: Strategy, graph_json: str, options: Options, timeout: float | None
) -> Selector:
    """Run `selector` and check what it made.

    Raises PartitionCallbackError: the callback raised, took too long, or returned no selector.
    """
    make = strategy.selector
    assert make is not None, "the strategy claims nodes with supported_ops"
    where = f"partitioner {backend!r}, strategy {strategy.name!r}: selector"
    made = _call(where, timeout, lambda: make(graph_json, dict(options)))
    methods = ("select", "select_input", "select_output", "filter", "reset")
    if not all(callable(getattr(made, method, None)) for method in methods):
        raise PartitionCallbackError(
            f"{where} returned {made!r}, which lacks one of {', '.join(methods)}; "
            "derive from compiler.partition.Selector"
        )
    return made


def claim_nodes(
    backend: str,
    strategy: Strategy,
    graph_json: str,
    size: int,
    options: Options,
    timeout: float | None = None,
) -> list[int]:
    """Run `supported_ops` and check what it marked.

    Returns one mark per node: -2, -1 or the number of a subgraph.
    Raises PartitionCallbackError: the callback raised, took too long, or the marks are not `size`
    integers.
    """
    where = f"partitioner {backend!r}, strategy {strategy.name!r}: supported_ops"
    supported_ops = strategy.supported_ops
    assert supported_ops is not None, "the strategy claims nodes with a selector"
    ids = [UNMARKED] * size
    returned = _call(where, timeout, lambda: supported_ops(graph_json, ids, dict(options)))
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
    if set(map(type, marks)) == {int}:
        return marks
    return [_mark(where, node, mark) for node, mark in enumerate(marks)]


def accept(
    backend: str,
    strategy: Strategy,
    subgraph_json: str,
    subgraph_id: int,
    options: Options,
    args: Mapping[str, np.ndarray],
    aux: Mapping[str, np.ndarray],
    timeout: float | None = None,
) -> dict[str, str] | str:
    """Run `accept_subgraph`, if the strategy has one.

    Returns attributes for the accepted function; for a rejected subgraph the reason.
    Raises PartitionCallbackError: the callback raised, took too long, did not return a bool, or put
    an attribute that is not a string or whose name is reserved.
    """
    attrs: dict[str, str] = {}
    review = strategy.accept_subgraph
    if review is None:
        return attrs
    where = (
        f"partitioner {backend!r}, strategy {strategy.name!r}, subgraph {subgraph_id}: "
        "accept_subgraph"
    )
    accepted = _call(
        where, timeout, lambda: review(subgraph_json, subgraph_id, dict(options), attrs, args, aux)
    )
    if type(accepted).__name__ not in ("bool", "bool_"):  # numpy's bool has either name
        raise PartitionCallbackError(f"{where} returned {accepted!r}, not True or False")
    if not accepted:
        return str(attrs.get("reason", "accept_subgraph returned False"))
    for key, value in attrs.items():
        if not isinstance(key, str) or not key or not isinstance(value, str):
            raise PartitionCallbackError(
                f"{where} set attribute {key!r} to {value!r}; names and values must be str"
            )
        if key in _RESERVED or key.startswith("baton."):
            raise PartitionCallbackError(f"{where} set attribute {key!r}, whose name is reserved")
    return dict(attrs)


def run_pass(
    chosen: GraphPass,
    graph_json: str,
    options: Options,
    args: Mapping[str, np.ndarray],
    aux: Mapping[str, np.ndarray],
    timeout: float | None = None,
) -> tuple[str, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Run a graph pass and check the kinds of what it returned.

    Raises PartitionCallbackError: the pass raised, took too long, or did not return a text and two
    dicts.
    """
    where = f"graph pass {chosen.name!r}"
    made = _call(where, timeout, lambda: chosen.run(graph_json, dict(options), args, aux))
    is_triple = isinstance(made, tuple) and len(made) == 3
    if not is_triple or list(map(type, made)) != [str, dict, dict]:
        raise PartitionCallbackError(
            f"{where} returned {made!r:.80}, not JSON text and two dicts of arrays"
        )
    return made


def _call(where: str, timeout: float | None, call: Callable[[], Any]) -> Any:
    def describing() -> Any:
        try:
            return call()
        except Exception as error:
            raise PartitionCallbackError(f"{where} raised {_describe(error)}") from error

    return within(timeout, where, describing)


def _mark(where: str, node: int, mark: Any) -> int:
    try:
        value = operator.index(mark)
    except TypeError:
        value = None
    if value is None or isinstance(mark, bool):
        raise PartitionCallbackError(
            f"{where} set id {mark!r} for node {node}; an id is -2 (not claimed), "
            "-1 (any subgraph) or the number of a subgraph"
        )
    return value


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
