"""Indices that are known only at run time, and constant ones that are wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from compiler import relay
from compiler.errors import BatonError, BuildError, IndexRangeError
from compiler.runtime.graph_executor import GraphModule

ROWS, COLUMNS = 3, 5
FAR = 10**9


def _values(**more: Any) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape).astype("float32") for name, shape in more.items()}


_ONNX_NODES = [
    helper.make_node("Gather", ["x", "row"], ["gathered"], axis=0),
    helper.make_node("GatherElements", ["x", "column"], ["elements"], axis=1),
    helper.make_node("GatherND", ["x", "place"], ["picked"]),
    helper.make_node("ScatterElements", ["x", "column", "u"], ["scattered"], axis=1),
    helper.make_node("ScatterND", ["x", "place", "v"], ["put"], reduction="add"),
    helper.make_node("MaxUnpool", ["pooled", "pool_place"], ["unpooled"], kernel_shape=[2, 2]),
    helper.make_node("RoiAlign", ["image", "box", "box_image"], ["aligned"], output_height=2),
    helper.make_node("ReverseSequence", ["x", "length"], ["reversed"], time_axis=0, batch_axis=1),
]
_ONNX_VALUES = {
    **_values(x=(ROWS, COLUMNS), u=(ROWS, 2), v=2, pooled=(1, 1, 2, 2), image=(2, 1, 4, 4)),
    "row": np.array([-ROWS, ROWS - 1, -1, 0]),
    "column": np.array([[-COLUMNS, COLUMNS - 1], [-1, 0], [2, -3]]),
    "place": np.array([[-ROWS, -COLUMNS], [ROWS - 1, COLUMNS - 1]]),
    "pool_place": np.array([0, 3, 5, 7]).reshape(1, 1, 2, 2),
    "box": np.array([[0, 0, 2, 2], [1, 1, 3, 3]], "float32"),
    "box_image": np.array([0, 1]),
    "length": np.array([0, 1, 2, 3, 3]),
}
# Of each operand that holds indices: the operators that read it, and wrong values beside the far
# ones, put where the second index is.
_ONNX_WRONG = {
    "row": ("take", [ROWS, -ROWS - 1]),
    "column": ("gather", [COLUMNS, -COLUMNS - 1]),
    "place": ("gather_nd", [COLUMNS, -COLUMNS - 1]),
    "pool_place": ("scatter_elements", [9, -10]),
    "box_image": ("roi_align", [2, -1]),
    "length": ("reverse_sequence", [ROWS + 1, -1]),
}


def _model(nodes: list[Any], values: dict[str, np.ndarray], opset: int = 16) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in values.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(node.output[0]) for node in nodes]
    graph = helper.make_graph(nodes, "indices", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def _built(mod: Any, params: Any, level: int) -> GraphModule:
    with tvm.transform.PassContext(opt_level=level):
        library = relay.build(mod, "llvm", params=params)
    return GraphModule(library["default"](tvm.cpu()))


def _with(values: dict[str, np.ndarray], name: str, wrong: int) -> dict[str, np.ndarray]:
    changed = values[name].copy()
    changed.flat[1] = wrong
    return {**values, name: changed}


def _outputs(module: GraphModule) -> list[np.ndarray]:
    return [module.get_output(index).numpy() for index in range(module.get_num_outputs())]


@pytest.mark.parametrize("level", [0, 3])
def test_onnx_operators_name_themselves_where_an_index_is_outside(level: int) -> None:
    model = _model(_ONNX_NODES, _ONNX_VALUES)
    module = _built(*relay.frontend.from_onnx(model), level)
    for name, (operator, wrong) in _ONNX_WRONG.items():
        for value in (FAR, -FAR, *wrong):
            with pytest.raises(IndexRangeError, match=rf"{operator}.*index {value} is outside of"):
                module.run(**_with(_ONNX_VALUES, name, value))
    module.run(**_ONNX_VALUES)  # an error leaves nothing behind
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for own, expected in zip(_outputs(module), session.run(None, _ONNX_VALUES)):
        np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("operator", ["ScatterElements", "ScatterND", "Scatter"])
def test_scattering_operators_check_before_they_write(operator: str) -> None:
    place, update = ("place", "v") if operator == "ScatterND" else ("column", "u")
    values = {name: _ONNX_VALUES[name] for name in ("x", place, update)}
    node = helper.make_node(operator, list(values), ["y"])
    if operator != "ScatterND":
        node.attribute.append(helper.make_attribute("axis", 1))
    model = _model([node], values, 9 if operator == "Scatter" else 16)
    module = _built(*relay.frontend.from_onnx(model), 3)
    for wrong in (FAR, -FAR, COLUMNS, -COLUMNS - 1):
        with pytest.raises(IndexRangeError, match=rf"scatter_.*index {wrong} is outside"):
            module.run(**_with(values, place, wrong))
    module.run(**values)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, values)
    np.testing.assert_array_equal(module.get_output(0).numpy(), expected)


def _relay_operators() -> tuple[Any, dict[str, np.ndarray], dict[str, tuple[str, list[int]]]]:
    """Every operator of Relay that indexes, its operands, and what is wrong for each."""
    values = {
        **_values(x=(ROWS, COLUMNS), u=(ROWS, 2), v=2, image=(2, 1, 4, 4), weight=(COLUMNS,)),
        "fast": np.array([0, 2]),
        "column": _ONNX_VALUES["column"],
        "place": _ONNX_VALUES["place"].T.copy(),
        "target": np.array([[-COLUMNS, 1], [COLUMNS - 1, 0], [0, 0]]),
        "goal": np.array([[0, ROWS - 1], [0, COLUMNS - 1]]),
        "row": np.array([0, 2]),
        "length": np.array([1, 0, 3], "int32"),
        "roi": np.array([[0, 0, 0, 2, 2], [1, 1, 1, 3, 3]], "float32"),
        "box": np.array([[0, 0, 1, 1], [0, 0, 0.5, 0.5]], "float32"),
        "box_image": np.array([0, 1], "int32"),
        "spot": np.array([[0, 1], [2, 3]], "int32"),
        "label": np.array([4, -100, 0], "int32"),
    }
    v = {name: relay.var(name, shape=a.shape, dtype=str(a.dtype)) for name, a in values.items()}
    results = {
        "fast": relay.take(v["x"], v["fast"], axis=0, mode="fast"),
        "column": relay.gather(v["x"], 1, v["column"]),
        "place": relay.gather_nd(v["x"], v["place"]),
        "target": relay.scatter_elements(v["x"], v["target"], v["u"], 1, "add"),
        "goal": relay.scatter_nd(v["x"], v["goal"], v["v"], "update"),
        "row": relay.adv_index([v["x"], v["row"]]),
        "length": relay.reverse_sequence(v["x"], v["length"], 1, 0),
        "roi": relay.vision.roi_align(v["image"], v["roi"], (2, 2), 1.0, 1),
        "box_image": relay.image.crop_and_resize(v["image"], v["box"], v["box_image"], (2, 2)),
        "spot": relay.sparse_to_dense(v["spot"], (ROWS, COLUMNS), v["v"], 0.0),
        "label": relay.nn.nll_loss(v["x"], v["label"], v["weight"]),
    }
    wrong = {
        "fast": ("take", [ROWS, -1]),
        "column": ("gather", [COLUMNS, -COLUMNS - 1]),
        "place": ("gather_nd", [ROWS, -ROWS - 1]),
        "target": ("scatter_elements", [COLUMNS, -COLUMNS - 1]),
        "goal": ("scatter_nd", [ROWS, -ROWS - 1]),
        "row": ("adv_index", [ROWS, -ROWS - 1]),
        "length": ("reverse_sequence", [COLUMNS + 1, -1]),
        "box_image": ("image.crop_and_resize", [2, -1]),
        "spot": ("sparse_to_dense", [COLUMNS, -1]),
        "label": ("nn.nll_loss", [COLUMNS, -1]),
    }
    function = relay.Function(list(v.values()), relay.Tuple(list(results.values())))
    return tvm.IRModule.from_expr(function), values, wrong


@pytest.mark.parametrize("level", [0, 3])
def test_relay_operators_name_themselves_where_an_index_is_outside(level: int) -> None:
    mod, values, every = _relay_operators()
    module = _built(mod, None, level)
    for name, (operator, wrong) in every.items():
        for value in (FAR, -FAR, *wrong):
            with pytest.raises(IndexRangeError, match=rf"^{operator}: the index {value} is out"):
                module.run(**_with(values, name, value))
    for image in (FAR, 2.0, -1.0, float("nan")):
        roi = values["roi"].copy()
        roi[1, 0] = image
        with pytest.raises(IndexRangeError, match=r"roi_align: the index .* of \[0, 1\]"):
            module.run(**{**values, "roi": roi})
    module.run(**values)
    x = values["x"]
    given = _outputs(module)
    np.testing.assert_array_equal(given[0], x[[0, 2]])
    np.testing.assert_array_equal(given[1], np.take_along_axis(x, values["column"], 1))
    np.testing.assert_array_equal(given[2], x[tuple(values["place"])])
    added = x.copy()
    np.add.at(added, (np.arange(ROWS)[:, None], values["target"]), values["u"])
    np.testing.assert_allclose(given[3], added, rtol=1e-6)
    put = x.copy()
    put[tuple(values["goal"])] = values["v"]
    np.testing.assert_array_equal(given[4], put)


def test_modes_of_take_that_limit_indices_raise_nothing() -> None:
    x = relay.var("x", shape=(ROWS,), dtype="float32")
    i = relay.var("i", shape=(4,), dtype="int64")
    both = relay.Tuple([relay.take(x, i, 0, mode="clip"), relay.take(x, i, 0, mode="wrap")])
    module = _built(tvm.IRModule.from_expr(relay.Function([x, i], both)), None, 3)
    data, places = np.arange(ROWS, dtype="float32"), np.array([FAR, -FAR, ROWS, -1])
    module.run(x=data, i=places)
    np.testing.assert_array_equal(module.get_output(0).numpy(), data[np.clip(places, 0, ROWS - 1)])
    np.testing.assert_array_equal(module.get_output(1).numpy(), data[places % ROWS])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64"])
def test_indices_of_every_width_and_rank_are_checked(dtype: str) -> None:
    x = relay.var("x", shape=(200, 2), dtype="float32")
    i = relay.var("i", shape=(), dtype=dtype)
    function = relay.Function([x, i], relay.take(x, i, axis=0, mode="fast"))
    module = _built(tvm.IRModule.from_expr(function), None, 3)
    data = np.random.default_rng(1).normal(size=(200, 2)).astype("float32")
    module.run(x=data, i=np.array(100, dtype))
    np.testing.assert_array_equal(module.get_output(0).numpy(), data[100])
    wrong = -1 if dtype == "int8" else 201
    with pytest.raises(IndexRangeError, match=f"index {wrong} is outside"):
        module.run(x=data, i=np.array(wrong, dtype))


def test_constant_indices_are_checked_when_a_model_is_built() -> None:
    values = {"x": _ONNX_VALUES["x"]}
    for operator in ("Gather", "GatherElements", "GatherND"):
        node = helper.make_node(operator, ["x", "i"], ["y"])
        model = _model([node], values)
        wrong = helper.make_tensor("i", TensorProto.INT64, [1, 1], [ROWS])
        model.graph.initializer.append(wrong)
        with pytest.raises(BatonError, match=f"{ROWS}.* outside of"):
            _built(*relay.frontend.from_onnx(model), 0)


def test_a_constant_index_is_named_as_the_model_has_it() -> None:
    node = helper.make_node("Gather", ["x", "row"], ["gathered"])
    model = _model([node], {"x": np.zeros(10, "float32")})
    model.graph.initializer.append(numpy_helper.from_array(np.array([-11]), "row"))
    mod, params = relay.frontend.from_onnx(model)
    with pytest.raises(BuildError, match="the constant index -11 is outside"):
        relay.build(mod, "llvm", params=params)


def test_constant_indices_cost_nothing_at_run_time() -> None:
    x = relay.var("x", shape=(ROWS, COLUMNS), dtype="float32")
    column = _ONNX_VALUES["column"]
    function = relay.Function([x], relay.gather(x, 1, relay.const(column)))
    library = relay.build(tvm.IRModule.from_expr(function), "llvm")
    assert [kernel.operators for kernel in library.report.kernels] == [["gather"]]
    module = GraphModule(library["default"](tvm.cpu()))
    module.run(x=_ONNX_VALUES["x"])
    expected = np.take_along_axis(_ONNX_VALUES["x"], column, 1)
    np.testing.assert_array_equal(module.get_output(0).numpy(), expected)


def test_indices_that_reach_beyond_another_axis_are_refused() -> None:
    x = relay.var("x", shape=(ROWS, COLUMNS), dtype="float32")
    i = relay.var("i", shape=(ROWS + 1, 2), dtype="int64")
    mod = tvm.IRModule.from_expr(relay.Function([x, i], relay.gather(x, 1, i)))
    with pytest.raises(BuildError, match=r"gather: indices of shape \(4, 2\) reach beyond axis 0"):
        relay.build(mod, "llvm")


def test_extents_that_only_running_tells_limit_indices_too() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["found"]),
        helper.make_node("GatherElements", ["found", "i"], ["y"], axis=1),
    ]
    values = {"x": np.array([0, 1, 0, 2, 3], "float32"), "i": np.array([[0, -1]])}
    model = _model(nodes[1:], values)
    model.graph.node.insert(0, nodes[0])
    mod, params = relay.frontend.from_onnx(model)
    library = relay.build(mod, "llvm", params=params)
    module = GraphModule(library["default"](tvm.cpu()))
    module.run(**values)
    assert module.get_output(0).numpy().tolist() == [[1, 4]]
    for wrong in (3, -4, FAR):
        with pytest.raises(IndexRangeError, match=r"is outside of \[.*, 2\].* has the extent 3"):
            module.run(**_with(values, "i", wrong))
