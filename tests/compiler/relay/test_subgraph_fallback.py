"""Subgraphs that do not compile go back to main or are halved, and say why."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import relay
from compiler.errors import BuildError, TargetError
from compiler.lowering import steps
from compiler.partition import Strategy, partition, register, unregister
from compiler.relay.lower_and_build import ON_COMPILE_ERROR
from compiler.runtime import graph_executor

X = np.random.default_rng(1).random((4, 8)).astype("float32") + 1
W = np.random.default_rng(2).random((8,)).astype("float32")


def module() -> tvm.IRModule:
    """tanh(sqrt(log(exp(x) + w))), all but tanh in one chain."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    w = relax.Var("w", relax.TensorType((8,), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            y = builder.emit(relax.op.add(builder.emit(relax.op.exp(x)), w))
            y = builder.emit(relax.op.sqrt(builder.emit(relax.op.log(y))))
            out = builder.emit_output(relax.op.tanh(y))
        builder.emit_func_output(out)
    return builder.get()


EXPECTED = np.tanh(np.sqrt(np.log(np.exp(X.astype("f8")) + W)))


@pytest.fixture
def backend() -> Iterator[Callable[..., str]]:
    """Registers a partitioner of everything but tanh that sets attributes."""
    names = []

    def make(**attrs: str) -> str:
        def supported(graph_json, ids, options):
            for index, node in enumerate(json.loads(graph_json)["nodes"]):
                if node["op"] not in ("null", "tanh"):
                    ids[index] = -1

        def accept(text, subgraph_id, options, found, args, aux):
            found.update(attrs)
            return True

        register("fragile", Strategy("s", supported, accept))
        names.append("fragile")
        return "fragile"

    yield make
    for name in names:
        unregister(name)


@pytest.fixture
def no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subgraphs with a log do not compile."""
    original = steps.select_implementations

    def select(mod, name, *rest, **options):
        function = mod[name]
        if ON_COMPILE_ERROR in (function.attrs or {}) and "R.log" in function.script():
            raise BuildError("this device has no logarithm")
        return original(mod, name, *rest, **options)

    monkeypatch.setattr(steps, "select_implementations", select)


def run(lib) -> np.ndarray:
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.run(x=X, w=W)
    return executor.get_output(0).numpy()


def test_a_failing_subgraph_goes_back_with_the_reason_in_the_report(backend, no_log) -> None:
    lib = relay.build(partition(module(), backend(), on_compile_error="back"), "llvm")
    np.testing.assert_allclose(run(lib), EXPECTED, rtol=1e-5)
    assert lib.partition_info() == {}
    (note,) = lib.report.notes
    assert "'fragile' does not compile and goes back to main" in note
    assert "BuildError: this device has no logarithm" in note


def test_a_failing_subgraph_is_halved_until_the_rest_compiles(backend, no_log) -> None:
    lib = relay.build(partition(module(), backend(), on_compile_error="split"), "llvm")
    np.testing.assert_allclose(run(lib), EXPECTED, rtol=1e-5)
    info = lib.partition_info()
    assert sorted(op for each in info.values() for op in each["operators"]) == [
        "add",
        "exp",
        "sqrt",
    ]
    names = [t["name"] for each in info.values() for t in each["inputs"]]
    assert sorted(names) == ["", "w", "x"]
    assert [("split" in note, "goes back" in note) for note in lib.report.notes] == [
        (True, False),
        (True, False),
        (False, True),
    ]


def test_without_the_option_the_error_ends_the_build(backend) -> None:
    mod = partition(module(), backend(target="llvm -mcpu=no-such-cpu"))
    with pytest.raises(TargetError, match="no-such-cpu"):
        relay.build(mod, "llvm")


def test_a_target_that_is_no_target_counts_as_a_failure_to_compile(backend) -> None:
    name = backend(target="llvm -mcpu=no-such-cpu")
    lib = relay.build(partition(module(), name, on_compile_error="back"), "llvm")
    np.testing.assert_allclose(run(lib), EXPECTED, rtol=1e-5)
    assert "no-such-cpu" in lib.report.notes[0]


def test_a_failure_of_main_is_not_blamed_on_a_subgraph(backend, monkeypatch) -> None:
    original = steps.select_implementations

    def select(mod, name, *rest, **options):
        if "R.tanh" in mod[name].script():
            raise BuildError("no tanh either")
        return original(mod, name, *rest, **options)

    monkeypatch.setattr(steps, "select_implementations", select)
    mod = partition(module(), backend(), on_compile_error="back")
    with pytest.raises(BuildError, match="no tanh either"):
        relay.build(mod, "llvm")


def test_a_library_describes_its_subgraphs_after_export_too(backend, tmp_path) -> None:
    from compiler import runtime

    lib = relay.build(partition(module(), backend(color="red")), "llvm", params={"w": W})
    lib.export_library(tmp_path / "lib.so")
    loaded = runtime.load_module(tmp_path / "lib.so")
    assert loaded.partition_info() == lib.partition_info()
    (info,) = loaded.partition_info().values()
    assert info["backend"] == "fragile"
    assert info["target"].startswith("llvm")
    assert info["operators"] == ["exp", "add", "log", "sqrt"]
    assert info["inputs"] == [{"name": "x", "shape": [4, 8], "dtype": "float32"}]
    assert info["outputs"] == [{"name": "output0", "shape": [4, 8], "dtype": "float32"}]
    assert info["flops"] >= 4 * 8
    assert info["attrs"]["color"] == "red"


def test_identical_subgraphs_share_kernels(backend) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit(relax.op.tanh(builder.emit(relax.op.exp(x))))
            value = builder.emit(relax.op.tanh(builder.emit(relax.op.exp(value))))
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    mod = partition(builder.get(), backend(), dedup_subgraph=True)
    lib = relay.build(mod, "llvm")
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.run(x=X)
    expected = np.tanh(np.exp(np.tanh(np.exp(X.astype("f8")))))
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, rtol=1e-5)
    assert len(lib.partition_info()) == 1
    assert len([k for k in lib.report.kernels if k.backend == "fragile"]) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_subgraphs_over_sizes_that_running_tells_are_put_into_main(backend, request, fails) -> None:
    if fails:
        request.getfixturevalue("no_log")
    bounds = [relay.var(name, shape=(), dtype="float32") for name in ("start", "stop", "step")]
    values = relay.negative(relay.log(relay.arange(*bounds)))
    mod = tvm.IRModule.from_expr(relay.Function(bounds, values))
    mod = partition(mod, backend(), on_compile_error="back")
    assert len(mod.functions) > 1
    run = relay.create_executor("graph", mod, target="llvm").evaluate()
    for stop in (9, 4):
        got = run(*map(np.float32, (1, stop, 2))).numpy()
        np.testing.assert_allclose(got, -np.log(np.arange(1, stop, 2)), rtol=1e-5)
