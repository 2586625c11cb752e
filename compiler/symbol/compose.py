"""Symbols that are put together operator by operator: `sym.FullyConnected(x, num_hidden=4) + 1`.

Every operator that the importer knows can be called by MXNet's name of it. Symbols that it reads
come first or by the operator's names of its inputs; those that are missing become variables
`<name>_weight`, `<name>_bias`, ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compiler.mxnet.dynamic import DYNAMIC
from compiler.mxnet.graph import VARIABLE, Entry, Graph, Node
from compiler.mxnet.operators import input_names, operator_of, outputs_of, sort_arguments

from .naming import new_name
from .symbol import Symbol


def group(symbols: Sequence[Symbol]) -> Symbol:
    """One symbol with the outputs of several; what they have in common stays in common."""
    nodes, heads, attrs = _merged(list(symbols))
    return Symbol(Graph(nodes, heads, attrs))


Group = group


def _merged(symbols: Sequence[Symbol]) -> tuple[list[Node], list[Entry], dict[str, Any]]:
    """Nodes, outputs and attributes of several symbols.

    Nodes of one operator, name, attributes and inputs compute the same and become one.
    """
    nodes: list[Node] = []
    heads: list[Entry] = []
    attrs: dict[str, Any] = {}
    place: dict[Any, int] = {}
    for symbol in symbols:
        attrs |= symbol.graph.attrs
        moved: list[int] = []
        for node in symbol.graph.nodes:
            inputs = [entry._replace(node=moved[entry.node]) for entry in node.inputs]
            deps = [moved[index] for index in node.control_deps]
            key = (
                *(node.op, node.name, tuple(inputs), tuple(deps)),
                *(tuple(sorted(node.attrs.items())), tuple(map(id, node.subgraphs))),
            )
            if key not in place:
                place[key] = len(nodes)
                made = (node.op, node.name, inputs, node.attrs, deps, node.subgraphs)
                nodes.append(Node(*made, node.num_outputs))
            moved.append(place[key])
        heads += [head._replace(node=moved[head.node]) for head in symbol.graph.heads]
    return nodes, heads, attrs


def apply(
    op: str, inputs: Sequence[Symbol | None], attrs: Mapping[str, str], name: str, hint: str = ""
) -> Symbol:
    """The symbol of one operator on others; inputs that are None become variables."""
    label = new_name(name, hint or op.lower())
    names = input_names(Node(op, op, attrs=dict(attrs)))
    variables = [
        Symbol(Graph([Node(VARIABLE, f"{label}_{names[index]}")], [Entry(0)]))
        if each is None
        else each
        for index, each in enumerate(inputs)
    ]
    nodes, heads, graph_attrs = _merged(variables)
    node = Node(op, label, heads, dict(attrs))
    outputs = [Entry(len(nodes), index) for index in range(outputs_of(node).visible)]
    return Symbol(Graph([*nodes, node], outputs, graph_attrs))


def operator(name: str) -> Callable[..., Symbol]:
    """The function `sym.<name>`.

    Raises
    ------
    AttributeError
        The importer knows no operator of that name.
    """
    from compiler.relay.frontend.mxnet_ops import is_known

    op = operator_of(name)
    if not (is_known(op) or op in DYNAMIC) or name.startswith("__"):
        raise AttributeError(f"there is no operator {name!r}")

    def call(*args: Any, attr: Mapping[str, str] | None = None, **kwargs: Any) -> Symbol:
        found = sort_arguments(op, args, kwargs, lambda value: isinstance(value, Symbol))
        return apply(op, found.inputs, {**found.attrs, **(attr or {})}, found.name, name.lower())

    call.__name__ = name
    call.__doc__ = f"The operator {op} on symbols."
    return call


class _Family:
    """Operators whose names start with `_contrib_`, `_linalg_`, ..."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Callable[..., Symbol]:
        return operator(f"{self._prefix}{name}")


contrib, linalg = _Family("_contrib_"), _Family("_linalg_")


def binary(left: Symbol, right: Any, name: str, reverse: bool = False) -> Symbol:
    """Arithmetic of a symbol with another one or a number.

    Parameters
    ----------
    left : Symbol
    right : Symbol or number
    name : str
        "plus", "minus", ...
    reverse : bool
        Whether the number comes first.
    """
    if isinstance(right, Symbol):
        return apply(_OF_SYMBOLS.get(name, f"_{name}"), [left, right], {}, "", f"_{name}")
    if isinstance(right, bool) or not isinstance(right, (int, float)):
        return NotImplemented
    op = f"_{'r' if reverse else ''}{name}_scalar"
    return apply(op, [left], {"scalar": repr(float(right))}, "")


_OF_SYMBOLS = {
    "plus": "elemwise_add",
    "minus": "elemwise_sub",
    "mul": "elemwise_mul",
    "div": "elemwise_div",
}
