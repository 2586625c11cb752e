"""Operators whose axes, extents and counts are inputs of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper

from compiler import relay
from compiler.errors import InputError
from compiler.runtime import graph_executor

from ..conftest import make_model

NODE = helper.make_node
RNG = np.random.default_rng(0)
DATA = RNG.standard_normal((2, 3, 4)).astype("float32")


def integers(*values: int) -> np.ndarray:
    return np.array(values, "int64")


def numbers(*values: float) -> np.ndarray:
    return np.array(values, "float32")


ALIGNED = {"coordinate_transformation_mode": "align_corners"}
REDUCTIONS = [
    *("ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
]
CASES: dict[str, tuple[Any, list[dict[str, np.ndarray]]]] = {
    "reduce to fewer axes": (
        NODE("ReduceSum", ["x", "n"], ["y"], keepdims=0),
        [{"n": integers(0, 2)}, {"n": integers(1, -1)}],
    ),
    "reduce five axes to four": (  # a minute where the signs of extents were asked for
        NODE("ReduceL2", ["x", "n"], ["y"], keepdims=0),
        [{"x": DATA.reshape(1, 1, 2, 3, 4), "n": integers(each)} for each in (1, 3)],
    ),
    "reduce to one": (NODE("ReduceMax", ["x", "n"], ["y"], keepdims=0), [{"n": integers(0, 1, 2)}]),
    "reshape": (
        NODE("Reshape", ["x", "n"], ["y"]),
        [{"n": integers(4, -1)}, {"n": integers(0, 12)}],
    ),
    "squeeze": (NODE("Squeeze", ["x", "n"], ["y"]), [{"x": DATA[:, :1], "n": integers(1)}]),
    "tile": (NODE("Tile", ["x", "n"], ["y"]), [{"n": integers(1, 2, 3)}, {"n": integers(2, 0, 1)}]),
    "running sum": (
        NODE("CumSum", ["x", "n"], ["y"], exclusive=1),
        [{"n": np.array(each)} for each in (0, 2, -2)],
    ),
    "best of them": (
        NODE("TopK", ["x", "n"], ["y", "i"], axis=1),
        [{"n": integers(2)}, {"n": integers(0)}],
    ),
    "parts": (
        NODE("Split", ["x", "n"], ["y", "z"], axis=2),
        [{"n": integers(1, 3)}, {"n": integers(4, 0)}],
    ),
    "one hot": (
        NODE("OneHot", ["k", "n", "v"], ["y"]),
        [{"k": integers(0, -1, 2), "n": np.array(each), "v": numbers(2, 5)} for each in (3, 6)],
    ),
    **{
        f"{mode} padding": (
            NODE("Pad", ["x", "n"], ["y"], mode=mode),
            [{"n": integers(0, 1, 2, 1, 0, 1)}, {"n": integers(0, 0, 0, 0, 0, 0)}],
        )
        for mode in ("constant", "edge", "reflect")
    },
    "a reflection of rows of one": (
        NODE("Pad", ["x", "n"], ["y"], mode="reflect"),
        [
            {"x": DATA[:1, :, :1], "n": integers(0, 0, 0, 0, 0, 0)},
            {"x": DATA[:1, :, :1], "n": integers(0, 2, 0, 0, 1, 0)},
        ],
    ),
    "padding of axes": (
        NODE("Pad", ["x", "n", "f", "a"], ["y"]),
        [{"n": integers(1, 2, 0, 1), "f": np.array(7, "float32"), "a": integers(2, 0)}],
    ),
    "larger by scales": (
        NODE("Resize", ["x", "", "s"], ["y"], mode="linear"),
        [{"s": numbers(1, 2, 1.5)}, {"s": numbers(1, 1, 0.5)}],
    ),
    "nearest of sizes": (
        NODE("Resize", ["x", "", "", "n"], ["y"], mode="nearest"),
        [{"n": integers(2, 5, 3)}],
    ),
    "cubic of sizes": (
        NODE("Resize", ["x", "", "", "n"], ["y"], mode="cubic", **ALIGNED),
        [{"x": DATA[None], "n": integers(1, 2, 5, 9)}],
    ),
    "filters": (
        NODE("MelWeightMatrix", ["n", "l", "r", "b", "e"], ["y"]),
        [
            {
                "n": np.array(bins),
                "l": np.array(length),
                "r": np.array(8192),
                "b": np.array(low, "float32"),
                "e": np.array(high, "float32"),
            }
            for bins, length, low, high in ((8, 16, 0, 4096), (3, 9, 300, 3000))
        ],
    ),
    **{
        name: (NODE(name, ["x", "n"], ["y"]), [{"n": integers(1)}, {"n": integers(-1)}])
        for name in REDUCTIONS
    },
}


@pytest.mark.parametrize("name", CASES)
def test_operands_are_inputs(name):
    node, given = CASES[name]
    feeds = [{"x": DATA, **each} for each in given]
    feeds = [{key: each[key] for key in node.input if key} for each in feeds]
    shapes = {key: value.shape for key, value in feeds[0].items()}
    types = {
        key: TensorProto.INT64
        for key in [*shapes, *node.output]
        if key == "i" or (key in feeds[0] and feeds[0][key].dtype == "int64")
    }
    proto = make_model([node], shapes, list(node.output), opset=18, dtypes=types)
    mod, params = relay.frontend.from_onnx(proto)
    library = relay.build(mod, "llvm", params=params)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for each in feeds:
        executor.run(**each)
        for index, wanted in enumerate(session.run(None, each)):
            got = executor.get_output(index).numpy()
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "outputs", "attributes", "right", "wrong"),
    [
        ("Split", ["y", "z"], {}, [1, 3], [[1, 2], [3, 2], [-1, 5]]),
        ("TopK", ["y", "i"], {}, [3], [[5], [-1]]),
        ("ReduceSum", ["y"], {}, [-1], [[1], [-2]]),
    ],
)
def test_operands_that_do_not_fit_are_errors(kind, outputs, attributes, right, wrong):
    node = NODE(kind, ["x", "n"], outputs, **attributes)
    types = {name: TensorProto.INT64 for name in ("n", "i")}
    shapes = {"x": (4,), "n": (len(right),)}
    proto = make_model([node], shapes, outputs, opset=18, dtypes=types)
    mod, params = relay.frontend.from_onnx(proto)
    library = relay.build(mod, "llvm", params=params)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    given = {"x": np.array([3, 1, 2, 5], "float32"), "n": integers(*right)}
    for _ in range(2):
        executor.run(**given)
        for index, expected in enumerate(session.run(None, given)):
            np.testing.assert_array_equal(executor.get_output(index).numpy(), expected)
        for each in wrong:
            with pytest.raises(InputError, match=r"known at run time"):
                executor.run(x=given["x"], n=integers(*each))


@pytest.mark.parametrize(("operator", "wanted"), [("Reshape", (4, -1)), ("Tile", (2, 1))])
def test_results_take_shapes_of_run_time(operator, wanted):
    nodes = [
        NODE("Relu", ["x"], ["r"]),
        NODE(operator, ["r", "n"], ["t"]),
        NODE("Neg", ["t"], ["y"]),
    ]
    proto = make_model(nodes, {"x": (2, 6), "n": (2,)}, ["y"], dtypes={"n": TensorProto.INT64})
    mod, params = relay.frontend.from_onnx(proto)
    executor = graph_executor.GraphModule(
        relay.build(mod, "llvm", params=params)["default"](tvm.cpu())
    )
    feeds = {"x": DATA.reshape(-1)[:12].reshape(2, 6), "n": integers(*wanted)}
    executor.run(**feeds)
    (expected,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feeds)
    np.testing.assert_array_equal(executor.get_output(0).numpy(), expected)


def test_a_diagonal_is_as_large_as_running_tells():
    nodes = [NODE("Reshape", ["x", "n"], ["t"]), NODE("EyeLike", ["t"], ["y"], k=1)]
    types = {"n": TensorProto.INT64}
    mod, params = relay.frontend.from_onnx(
        make_model(nodes, {"x": (3, 4), "n": (2,)}, ["y"], dtypes=types)
    )
    executor = relay.create_executor("vm", mod, tvm.cpu(), "llvm", params).evaluate()
    for shape in ((2, 6), (4, 3)):
        got = executor(DATA[0], integers(*shape)).numpy()
        np.testing.assert_array_equal(got, np.eye(*shape, 1, "float32"))


@pytest.mark.parametrize(("dtype", "rows"), [("int8", 2), ("uint64", 3), ("int32", 0)])
def test_means_of_integers_along_axes_of_run_time_are_cut_off(dtype, rows):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = NODE("ReduceMean", ["x", "n"], ["y"], keepdims=0)
    types = {"x": kind, "y": kind, "n": TensorProto.INT64}
    proto = make_model([node], {"x": (rows, 2), "n": (1,)}, ["y"], opset=18, dtypes=types)
    mod, params = relay.frontend.from_onnx(proto)
    library = relay.build(mod, "llvm", params=params)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    data = np.array([[100, 0], [101, 3], [7, 7]], dtype)[:rows]
    executor.run(x=data, n=integers(0))
    expected = data.sum(0, dtype="int64") // max(rows, 1)
    np.testing.assert_array_equal(executor.get_output(0).numpy(), expected.astype(dtype))


def test_what_has_extents_of_run_time_is_expanded_to_others():
    nodes = [NODE("Tile", ["x", "n"], ["t"]), NODE("Expand", ["t", "m"], ["y"])]
    types = dict.fromkeys("nm", TensorProto.INT64)
    proto = make_model(nodes, {"x": (1, 3), "n": (2,), "m": (3,)}, ["y"], dtypes=types)
    mod, params = relay.frontend.from_onnx(proto)
    library = relay.build(mod, "llvm", params=params)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for counts, wanted in (((4, 2), (2, 1, 6)), ((1, 1), (1, 5, 1)), ((1, 1), (2, 0, 3))):
        data = DATA[0, :1, :3]
        executor.run(x=data, n=integers(*counts), m=integers(*wanted))
        tiled = np.tile(data, counts)
        expected = np.broadcast_to(tiled, np.broadcast_shapes(tiled.shape, wanted))
        np.testing.assert_array_equal(executor.get_output(0).numpy(), expected)


@pytest.mark.parametrize("columns", [0, 3, 6])
def test_columns_that_do_not_fill_the_image_are_an_error(columns):
    """5x5 images have five windows of 1x5; other numbers read beyond the columns before."""
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 20, columns)),
        helper.make_tensor_value_info("image", TensorProto.INT64, (2,)),
        helper.make_tensor_value_info("block", TensorProto.INT64, (2,)),
    ]
    node = helper.make_node("Col2Im", ["x", "image", "block"], ["y"])
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    mod, params = relay.frontend.from_onnx(proto)
    session = relay.build(mod, "llvm", params=params).session()
    feeds = {"image": np.array([5, 5]), "block": np.array([1, 5])}
    with pytest.raises(InputError, match="do not agree"):
        session.run({"x": np.ones((1, 20, columns), "float32"), **feeds})
