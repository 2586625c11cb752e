"""Where the values of a model's tensors come from."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler import errors, legacy
from compiler.relay.frontend import from_onnx
from compiler.relay.frontend.onnx.model import load_model

NODE = helper.make_node


def _with_external_constant(folder, location):
    """A model whose Constant's value lies in another file; it adds 5 to its input."""
    value = numpy_helper.from_array(np.full(4, 5, "float32"), "five")
    raw = value.raw_data
    value.ClearField("raw_data")
    value.data_location = TensorProto.EXTERNAL
    value.external_data.add(key="location", value=location)
    value.external_data.add(key="length", value=str(len(raw)))
    nodes = [NODE("Constant", [], ["c"], value=value), NODE("Add", ["x", "c"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4,))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (4,))],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    return proto, raw


def test_a_constants_data_come_from_the_models_folder_and_no_other(tmp_path, monkeypatch, run):
    folder, here = tmp_path / "model", tmp_path / "here"
    folder.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    proto, raw = _with_external_constant(folder, "five.bin")
    (here / "five.bin").write_bytes(bytes(len(raw)))
    with pytest.raises(errors.FrontendError, match="external weights"):
        from_onnx(folder / "m.onnx")
    for whole in (proto, proto.SerializeToString()):
        with pytest.raises(errors.FrontendError, match="'five' lies in another file"):
            from_onnx(whole)
    (folder / "five.bin").write_bytes(raw)
    (result,) = run(*from_onnx(folder / "m.onnx"), {"x": np.ones(4, "float32")})
    np.testing.assert_array_equal(result, np.full(4, 6, "float32"))


@pytest.mark.parametrize("how", ["above", "absolute", "link"])
def test_a_constants_data_outside_of_the_models_folder_are_refused(tmp_path, how):
    folder, outside = tmp_path / "model", tmp_path / "five.bin"
    folder.mkdir()
    location = {"above": "../five.bin", "absolute": str(outside), "link": "five.bin"}[how]
    _, raw = _with_external_constant(folder, location)
    outside.write_bytes(raw)
    if how == "link":
        (folder / "five.bin").symlink_to(outside)
    with pytest.raises(errors.FrontendError, match="external weights"):
        from_onnx(folder / "m.onnx")


def test_an_initializer_of_an_inner_graph_keeps_its_own_values(run):
    count = 1024  # large enough to be read from the file in place
    info = helper.make_tensor_value_info
    typed = helper.make_tensor("w", TensorProto.FLOAT, (count,), [3.0] * count)
    branches = {}
    for name, op in (("then_branch", "Add"), ("else_branch", "Mul")):
        result = info(f"{name}_y", TensorProto.FLOAT, (count,))
        nodes = [NODE(op, ["x", "w"], [f"{name}_y"])]
        branches[name] = helper.make_graph(nodes, name, [], [result], [typed])
    graph = helper.make_graph(
        [NODE("If", ["c"], ["i"], **branches), NODE("Add", ["i", "w"], ["y"])],
        "model",
        [info("x", TensorProto.FLOAT, (count,)), info("c", TensorProto.BOOL, ())],
        [info("y", TensorProto.FLOAT, (count,))],
        [numpy_helper.from_array(np.arange(count, dtype="float32"), "w")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = load_model(proto.SerializeToString())
    assert "w" in model.weights
    x = np.full(count, 2, "float32")
    for condition, expected in ((True, x + 3), (False, x * 3)):
        data = {"x": x, "c": np.array(condition)}
        (found,) = run(*from_onnx(proto.SerializeToString()), data)
        np.testing.assert_array_equal(found, expected + np.arange(count))


def test_a_shape_of_no_input_is_an_error_and_for_old_scripts_ignored(caplog):
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    graph = helper.make_graph([NODE("Relu", ["x"], ["y"])], "net", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    with pytest.raises(errors.UnknownInputError, match="'data', which is not an input"):
        from_onnx(model, {"data": (3,)})
    with legacy.installed():
        module, _ = from_onnx(model, {"data": (3,)})
    assert "'data', which is not an input of the model" in caplog.text
    assert [str(each.name) for each in module["main"].params] == ["x"]


def _unsorted(nodes, **graph_fields):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "unsorted",
        [info("x", TensorProto.FLOAT, (4,)), info("c", TensorProto.BOOL, ())],
        [info("y", TensorProto.FLOAT, (4,))],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, **graph_fields)


def test_nodes_are_sorted_in_graphs_branches_and_functions(run):
    info = helper.make_tensor_value_info
    branches = {
        name: helper.make_graph(
            [NODE("Neg", [f"{name}_u"], [name]), NODE(op, ["x", "t"], [f"{name}_u"])],
            name,
            [],
            [info(name, TensorProto.FLOAT, (4,))],
        )
        for name, op in (("then_branch", "Add"), ("else_branch", "Mul"))
    }
    function = helper.make_function(
        "my",
        "F",
        ["p"],
        ["q"],
        [NODE("Abs", ["u"], ["q"]), NODE("Sqrt", ["v"], ["u"]), NODE("Exp", ["p"], ["v"])],
        [helper.make_opsetid("", 17)],
    )
    nodes = [NODE("If", ["c"], ["y"], **branches), NODE("F", ["x"], ["t"], domain="my")]
    proto = _unsorted(nodes, functions=[function])
    before = proto.SerializeToString()
    x = np.arange(4, dtype="float32")
    for condition, expected in ((True, -(x + np.exp(x / 2))), (False, -(x * np.exp(x / 2)))):
        (result,) = run(*from_onnx(proto), {"x": x, "c": np.array(condition)})
        np.testing.assert_allclose(result, expected, rtol=1e-5)
    assert proto.SerializeToString() == before


def test_a_cycle_of_nodes_is_named():
    nodes = [NODE("Add", ["x", "b"], ["a"], name="first"), NODE("Neg", ["a"], ["b"])]
    proto = _unsorted([*nodes, NODE("Relu", ["b"], ["y"])])
    with pytest.raises(errors.FrontendError, match=r"operator (Add|Neg).* depends on its own"):
        from_onnx(proto)
