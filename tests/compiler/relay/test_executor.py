"""Executors and the virtual machine run what `relay.build` makes."""

from __future__ import annotations

import json
import warnings

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from compiler import autotvm, relay
from compiler.errors import BuildError, InputError
from compiler.lowering.offloaded_functions import new_global_var
from compiler.relay import compiled_function, dialect, transform, vm
from compiler.relay.backend.interpreter import Interpreter
from compiler.relay.nested_expressions import make_call
from compiler.runtime.debugger import debug_executor

RNG = np.random.default_rng(7)
WEIGHT = RNG.standard_normal((48, 32)).astype("float32")
DATA = RNG.standard_normal((4, 32)).astype("float32")
RECORD = {
    "input": [
        "llvm",
        "dense_pack.x86",
        [["TENSOR", [4, 32], "float32"], ["TENSOR", [48, 32], "float32"], None, "float32"],
        {},
    ],
    "config": {
        "index": 1,
        "code_hash": None,
        "entity": [
            ["tile_y", "sp", [-1, 1, 2]],
            ["tile_x", "sp", [-1, 1, 8]],
            ["tile_k", "sp", [-1, 4]],
            ["tile_inner", "sp", [-1, 2]],
        ],
    },
    "result": [[1e-6], 0, 1.0, 2.0],
    "version": 0.2,
    "tvm_version": "0.18.0",
}


def imported():
    """relu(data x weight^T), as ONNX has it."""
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["data", "weight"], ["product"], transB=1),
            helper.make_node("Relu", ["product"], ["result"]),
        ],
        "net",
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, [4, 32])],
        [helper.make_tensor_value_info("result", TensorProto.FLOAT, [4, 48])],
        [numpy_helper.from_array(WEIGHT, "weight")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    return relay.frontend.from_onnx(model)


def expected(data=DATA):
    return np.maximum(data.astype("float64") @ WEIGHT.astype("float64").T, 0)


def kernels(report):
    return [(each.name, each.implementation, each.source, each.calls) for each in report.kernels]


def check(found, wanted):
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-4)


def log(tmp_path):
    path = tmp_path / "dense.log"
    path.write_text(json.dumps(RECORD) + "\n")
    return autotvm.apply_history_best(str(path))


def dense(rows=4):
    data, weight = relay.var("data", shape=(rows, 32)), relay.var("weight", shape=(48, 32))
    return tvm.IRModule.from_expr(
        relay.Function([data, weight], relay.nn.relu(relay.nn.dense(data, weight)))
    )


@pytest.mark.parametrize("opt_level", [0, 3])
def test_all_ways_to_run_have_the_kernels_of_a_build(opt_level):
    mod, params = imported()
    with tvm.transform.PassContext(opt_level=opt_level):
        built = relay.build(mod, "llvm", params=params)
        made = [
            relay.create_executor(kind, mod, tvm.cpu(), "llvm", params).evaluate()
            for kind in ("graph", "vm", "debug")
        ]
        executable = vm.compile(mod, "llvm", params=params)
    assert "dense_packed.x86" in str(built.report)
    reports = [function.reports[0] for function in made] + [executable.report]
    for report in reports:
        assert report.opt_level == opt_level
        assert kernels(report) == kernels(built.report)
    for function in (*made, vm.VirtualMachine(executable, tvm.cpu()).run):
        check(function(DATA), expected())
    debugger = debug_executor.create(built.get_graph_json(), built, tvm.cpu())
    debugger.set_input("data", DATA)
    nodes = [node["name"] for node in debugger.debug_datum.get_graph_nodes()]
    debugger.exit()
    assert nodes[-len(built.report.kernels) :] == [each.name for each in built.report.kernels]


def test_a_tuning_log_is_used_also_for_shapes_that_are_known_later(tmp_path):
    mod, params = imported()
    data = relay.var("data", shape=(relay.Any(), 32))
    function = relay.Function([data], relay.nn.dense(data, relay.const(WEIGHT)))
    with log(tmp_path):
        static = relay.create_executor("graph", mod, params=params).evaluate()
        machine = vm.VirtualMachine(vm.compile(mod, "llvm", params=params), tvm.cpu())
        dynamic = relay.create_executor("vm", tvm.IRModule.from_expr(function)).evaluate()
    check(static(DATA), expected())
    check(machine.run(DATA), expected())
    check(dynamic(DATA), DATA.astype("float64") @ WEIGHT.T.astype("float64"))
    for report in (static.reports[0], machine.executable.report, dynamic.reports[0]):
        assert "topi:dense.log:1" in [kernel.source for kernel in report.kernels]
    without = relay.create_executor("graph", mod, params=params).evaluate()
    assert "topi:dense.log:1" not in str(without.reports[0])


def test_an_executor_compiles_once_for_each_function_and_context(monkeypatch, tmp_path):
    count, build = [], compiled_function.lower_and_build

    def counted(*args):
        count.append(1)
        return build(*args)

    monkeypatch.setattr(compiled_function, "lower_and_build", counted)
    executor = relay.create_executor("graph", dense(), params={"weight": WEIGHT})
    for _ in range(3):
        check(executor.evaluate()(DATA), expected())
    assert len(count) == 1
    check(executor.evaluate(dense(2)["main"])(DATA[:2], WEIGHT), expected(DATA[:2]))
    with tvm.transform.PassContext(opt_level=0):
        check(executor.evaluate()(DATA), expected())
    with log(tmp_path):
        check(executor.evaluate()(data=DATA), expected())
    assert len(count) == 4
    executor.mod = dense(2)
    check(executor.evaluate()(DATA[:2]), expected(DATA[:2]))
    assert len(count) == 5


def test_a_partitioned_module_runs_its_code_generator():
    from tvm import te

    def generate(function):
        data = te.placeholder((3, 4), name="data")
        made = te.compute((3, 4), lambda i, j: te.exp(data[i, j]) + 2.0)  # one more, to be seen
        symbol = str(function.attrs["global_symbol"])
        return tvm.compile(
            te.create_prim_func([data, made]).with_attr("global_symbol", symbol), "llvm"
        ).mod

    tvm.register_global_func("relay.ext.executors", generate, override=True)
    for operator in ("exp", "add"):
        name = dialect.operator(operator).name
        tvm.ir.register_op_attr(name, "target.executors", lambda _: True)
    data = relay.var("data", shape=(3, 4))
    body = relay.multiply(relay.add(relay.exp(data), relay.const(1.0)), relay.const(2.0))
    mod = tvm.IRModule.from_expr(relay.Function([data], body))
    for change in (
        transform.AnnotateTarget("executors"),
        transform.MergeCompilerRegions(),
        transform.PartitionGraph(),
    ):
        mod = change(mod)
    values = np.ones((3, 4), "float32")
    executable = vm.compile(mod, "llvm")
    for run in (
        relay.create_executor("graph", mod).evaluate(),
        relay.create_executor("debug", mod).evaluate(),
        vm.VirtualMachine(executable, tvm.cpu()).run,
    ):
        check(run(values), 2 * (np.exp(values) + 2))
    (subgraph,) = executable.mod.partition_info().values()
    assert subgraph["backend"] == "executors"


def test_conditions_in_conditions_are_scheduled_and_right():
    data, flag, other = (
        relay.var("data", shape=(4, 32)),
        relay.var("flag", shape=(), dtype="bool"),
        relay.var("other", shape=(), dtype="bool"),
    )
    product = relay.nn.dense(data, relay.const(WEIGHT))
    inner = relay.If(other, relay.nn.relu(product), relay.negative(product))
    outer = relay.If(flag, relay.add(inner, inner), relay.exp(product))
    function = relay.Function([data, flag, other], relay.Tuple([outer, relay.nn.relu(outer)]))
    mod = tvm.IRModule.from_expr(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = relay.create_executor("vm", mod, target="llvm").evaluate()
    assert "dense_packed.x86" in [each.implementation for each in run.reports[0].kernels]
    plain = DATA.astype("float64") @ WEIGHT.T.astype("float64")
    for first in (True, False):
        for second in (True, False):
            inside = np.maximum(plain, 0) if second else -plain
            wanted = 2 * inside if first else np.exp(plain)
            found = run(DATA, np.array(first), np.array(second))
            np.testing.assert_allclose(found[0].numpy(), wanted, rtol=1e-3, atol=1e-3)
            np.testing.assert_allclose(
                found[1].numpy(), np.maximum(wanted, 0), rtol=1e-3, atol=1e-3
            )


def test_results_whose_extents_a_run_tells_are_built():
    data = relay.var("data", shape=(6,))
    where = relay.argwhere(data)
    mod = tvm.IRModule.from_expr(relay.Function([data], relay.add(where, relay.const(1, "int32"))))
    values = np.array([0, 3, 0, 1, 2, 0], "float32")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = relay.create_executor("vm", mod).evaluate()
    np.testing.assert_array_equal(run(values).numpy(), np.argwhere(values) + 1)
    np.testing.assert_array_equal(run(np.zeros(6, "float32")).numpy(), np.zeros((0, 1)))
    assert run.reports[0].kernels


def test_what_the_driver_can_not_take_is_said_and_computed():
    ty = relax.TensorType((4,), "float32")
    gvar = new_global_var("halve", relax.FuncType([ty], ty))
    data = relay.var("data", shape=(4,))
    small = relay.less(relay.max(data), relay.const(1.0))
    again = make_call(gvar, [relay.multiply(data, relay.const(0.5))], ty)
    halve = relay.Function([data], relay.If(small, data, again))
    entry = relay.var("entry", shape=(4,))
    mod = tvm.IRModule({gvar: halve, "main": relay.Function([entry], make_call(gvar, [entry], ty))})
    with pytest.warns(UserWarning, match="without schedules.*a function calls itself"):
        run = relay.create_executor("vm", mod).evaluate()
    np.testing.assert_array_equal(run(np.arange(4, dtype="float32")).numpy(), np.arange(4) / 4)
    assert run.reports == []


def nested():
    """((x, y), z) -> ((x + y, (z,)), x)."""
    types = [relay.TensorType((2,), "float32")] * 2
    pair = relay.TupleType([relay.TupleType(types), relay.TensorType((3,), "float32")])
    given = relay.var("given", type_annotation=pair)
    first = relay.TupleGetItem(relay.TupleGetItem(given, 0), 0)
    second = relay.TupleGetItem(relay.TupleGetItem(given, 0), 1)
    last = relay.TupleGetItem(given, 1)
    inner = relay.Tuple([relay.add(first, second), relay.Tuple([last])])
    return tvm.IRModule.from_expr(relay.Function([given], relay.Tuple([inner, first])))


def test_tuples_in_tuples_go_in_and_come_out():
    x, y, z = np.ones(2, "float32"), np.arange(2, dtype="float32"), np.arange(3, dtype="float32")
    executable = vm.compile(nested(), "llvm")
    loaded = vm.load_exec(*executable.save())
    for run in (
        relay.create_executor("graph", nested()).evaluate(),
        vm.VirtualMachine(executable, tvm.cpu()).run,
        vm.VirtualMachine(loaded, tvm.cpu()).run,
    ):
        (total, (last,)), first = run(((x, y), z))
        for found, wanted in ((total, x + y), (last, z), (first, x)):
            np.testing.assert_array_equal(found.numpy(), wanted)
        with pytest.raises(InputError, match="given"):
            run()
        with pytest.raises(InputError, match="tuple of 2 values"):
            run(((x, y, x), z))
    assert executable.report.kernels


def test_arguments_are_named_and_counted():
    run = relay.create_executor("graph", dense()).evaluate()
    check(run(weight=WEIGHT, data=DATA), expected())
    check(run(DATA, weight=WEIGHT), expected())
    for args, kwargs, message in (
        ((DATA,), {}, "weight: missing"),
        ((DATA,), {"data": DATA, "weight": WEIGHT}, "data: given by position and by name"),
        ((DATA, WEIGHT), {"other": DATA}, "other: not one of them"),
        ((DATA, WEIGHT, DATA), {}, "3 arguments"),
        ((DATA[:2], WEIGHT), {}, "parameter 'data'"),
    ):
        with pytest.raises(InputError, match=message):
            run(*args, **kwargs)


def test_old_ways_to_ask_for_an_executor_work():
    mod, params = imported()
    for executor in (
        relay.create_executor("debug", mod, ctx=tvm.cpu(), target="llvm", params=params),
        relay.build_module.create_executor("graph", mod, tvm.cpu(0), "llvm", params),
    ):
        check(executor.evaluate()(DATA), expected())
    check(Interpreter(dense(), tvm.cpu(), "llvm").evaluate()(DATA, WEIGHT), expected())
    with pytest.raises(BuildError, match="ctx is an old name of device"):
        relay.create_executor("graph", mod, tvm.cpu(), ctx=tvm.cpu())
    with pytest.raises(BuildError, match="no executor 'cuda'"):
        relay.create_executor("cuda", mod)


def test_a_build_module_hands_out_the_parts_of_a_build():
    from compiler.runtime import graph_executor

    mod, params = imported()
    module = relay.build_module.BuildModule()
    with pytest.raises(BuildError, match="nothing is built yet"):
        module.get_graph_json()
    module.set_params(params)
    assert set(module.get_params()) == set(params)
    optimized, left = module.optimize(mod, "llvm")
    assert not left and len(optimized["main"].params) == 1
    graph, library, weights = module.build(mod, "llvm")
    assert graph == module.get_graph_json() and set(weights) == set(module.get_params())
    executor = graph_executor.create(graph, library, tvm.cpu())
    executor.set_input(**weights)
    executor.run(data=DATA)
    check(executor.get_output(0), expected())
    assert module.get_irmodule()["main"].params[0].name == "data"


def test_the_virtual_machine_times_a_function_that_it_is_set_up_for():
    executable = vm.compile(dense(), "llvm")
    machine = vm.VirtualMachine(executable, tvm.cpu())
    machine.set_input("main", DATA, weight=WEIGHT)
    machine.invoke_stateful("main")
    check(machine.get_outputs()[0], expected())
    timed = machine.module.time_evaluator("invoke", tvm.cpu(), number=1, repeat=2)("main")
    assert len(timed.results) == 2
    assert len(machine.time_evaluator("main", tvm.cpu(), number=1)(DATA, WEIGHT).results) == 1
    assert "main" in executable.bytecode and "Globals" in executable.stats


def test_constants_are_folded_outside_of_the_callers_dispatch_contexts(tmp_path):
    asked = []

    class Asking(autotvm.FallbackContext):
        def find(self, target, workload):
            asked.append(workload)
            return super().find(target, workload)

    body = relay.nn.dense(relay.const(DATA), relay.const(WEIGHT))
    mod = tvm.IRModule.from_expr(relay.Function([], body))
    with Asking():
        folded = transform.FoldConstant()(mod)
    assert isinstance(folded["main"].body.body, tvm.ir.GenericConst) and asked == []
