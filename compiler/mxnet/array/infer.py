"""Shapes and dtypes of an operator's results, found by importing a symbol of that one operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from compiler.errors import ArrayError, DeferredInitializationError, FrontendError
from compiler.mxnet_format.graph import VARIABLE, Entry, Graph, Node

from .value import Shape, Value, call_site

NUMPY_SEMANTICS = ("int", 1)
"""The graph attribute `is_np_shape`: scalars and empty arrays exist."""

Types = tuple[tuple[Shape, str], ...]


def output_types(
    op: str, attrs: Mapping[str, str], inputs: Sequence[Value], subgraphs: Sequence[Any] = ()
) -> Types:
    """Types of visible outputs; ArrayError names the asking line if op or inputs are invalid."""
    types = tuple((value.shape, value.dtype) for value in inputs)
    try:
        if subgraphs:
            return _import(op, attrs, types, subgraphs)
        return _cached(op, tuple(attrs.items()), types)
    except FrontendError as error:
        raise ArrayError(f"{call_site()}: operator {op} on {describe(types)}: {error}") from error


def describe(types: Types) -> str:
    """Types as text, e.g. "float32(3, 4), int64()"."""
    return ", ".join(f"{dtype}{shape}" for shape, dtype in types) or "no arrays"


@lru_cache(maxsize=8192)
def _cached(op: str, attrs: tuple[tuple[str, str], ...], types: Types) -> Types:
    return _import(op, dict(attrs), types, ())


def _import(op: str, attrs: Mapping[str, str], types: Types, subgraphs: Sequence[Any]) -> Types:
    from compiler.relay.frontend.mxnet.graph import SymbolImporter

    names = [f"in{i}" for i in range(len(types))]
    graph = _graph(op, attrs, len(types), subgraphs).ordered()
    shapes = {name: shape for name, (shape, _) in zip(names, types)}
    dtypes = {name: dtype for name, (_, dtype) in zip(names, types)}
    return tuple(SymbolImporter(graph, shapes, dtypes, {}).output_types())


def _graph(op: str, attrs: Mapping[str, str], count: int, subgraphs: Sequence[Any] = ()) -> Graph:
    """An operator on the variables in0, in1, ..., with its visible outputs."""
    from compiler.mxnet_format.operators import outputs_of

    nodes = [Node(VARIABLE, f"in{index}") for index in range(count)]
    inputs = [Entry(index) for index in range(count)]
    node = Node(op, "the operator", inputs, dict(attrs), subgraphs=list(subgraphs))
    heads = [Entry(count, output) for output in range(outputs_of(node).visible)]
    return Graph([*nodes, node], heads, {"is_np_shape": NUMPY_SEMANTICS})


def tell_shapes(op: str, attrs: Mapping[str, str], inputs: Sequence[Any]) -> None:
    """Set shapes of parameter inputs; DeferredInitializationError if others do not imply them."""
    unknown = {
        f"in{index}": each.param
        for index, each in enumerate(inputs)
        if hasattr(each, "param") and not each.param.is_known
    }
    if not unknown:
        return
    from compiler.mxnet.symbol.symbol import Symbol
    from compiler.relay.frontend.mxnet import infer_shapes

    shapes = {
        f"in{index}": each._value.shape
        for index, each in enumerate(inputs)
        if f"in{index}" not in unknown
    }
    try:
        found, _ = infer_shapes(Symbol(_graph(op, attrs, len(inputs))), shapes)
        for name, param in unknown.items():
            param.shape = found[name]
    except FrontendError as error:
        names = ", ".join(repr(param.name) for param in unknown.values())
        raise DeferredInitializationError(
            f"{call_site()}: the shape of {names} does not follow from operator {op}: {error}. "
            "Give its shape, or define infer_shape()"
        ) from error
