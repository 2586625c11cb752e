"""The fastest engine by measurement: choice, failures of engines, errors."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import relay
from compiler.errors import PartitionError
from compiler.partition import (
    Fastest,
    Strategy,
    partition,
    partition_with_report,
    register,
    subgraphs,
)
from compiler.runtime import graph_executor

SIZE = 640
QUICK = Fastest(threads=1, seconds=0.02, rounds=1)


def dense(x: Any) -> Any:
    return relay.nn.dense(x, x)


def module(*layers: Callable[[Any], Any], size: Any = SIZE) -> tvm.IRModule:
    x = relay.var("x", shape=(size, size))
    y = x
    for layer in layers:
        y = relay.sigmoid(layer(y))
    return tvm.IRModule.from_expr(relay.Function([x], y))


OPERATORS: dict[str, Callable[..., Any]] = {
    "nn.dense": lambda x, y: x @ y.T,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
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


def test_the_fastest_engine_gets_the_model_and_the_numbers_stay() -> None:
    slow = add_engine("slow", engine("nn.dense"))
    quick = add_engine("quick", engine())
    mod = module(dense, dense)
    done = partition_with_report(mod, [slow, quick], placement=QUICK)
    assert done.measured[0].engine == "quick"
    assert {each.engine for each in done.measured} == {"baton", "slow", "quick"}
    assert [each.backend for each in subgraphs(done.module)] == ["quick"]
    value = np.random.default_rng(0).random((SIZE, SIZE), "float32")
    executor = graph_executor.GraphModule(relay.build(done.module, "llvm")["default"](tvm.cpu()))
    executor.run(x=value)
    expected = evaluate(mod["main"], value)
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, rtol=1e-4)


def test_the_build_gets_what_no_engine_is_faster_at(capfd: pytest.CaptureFixture[str]) -> None:
    slow = add_engine("slow", engine("nn.dense"))
    unable = add_engine("unable", engine())
    register("unable", Strategy("none", lambda *_: None), replace=True)
    mod = partition(module(dense), [slow, unable], placement=QUICK)
    assert subgraphs(mod) == []
    assert re.match(
        r"placement: baton \d+\.\d{3} ms; slow \d+\.\d{3} ms\n$", capfd.readouterr().err
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
    how = Fastest(threads=1, seconds=0.02, rounds=1, timeout=20, memory=3 << 30)
    found = partition_with_report(module(dense, dense), names, placement=how).measured
    assert found[0].engine == "good"
    errors = {each.engine: each.error for each in found}
    assert "SIGSEGV" in errors["crashes"]
    assert errors["hangs"] == "timeout: after 20 s"
    assert "MemoryError" in errors["greedy"]
    assert "output 0 of a foreign subgraph has shape" in errors["flat"]
    assert "differs from the build's by" in errors["wrong"]
    assert "differs from the build's by nan" in errors["nan"]
    assert errors["good"] == errors["baton"] == ""
    assert "flat raised" in " ".join(map(str, found))


def test_branches_of_a_condition_are_measured_too() -> None:
    x, flag = relay.var("x", shape=(8, 8)), relay.var("flag", shape=(), dtype="bool")
    body = relay.If(flag, relay.tanh(x), relay.sigmoid(x))
    mod = tvm.IRModule.from_expr(relay.Function([x, flag], body))
    slow = add_engine("slow", engine("tanh", "sigmoid"))
    found = partition_with_report(mod, slow, placement=QUICK).measured
    assert found[0].engine == "baton"
    assert [each.error for each in found] == ["", ""]


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
