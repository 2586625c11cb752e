"""Control flow that stays in a symbol: `foreach`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compiler.errors import ArrayError

from . import np
from .deferred import build_graph
from .invoke import invoke, wrap
from .ndarray import ndarray
from .value import Record, Value, Variable, call_site, current_trace


def foreach(
    body: Callable[[Any, Any], tuple[Any, Any]],
    data: ndarray | Sequence[ndarray],
    init_states: ndarray | Sequence[ndarray],
    name: str = "foreach",
) -> tuple[Any, Any]:
    """Run a body on every slice along the first axis, handing states from one to the next.

    Parameters
    ----------
    body : callable
        Takes a slice (or a list of slices) and the states; returns outputs and new states.
    data : ndarray or list of ndarray
        Of equal length along the first axis.
    init_states : ndarray or list of ndarray
        The states before the first slice.

    Returns
    -------
    outputs
        The body's outputs of all slices, stacked along a new first axis.
    states
        Those after the last slice.

    Raises
    ------
    ArrayError
        Lengths differ or are 0, or the body changes number, shapes or dtypes of the states.
    """
    items = [data] if isinstance(data, ndarray) else list(data)
    states = [init_states] if isinstance(init_states, ndarray) else list(init_states)
    lengths = {item.shape[:1] for item in items}
    if len(lengths) != 1 or lengths & {(), (0,)}:
        raise ArrayError(f"{call_site()}: foreach over arrays of the lengths {sorted(lengths)}")
    one_item, one_state = isinstance(data, ndarray), isinstance(init_states, ndarray)

    def step(
        parts: Sequence[ndarray], before: Sequence[ndarray]
    ) -> tuple[list[Any], list[Any], bool]:
        given = parts[0] if one_item else list(parts)
        result, after = body(given, before[0] if one_state else list(before))
        outs, new = _listed(result), _listed(after)
        kinds = [(each.shape, each.dtype) for each in new]
        if kinds != [(each.shape, each.dtype) for each in before]:
            raise ArrayError(f"{call_site()}: the body of {name} changes the types of its states")
        return outs, new, isinstance(result, ndarray)

    if current_trace() is None:
        outputs, single, final = _unrolled(step, items, states)
    else:
        outputs, single, final = _recorded(step, items, states, name)
    return (outputs[0] if single else outputs), (final[0] if one_state else final)


def _listed(value: Any) -> list[ndarray]:
    return [value] if isinstance(value, ndarray) else list(value)


def _unrolled(step: Any, items: list[ndarray], states: list[ndarray]) -> tuple[Any, bool, Any]:
    columns: list[list[ndarray]] = []
    single = True
    for index in range(items[0].shape[0]):
        outs, states, single = step([item[index] for item in items], states)
        columns.append(outs)
    return [np.stack(list(column)) for column in zip(*columns)], single, states


def _recorded(
    step: Any, items: list[ndarray], states: list[ndarray], name: str
) -> tuple[Any, bool, Any]:
    """One node whose subgraph is the body, traced once."""
    data = [_placeholder(item, f"data_subgraph{i}", item.shape[1:]) for i, item in enumerate(items)]
    held = [_placeholder(s, f"state_subgraph{i}", s.shape) for i, s in enumerate(states)]
    own = {array._value.variable for array in (*data, *held)}
    inside: set[Record] = set()

    outs, new, single = step(data, held)
    heads = [array._value for array in (*outs, *new)]
    _collect(heads, own, inside)

    def is_outside(value: Value) -> bool:
        return value.record not in inside

    variables = [array._value for array in (*data, *held)]
    graph, captured = build_graph(heads, variables, is_outside)
    # Nodes are moved so that all variables come first, in the order of the node's inputs.
    order = [i for i, n in enumerate(graph.nodes) if n.is_variable]
    order += [i for i, n in enumerate(graph.nodes) if not n.is_variable]
    position = {old: new_index for new_index, old in enumerate(order)}
    for node in graph.nodes:
        node.inputs = [entry._replace(node=position[entry.node]) for entry in node.inputs]
    graph.heads = [entry._replace(node=position[entry.node]) for entry in graph.heads]
    graph.nodes = [graph.nodes[old] for old in order]
    count, first_state = len(data), len(data) + len(held)
    attrs = {
        "num_args": first_state + len(captured) + 1,
        "num_outputs": len(heads),
        "num_out_data": len(outs),
        "in_data_locs": tuple(range(count)),
        "in_state_locs": tuple(range(count, first_state)),
        "remain_locs": tuple(range(first_state, first_state + len(captured))),
    }
    inputs = [*items, *states, *(wrap(value) for value in captured)]
    results = invoke("_npx_foreach", inputs, attrs, subgraphs=[graph])
    return results[: len(outs)], single, results[len(outs) :]


def _placeholder(array: ndarray, name: str, shape: tuple[int, ...]) -> ndarray:
    value = Value(shape, str(array.dtype), array.device)
    value.variable = Variable(name, {"__subgraph_name__": "foreach"})
    return wrap(value)


def _collect(heads: Sequence[Value], own: set[Any], inside: set[Record]) -> None:
    """The records that depend on the body's own variables, or have no inputs at all."""
    verdict: dict[Record, bool] = {}
    stack: list[tuple[Record, bool]] = [(v.record, False) for v in heads if v.record is not None]
    while stack:
        record, visited = stack.pop()
        if visited:
            verdict[record] = any(
                value.variable in own
                or (value.variable is None and value.record is not None and verdict[value.record])
                for value in record.inputs
            )
        elif record not in verdict:
            verdict[record] = False
            stack.append((record, True))
            stack += [
                (v.record, False)
                for v in record.inputs
                if v.variable is None and v.record is not None and v.record not in verdict
            ]
    inside.update(record for record, depends in verdict.items() if depends)
