"""Code generators by the name `relay.ext.<compiler>`, and what PartitionGraph gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te

from compiler import backends, relay
from compiler.errors import BuildError
from compiler.relay import dialect, transform
from compiler.runtime.graph_executor import GraphModule
from compiler.runtime.load import load_module


def external(name: str) -> tvm.IRModule:
    """x -> 2 * (exp(x) + 1), where another compiler has all but the product."""
    for operator in ("exp", "add"):
        tvm.ir.register_op_attr(dialect.operator(operator).name, f"target.{name}", lambda _: True)
    data = relay.var("data", shape=(3, 4))
    inner = relay.add(relay.exp(data), relay.const(1.0))
    mod = tvm.IRModule.from_expr(relay.Function([data], relay.multiply(inner, relay.const(2.0))))
    for change in (
        transform.AnnotateTarget(name),
        transform.MergeCompilerRegions(),
        transform.PartitionGraph(),
    ):
        mod = change(mod)
    return mod


def register(name: str, generate: Any) -> None:
    tvm.register_global_func(f"relay.ext.{name}", generate, override=True)


def test_a_code_generator_gets_relays_function_and_its_module_runs(tmp_path: Path) -> None:
    seen: list[Any] = []

    def generate(function: Any) -> tvm.runtime.Module:
        seen.append(function)
        data = te.placeholder((3, 4), name="data")
        made = te.compute((3, 4), lambda i, j: te.exp(data[i, j]) + 2.0)  # one more, to be seen
        symbol = str(function.attrs["global_symbol"])
        return tvm.compile(
            te.create_prim_func([data, made]).with_attr("global_symbol", symbol), "llvm"
        ).mod

    register("plusone", generate)
    library = relay.build(external("plusone"), "llvm")
    (function,) = seen
    assert str(function.attrs["Compiler"]) == "plusone"
    assert dialect.relay_name(function.body.body) == "add"  # operands in place
    data = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
    library.export_library(tmp_path / "library.so")
    for each in (library, load_module(tmp_path / "library.so")):
        module = GraphModule(each["default"](tvm.cpu()))
        module.run(data=data)
        np.testing.assert_allclose(module.get_output(0).numpy(), 2 * (np.exp(data) + 2), rtol=1e-5)


def test_a_code_generator_that_fails_is_named() -> None:
    def generate(function: Any) -> Any:
        raise ValueError("no such instruction")

    register("failing", generate)
    with pytest.raises(BuildError, match=r"relay\.ext\.failing raised.*no such instruction"):
        relay.build(external("failing"), "llvm")
    register("nothing", lambda function: None)
    with pytest.raises(BuildError, match=r"relay\.ext\.nothing returned None"):
        relay.build(external("nothing"), "llvm")


def test_a_back_end_that_compiles_is_asked_for_what_relays_passes_gave_it() -> None:
    seen: list[Any] = []

    def compile_subgraph(subgraph: Any, params: Any, options: Any) -> Any:
        seen.append(subgraph)
        return lambda data: np.exp(data) + 2  # one more, to be seen

    backends.register("asked", backends.Strategy("s", lambda *_: None), compile=compile_subgraph)
    try:
        library = relay.build(external("asked"), "llvm")
    finally:
        backends.unregister("asked")
    assert len(seen) == 1
    data = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
    (result,) = library.session().run({"data": data}).values()
    np.testing.assert_allclose(result, 2 * (np.exp(data) + 2), rtol=1e-5)


def test_functions_of_two_runs_have_symbols_of_their_own() -> None:
    mod = external("twice")
    tvm.ir.register_op_attr(dialect.operator("multiply").name, "target.twice", lambda _: True)
    for change in (transform.AnnotateTarget("twice"), transform.PartitionGraph()):
        mod = change(mod)
    taken = [function for function in mod.functions.values() if "Compiler" in function.attrs]
    symbols = {str(function.attrs["global_symbol"]) for function in taken}
    assert len(symbols) == len(taken) == 2
    assert symbols == {str(gvar.name_hint) for gvar in mod.get_global_vars()} - {"main"}


@pytest.mark.parametrize("name", ["without_generator", "cublaslt"])
def test_the_log_names_compilers_whose_functions_tvm_compiles(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    relay.build(external(name), "llvm")
    assert f"no code generator relay.ext.{name} is registered" in caplog.text


def test_a_compiler_without_a_code_generator_is_built_by_tvm() -> None:
    data = np.ones((3, 4), "float32")
    run = relay.create_executor("graph", external("unheard_of")).evaluate()
    np.testing.assert_allclose(run(data).numpy(), 2 * (np.exp(data) + 1), rtol=1e-5)


def test_the_text_of_an_optimized_module_shows_what_another_compiler_gets() -> None:
    register("shown", lambda function: None)
    optimized, _ = relay.vm.VMCompiler().optimize(external("shown"), "llvm")
    text = relay.astext(optimized, show_meta_data=False)
    assert 'Compiler="shown"' in text and "exp(" in text
    read = relay.fromtext(relay.astext(optimized))
    (name,) = (str(gvar.name_hint) for gvar in read.get_global_vars() if gvar.name_hint != "main")
    assert f"@{name}(" in text
