"""Loops and branches of symbols: unrolled, and computed as MXNet and numpy do."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from compiler.errors import FrontendError, UnsupportedOperatorError
from compiler.mxnet.symbol import Symbol
from tests.compiler.partition.mxnet_oracle import FOLDER

X = np.arange(6, dtype="float32").reshape(3, 2)
H = np.array([1, -1], "float32")


def graph(nodes: list[Any], heads: list[Any]) -> dict[str, Any]:
    """Nodes as (op, name, inputs, attrs); entries by position."""
    data = [
        {"op": op, "name": name, "inputs": [[i, 0, 0] for i in inputs], "attrs": attrs}
        for op, name, inputs, attrs in nodes
    ]
    variables = [i for i, node in enumerate(data) if node["op"] == "null"]
    return {"nodes": data, "arg_nodes": variables, "heads": [[*head, 0] for head in heads]}


def variable(name: str) -> tuple[str, str, list[int], dict[str, str]]:
    return ("null", name, [], {})


def with_bodies(
    op: str, inputs: list[str], outputs: int, bodies: list[Any], **attrs: Any
) -> Symbol:
    outer = graph(
        [*map(variable, inputs), (op, "flow", list(range(len(inputs))), {})],
        [(len(inputs), k) for k in range(outputs)],
    )
    attrs = {**attrs, "num_args": len(inputs) + len(bodies), "num_outputs": outputs}
    outer["nodes"][-1]["attrs"] = {key: str(value) for key, value in attrs.items()}
    outer["nodes"][-1]["subgraphs"] = bodies
    return Symbol.loads(json.dumps(outer))


SCALED_SUM = graph(
    [
        *map(variable, ("state", "scale", "data")),
        ("elemwise_mul", "scaled", [2, 1], {}),
        ("elemwise_add", "next", [3, 0], {}),
        ("_mul_scalar", "twice", [4], {"scalar": "2"}),
    ],
    [(5, 0), (4, 0)],
)


def test_foreach_puts_data_states_and_the_rest_where_the_locations_say() -> None:
    scale = np.array([2, 3], "float32")
    symbol = with_bodies(
        "_foreach", ["x", "h", "s"], 2, [SCALED_SUM], num_out_data=1,
        in_data_locs="(2,)", in_state_locs="(0,)", remain_locs="(1,)",
    )  # fmt: skip
    outputs, state = symbol.eval(x=X, h=H, s=scale)
    sums = np.cumsum(X * scale, 0) + H
    np.testing.assert_allclose(outputs, 2 * sums, rtol=1e-6)
    np.testing.assert_allclose(state, sums[-1], rtol=1e-6)


def test_foreach_of_mxnet_2_goes_by_the_names_of_its_variables() -> None:
    record = json.loads((FOLDER / "c_deferred" / "c18_block_foreach.json").read_text())
    with np.load(FOLDER / "c_deferred" / "c18_block_foreach.npz") as values:
        inputs = {key[3:]: values[key] for key in values if key.startswith("in:")}
        expected = [values[f"out:{i}"] for i in range(2)]
    symbol = Symbol.loads(json.dumps(record["symbol"]))
    names = dict(zip(sorted(inputs), symbol.list_inputs()))
    found = symbol.eval(**{names[key]: value for key, value in inputs.items()})
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


LESS = graph([variable("i"), ("_lesser_scalar", "less", [0], {"scalar": "3"})], [(1, 0)])
COUNT = graph(
    [
        *map(variable, ("s", "i")),
        ("broadcast_add", "sum", [0, 1], {}),
        ("_plus_scalar", "next", [1], {"scalar": "1"}),
    ],
    [(2, 0), (3, 0), (2, 0)],
)


def test_while_loop_stops_when_its_condition_fails_and_leaves_zeros() -> None:
    symbol = with_bodies(
        "_while_loop", ["i", "s"], 3, [LESS, COUNT], num_out_data=1, max_iterations=5,
        cond_input_locs="(0,)", func_input_locs="(1, 0)", func_var_locs="(1, 0)",
    )  # fmt: skip
    outputs, i, s = symbol.eval(i=np.zeros(1, "float32"), s=H)
    np.testing.assert_allclose(outputs, np.array([H, H + 1, H + 3, 0 * H, 0 * H]))
    np.testing.assert_allclose(i, [3])
    np.testing.assert_allclose(s, H + 3)


@pytest.mark.parametrize("value", [0.0, 2.0])
def test_cond_takes_one_branch(value: float) -> None:
    yes = graph([variable("x"), ("exp", "e", [0], {})], [(1, 0)])
    no = graph([variable("y"), variable("x"), ("elemwise_mul", "m", [0, 1], {})], [(2, 0)])
    test = graph([variable("p"), ("_copy", "c", [0], {})], [(1, 0)])
    symbol = with_bodies(
        "_cond", ["p", "x", "y"], 1, [test, yes, no],
        cond_input_locs="(0,)", then_input_locs="(1,)", else_input_locs="(2, 1)",
    )  # fmt: skip
    (found,) = symbol.eval(p=np.array([value], "float32"), x=H, y=2 * H)
    np.testing.assert_allclose(found, np.exp(H) if value else 2 * H * H, rtol=1e-6)


def test_locations_that_do_not_fit_and_endless_loops_are_refused() -> None:
    places = {"in_data_locs": "(7,)", "in_state_locs": "(0,)", "remain_locs": "(1,)"}
    bad = with_bodies("_foreach", ["x", "h", "s"], 2, [SCALED_SUM], num_out_data=1, **places)
    with pytest.raises(FrontendError, match="in_data_locs"):
        bad.eval(x=X, h=H, s=H)
    endless = with_bodies(
        "_while_loop", ["i", "s"], 3, [LESS, COUNT], num_out_data=1, max_iterations=10**9,
        cond_input_locs="(0,)", func_input_locs="(1, 0)", func_var_locs="(1, 0)",
    )  # fmt: skip
    with pytest.raises(UnsupportedOperatorError, match="max_iterations"):
        endless.eval(i=np.zeros(1, "float32"), s=H)
