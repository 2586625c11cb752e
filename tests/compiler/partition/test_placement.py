"""Placement by measurement: choice, failures of engines, logs and their replay."""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import relay
from compiler.backends.graph import VARIABLE
from compiler.backends.relax_graph import RelaxGraph
from compiler.errors import PartitionError, RecordError
from compiler.ir.dataflow_graph import RelaxFunction
from compiler.partition import (
    Fastest,
    PlacementLog,
    Strategy,
    partition,
    partition_with_report,
    placement,
    register,
    subgraphs,
)
from compiler.relay.relax_to_relay import as_relay
from compiler.runtime import graph_executor

SIZE = 640
QUICK = Fastest(threads=1, segments=1, seconds=0.02, rounds=1)


def dense(x: Any) -> Any:
    return relay.nn.dense(x, x)


def batched(x: Any) -> Any:
    y = relay.expand_dims(x, 0)
    return relay.squeeze(relay.nn.batch_matmul(y, y), axis=[0])


def module(*layers: Callable[[Any], Any], size: Any = SIZE) -> tvm.IRModule:
    x = relay.var("x", shape=(size, size))
    y = x
    for layer in layers:
        y = relay.sigmoid(layer(y))
    return tvm.IRModule.from_expr(relay.Function([x], y))


def diamond() -> tvm.IRModule:
    x = relay.var("x", shape=(SIZE, SIZE))
    y = relay.sigmoid(dense(x))
    body = relay.add(batched(relay.sigmoid(y)), dense(relay.tanh(y)))
    return tvm.IRModule.from_expr(relay.Function([x], body))


OPERATORS: dict[str, Callable[..., Any]] = {
    "nn.dense": lambda x, y: x @ y.T,
    "nn.batch_matmul": lambda x, y: x @ y.transpose(0, 2, 1),
    "expand_dims": lambda x: x[None],
    "squeeze": lambda x: x[0],
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "add": np.add,
}


def evaluate(function: relax.Function, *inputs: np.ndarray) -> Any:
    values = {hash(var): value for var, value in zip(function.params, inputs, strict=True)}
    for binding in function.body.blocks[0].bindings:
        arguments = [values[hash(each)] for each in binding.value.args]
        values[hash(binding.var)] = OPERATORS[str(binding.value.op.name)](*arguments)
    result = function.body.body
    if isinstance(result, relax.Tuple):
        return [values[hash(each)] for each in result.fields]
    return values[hash(result)]


def engine(*slow: str, spoil: Callable[[Any], Any] = lambda found: found) -> Any:
    """A `compile` whose code keeps its first results; it sleeps for each operator in `slow`."""

    def compile_part(subgraph: Any, params: Any, options: Any) -> Any:
        ((_, function),) = subgraph.functions_items()
        names = [str(each.value.op.name) for each in function.body.blocks[0].bindings]
        known: list[Any] = []

        def run(*inputs: np.ndarray) -> Any:
            time.sleep(0.03 * sum(name in slow for name in names))
            if not known:
                known.append(spoil(evaluate(function, *inputs)))
            return known[0]

        return run

    return compile_part


def every(graph_json: str, ids: list[Any], options: Any) -> None:
    for index, node in enumerate(json.loads(graph_json)["nodes"]):
        if node["op"] in OPERATORS:
            ids[index] = -1


def add_engine(name: str, compile_part: Any) -> str:
    register(name, Strategy("every", every), compile=compile_part)
    return name


def test_each_part_goes_where_it_is_fastest_and_the_numbers_stay() -> None:
    one = add_engine("one", engine("nn.batch_matmul"))
    two = add_engine("two", engine("nn.dense"))
    mod = module(dense, dense, batched, batched)
    how = Fastest(threads=1, segments=2, seconds=0.05, rounds=2)
    done = partition_with_report(mod, [one, two], placement=how)
    assert [name for _, name in done.measured[0].placement] == ["one", "two"]
    assert {each.name for each in done.measured} >= {"baton", "one", "two"}
    assert 0 <= done.gap < 1
    found = [(len(each.operators), each.backend) for each in subgraphs(done.module)]
    assert tuple(found) == done.measured[0].placement
    value = np.random.default_rng(0).random((SIZE, SIZE), "float32")
    executor = graph_executor.GraphModule(relay.build(done.module, "llvm")["default"](tvm.cpu()))
    executor.run(x=value)
    np.testing.assert_allclose(
        executor.get_output(0).numpy(), evaluate(mod["main"], value), rtol=1e-4
    )


def test_engines_that_fail_lose_and_the_report_says_how() -> None:
    def crash(*_: Any) -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)

    def hang(*_: Any) -> Any:
        time.sleep(600)

    def greedy(*_: Any) -> Any:
        return np.ones(1 << 30)

    names = [
        add_engine("crashes", crash),
        add_engine("hangs", hang),
        add_engine("greedy", greedy),
        add_engine("flat", engine(spoil=lambda found: found.reshape(-1))),
        add_engine("wrong", engine(spoil=lambda found: found * 2)),
        add_engine("nan", engine(spoil=lambda found: found * np.float32("nan"))),
        add_engine("good", engine()),
    ]
    how = Fastest(threads=1, segments=1, seconds=0.02, rounds=1, timeout=20, memory=3 << 30)
    found = partition_with_report(module(dense, dense), names, placement=how).measured
    assert found[0].name == "good"
    errors = {each.name: each.error for each in found}
    assert "SIGSEGV" in errors["crashes"]
    assert errors["hangs"] == "timeout: after 20 s"
    assert "MemoryError" in errors["greedy"]
    assert "output 0 of a foreign subgraph has shape" in errors["flat"]
    assert "differs from the build's by" in errors["wrong"]
    assert "differs from the build's by nan" in errors["nan"]
    assert errors["good"] == errors["baton"] == ""
    assert "flat raised" in " ".join(map(str, found))


@pytest.mark.parametrize(("dtype", "error"), [("int32", "output 0 differs"), ("uint8", "")])
def test_integers_are_compared_exactly_and_bytes_within_one(dtype: str, error: str) -> None:
    x = relay.var("x", shape=(8, 8), dtype=dtype)
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.add(x, x)))
    off = add_engine("off", engine(spoil=lambda found: found + found.dtype.type(1)))
    measured = partition_with_report(mod, off, placement=QUICK).measured
    (found,) = [each for each in measured if each.name == "off"]
    assert found.error.startswith(error) and bool(found.error) == bool(error)


def test_cuts_of_a_diamond_are_where_one_tensor_crosses() -> None:
    main = RelaxFunction(as_relay(diamond()))
    graph = RelaxGraph(main, {}).graph
    operators = [index for index, node in enumerate(graph.nodes) if node.op != VARIABLE]
    (cut,) = placement.cut_points(graph, 2)
    before = [graph.nodes[index].op for index in operators[: cut[0]]]
    assert before == ["nn.dense", "sigmoid"]
    assert cut[1] == SIZE * SIZE * 4


def test_parts_of_a_diamond_are_placed_and_the_numbers_stay() -> None:
    one, mod = add_engine("one", engine("nn.dense")), diamond()
    how = Fastest(threads=1, segments=2, seconds=0.02, rounds=1)
    done = partition_with_report(mod, one, placement=how)
    assert [each.error for each in done.measured] == [""] * len(done.measured)
    value = np.random.default_rng(0).random((SIZE, SIZE), "float32")
    executor = graph_executor.GraphModule(relay.build(done.module, "llvm")["default"](tvm.cpu()))
    executor.run(x=value)
    expected = evaluate(mod["main"], value)
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, rtol=1e-4)


def test_a_log_answers_without_measuring_also_when_it_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    good, mod, path = add_engine("good", engine()), module(dense), tmp_path / "placements.log"
    with PlacementLog(path):
        first = partition_with_report(mod, good, placement=QUICK)
    assert first.measured[0].name == "good"
    lines = path.read_text().splitlines()
    row = json.loads(lines[0])
    damaged = [{**row, "v": 2}, {**row, "seconds": [-1]}, {**row, "placement": []}, [row]]
    damaged += [{**row, "error": "raised: and has seconds"}, {**row, "versions": 1}]
    text = [*map(json.dumps, damaged), '{"v": 1', "\x00", *lines, lines[0][:50]]
    path.write_text("\n".join(text))

    monkeypatch.setattr(placement, "time_library", None)
    with caplog.at_level(logging.WARNING), PlacementLog(path):
        again = partition_with_report(mod, good, placement=QUICK)
    assert again.measured == first.measured
    assert "9 lines are skipped" in caplog.text
    with pytest.raises(RecordError, match="can't be read"):
        PlacementLog(tmp_path)


def test_a_logs_choice_names_the_engine_that_is_missing(tmp_path: Path) -> None:
    ghost, mod, path = add_engine("ghost", engine()), module(dense), tmp_path / "placements.log"
    with PlacementLog(path):
        partition(mod, ghost, placement=QUICK)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["versions"] = {"ghost": "1.2"}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with PlacementLog(path), pytest.raises(PartitionError, match=r"ghost 1\.2.*pip install ghost"):
        partition(mod, ghost, placement=QUICK)


def test_models_without_segments_are_placed_whole() -> None:
    x, flag = relay.var("x", shape=(8, 8)), relay.var("flag", shape=(), dtype="bool")
    body = relay.If(flag, relay.tanh(x), relay.sigmoid(x))
    mod = tvm.IRModule.from_expr(relay.Function([x, flag], body))
    slow = add_engine("slow", engine("tanh", "sigmoid"))
    found = partition_with_report(mod, slow, placement=Fastest(threads=1, seconds=0.02, rounds=1))
    assert found.measured[0].name == "baton" and len(found.measured) == 2
    assert math.isnan(found.gap)


@pytest.mark.parametrize(
    ("mod", "backend", "how", "message"),
    [
        (module(dense), "onnxruntime", "best", "it must be 'fastest' or a Fastest"),
        (module(dense), "tensorrt", "fastest", "tensorrt: a pattern table has no engine"),
        (module(dense, size=relay.Any()), "onnxruntime", "fastest", "x: float32.*known shapes"),
        (module(dense), "onnxruntime", Fastest(target="cuda -arch=sm_80"), "measured on the CPU"),
    ],
)
def test_what_can_not_be_measured_is_an_error(
    mod: tvm.IRModule, backend: str, how: Any, message: str
) -> None:
    with pytest.raises(PartitionError, match=message):
        partition(mod, backend, placement=how)


def test_paths_are_the_cheapest_of_all() -> None:
    rng = np.random.default_rng(0)
    engines = ["baton", "one", "two"]
    for _ in range(20):
        costs = [dict(zip(engines, rng.uniform(1, 9, 3))) for _ in range(5)]
        del costs[2]["one"]
        switches, call = rng.uniform(0, 4, 4).tolist(), 0.5

        def total(
            path: tuple[str, ...], costs: Any = costs, switches: Any = switches, call: float = call
        ) -> float:
            found = sum(own[name] for own, name in zip(costs, path))
            for before, after, switch in zip(path, path[1:], switches):
                found += switch if before != after else -call * (before != "baton")
            return found

        every_path = [p for p in itertools.product(engines, repeat=5) if p[2] != "one"]
        expected = [min((p for p in every_path if p[-1] == last), key=total) for last in engines]
        found = placement.best_paths(costs, switches, call)
        assert [path for _, path in found] == sorted(expected, key=total)
        assert [cost for cost, _ in found] == pytest.approx(sorted(map(total, expected)))
