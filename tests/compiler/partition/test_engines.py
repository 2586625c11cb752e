"""The back ends onnxruntime and openvino: numbers, buffers, threads, dynamic shapes, errors."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.errors import BuildError, PartitionError
from compiler.partition import partition, subgraphs
from compiler.runtime import graph_executor, load_module, openvino_engine

ENGINES = ["onnxruntime", "openvino"]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param)
    return str(request.param)


def network(rows: Any = 2) -> tvm.IRModule:
    """Two results: a convolution with relu, and its transposed sum with a constant."""
    x = relay.var("x", shape=(rows, 3, 8, 8))
    w = relay.const(np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype("float32"))
    conv = relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1)))
    second = relay.add(relay.transpose(conv, axes=(0, 2, 3, 1)), relay.const(1.5))
    return tvm.IRModule.from_expr(relay.Function([x], relay.Tuple([conv, second])))


def data(rows: int = 2, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, 3, 8, 8)).astype("float32")


def run(library: Any, x: np.ndarray) -> list[np.ndarray]:
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(x=x)
    return [executor.get_output(number).numpy() for number in range(2)]


def test_results_are_those_of_the_build_also_of_an_exported_library(
    engine: str, tmp_path: Path
) -> None:
    expected = run(relay.build(network(), "llvm"), data())
    library = relay.build(partition(network(), engine), "llvm")
    (info,) = library.partition_info().values()
    assert info["runtime"] == engine
    library.export_library(tmp_path / "network.so")
    for each in (library, load_module(tmp_path / "network.so")):
        for seed in (1, 2):  # the second run writes to other memory
            plain = run(relay.build(network(), "llvm"), data(seed=seed))
            for result, reference in zip(run(each, data(seed=seed)), plain):
                np.testing.assert_allclose(result, reference, rtol=1e-5, atol=1e-5)
    assert expected[0].shape == (2, 4, 8, 8)


def test_one_library_runs_dynamic_batches(engine: str) -> None:
    library = relay.build(partition(network(relay.Any()), engine), "llvm")
    assert {each["runtime"] for each in library.partition_info().values()} == {engine}
    for rows in (1, 5, 3):
        plain = run(relay.build(network(rows), "llvm"), data(rows))
        for result, reference in zip(run(library, data(rows)), plain):
            np.testing.assert_allclose(result, reference, rtol=1e-5, atol=1e-5)


def test_threads_share_a_library(engine: str) -> None:
    library = relay.build(partition(network(), engine), "llvm")
    found: dict[int, list[np.ndarray]] = {}

    def work(seed: int) -> None:
        found[seed] = run(library, data(seed=seed))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for seed, results in found.items():
        np.testing.assert_array_equal(results[0], run(library, data(seed=seed))[0])


def test_openvino_writes_results_of_known_shapes_in_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("openvino")
    copies: list[int] = []

    def counted(number: int, result: np.ndarray, output: np.ndarray) -> None:
        copies.append(result.nbytes)
        np.copyto(output, result)

    monkeypatch.setattr(openvino_engine, "_copy", counted)
    run(relay.build(partition(network(), "openvino"), "llvm"), data())
    assert not copies
    run(relay.build(partition(network(relay.Any()), "openvino"), "llvm"), data(3))
    assert copies == [3 * 4 * 64 * 4] * 2


def test_what_an_engine_lacks_stays_with_the_build(engine: str) -> None:
    x = relay.var("x", shape=(1, 8, 8, 4))
    w = relay.const(np.ones((3, 3, 4, 4), "float32"))
    body = relay.exp(relay.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO"))
    mod = tvm.IRModule.from_expr(relay.Function([x], body))
    assert [each.operators for each in subgraphs(partition(mod, engine))] == [("exp",)]


def test_options_and_a_missing_package_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    for threads in ("0", "two", "-1"):
        with pytest.raises(PartitionError, match=r"threads is .*; give a whole number above 0"):
            partition(network(), "openvino", threads=threads)
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(BuildError, match="pip install openvino"):
        relay.build(partition(network(), "openvino"), "llvm")
