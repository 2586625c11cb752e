"""The debug executor: kernels' times and results, dumped and asked for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.errors import InputError
from compiler.runtime import graph_executor
from compiler.runtime.debugger import debug_executor, debug_result, debug_runtime


@pytest.fixture(scope="module")
def library() -> relay.build:  # type: ignore[valid-type]
    data = relay.var("data", shape=(4, 6))
    weight = relay.var("weight", shape=(5, 6))
    left, right = relay.split(relay.nn.dense(data, weight), [2], axis=1)
    body = relay.Tuple([relay.nn.softmax(left), relay.sum(right, axis=1)])
    function = relay.Function([data, weight], body)
    values = np.random.default_rng(0).standard_normal((5, 6)).astype("float32")
    return relay.build(tvm.IRModule.from_expr(function), "llvm", params={"weight": values}), values


def debugger(library: object, root: Path) -> debug_executor.GraphModuleDebug:
    made, _ = library
    return debug_executor.create(made.get_graph_json(), made, tvm.cpu(), str(root))


def softmax(values: np.ndarray) -> np.ndarray:
    exponents = np.exp(values - values.max(1, keepdims=True))
    return exponents / exponents.sum(1, keepdims=True)


def test_a_run_computes_the_same_and_dumps_every_kernel(
    library: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, weight = library
    data = np.random.default_rng(1).standard_normal((4, 6)).astype("float32")
    module = debugger(library, tmp_path)
    module.run(number=1, data=data)
    scores = data @ weight.T
    np.testing.assert_allclose(module.get_output(0).numpy(), softmax(scores[:, :2]), rtol=1e-5)

    table = capsys.readouterr().out
    assert "Time(us)" in table and "Total_time" in table
    folder = tmp_path / "_tvmdbg_device_CPU_0"
    nodes = json.loads((folder / debug_result.GRAPH_DUMP_FILE_NAME).read_text())["nodes"]
    kernels = [node for node in nodes if node["op"] == "tvm_op"]
    assert nodes[0]["name"] == "data" and kernels
    assert all(name in table for name in (node["name"] for node in kernels))
    events = json.loads((folder / debug_result.CHROME_TRACE_FILE_NAME).read_text())["traceEvents"]
    assert [event["name"] for event in events[::2]] == [node["name"] for node in nodes]

    dumped = relay.load_param_dict((folder / debug_result.TENSORS_FILE_NAME).read_bytes())
    assert len(dumped) == sum(module.debug_datum.get_graph_node_output_num(each) for each in nodes)
    results = {key: value.numpy() for key, value in dumped.items()}
    assert any(
        value.shape == scores.shape and np.allclose(value, scores, rtol=1e-5)
        for value in results.values()
    )


def test_times_are_per_node_and_repeat(library: object, tmp_path: Path) -> None:
    module = debugger(library, tmp_path)
    module.set_input("data", np.ones((4, 6), "float32"))
    times = module.run_individual(number=2, repeat=3)
    nodes = module.debug_datum.get_graph_nodes()
    assert len(times) == len(nodes) and {len(row) for row in times} == {3}
    for node, row in zip(nodes, times):
        assert all(value > 0 for value in row) == (node["op"] != "param")
    assert module.run_individual_node(len(nodes) - 1).mean > 0
    with pytest.raises(InputError, match="no node 99"):
        module.run_individual_node(99)


def test_the_output_of_a_node_is_asked_for_by_name_or_index(
    library: object, tmp_path: Path
) -> None:
    module = debugger(library, tmp_path)
    data = np.full((4, 6), 0.5, "float32")
    module.set_input("data", data)
    np.testing.assert_array_equal(module.debug_get_output("data").numpy(), data)
    nodes = module.debug_datum.get_graph_nodes()
    into = tvm.runtime.empty(tuple(module.debug_get_output(len(nodes) - 1).shape))
    assert module.debug_get_output(nodes[-1]["name"], into).same_as(into)
    with pytest.raises(InputError, match="no node 'absent'"):
        module.debug_get_output("absent")


def test_a_library_in_parts_that_was_never_exported_runs(library: object) -> None:
    made, weight = library
    graph, code, params = made
    module = graph_executor.create(graph, code, tvm.cpu())
    module.set_input(**params)
    data = np.random.default_rng(1).standard_normal((4, 6)).astype("float32")
    module.run(data=data)
    scores = data @ weight.T
    np.testing.assert_allclose(module.get_output(0).numpy(), softmax(scores[:, :2]), rtol=1e-5)
    with pytest.raises(InputError, match="debug_executor"):
        module.debug_get_output(0)


def test_a_profile_lists_the_calls(library: object, tmp_path: Path) -> None:
    made, _ = library
    device = tvm.cpu()
    module = debug_runtime.GraphModuleDebug(
        made["debug_create"]("default", device), [device], made.get_graph_json(), None
    )
    report = module.profile(data=np.ones((4, 6), "float32"))
    names = [node["name"] for node in module.debug_datum.get_graph_nodes()][-len(report.calls) :]
    assert [call["Name"] for call in report.calls] == names
    assert str(report).count("\n") == len(report.calls)
    assert report.csv().startswith("Name,")
    with pytest.raises(InputError, match="perf"):
        module.profile(collectors=[object()])
    module.exit()


def test_an_input_that_is_not_set_is_named(library: object, tmp_path: Path) -> None:
    module = debugger(library, tmp_path)
    assert isinstance(module, graph_executor.GraphModule)
    with pytest.raises(InputError, match="data"):
        module.run()
