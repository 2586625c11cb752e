from __future__ import annotations

import json
import threading

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.runtime.module import BenchmarkResult

from compiler.errors import IncompatibleDeviceError, InputError
from compiler.runtime import graph_executor, load_module


@pytest.fixture
def module(network) -> graph_executor.GraphModule:
    return graph_executor.GraphModule(network.library["default"](tvm.cpu()))


def check(module, network, inputs) -> None:
    for index, expected in enumerate(network.reference(**inputs)):
        np.testing.assert_allclose(module.get_output(index).numpy(), expected, rtol=1e-4, atol=1e-4)


def test_inputs_are_set_by_name(module, network):
    inputs = network.inputs(1)
    module.set_input("x", inputs["x"])
    module.set_input("y", inputs["y"])
    module.run()
    check(module, network, inputs)


def test_inputs_are_set_by_index(module, network):
    inputs = network.inputs(2)
    module.set_input(0, inputs["x"])
    module.set_input(np.int64(1), inputs["y"])
    module.run()
    check(module, network, inputs)


def test_inputs_are_set_by_keywords_by_a_dict_and_by_run(module, network):
    inputs = network.inputs(3)
    module.set_input(**inputs)
    module.run()
    check(module, network, inputs)
    inputs = network.inputs(4)
    module.set_input(inputs)
    module.run()
    check(module, network, inputs)
    inputs = network.inputs(5)
    module.run(**inputs)
    check(module, network, inputs)


def test_values_may_be_tensors_lists_float64_and_not_contiguous(module, network):
    inputs = network.inputs(6)
    module.set_input("x", inputs["x"].astype("float64"))
    module.set_input("y", np.asfortranarray(inputs["y"]))
    module.run()
    check(module, network, inputs)
    module.set_input("x", inputs["x"].tolist())
    module.set_input("y", tvm.runtime.tensor(inputs["y"].astype("float64")))
    module.run()
    check(module, network, inputs)
    module.set_input("x", tvm.runtime.tensor(inputs["x"]))
    module.run()
    check(module, network, inputs)


def test_set_input_copies(module, network):
    inputs = network.inputs(7)
    given = {name: value.copy() for name, value in inputs.items()}
    module.set_input(**given)
    for value in given.values():
        value[:] = 0
    module.run()
    check(module, network, inputs)


def test_an_unknown_name_names_the_inputs(module):
    with pytest.raises(InputError, match=r"'z'.*x: float32\[2, 16\], y: float32\[2, 24\]"):
        module.set_input("z", 1)
    with pytest.raises(InputError, match="'z'"):
        module.run(z=1)


@pytest.mark.parametrize("index", [-1, 4, 1.5, True])
def test_an_unknown_index_is_an_error(module, index):
    with pytest.raises(InputError):
        module.set_input(index, 1)


@pytest.mark.parametrize("shape", [(2, 15), (16, 2), (32,), (1, 2, 16), ()])
def test_a_wrong_shape_names_the_input_and_both_shapes(module, shape):
    for value in (np.zeros(shape, "float32"), tvm.runtime.tensor(np.zeros(shape, "float32"))):
        with pytest.raises(InputError, match=r"'x'.*\(2, 16\).*\(") as error:
            module.set_input("x", value)
        assert str(shape) in str(error.value)


@pytest.mark.parametrize(
    "value", [np.zeros((2, 16), "complex64"), np.full((2, 16), "a"), [[1], [2, 3]], None]
)
def test_a_value_that_is_no_real_number_is_an_error(module, value):
    with pytest.raises(InputError, match="'x'"):
        module.set_input("x", value)


def test_integer_inputs_take_other_integers_but_no_fractions(build):
    library = build([("ids", (3,), "int32")], lambda b, x: b.emit(relax.op.add(x, x)))
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(ids=np.array([1, 2, 3], "int64"))
    assert module.get_output(0).numpy().tolist() == [2, 4, 6]
    module.run(ids=[4, 5, 6])
    assert module.get_output(0).numpy().tolist() == [8, 10, 12]
    with pytest.raises(InputError, match=r"'ids'.*int32.*float64"):
        module.set_input("ids", np.array([0.5, 1.0, 2.0]))


def test_half_and_boolean_inputs_are_set(build):
    def emit(b, h, m):
        return b.emit(relax.op.where(m, h, relax.op.negative(h)))

    library = build([("h", (4,), "float16"), ("m", (4,), "bool")], emit)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(h=[1, 2, 3, 4], m=[True, False, True, False])
    assert module.get_output(0).numpy().tolist() == [1, -2, 3, -4]


def test_bfloat16_inputs_are_converted(build):
    library = build([("h", (4,), "bfloat16")], lambda b, h: b.emit(relax.op.astype(h, "float32")))
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(h=np.array([1.0, -2.0, 0.5, 3.0], "float32"))
    assert module.get_output(0).numpy().tolist() == [1.0, -2.0, 0.5, 3.0]


def test_a_scalar_of_a_type_that_numpy_lacks_stays_a_scalar(build):
    library = build([("h", (), "bfloat16")], lambda b, h: b.emit(relax.op.astype(h, "float32")))
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(h=np.float32(1.5))
    assert module.get_output(0).numpy() == np.float32(1.5)


def test_run_names_the_inputs_that_are_missing(module, network):
    module.set_input("x", network.inputs(1)["x"])
    with pytest.raises(InputError, match=r"y: float32\[2, 24\]") as error:
        module.run()
    assert "x:" not in str(error.value)


def test_an_output_before_the_first_run_or_of_a_wrong_index_is_an_error(module, network):
    with pytest.raises(InputError, match="run"):
        module.get_output(0)
    module.run(**network.inputs(1))
    for index in (2, -1, "output0"):
        with pytest.raises(InputError, match="output"):
            module.get_output(index)


def test_outputs_are_not_changed_by_later_runs(module, network):
    module.run(**network.inputs(1))
    first = module.get_output(1)
    before = first.numpy()
    for seed in range(2, 6):
        module.run(**network.inputs(seed))
    np.testing.assert_array_equal(first.numpy(), before)
    assert not np.array_equal(module.get_output(1).numpy(), before)


def test_an_output_that_is_an_input_is_not_changed_by_the_next_input(build):
    library = build([("x", (4, 2), "float32")], lambda b, x: b.emit(relax.op.reshape(x, (8,))))
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=np.arange(8).reshape(4, 2))
    output = module.get_output(0)
    module.run(x=np.zeros((4, 2)))
    assert output.numpy().tolist() == list(range(8))


@pytest.mark.parametrize("elements", [4, 128])
@pytest.mark.parametrize("exported", [False, True])
def test_writing_to_an_output_that_is_a_constant_changes_no_weight(
    build, tmp_path, elements, exported
):
    values = np.arange(elements, dtype="float32")

    def emit(builder, x):
        constant = relax.const(values)
        return builder.emit(relax.Tuple([constant, builder.emit(relax.op.add(x, constant))]))

    library = build([("x", (elements,), "float32")], emit)
    if exported:
        library.export_library(tmp_path / "net.so")
        library = load_module(tmp_path / "net.so")
    for _ in range(2):
        module = graph_executor.GraphModule(library["default"](tvm.cpu()))
        for _ in range(2):
            module.run(x=np.zeros(elements, "float32"))
            for index in range(2):
                output = np.from_dlpack(module.get_output(index))
                np.testing.assert_array_equal(output, values)
                output[:] = -77


def test_an_output_that_a_kernel_writes_is_not_copied(module, network, monkeypatch):
    module.set_input(**network.inputs(0))
    written = []
    prepare = module.module._prepare

    def recording():
        run = prepare()

        def once():
            written.extend(run())
            return written

        return once

    monkeypatch.setattr(module.module, "_prepare", recording)
    module.run()
    for index, tensor in enumerate(written):
        assert module.get_output(index).data_ptr() == tensor.data_ptr()


def test_outputs_are_copied_into_out(module, network):
    inputs = network.inputs(1)
    module.run(**inputs)
    expected = module.get_output(0).numpy()
    tensor = tvm.runtime.empty((2, 16), "float32")
    assert module.get_output(0, tensor) is tensor
    np.testing.assert_array_equal(tensor.numpy(), expected)
    array = np.empty((2, 16), "float32")
    assert module.get_output(0, out=array) is array
    np.testing.assert_array_equal(array, expected)
    with pytest.raises(InputError, match=r"\(3, 16\)"):
        module.get_output(0, tvm.runtime.empty((3, 16), "float32"))


def test_inputs_are_listed_first_and_then_the_weights(module, network):
    shapes, dtypes = module.get_input_info()
    assert list(shapes) == ["x", "y", "p0", "p1"]
    assert shapes == {"x": (2, 16), "y": (2, 24), "p0": (16, 16), "p1": (16, 24)}
    assert set(dtypes.values()) == {"float32"}
    assert module.get_num_inputs() == 4
    assert module.get_num_outputs() == 2
    assert [module.get_input_index(name) for name in ("x", "p1", "absent")] == [0, 3, -1]
    assert module.get_output_info()[0] == {"output0": (2, 16), "output1": (2, 24)}
    np.testing.assert_array_equal(module.get_input("p0").numpy(), network.w)
    assert module.get_input("x") is None


def test_a_weight_can_be_set_for_one_executor_alone(module, network):
    inputs = network.inputs(1)
    other = graph_executor.GraphModule(network.library["default"](tvm.cpu()))
    module.set_input("p0", np.zeros((16, 16)))
    module.run(**inputs)
    expected = np.tile(np.maximum(network.b, 0), (2, 1))
    np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-5)
    other.run(**inputs)
    check(other, network, inputs)
    np.testing.assert_array_equal(network.library.get_params()["p0"].numpy(), network.w)


def test_zero_copy_inputs_are_seen_by_the_next_run(module, network):
    inputs = network.inputs(1)
    tensor = tvm.runtime.tensor(inputs["x"])
    module.set_input("y", inputs["y"])
    module.set_input_zero_copy("x", tensor)
    module.run()
    check(module, network, inputs)
    inputs["x"] = network.inputs(2)["x"]
    tensor.copyfrom(inputs["x"])
    module.run()
    check(module, network, inputs)


def test_set_input_after_zero_copy_leaves_the_callers_tensor_alone(module, network):
    inputs = network.inputs(1)
    tensor = tvm.runtime.tensor(np.zeros((2, 16), "float32"))
    module.set_input_zero_copy("x", tensor)
    module.run(**inputs)
    check(module, network, inputs)
    assert not tensor.numpy().any()


@pytest.mark.parametrize(
    "value",
    [
        np.zeros((2, 16), "float64"),
        np.zeros((16, 2), "float32"),
        np.zeros((16, 2), "float32").T,
        np.zeros(33, "float32")[1:].reshape(2, 16),
        [[0.0] * 16] * 2,
    ],
)
def test_zero_copy_refuses_what_kernels_cannot_use(module, value):
    with pytest.raises(InputError, match="x"):
        module.set_input_zero_copy("x", value)


def test_bound_parameter_names_are_ignored_among_keywords_only(build_network):
    network = build_network(bound_params=("fc.weight",))
    module = graph_executor.GraphModule(network.library["default"](tvm.cpu()))
    inputs = network.inputs(1)
    module.set_input(**inputs, **{"fc.weight": np.zeros(1)})
    module.run()
    check(module, network, inputs)
    with pytest.raises(InputError, match=r"fc\.weight"):
        module.set_input("fc.weight", np.zeros(1))


def test_functions_of_the_executor_work_by_name(network):
    executor = network.library["default"](tvm.cpu())
    inputs = network.inputs(1)
    for name, value in inputs.items():
        executor["set_input"](name, value)
    executor["run"]()
    expected = network.reference(**inputs)[0]
    np.testing.assert_allclose(executor["get_output"](0).numpy(), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(InputError, match=r"'walk'.*run"):
        executor["walk"]


def test_benchmark_and_time_evaluator_return_tvm_results(module, network):
    inputs = network.inputs(1)
    for end_to_end in (False, True):
        result = module.benchmark(tvm.cpu(), repeat=3, number=2, end_to_end=end_to_end, **inputs)
        assert isinstance(result, BenchmarkResult)
        assert len(result.results) == 3
        assert result.min > 0
    timed = module.module.time_evaluator("run", tvm.cpu(), number=2, repeat=4, min_repeat_ms=1)()
    assert len(timed.results) == 4
    with pytest.raises(InputError, match="'walk'"):
        module.benchmark(tvm.cpu(), func_name="walk")
    with pytest.raises(InputError, match="'walk'"):
        module.module.time_evaluator("walk", tvm.cpu())


def test_a_benchmark_end_to_end_runs_long_enough(module, network):
    result = module.benchmark(
        tvm.cpu(), repeat=1, number=1, min_repeat_ms=20, end_to_end=True, **network.inputs(1)
    )
    assert 0 < result.mean < 0.02


def test_a_benchmark_without_inputs_names_them(module):
    for end_to_end in (False, True):
        with pytest.raises(InputError, match=r"x.*y"):
            module.benchmark(tvm.cpu(), end_to_end=end_to_end)


def test_two_executors_of_one_library_run_in_two_threads(network):
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            module = graph_executor.GraphModule(network.library["default"](tvm.cpu()))
            for step in range(100):
                inputs = network.inputs(1000 * seed + step)
                module.run(**inputs)
                check(module, network, inputs)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_params_are_loaded_from_saved_bytes(module, network):
    inputs = network.inputs(1)
    saved = tvm.runtime.save_param_dict(
        {"p0": np.zeros((16, 16), "float32"), "absent": inputs["x"]}
    )
    module.load_params(saved)
    module.run(**inputs)
    expected = np.tile(np.maximum(network.b, 0), (2, 1))
    np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-5)
    with pytest.raises(InputError, match="save_param_dict"):
        module.load_params(b"nonsense")


def test_params_are_shared_with_another_module(network):
    owner = graph_executor.GraphModule(network.library["default"](tvm.cpu()))
    saved = tvm.runtime.save_param_dict(network.library.get_params())
    owner.load_params(saved)
    borrower = graph_executor.GraphModule(network.library.remove_params()["default"](tvm.cpu()))
    borrower.share_params(owner, saved)
    inputs = network.inputs(1)
    borrower.run(**inputs)
    check(borrower, network, inputs)
    assert borrower.get_input("p0").data_ptr() == owner.get_input("p0").data_ptr()


def test_create_makes_a_module_from_the_unpacked_parts(network):
    graph, lib, params = network.library
    module = graph_executor.create(graph, lib, tvm.cpu())
    with pytest.raises(InputError, match="p0"):
        module.run(**network.inputs(1))
    module.set_input(**params)
    inputs = network.inputs(1)
    module.run(**inputs)
    check(module, network, inputs)


def test_create_works_with_parts_that_tvm_itself_exported(network, tmp_path):
    graph, lib, params = network.library
    lib.export_library(str(tmp_path / "code.so"))
    loaded = tvm.runtime.load_module(str(tmp_path / "code.so"))
    module = graph_executor.create(graph, loaded, [tvm.cpu()])
    module.load_params(tvm.runtime.save_param_dict(params))
    inputs = network.inputs(1)
    module.run(**inputs)
    check(module, network, inputs)


@pytest.mark.parametrize("graph", ["", "{}", "[1]", '{"baton": 3}', '{"baton": {"format": 0}}'])
def test_create_refuses_a_graph_that_is_not_batons(network, graph):
    with pytest.raises(InputError, match="graph"):
        graph_executor.create(graph, network.library.get_lib(), tvm.cpu())


def test_graph_module_says_what_it_takes(network):
    with pytest.raises(InputError, match="default"):
        graph_executor.GraphModule(network.library)


def test_a_device_of_the_wrong_kind_is_named(network):
    with pytest.raises(IncompatibleDeviceError, match=r"built for cpu.*cuda:0"):
        network.library["default"](tvm.cuda(0))


@pytest.fixture(scope="module")
def passed_through(build):
    """y = x of int8, and z = x + 1."""

    def emit(builder, x):
        added = builder.emit(relax.op.add(x, relax.const(np.int8(1))))
        return builder.emit(relax.Tuple([x, added]))

    return build([("x", (3,), "int8")], emit)


def test_an_output_that_is_an_input_does_not_change_with_it(passed_through):
    module = graph_executor.GraphModule(passed_through["default"](tvm.cpu()))
    module.run(x=[1, 2, 3])
    module.set_input("x", [7, 8, 9])
    np.testing.assert_array_equal(module.get_output(0).numpy(), [1, 2, 3])
    own = tvm.runtime.tensor(np.array([4, 5, 6], "int8"))
    module.set_input_zero_copy("x", own)
    module.run()
    own.copyfrom(np.zeros(3, "int8"))
    np.testing.assert_array_equal(module.get_output(0).numpy(), [4, 5, 6])


@pytest.mark.parametrize("value", [128, -129, 2**31, 2**63, 10**30])
@pytest.mark.parametrize("form", [list, np.array, "tensor"])
def test_an_integer_that_does_not_fit_an_input_is_refused(passed_through, value, form):
    module = graph_executor.GraphModule(passed_through["default"](tvm.cpu()))
    values = [0, value, 1]
    if form == "tensor":
        values = tvm.runtime.tensor(np.array([0, min(value, 2**40), 1], "int64"))
    elif form is np.array:
        values = np.array(values)
    with pytest.raises(InputError, match=r"'x'.*int8"):
        module.set_input("x", values)
    module.run(x=np.array([127, -128, 0], "int64"))
    np.testing.assert_array_equal(module.get_output(0).numpy(), [127, -128, 0])


@pytest.mark.parametrize("value", [1.5, np.nan, np.inf, 1e30, 1j])
def test_a_fraction_is_no_integer_input(passed_through, value):
    module = graph_executor.GraphModule(passed_through["default"](tvm.cpu()))
    with pytest.raises(InputError, match=r"'x'.*int8"):
        module.set_input("x", [0, value, 1])


def test_truncated_and_damaged_parameters_are_refused(module):
    saved = bytes(tvm.runtime.save_param_dict({"p0": tvm.runtime.empty((64,), "float32")}))
    for count in (0, 7, 40, len(saved) - 100, len(saved) - 1):
        with pytest.raises(InputError, match=r"truncated|not the bytes"):
            module.load_params(saved[:count])
    with pytest.raises(InputError, match="damaged"):
        module.load_params(saved + b"more")


def test_a_graph_of_other_outputs_than_the_library_has_is_refused_by_the_run(network):
    graph = json.loads(network.library.get_graph_json())
    graph["baton"]["outputs"].append({**graph["baton"]["outputs"][0], "name": "more"})
    lib = network.library.get_lib()
    module = graph_executor.create(json.dumps(graph), lib, tvm.cpu())
    module.set_input(**network.library.get_params())
    with pytest.raises(InputError, match="has 2 outputs, and its graph describes 3"):
        module.run(**network.inputs(0))
