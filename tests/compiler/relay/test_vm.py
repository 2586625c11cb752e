"""Executables of the virtual machine: run at once, saved, and loaded again."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.errors import BuildError, InputError, LoadError
from compiler.relay import vm
from compiler.relay.testing import synthetic
from compiler.runtime import load_module


@pytest.fixture(scope="module")
def network():
    mod, params = synthetic.get_workload()
    data = np.random.default_rng(0).random((1, 3, 24, 12), "float32")
    graph = relay.create_executor("graph", mod, params=params).evaluate()
    return vm.compile(mod, "llvm", params=params), data, graph(data).numpy()


def run(executable, *args):
    return vm.VirtualMachine(executable, tvm.cpu()).run(*args).numpy()


def test_a_saved_executable_computes_what_it_did(network, tmp_path):
    executable, data, expected = network
    code, library = executable.save()
    assert isinstance(code, bytearray)
    np.testing.assert_allclose(run(vm.load_exec(code, library), data), expected, rtol=1e-4)
    path = str(tmp_path / "library.so")
    tvm.runtime.Executable(library).export_library(path)
    loaded = vm.Executable.load_exec(bytes(code), tvm.runtime.load_module(path))
    assert loaded.globals == ["main"] and loaded.get_function_params("main") == ["data"]
    np.testing.assert_allclose(run(loaded, data), expected, rtol=1e-4)
    assert loaded.save()[0] == code


def test_an_exported_library_runs_in_the_virtual_machine(network, tmp_path):
    executable, data, expected = network
    path = str(tmp_path / "module.so")
    executable.mod.export_library(path)
    machine = vm.VirtualMachine(load_module(path), tvm.cpu())
    machine.set_one_input("main", "data", data)
    np.testing.assert_allclose(machine.invoke("main").numpy(), expected, rtol=1e-4)
    out = tvm.runtime.empty(expected.shape, "float32")
    machine.invoke_with_outputs("main", {"data": data}, [out])
    np.testing.assert_array_equal(out.numpy(), machine.get_outputs()[0].numpy())
    times = machine.benchmark(tvm.cpu(), data, repeat=2, number=1)
    assert len(times.results) == 2 and times.min > 0


def test_a_module_with_a_condition_is_saved_too():
    x, flag = relay.var("x", shape=(4,)), relay.var("flag", shape=(), dtype="bool")
    function = relay.Function([x, flag], relay.If(flag, relay.add(x, x), x))
    code, library = vm.compile(tvm.IRModule.from_expr(function), "llvm").save()
    loaded = vm.load_exec(code, library)
    values = np.arange(4, dtype="float32")
    for given, expected in ((True, 2 * values), (False, values)):
        np.testing.assert_array_equal(run(loaded, values, np.array(given)), expected)
    with pytest.raises(InputError, match="flag"):
        run(loaded, values)


def test_open_extents_stay_open_in_what_is_saved():
    x = relay.var("x", shape=(relay.Any(), 2))
    executable = vm.compile(tvm.IRModule.from_expr(relay.Function([x], relay.add(x, x))), "llvm")
    for each in (executable, vm.load_exec(*executable.save())):
        for rows in (1, 3):
            doubled = run(each, np.ones((rows, 2), "float32"))
            np.testing.assert_array_equal(doubled, np.full((rows, 2), 2))


@pytest.mark.parametrize("how", ["relay.vm", "create_executor"])
def test_extents_that_have_names_need_one_library(how):
    x, y = (relay.var(name, shape=("rows", width)) for name, width in (("x", 2), ("y", "n")))
    body = relay.add(relay.sum(x, axis=1, keepdims=True), relay.nn.relu(y))
    mod = tvm.IRModule.from_expr(relay.Function([x, y], body))
    if how == "relay.vm":
        executable = vm.compile(mod, "llvm")
        call, reports = functools.partial(run, executable), lambda: [executable.report]
    else:
        evaluated = relay.create_executor("vm", mod, tvm.cpu(), "llvm").evaluate()
        call, reports = lambda *args: evaluated(*args).numpy(), lambda: evaluated.reports
    for rows, columns in ((3, 2), (1, 5), (0, 4)):
        values = np.ones((rows, 2), "float32"), np.full((rows, columns), -1, "float32")
        np.testing.assert_array_equal(call(*values), np.full((rows, columns), 2))
    assert len(reports()) == 1
    with pytest.raises(InputError, match=r"'y'.*axis 0, expected 2: it is 'rows'"):
        call(np.ones((2, 2), "float32"), np.ones((3, 1), "float32"))


def test_a_cache_of_keys_is_updated_in_place(tmp_path):
    new, past = relay.var("new", shape=("n", 2)), relay.var("past_key", shape=("past", 2))
    key = relay.concatenate([past, new], axis=0)
    body = relay.Tuple([relay.sum(key, axis=0), key])
    mod = tvm.IRModule.from_expr(relay.Function([new, past], body))
    mod = relay.with_kv_cache(mod, "past", 4)
    executable = vm.compile(mod, "llvm")
    for each in (executable, vm.load_exec(*executable.save()), relay.build(mod, "llvm")):
        machine = vm.VirtualMachine(each, tvm.cpu())
        cache = machine.make_kv_cache()
        machine.use_kv_cache(cache)
        buffer = cache.tensors["past_key"]
        for rows, total in ((2, 2), (1, 3)):
            found = machine.invoke("main", np.ones((rows, 2), "float32"))
            np.testing.assert_array_equal(found.numpy(), [total, total])
            assert cache.length == total and cache.tensors["past_key"].same_as(buffer)
        np.testing.assert_array_equal(buffer.numpy()[:3], np.ones((3, 2)))
        with pytest.raises(InputError, match="3 are there, and 2 more"):
            machine.invoke("main", np.ones((2, 2), "float32"))
    with pytest.raises(InputError, match="keeps no cache"):
        vm.VirtualMachine(vm.compile(relay.Function([new], new), "llvm")).make_kv_cache()


def test_other_code_is_refused():
    with pytest.raises(LoadError, match="save"):
        vm.load_exec(b"something else", None)


@pytest.mark.parametrize(
    "header", [b"{", b"[]", b'{"parameters": 1}', b'{"parameters": {"main": 1}}']
)
def test_damaged_code_is_refused(header):
    code = b"baton vm 1\n" + len(header).to_bytes(8, "little") + header
    with pytest.raises(LoadError, match="damaged"):
        vm.load_exec(code, None)


def test_the_compiler_goes_step_by_step(network):
    _, data, expected = network
    mod, params = synthetic.get_workload()
    steps = vm.VMCompiler()
    steps.set_params(params)
    steps.lower(mod, "llvm")
    steps.codegen()
    np.testing.assert_allclose(run(steps.get_exec(), data), expected, rtol=1e-4)
    with pytest.raises(BuildError, match="lower"):
        vm.VMCompiler().get_exec()


def test_weights_may_be_in_a_file_of_their_own(tmp_path):
    weight = np.arange(1000, dtype="float32")
    x = relay.var("x", shape=(1000,))
    function = relay.Function([x], relay.add(x, relay.const(weight)))
    made = relay.vm.compile(tvm.IRModule({"main": function}), "llvm")
    made.move_late_bound_consts(tmp_path / "weights", byte_limit=256)
    made.mod.export_library(str(tmp_path / "lib.so"))
    library = load_module(tmp_path / "lib.so")
    with pytest.raises(InputError, match="no weight of the library"):
        library.load_late_bound_consts_from_map({"other": tvm.runtime.tensor(weight)})
    library["load_late_bound_consts"](tmp_path / "weights")
    run = relay.vm.VirtualMachine(library, tvm.cpu())
    np.testing.assert_array_equal(run.invoke("main", weight).numpy(), weight * 2)
    kept = relay.vm.compile(tvm.IRModule({"main": function}), "llvm")
    assert kept.get_late_bound_consts(byte_limit=4000) == {}
    np.testing.assert_array_equal(
        relay.vm.VirtualMachine(kept, tvm.cpu()).invoke("main", weight).numpy(), weight * 2
    )


def test_a_tuple_of_one_tensor_is_taken_for_it():
    x = relay.var("x", shape=(3,))
    machine = vm.VirtualMachine(
        vm.compile(tvm.IRModule.from_expr(relay.Function([x], relay.add(x, x))), "llvm")
    )
    data = np.arange(3, dtype="float32")
    for given in ([data], (data,), [0.0, 1.0, 2.0]):
        np.testing.assert_array_equal(machine.invoke("main", given).numpy(), 2 * data)
    with pytest.raises(InputError, match="expected 1"):
        machine.invoke("main", [data[None]])


def test_what_checks_extents_is_shown_in_the_text_of_an_optimized_module():
    x, y = (relay.var(name, shape=(relay.Any(), 3)) for name in "xy")
    mod = tvm.IRModule.from_expr(relay.Function([x, y], relay.add(x, y)))
    optimized, _ = vm.VMCompiler().optimize(mod, "llvm")
    text = relay.astext(optimized, show_meta_data=False)
    joint = "max(any, any_1) * min(min(any, any_1), 1)"
    assert f"broadcast_shape_func([(any - 1) * ({joint} - any)])" in text
    assert text.count("broadcast_shape_func([") == 2


def test_a_dense_layer_of_any_number_of_rows_is_shown_as_one():
    x = relay.var("x", shape=(relay.Any(), 4))
    weight = relay.const(np.ones((5, 4), "float32"))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, weight)))
    optimized, _ = relay.optimize(mod, "llvm")
    assert "nn.dense(%x, %0, units=5)" in relay.astext(optimized, show_meta_data=False)
