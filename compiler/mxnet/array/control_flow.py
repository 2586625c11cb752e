"""Control flow that stays in a symbol: `foreach`, `while_loop`, `cond`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compiler.errors import ArrayError
from compiler.mxnet_format.graph import Graph
from compiler.support.depth_first import depth_first

from .. import np
from .deferred import build_graph
from .invoke import invoke
from .ndarray import ndarray
from .value import Record, Value, Variable, call_site, current_trace
from .wrap import wrap

_Step = tuple[list[ndarray], list[ndarray], bool]
"""Outputs and states of a step, and whether the body returns one output, not a list."""


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

    def step(parts: Sequence[ndarray], before: Sequence[ndarray]) -> _Step:
        given = parts[0] if one_item else list(parts)
        return _checked_step(name, before, *body(given, before[0] if one_state else list(before)))

    if current_trace() is None:
        outputs, single, final = _unrolled(step, items, states)
    else:
        outputs, single, final = _recorded(step, items, states, name)
    return (outputs[0] if single else outputs), (final[0] if one_state else final)


def _checked_step(name: str, before: Sequence[ndarray], result: Any, after: Any) -> _Step:
    new = _listed(after)
    _require_types(name, new, before)
    return _listed(result), new, isinstance(result, ndarray)


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
    data = [
        _placeholder(item, f"data_subgraph{i}", item._value.shape[1:])
        for i, item in enumerate(items)
    ]
    held = _placeholders(states, "state_subgraph")
    outs, new, single = step(data, held)
    inputs = [array._value for array in (*items, *states)]
    own = dict(zip((array._value for array in (*data, *held)), inputs))
    graph, _ = _body([*outs, *new], own, inputs)
    first_state, first_captured = len(data), len(own)
    attrs = {
        "in_data_locs": tuple(range(first_state)),
        "in_state_locs": tuple(range(first_state, first_captured)),
        "remain_locs": tuple(range(first_captured, len(inputs))),
    }
    return _loop("_npx_foreach", [graph], inputs, (outs, new, single), attrs)


def _loop(
    op: str, bodies: list[Graph], inputs: list[Value], step: _Step, attrs: dict[str, Any]
) -> tuple[Any, bool, Any]:
    """Record the node of a loop; its outputs, whether the body has one, and the last states."""
    outs, new, single = step
    counts = {"num_args": len(inputs) + len(bodies), "num_outputs": len(outs) + len(new)}
    attrs = {**counts, "num_out_data": len(outs), **attrs}
    found = invoke(op, [wrap(value) for value in inputs], attrs, subgraphs=bodies)
    return found[: len(outs)], single, found[len(outs) :]


def while_loop(
    cond: Callable[..., ndarray],
    func: Callable[..., tuple[Any, Any]],
    loop_vars: ndarray | Sequence[ndarray],
    max_iterations: int | None = None,
    name: str = "while_loop",
) -> tuple[Any, Any]:
    """Run a body as long as a condition holds.

    Parameters
    ----------
    cond : callable
        Takes the variables; returns an array of one element.
    func : callable
        Takes the variables; returns outputs and the variables' next values.
    loop_vars : ndarray or list of ndarray
        Of at least one.
    max_iterations : int
        The most steps.

    Returns
    -------
    outputs
        The outputs of all steps, stacked along a new first axis of extent `max_iterations`; zeros
        after the last step.
    states
        The variables after the last step.

    Raises
    ------
    ArrayError
        `max_iterations` is missing, there are no variables, or the body changes their number,
        shapes or dtypes.
    """
    if not isinstance(max_iterations, int) or max_iterations < 1:
        raise ArrayError(f"{call_site()}: max_iterations of {name} is {max_iterations!r}")
    states = _listed(loop_vars)
    if not states:
        raise ArrayError(f"{call_site()}: {name} has no loop_vars")

    def step(before: Sequence[ndarray]) -> _Step:
        return _checked_step(name, before, *func(*before))

    if current_trace() is None:
        outputs, single, final = _while_unrolled(cond, step, states, max_iterations)
    else:
        outputs, single, final = _while_recorded(cond, step, states, max_iterations)
    one = isinstance(loop_vars, ndarray)
    return (outputs[0] if single else outputs), (final[0] if one else final)


def cond(
    pred: ndarray | Callable[..., ndarray],
    then_func: Callable[..., Any],
    else_func: Callable[..., Any],
    inputs: ndarray | Sequence[ndarray] = (),
    name: str = "cond",
) -> Any:
    """Run one of two functions.

    Parameters
    ----------
    pred : ndarray or callable
        An array of one element, or a function of the inputs that returns one.
    then_func, else_func : callable
        Of the inputs; return arrays of the same number, shapes and dtypes. In a trace both are
        recorded and computed.
    inputs : ndarray or list of ndarray

    Raises
    ------
    ArrayError
        In a trace, the functions return arrays of different types.
    """
    given = _listed(inputs)
    chosen = pred(*given) if callable(pred) else pred
    if current_trace() is None:
        return (then_func if bool(chosen) else else_func)(*given)
    held = _placeholders(given, "input")
    results = [function(*held) for function in (then_func, else_func)]
    one, other = _listed(results[0]), _listed(results[1])
    _require_types(name, other, one)
    node_inputs = [array._value for array in given]
    own = dict(zip((array._value for array in held), node_inputs))
    condition, at_condition = _body([chosen], {}, node_inputs)
    then, at_then = _body(one, own, node_inputs)
    otherwise, at_else = _body(other, own, node_inputs)
    attrs = {
        "num_args": len(node_inputs) + 3,
        "num_outputs": len(one),
        "cond_input_locs": at_condition,
        "then_input_locs": at_then,
        "else_input_locs": at_else,
    }
    bodies = [condition, then, otherwise]
    found = invoke("_npx_cond", [wrap(v) for v in node_inputs], attrs, subgraphs=bodies)
    return found[0] if isinstance(results[0], ndarray) else found


def _while_unrolled(
    cond: Any, step: Any, states: list[ndarray], most: int
) -> tuple[list[ndarray], bool, list[ndarray]]:
    rows: list[list[ndarray]] = []
    following = step(states)  # nothing is computed before a value is asked for
    outs, _, single = following
    while len(rows) < most and bool(cond(*states)):
        outs, states, _ = following if not rows else step(states)
        rows.append(outs)
    rows += [[np.zeros_like(each) for each in outs]] * (most - len(rows))
    return [np.stack(list(column)) for column in zip(*rows)], single, states


def _while_recorded(
    cond: Any, step: Any, states: list[ndarray], most: int
) -> tuple[list[ndarray], bool, list[ndarray]]:
    held = _placeholders(states, "loop_var")
    outs, new, single = step(held)
    inputs = [state._value for state in states]
    own = dict(zip((array._value for array in held), inputs))
    condition, at_condition = _body([cond(*held)], own, inputs)
    body, at_body = _body([*outs, *new], own, inputs)
    attrs = {
        "max_iterations": most,
        "cond_input_locs": at_condition,
        "func_input_locs": at_body,
        "func_var_locs": tuple(range(len(held))),
    }
    return _loop("_npx_while_loop", [condition, body], inputs, (outs, new, single), attrs)


def _require_types(name: str, found: Sequence[ndarray], wanted: Sequence[ndarray]) -> None:
    kinds = [[(each._value.shape, each._value.dtype) for each in some] for some in (found, wanted)]
    if kinds[0] != kinds[1]:
        raise ArrayError(
            f"{call_site()}: the functions of {name} do not return what they should: "
            f"{kinds[0]} instead of {kinds[1]}"
        )


def _placeholders(arrays: Sequence[ndarray], stem: str) -> list[ndarray]:
    return [_placeholder(each, f"{stem}{i}", each._value.shape) for i, each in enumerate(arrays)]


def _placeholder(array: ndarray, name: str, shape: tuple[int, ...]) -> ndarray:
    value = Value(shape, str(array.dtype), array.device)
    value.variable = Variable(name, {"__subgraph_name__": "foreach"})
    return wrap(value)


def _body(
    heads: Sequence[ndarray], own: Mapping[Value, Value], inputs: list[Value]
) -> tuple[Graph, tuple[int, ...]]:
    """The graph of a body, and where among the node's inputs its variables get their values.

    * `heads`: what the body gives.
    * `own`: its variables, and the node's inputs after them.
    * `inputs`: the node's inputs; what else the body reads is added to them.
    """
    inside: set[Record] = set()
    values = [array._value for array in heads]
    _collect(values, {value.variable for value in own}, inside)
    graph, captured = build_graph(values, list(own), lambda value: value.record not in inside)
    # Nodes are moved so that all variables come first, in the order of the node's inputs.
    order = [i for i, n in enumerate(graph.nodes) if n.is_variable]
    order += [i for i, n in enumerate(graph.nodes) if not n.is_variable]
    position = {old: new_index for new_index, old in enumerate(order)}
    for node in graph.nodes:
        node.inputs = [entry._replace(node=position[entry.node]) for entry in node.inputs]
    graph.heads = [entry._replace(node=position[entry.node]) for entry in graph.heads]
    graph.nodes = [graph.nodes[old] for old in order]
    inputs += [value for value in captured if not any(value is each for each in inputs)]
    read = [*own.values(), *captured]
    return graph, tuple(next(i for i, v in enumerate(inputs) if v is each) for each in read)


def _collect(heads: Sequence[Value], own: set[Any], inside: set[Record]) -> None:
    """The records that depend on the body's own variables, or have no inputs at all."""
    roots = [value.record for value in heads if value.record is not None]
    for record in depth_first(roots, _records_read):
        if any(value.variable in own for value in record.inputs) or inside.intersection(
            _records_read(record)
        ):
            inside.add(record)


def _records_read(record: Record) -> list[Record]:
    return [v.record for v in record.inputs if v.variable is None and v.record is not None]
