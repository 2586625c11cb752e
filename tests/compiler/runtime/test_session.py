"""Sessions: arrays by name in and out, from any number of threads."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper

from compiler import relay
from compiler.errors import InputError
from compiler.runtime import graph_executor, load_module


@pytest.fixture(scope="module")
def library():
    """relu(x) and x + y, with names that are not identifiers."""
    nodes = [
        helper.make_node("Relu", ["input.1"], ["out:0"]),
        helper.make_node("Add", ["input.1", "self"], ["class/sum"]),
    ]
    tensors = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 3))
        for name in ("input.1", "self", "out:0", "class/sum")
    }
    graph = helper.make_graph(
        nodes, "g", [tensors["input.1"], tensors["self"]], [tensors["out:0"], tensors["class/sum"]]
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    mod, params = relay.frontend.from_onnx(model)
    return relay.build(mod, "llvm", params=params)


def request(value: float, other: float) -> dict[str, np.ndarray]:
    return {"input.1": np.full((2, 3), value, "float32"), "self": np.full((2, 3), other, "float32")}


def is_right(results: dict[str, np.ndarray], value: float, other: float) -> bool:
    return bool(
        np.all(results["out:0"] == max(value, 0)) and np.all(results["class/sum"] == value + other)
    )


def test_onnx_names_are_kept_through_build_export_and_load(library, tmp_path):
    library.export_library(tmp_path / "net.so")
    session = load_module(tmp_path / "net.so").session()
    assert [info.name for info in session.inputs] == ["input.1", "self"]
    assert [info.name for info in session.outputs] == ["out:0", "class/sum"]
    assert is_right(session.run(request(-2, 5)), -2, 5)


def test_another_modules_outputs_are_numbered(network):
    assert list(network.library.session().run(network.inputs(1))) == ["output0", "output1"]


@pytest.mark.parametrize("parallel", [1, 2])
def test_four_threads_get_their_own_answers(library, parallel):
    session = library.session(num_threads=1, parallel=parallel)

    def ask(caller: int) -> int:
        wrong = 0
        for index in range(300):
            value, other = caller * 1000 + index, index % 7
            wrong += not is_right(session.run(request(value, other)), value, other)
        return wrong

    with ThreadPoolExecutor(4) as callers:
        assert list(callers.map(ask, range(4))) == [0, 0, 0, 0]


def test_callers_share_one_lane(library):
    session, other = library.session(num_threads=1), library.session(num_threads=1)
    session.run(request(1, 1))
    before = threading.active_count()
    with ThreadPoolExecutor(3) as callers:
        list(callers.map(lambda value: other.run(request(value, 1)), range(20)))
        session.run(request(1, 1))
        assert threading.active_count() <= before + 3


def test_lanes_are_bound_to_no_cpu(library):
    """TVM binds the first thread of each pool to the first CPU, which all lanes would share."""
    session = library.session(num_threads=1, parallel=2)
    for pending in [session.run_async(request(1, 1)) for _ in range(8)]:
        pending.result()
    lanes = [each for each in threading.enumerate() if each.name.startswith("baton-lane")]
    assert lanes
    for lane in lanes:
        assert os.sched_getaffinity(lane.native_id) == os.sched_getaffinity(0)


def test_asynchronous_requests_are_answered_in_order(library):
    session = library.session(num_threads=1)
    futures = [session.run_async(request(value, 1)) for value in range(50)]
    assert all(is_right(future.result(), value, 1) for value, future in enumerate(futures))


def test_some_outputs(library):
    results = library.session().run(request(3, 4), ["class/sum"])
    assert list(results) == ["class/sum"]


def test_bound_arrays_are_read_and_written_in_place(library):
    session = library.session()
    out = np.empty((2, 3), "float32")
    unaligned = np.zeros(8, "float32")[1:7].reshape(2, 3)
    binding = session.bind({"self": unaligned}, {"class/sum": out})
    for value in (1.0, 2.0):
        binding.inputs["input.1"][:] = value
        unaligned[:] = 10 * value
        assert binding.run()["class/sum"] is out
        np.testing.assert_array_equal(out, 11 * value)
        np.testing.assert_array_equal(binding.outputs["out:0"], value)


def test_what_does_not_fit_is_refused(library):
    session = library.session()
    with pytest.raises(InputError, match=r"missing: self; unknown: x"):
        session.run({"input.1": np.zeros((2, 3)), "x": 1})
    with pytest.raises(InputError, match="has the shape"):
        session.run({"input.1": np.zeros((3, 2), "float32"), "self": request(1, 1)["self"]})
    for run in (session.run, session.run_async):
        with pytest.raises(InputError, match=r"'input\.1' takes float32, and the value is float64"):
            run({**request(1, 1), "input.1": np.zeros((2, 3))})
    with pytest.raises(InputError, match=r"'self' has the dtype float32, .* complex128"):
        session.run({**request(1, 1), "self": [[1j] * 3] * 2})
    with pytest.raises(InputError, match="no output 'z'"):
        session.run(request(1, 1), ["z"])
    with pytest.raises(InputError, match="contiguous writable"):
        session.bind(outputs={"out:0": np.zeros((2, 3))})
    with pytest.raises(InputError, match="no input"):
        session.bind({"x": np.zeros((2, 3), "float32")})
    assert is_right(session.run(request(1, 1)), 1, 1)


@pytest.mark.parametrize("name", ["num_threads", "parallel"])
@pytest.mark.parametrize(
    "count", [0, -1, True, 1.0, "2", 1025, 2**70, -(2**70), pytest.param(1 << 20000, id="huge")]
)
def test_a_number_of_threads_out_of_range_is_an_error(library, name, count):
    with pytest.raises(InputError, match=f"{name} must be an integer from 1 to 1024, not"):
        library.session(**{name: count})


def test_a_session_has_at_least_one_executor(library):
    with pytest.raises(InputError, match="parallel"):
        library.session(parallel=None)


@pytest.mark.parametrize("text", ["1025", "9" * 5000])
def test_a_default_number_of_threads_that_is_too_large_is_an_error(library, monkeypatch, text):
    monkeypatch.setenv("TVM_NUM_THREADS", text)
    with pytest.raises(InputError, match=r"TVM_NUM_THREADS=.* at most 1024"):
        library.session()


@pytest.mark.parametrize("text", ["", "0", "-3", "two", "\u00b2", "\u0663"])
def test_the_cores_are_used_where_the_default_is_no_number_of_threads(library, monkeypatch, text):
    monkeypatch.setenv("TVM_NUM_THREADS", text)
    assert library.session().num_threads == len(os.sched_getaffinity(0))


def test_a_forked_child_has_lanes_of_its_own(library):
    session = library.session(num_threads=1)
    session.run(request(1, 1))

    def child() -> None:
        os._exit(0 if is_right(session.run(request(2, 1)), 2, 1) else 1)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(60)
    assert process.exitcode == 0


def in_another_thread(function) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_an_executor_says_when_another_thread_exchanged_an_input(library):
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.set_input(request(1, 1))
    in_another_thread(lambda: module.set_input("self", np.zeros((2, 3), "float32")))
    with pytest.raises(InputError, match="another thread has set 'self'"):
        module.run()


def test_an_executor_says_when_another_thread_ran_it(library):
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.set_input(request(1, 1))
    module.run()
    in_another_thread(module.run)
    with pytest.raises(InputError, match="another thread has run"):
        module.get_output(0)
    module.run()
    assert np.all(module.get_output(0).numpy() == 1)


def test_threads_may_hand_an_executor_on(library):
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for value in (1, 2):
        module.set_input(request(value, 1))
        in_another_thread(module.run)
        assert np.all(module.get_output(1).numpy() == value + 1)


def test_no_answer_of_an_executor_in_four_threads_is_wrong(library):
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))

    def ask(caller: int) -> list[bool]:
        answers = []
        for index in range(50):
            value = caller * 100 + index
            try:
                module.set_input(request(value, 1))
                module.run()
                answers.append(bool(np.all(module.get_output(0).numpy() == value)))
            except InputError:
                continue
        return answers

    with ThreadPoolExecutor(4) as callers:
        assert all(all(answers) for answers in callers.map(ask, range(4)))


def test_results_name_the_outputs_that_exist(library):
    results = library.session(num_threads=1).run(request(1, 2))
    assert isinstance(results, dict)
    with pytest.raises(KeyError, match="no output 'score'; there are "):
        results["score"]
    assert results.get("score") is None


def test_a_closed_session_makes_no_requests_and_the_others_go_on(library):
    other = library.session(num_threads=1)
    with library.session(num_threads=1) as session:
        pending = [session.run_async(request(seed, 2)) for seed in range(8)]
    assert all(is_right(future.result(60), seed, 2) for seed, future in enumerate(pending))
    assert is_right(other.run(request(1, 2)), 1, 2)
    session.close()
    for call in (session.run, session.run_async, session.bind):
        with pytest.raises(InputError, match="the session is closed"):
            call(request(0, 2))


def test_sessions_and_libraries_show_inputs_and_outputs(library):
    session = library.session(num_threads=1)
    assert "input.1: float32" in repr(session) and "num_threads=1" in repr(session)
    session.close()
    assert "closed" in repr(session)
    assert "input.1: float32" in repr(library) and "llvm" in repr(library)


def test_a_report_shows_a_table_in_notebooks(library):
    assert repr(library.report).startswith("<Report: ")
    page = library.report._repr_html_()
    assert page.count("<tr>") == len(library.report.kernels) + 1
    assert all(kernel.where in page for kernel in library.report.kernels)
    assert any(kernel.where for kernel in library.report.kernels)
    assert "<script" not in page
