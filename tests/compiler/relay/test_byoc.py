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


def more(symbol: str) -> tvm.runtime.Module:
    """x -> exp(x) + 100, over three elements."""
    data = te.placeholder((3,), name="data")
    made = te.compute((3,), lambda i: te.exp(data[i]) + 100.0)
    primfunc = te.create_prim_func([data, made]).with_attr("global_symbol", symbol)
    return tvm.compile(primfunc, "llvm").mod


@pytest.mark.parametrize("where", ["main", "branch", "local function", "itself", "text"])
def test_a_compilers_function_is_generated_wherever_it_is_called(where: str) -> None:
    symbols: list[str] = []

    def generate(function: Any) -> tvm.runtime.Module:
        symbols.append(str(function.attrs["global_symbol"]))
        return more(symbols[-1])

    register("in_place", generate)
    x, p, q = (relay.var(name, shape=(3,)) for name in "xpq")
    external = relay.Function([p], relay.exp(p)).with_attr("Compiler", "in_place")
    called = relay.Call(external, [x])
    if where == "branch":
        body = relay.If(relay.less(relay.sum(x), relay.const(9.0)), relay.negative(called), x)
    elif where == "local function":
        inner = relay.Function([q], relay.negative(relay.Call(external, [q])))
        body = relay.Call(inner, [x])
    else:
        body = relay.negative(called)
    mod = tvm.IRModule.from_expr(relay.Function([x], body))
    sign = -1
    if where == "itself":
        mod, sign = tvm.IRModule({"main": external.with_attr("Primitive", 1)}), 1
    elif where == "text":
        mod = relay.fromtext(relay.astext(mod))
    value = np.float32([0.0, 1.0, 0.5])
    library = relay.build(mod, "llvm")
    (result,) = library.session().run({str(mod["main"].params[0].name): value}).values()
    np.testing.assert_allclose(result, sign * (np.exp(value) + 100), rtol=1e-6)
    assert len(symbols) == 1 and symbols[0] in library.partition_info()


def test_a_compilers_function_that_reads_the_function_around_it_is_refused() -> None:
    x, y, p = (relay.var(name, shape=(3,)) for name in "xyp")
    external = relay.Function([p], relay.add(p, y)).with_attr("Compiler", "closes")
    mod = tvm.IRModule.from_expr(relay.Function([x, y], relay.Call(external, [x])))
    with pytest.raises(BuildError, match="closes reads y"):
        relay.build(mod, "llvm")


def test_the_function_of_a_region_is_built_by_itself() -> None:
    mod = external("built_by_itself")
    (function,) = (f for f in mod.functions.values() if "Compiler" in (f.attrs or {}))
    alone = function.without_attr("Compiler").without_attr("global_symbol")
    data = np.ones((3, 4), "float32")
    (result,) = relay.build(alone, "llvm").session().run({"data": data}).values()
    np.testing.assert_allclose(result, np.exp(data) + 1, rtol=1e-6)
    with pytest.raises(BuildError, match="no function main, only tvmgen"):
        relay.build(tvm.IRModule.from_expr(function), "llvm")


@pytest.mark.filterwarnings("ignore:TVM compiles the module without schedules")
def test_loops_of_recursion_run_the_code_generators_code() -> None:
    symbols: list[str] = []

    def generate(function: Any) -> tvm.runtime.Module:
        symbols.append(str(function.attrs["global_symbol"]))
        return more(symbols[-1])

    register("in_loops", generate)
    tvm.ir.register_op_attr(dialect.operator("exp").name, "target.in_loops", lambda _: True)
    x = relay.var("x", shape=(3,))
    loop = relay.loops.while_loop(
        lambda i, _: relay.less(i, relay.const(2)),
        [relay.var("i", shape=(), dtype="int32"), relay.var("state", shape=(3,))],
        lambda i, state: [relay.add(i, relay.const(1)), relay.sin(relay.exp(relay.tanh(state)))],
    )
    result = relay.TupleGetItem(relay.Call(loop, [relay.const(0), x]), 1)
    mod = tvm.IRModule.from_expr(relay.Function([x], result))
    for change in (transform.AnnotateTarget("in_loops"), transform.PartitionGraph()):
        mod = change(mod)
    value = np.float32([0.0, 1.0, 0.5])
    run = relay.create_executor("vm", mod, tvm.cpu(), "llvm").evaluate()
    expected = value
    for _ in range(2):
        expected = np.sin(np.exp(np.tanh(expected)) + 100)
    np.testing.assert_allclose(run(value).numpy(), expected, rtol=1e-4)
    assert len(symbols) == 1


@pytest.mark.filterwarnings("ignore:TVM compiles the module without schedules")
def test_local_functions_beside_loops_that_have_only_subgraphs_are_built() -> None:
    name = "local_beside_loop"
    for operator in ("exp", "tanh"):
        tvm.ir.register_op_attr(dialect.operator(operator).name, f"target.{name}", lambda _: True)
    x, p = relay.var("x", shape=(3,)), relay.var("p", shape=(3,))
    local = relay.Function([p], relay.exp(relay.tanh(p)))
    loop = relay.loops.while_loop(
        lambda i, _: relay.less(i, relay.const(2)),
        [relay.var("i", shape=(), dtype="int32"), relay.var("state", shape=(3,))],
        lambda i, state: [relay.add(i, relay.const(1)), relay.tanh(state)],
    )
    result = relay.TupleGetItem(relay.Call(loop, [relay.const(0), relay.Call(local, [x])]), 1)
    mod = tvm.IRModule.from_expr(relay.Function([x], result))
    for change in (transform.AnnotateTarget(name), transform.PartitionGraph()):
        mod = change(mod)
    value = np.float32([0.0, 1.0, 0.5])
    run = relay.create_executor("vm", mod, tvm.cpu(), "llvm").evaluate()
    expected = np.tanh(np.tanh(np.exp(np.tanh(value))))
    np.testing.assert_allclose(run(value).numpy(), expected, rtol=1e-5)
