from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import relay
from compiler.errors import IndexRangeError
from compiler.lowering.cache.kernel_cache import LIMIT_VARIABLE
from compiler.lowering.codegen import compile_kernels
from compiler.runtime import graph_executor, load_module

SHAPE = (1, 8, 10, 10)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The kernel cache's folder, empty and in use."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(LIMIT_VARIABLE, "1000000000")
    return tmp_path / "baton" / "kernels"


@pytest.fixture
def compiled(monkeypatch, compiles_every_kernel):
    """Symbols of the kernels that were compiled and not found."""
    symbols = []
    lower = compile_kernels._lower

    def watched(func, symbol, target):
        symbols.append(symbol)
        return lower(func, symbol, target)

    monkeypatch.setattr(compile_kernels, "_lower", watched)
    return symbols


def network(power: float = 2.0):
    """max_pool2d(exp(x)) ** power, three kernels at opt_level 0."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.exp(x))
            y = builder.emit(relax.op.nn.max_pool2d(y, (2, 2), strides=(2, 2)))
            out = builder.emit_output(relax.op.power(y, relax.const(power, "float32")))
        builder.emit_func_output(out)
    return builder.get()


def build(mod, target="llvm -mcpu=x86-64-v3", opt_level=3):
    with tvm.transform.PassContext(opt_level=opt_level):
        return relay.build(mod, target)


def check(library, power=2.0):
    data = np.random.default_rng(0).standard_normal(SHAPE).astype("float32")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=data)
    pooled = np.exp(data.astype("float64")).reshape(1, 8, 5, 2, 5, 2).max((3, 5))
    np.testing.assert_allclose(module.get_output(0).numpy(), pooled**power, rtol=1e-4)


def test_a_second_build_compiles_nothing_and_computes_the_same(folder, compiled, tmp_path):
    check(build(network()))
    assert len(compiled) > 1
    assert len(list(folder.glob("*.kernel"))) == len(compiled)
    compiled.clear()
    library = build(network())
    assert compiled == []
    check(library)
    library.export_library(tmp_path / "again.so")
    check(load_module(tmp_path / "again.so"))


def test_only_kernels_that_changed_are_compiled(folder, compiled):
    build(network())
    assert "tir_exp" in compiled
    compiled.clear()
    check(build(network(power=3.0)), power=3.0)
    assert compiled
    assert "tir_exp" not in compiled


@pytest.mark.parametrize("other", [{"target": "llvm -mcpu=x86-64-v2"}, {"opt_level": 2}])
def test_another_cpu_or_level_finds_nothing_of_the_first(folder, compiled, other):
    build(network())
    first = len(compiled)
    compiled.clear()
    build(network(), **other)
    assert len(compiled) >= first


def test_another_pass_config_finds_nothing_of_the_first(folder, compiled):
    build(network())
    first = list(compiled)
    compiled.clear()
    with tvm.transform.PassContext(opt_level=3, config={"tirx.disable_assert": True}):
        relay.build(network(), "llvm -mcpu=x86-64-v3")
    assert sorted(compiled) == sorted(first)


def test_a_damaged_entry_is_compiled_again(folder, compiled):
    build(network())
    compiled.clear()
    victim = next(iter(folder.glob("*.kernel")))
    victim.write_bytes(victim.read_bytes()[:-1])
    check(build(network()))
    assert len(compiled) == 1
    compiled.clear()
    build(network())
    assert compiled == []


def test_without_a_cache_kernels_are_compiled_each_time(compiled, monkeypatch):
    monkeypatch.setenv(LIMIT_VARIABLE, "0")
    check(build(network()))
    first = list(compiled)
    check(build(network()))
    assert compiled == first * 2


def test_without_a_linker_the_library_still_runs_in_memory(compiled, monkeypatch):
    monkeypatch.setattr(compile_kernels, "has_linker", lambda: False)
    check(build(network()))
    assert compiled == []


def test_without_a_linker_several_kernels_may_raise(monkeypatch):
    monkeypatch.setattr(compile_kernels, "has_linker", lambda: False)
    x = relay.var("x", shape=(4, 3))
    rows, columns = (relay.var(name, shape=(2, 3), dtype="int64") for name in ("rows", "columns"))
    y = relay.gather(relay.gather(x, 0, rows), 1, columns)
    library = build(tvm.IRModule.from_expr(relay.Function([x, rows, columns], y)))
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    data = np.arange(12, dtype="float32").reshape(4, 3)
    one, two = np.ones((2, 3), "int64"), np.zeros((2, 3), "int64")
    executor.run(x=data, rows=one, columns=two)
    np.testing.assert_array_equal(
        executor.get_output(0).numpy(),
        np.take_along_axis(data[1:3, :] * 0 + data[one[:, 0]], two, 1),
    )
    for wrong in ("rows", "columns"):
        with pytest.raises(IndexRangeError):
            executor.run(**{"rows": one, "columns": two, wrong: one + 8})


def test_over_a_hundred_kernels_survive_both_kinds_of_export(folder, tmp_path):
    count = 103
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((count,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            parts = [
                builder.emit(relax.op.strided_slice(x, [0], [n], [count])) for n in range(count)
            ]
            out = builder.emit_output(relax.Tuple(parts))
        builder.emit_func_output(out)
    library = build(builder.get())
    assert len(list(folder.glob("*.kernel"))) > 100
    data = np.arange(count, dtype="float32")
    for name in ("many.so", "many.tar"):
        library.export_library(tmp_path / name)
        module = graph_executor.GraphModule(load_module(tmp_path / name)["default"](tvm.cpu()))
        module.run(x=data)
        for n in range(count):
            np.testing.assert_array_equal(module.get_output(n).numpy(), data[n:])
