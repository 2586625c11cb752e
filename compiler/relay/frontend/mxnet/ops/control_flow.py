"""Loops and branches. Relax modules here have no control flow, so that loops are unrolled.

A `_while_loop` is unrolled as often as `max_iterations` allows; steps after its condition failed
keep the variables and yield zeros. Of a `_cond` both branches are computed.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from compiler.errors import FrontendError
from compiler.mxnet_format.graph import Graph

from ..node import SymbolNode

op = relax.op

_LONGEST_LOOP = 1024
"""More steps than this are not unrolled."""


def foreach(node: SymbolNode) -> list[relax.Expr]:
    """The body for every slice along the first axis of the data; outputs are stacked.

    Inputs are the data, the states and what else the body reads; the body yields `num_out_data`
    outputs and the next states.
    """
    (body,) = _bodies(node, 1)
    places = [_locations(node, key) for key in ("in_data_locs", "in_state_locs", "remain_locs")]
    return _unrolled(node, body, places[0], places[1], places[2], node.integer("num_out_data"))


def npx_foreach(node: SymbolNode) -> list[relax.Expr]:
    """`_foreach` as MXNet 2.0 saves it, without the locations: names tell the variables apart."""
    if node.has("in_data_locs"):
        return foreach(node)
    (body,) = _bodies(node, 1)
    names = [variable.name for variable in body.variables()]
    data = [i for i, name in enumerate(names) if name.startswith("data_subgraph")]
    states = [i for i, name in enumerate(names) if name.startswith("state_subgraph")]
    rest = [i for i in range(len(names)) if i not in data and i not in states]
    kinds = len({names[i] for i in states})
    if not data or len(body.heads) < kinds:
        raise node.unsupported("the file does not say which variables of the body are data")
    return _unrolled(node, body, data, states, rest, len(body.heads) - kinds)


def _unrolled(
    node: SymbolNode,
    body: Graph,
    data: Sequence[int],
    states: Sequence[int],
    rest: Sequence[int],
    outputs: int,
) -> list[relax.Expr]:
    """Run the body step by step; `data`, `states` and `rest` are positions of its variables.

    Variables of one name are one state: MXNet 2.0 copies what several outputs of a body share.
    """
    names = [variable.name for variable in body.variables()]
    if sorted([*data, *states, *rest]) != list(range(node.count)) or len(names) != node.count:
        raise FrontendError(f"{node.describe()}: its inputs and those of its body do not match")
    if not data:
        raise node.unsupported("a loop without data")
    place = {position: i for i, position in enumerate([*data, *states, *rest])}
    steps = {node.shape(place[position])[0] for position in data}
    if len(steps) != 1:
        raise FrontendError(f"{node.describe()}: data of different lengths {sorted(steps)}")
    (count,) = steps
    if not 0 < count <= _LONGEST_LOOP:
        raise node.unsupported(f"a loop of {count} steps")
    order = list(dict.fromkeys(names[position] for position in states))
    if len(states) == len(body.heads) - outputs:  # equal names may then be different states
        order = []
    current = {position: node[place[position]] for position in [*states, *rest]}
    collected: list[list[relax.Expr]] = [[] for _ in range(outputs)]
    following: list[relax.Expr] = []
    for step in range(count):
        inputs = dict(current)
        for position in data:
            inputs[position] = _step(node, node[place[position]], step)
        results = node.importer.convert_body(body, [inputs[i] for i in range(node.count)])
        following = results[outputs:]
        for made, result in zip(collected, results):
            made.append(result)
        for number, position in enumerate(states):
            current[position] = following[order.index(names[position]) if order else number]
    return [*(node.stack(made) for made in collected), *following]


def while_loop(node: SymbolNode) -> list[relax.Expr]:
    """The body as long as the condition holds, at most `max_iterations` times."""
    condition, body = _bodies(node, 2)
    for_condition = _locations(node, "cond_input_locs")
    for_body = _locations(node, "func_input_locs")
    variables = [for_body[i] for i in _locations(node, "func_var_locs")]
    outputs, most = node.integer("num_out_data"), node.integer("max_iterations")
    if not 0 < most <= _LONGEST_LOOP:
        raise node.unsupported(f"max_iterations is {most}")
    values = node.all()
    collected: list[list[relax.Expr]] = [[] for _ in range(outputs)]
    running: relax.Expr | None = None
    for _ in range(most):
        holds = _predicate(node, condition, [values[i] for i in for_condition])
        running = holds if running is None else node.emit(op.logical_and(running, holds))
        results = node.importer.convert_body(body, [values[i] for i in for_body])
        for made, result in zip(collected, results):
            nothing = node.emit(op.zeros_like(result))
            made.append(node.emit(op.where(running, result, nothing)))
        for place, result in zip(variables, results[outputs:], strict=True):
            values[place] = node.emit(op.where(running, result, values[place]))
    return [*(node.stack(made) for made in collected), *(values[i] for i in variables)]


def cond(node: SymbolNode) -> list[relax.Expr]:
    """One of two bodies."""
    condition, then, otherwise = _bodies(node, 3)
    values = node.all()

    def inputs(key: str) -> list[relax.Expr]:
        return [values[i] for i in _locations(node, key)]

    holds = _predicate(node, condition, inputs("cond_input_locs"))
    yes = node.importer.convert_body(then, inputs("then_input_locs"))
    no = node.importer.convert_body(otherwise, inputs("else_input_locs"))
    return [node.emit(op.where(holds, one, two)) for one, two in zip(yes, no, strict=True)]


def _bodies(node: SymbolNode, count: int) -> list[Graph]:
    if len(node.node.subgraphs) != count:
        raise FrontendError(
            f"{node.describe()} has {len(node.node.subgraphs)} subgraphs instead of {count}"
        )
    return node.node.subgraphs


def _locations(node: SymbolNode, key: str) -> list[int]:
    found = list(node.integers(key, ()))
    if any(not 0 <= position < node.count for position in found):
        raise FrontendError(f"{node.describe()}: {key} {found} names no input")
    return found


def _predicate(node: SymbolNode, condition: Graph, inputs: list[relax.Expr]) -> relax.Expr:
    """The condition's result, a scalar or an array of one element, as a boolean scalar."""
    (value,) = node.importer.convert_body(condition, inputs)
    scalar = node.emit(op.reshape(value, ()))
    return node.emit(op.astype(scalar, "bool"))


def _step(node: SymbolNode, data: relax.Expr, step: int) -> relax.Expr:
    part = node.emit(op.strided_slice(data, [0], [step], [step + 1]))
    return node.emit(op.squeeze(part, [0]))


CONVERTERS = {
    **dict.fromkeys(("_cond", "_npx_cond"), cond),
    "_foreach": foreach,
    "_npx_foreach": npx_foreach,
    **dict.fromkeys(("_npx_while_loop", "_while_loop"), while_loop),
}
