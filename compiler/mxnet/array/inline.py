"""`inline_limit`: small accepted subgraphs become part of the graph around them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler.backends import get_partitioner
from compiler.errors import UnknownBackendError
from compiler.mxnet.symbol.symbol import Symbol
from compiler.mxnet_format.graph import Graph, Node
from compiler.mxnet_format.subgraph_node import (
    library_operator,
    own_attrs,
    subgraph_info_of,
    visible_attrs,
)


def inline_small(symbol: Symbol, limit: int) -> Symbol:
    """The symbol with subgraphs of at most `limit` operators no longer compiled on their own.

    A subgraph for which its backend has set attributes, such as a target, which it compiles
    itself, or which an operator of its library runs, is left to the backend.

    * `limit`: 0 leaves everything as it is.
    """
    graph = symbol.graph
    nodes = [_inlined(node) if _is_small(node, limit) else node for node in graph.nodes]
    if all(new is old for new, old in zip(nodes, graph.nodes)):
        return symbol
    return Symbol(Graph(nodes, graph.heads, graph.attrs))


def _is_small(node: Node, limit: int) -> bool:
    info = subgraph_info_of(node)
    if info is None or own_attrs(node) or _operators(node.subgraphs) > limit:
        return False
    if library_operator(node) is not None:
        return False
    try:
        return get_partitioner(info.backend).compile is None
    except UnknownBackendError:  # the symbol was loaded without it
        return True


def _operators(graphs: Sequence[Graph]) -> int:
    return sum(
        _operators(node.subgraphs) or 1
        for graph in graphs
        for node in graph.nodes
        if not node.is_variable
    )


def _inlined(node: Node) -> Node:
    # Without this record, the name that its strategy chose could be another library's operator.
    return replace(node, op="_CachedOp", attrs=visible_attrs(node.attrs))
