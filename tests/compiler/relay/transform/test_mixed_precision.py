"""ToMixedPrecision: categories, casts, and the settings that decide about results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from onnx import TensorProto, helper, numpy_helper

from compiler import relay
from compiler.relay import pass_config, transform
from compiler.relay.testing.temp_op_attr import TempOpAttr
from compiler.runtime import graph_executor
from tests.compiler.relay.transform.modules import module_of, operators_of

ATTRIBUTE = "FTVMMixedPrecisionConversionType"


def dense(data: Any = None) -> Any:
    data = relay.var("x", shape=(2, 3)) if data is None else data
    return relay.nn.dense(data, relay.var("w", shape=(3, 3)))


def result(mod: tvm.IRModule) -> str:
    return str(mod["main"].ret_ty.dtype)


@pytest.fixture
def kept_results() -> Iterator[None]:
    token = pass_config.enter({"relay.ToMixedPrecision.keep_orig_output_dtype": True})
    yield
    pass_config.leave(token)


def test_products_are_short_and_what_follows_them_too() -> None:
    after = transform.ToMixedPrecision()(module_of(relay.nn.relu(dense())))
    assert operators_of(after) == {"cast": 2, "nn.dense": 1, "nn.relu": 1}
    assert result(after) == "float16"


def test_what_needs_accuracy_is_computed_in_float32() -> None:
    after = transform.ToMixedPrecision("bfloat16")(module_of(relay.nn.softmax(dense())))
    assert operators_of(after) == {"cast": 3, "nn.dense": 1, "nn.softmax": 1}
    assert result(after) == "float32"


@pytest.mark.usefixtures("kept_results")
def test_a_setting_keeps_the_types_of_results() -> None:
    for body, casts in ((dense(), 3), (relay.Tuple([dense(), relay.var("y", shape=(2,))]), 3)):
        before = module_of(body)
        after = transform.ToMixedPrecision()(before)
        assert operators_of(after)["cast"] == casts
        assert tvm_ffi.structural_equal(after["main"].ret_ty, before["main"].ret_ty)


def test_numbers_that_the_short_type_does_not_hold_stay() -> None:
    clipped = relay.clip(dense(), 0.0, 1e6)
    assert result(transform.ToMixedPrecision("float16")(module_of(clipped))) == "float32"
    assert result(transform.ToMixedPrecision("bfloat16")(module_of(clipped))) == "bfloat16"


def test_scripts_say_how_an_operator_is_converted() -> None:
    def accumulating(call: Any, short: str) -> list[Any]:
        assert str(call.op.name) == "nn.dense"
        return [transform.mixed_precision.MIXED_PRECISION_ALWAYS, "float32", short]

    with TempOpAttr("nn.dense", ATTRIBUTE, accumulating):
        after = transform.ToMixedPrecision()(module_of(dense()))
    assert operators_of(after) == {"cast": 3, "nn.dense": 1}
    assert result(after) == "float16"


def test_operators_of_no_category_follow_and_are_named() -> None:
    before = module_of(relay.sin(dense()))
    with pytest.warns(UserWarning, match=r"sin \(1\)"):
        after = transform.ToMixedPrecision()(before)
    assert result(after) == "float16"
    with pytest.raises(RuntimeError, match="no category"):
        transform.ToMixedPrecision(missing_op_mode=0)(before)


def test_operators_of_relax_get_operands_of_their_own_dtypes() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["updates"]),
        helper.make_node("ScatterND", ["x", "rows", "updates"], ["y"]),
    ]
    weights = {"w": np.eye(4, dtype="float32") * 2, "rows": np.array([[2], [0], [1]], "int64")}
    graph = helper.make_graph(
        nodes,
        "scattered",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, 4))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (3, 4))],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    mod, params = relay.frontend.from_onnx(model)
    library = relay.build(relay.transform.ToMixedPrecision("float16")(mod), "llvm", params=params)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    x = np.arange(12, dtype="float32").reshape(3, 4)
    executor.run(x=x)
    np.testing.assert_array_equal(executor.get_output(0).numpy(), 2 * x[[1, 2, 0]])


def test_extents_that_running_tells_stay_defined() -> None:
    """Only the shape of the chosen boxes reads how many there are."""
    constants = {"most": np.array([3], "int64"), "iou": np.array([0.5], "float32")}
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["b"], ["r"]),
            helper.make_node("NonMaxSuppression", ["r", "s", "most", "iou"], ["y"]),
        ],
        "boxes",
        [
            helper.make_tensor_value_info("b", TensorProto.FLOAT, (1, 6, 4)),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, (1, 2, 6)),
        ],
        [helper.make_tensor_value_info("y", TensorProto.INT64, ("n", 3))],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    mod, params = relay.frontend.from_onnx(model)
    corners = np.arange(6, dtype="float32")[:, None] * 3
    boxes = np.concatenate([corners, corners, corners + 2, corners + 2], axis=1)[None]
    scores = np.linspace(0, 1, 12, dtype="float32").reshape(1, 2, 6)
    results = []
    for chosen in (mod, relay.transform.ToMixedPrecision("float16")(mod)):
        library = relay.build(chosen, "llvm", params=params)
        executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
        executor.run(b=boxes, s=scores)
        results.append(executor.get_output(0).numpy())
    assert results[0].shape == (6, 3)
    np.testing.assert_array_equal(*results)
