"""Subgraphs that their backend compiles itself, and the backends that are always there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from compiler import relay
from compiler.errors import BuildError, ExportError, PartitionError
from compiler.partition import Strategy, partition, register, subgraphs, unregister
from compiler.runtime import foreign
from compiler.runtime.graph_executor import GraphModule
from compiler.runtime.load import load_module
from compiler.target import to_cli


@I.ir_module
class Model:
    """A small network with a weight, a branch and two outputs."""

    @R.function
    def main(x: R.Tensor((2, 8), "float32"), w: R.Tensor((4, 8), "float32")) -> R.Tuple(
        R.Tensor((2, 4), "float32"), R.Tensor((2, 8), "float32")
    ):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            a = R.exp(x)
            b = R.matmul(a, R.permute_dims(w))
            c = R.nn.relu(b)
            d = R.tanh(c)
            gv = (d, a)
            R.output(gv)
        return gv


X = np.random.default_rng(1).standard_normal((2, 8)).astype("float32")
W = np.random.default_rng(2).standard_normal((4, 8)).astype("float32")
EXPECTED = [np.tanh(np.maximum(np.exp(X.astype("float64")) @ W.T, 0)), np.exp(X.astype("float64"))]


def claim(*operators: str) -> Callable[[str, list[int], dict[str, str]], None]:
    def supported_ops(graph_json: str, ids: list[int], options: dict[str, str]) -> None:
        for index, node in enumerate(json.loads(graph_json)["nodes"]):
            if node["op"] in operators:
                ids[index] = -1

    return supported_ops


@pytest.fixture
def backend() -> Iterator[Callable[..., str]]:
    names: list[str] = []

    def make(compile: Any, *operators: str) -> str:
        names.append(f"foreign{len(names)}")
        register(names[-1], Strategy("s", claim(*operators)), compile=compile)
        return names[-1]

    yield make
    for name in names:
        unregister(name)


def run(lib: Any) -> list[np.ndarray]:
    module = GraphModule(lib["default"](tvm.cpu(0)))
    module.run(x=X)
    return [module.get_output(index).numpy() for index in range(2)]


def check(lib: Any) -> None:
    for found, expected in zip(run(lib), EXPECTED, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def build(mod: tvm.IRModule) -> Any:
    return relay.build(mod, "llvm", params={"w": W})


def test_a_python_callable_runs_a_subgraph_and_gets_parameters_options_and_inputs(
    backend: Callable[..., str],
) -> None:
    seen: list[Any] = []

    def compile(subgraph: tvm.IRModule, params: Any, options: dict[str, str]) -> Any:
        seen.append((list(params), options, [gv.name_hint for gv in subgraph.get_global_vars()]))
        return lambda a: np.maximum(a @ params["w"].T, 0)

    mod = partition(Model, backend(compile, "nn.dense", "nn.relu"), {"w": W}, depth=3)
    lib = build(mod)
    check(lib)
    name = subgraphs(mod)[0].name
    assert seen == [(["w"], {"depth": "3"}, [name])]
    entry = lib.partition_info()[name]
    assert entry["runtime"] == "python"
    assert entry["operators"] == ["nn.dense", "nn.relu"]
    assert entry["flops"] == 2 * 2 * 8 * 4 + 2 * 4


def test_a_library_with_a_python_callable_is_not_exported(
    backend: Callable[..., str], tmp_path: Path
) -> None:
    lib = build(partition(Model, backend(lambda *call: np.tanh, "tanh")))
    with pytest.raises(ExportError, match="Python function"):
        lib.export_library(tmp_path / "lib.so")
    assert not list(tmp_path.iterdir())


def test_a_tvm_module_runs_a_subgraph_and_is_exported_with_the_library(
    backend: Callable[..., str], tmp_path: Path
) -> None:
    def compile(subgraph: tvm.IRModule, params: Any, options: dict[str, str]) -> Any:
        (gvar,) = subgraph.get_global_vars()
        x = tvm.te.placeholder((2, 4), name="x")
        y = tvm.te.compute((2, 4), lambda i, j: tvm.tirx.tanh(x[i, j]), name="y")
        func = tvm.te.create_prim_func([x, y]).with_attr("global_symbol", gvar.name_hint)
        return tvm.compile(tvm.IRModule({gvar.name_hint: func}), target="llvm").mod

    lib = build(partition(Model, backend(compile, "tanh")))
    check(lib)
    lib.export_library(tmp_path / "lib.so")
    check(load_module(tmp_path / "lib.so"))


@pytest.mark.parametrize(
    ("compile", "message"),
    [
        (lambda *call: 1 / 0, "compile raised ZeroDivisionError"),
        (lambda *call: "code", "compile returned 'code'"),
    ],
)
def test_a_backend_that_cannot_compile_names_itself_and_the_subgraph(
    compile: Any, message: str, backend: Callable[..., str]
) -> None:
    name = backend(compile, "tanh")
    with pytest.raises(BuildError, match=f"subgraph_{name}_s_0 of backend '{name}': {message}"):
        build(partition(Model, name))


def test_a_subgraph_that_its_backend_cannot_compile_goes_back_to_main(
    backend: Callable[..., str],
) -> None:
    lib = build(partition(Model, backend(lambda *call: 1 / 0, "tanh"), on_compile_error="back"))
    check(lib)
    assert lib.partition_info() == {}
    assert any("ZeroDivisionError" in note for note in lib.report.notes)


def test_a_subgraph_that_its_backend_cannot_compile_whole_is_split(
    backend: Callable[..., str],
) -> None:
    def compile(subgraph: tvm.IRModule, params: Any, options: dict[str, str]) -> Any:
        text = relay.astext(subgraph)
        if "nn.dense" in text and "nn.relu" in text:
            raise ValueError("one at a time")
        if "nn.dense" in text:
            return lambda a: a @ params["w"].T
        return lambda a: np.maximum(a, 0)

    name = backend(compile, "nn.dense", "nn.relu")
    lib = build(partition(Model, name, {"w": W}, on_compile_error="split"))
    check(lib)
    assert [e["operators"] for e in lib.partition_info().values()] == [["nn.dense"], ["nn.relu"]]


@pytest.mark.parametrize(
    ("function", "message"),
    [(lambda a: np.tanh(a)[:1], "shape"), (lambda a: (a, a), "2 arrays instead of 1")],
)
def test_a_callable_that_returns_nonsense_is_an_error(
    function: Any, message: str, backend: Callable[..., str]
) -> None:
    lib = build(partition(Model, backend(lambda *call: function, "tanh")))
    with pytest.raises(Exception, match=message):
        run(lib)


def test_a_build_without_the_backend_says_so(backend: Callable[..., str]) -> None:
    register("gone", Strategy("s", claim("tanh")), compile=lambda *call: np.tanh)
    mod = partition(Model, "gone")
    unregister("gone")
    with pytest.raises(BuildError, match="not registered"):
        build(mod)


def test_onnxruntime_runs_subgraphs_before_and_after_export(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    mod = partition(Model, "onnxruntime", {"w": W}, ops="matmul,permute_dims,nn.relu,tanh")
    lib = build(mod)
    check(lib)
    (entry,) = lib.partition_info().values()
    assert (entry["runtime"], entry["operators"]) == (
        "onnxruntime",
        ["nn.dense", "nn.relu", "tanh"],
    )
    lib.export_library(tmp_path / "lib.so")
    loaded = load_module(tmp_path / "lib.so")
    check(loaded)
    assert loaded.partition_info() == lib.partition_info()


def test_llvm_compiles_its_subgraphs_for_the_target_it_is_told() -> None:
    mod = partition(Model, "llvm", ops="nn.dense,nn.relu", target="llvm -mcpu=x86-64")
    lib = build(mod)
    check(lib)
    (entry,) = lib.partition_info().values()
    assert "x86-64" in entry["target"]
    with pytest.raises(PartitionError, match="refuses the options"):
        partition(Model, "llvm", target="llvm -mcpu=no-such-cpu")


def test_cuda_claims_for_the_gpu_and_foreign_code_stays_on_the_host(
    backend: Callable[..., str],
) -> None:
    """What is built is looked at: copies lead to the host and back."""
    from compiler.lowering.codegen import device_placement
    from compiler.lowering.codegen.lift_constants import lift_constants
    from compiler.lowering.offloaded_functions import function_targets, inline_subgraphs
    from compiler.relay.external_codegen import compile_external
    from compiler.target import parse

    assert subgraphs(partition(Model, "cuda", ops="tanh"))[0].target == "cuda"
    target = parse("cuda -arch=sm_90")
    mod = partition(Model, backend(lambda *call: np.tanh, "tanh"))
    compiled, _ = compile_external(mod, target, {})
    chosen = function_targets(compiled, target)
    assert sorted({device_placement.device_kind(each) for each in chosen.values()}) == [
        "cpu",
        "cuda",
    ]
    with target:
        lowered, _ = lift_constants(relax.transform.LegalizeOps()(inline_subgraphs(compiled)))
    text = device_placement.place(lowered, target, chosen).script()
    assert text.count("to_vdevice") == 2, text
    assert to_cli(target).startswith("cuda")


def test_a_runtime_of_another_module_is_not_replaced() -> None:
    def load(code: bytes) -> Callable[..., np.ndarray]:
        return lambda x: x

    foreign.register_runtime("of_this_module", load)
    foreign.register_runtime("of_this_module", load)  # again, as a plugin that is loaded again
    load.__module__ = "another"
    with pytest.raises(PartitionError, match="another: the runtime 'of_this_module' is already"):
        foreign.register_runtime("of_this_module", load)
    with pytest.raises(PartitionError, match="the runtime 'onnxruntime' is already registered"):
        foreign.register_engine("onnxruntime", load)
