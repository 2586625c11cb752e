"""Forms of operators that are rare: they run as onnxruntime runs them, or are refused clearly."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper

from compiler import errors, relay
from compiler.relay.frontend import from_onnx
from compiler.runtime import graph_executor

NODE = helper.make_node
HUGE = np.array([2.27e38, 1.7e38, -2.27e38, 1.5, 0.0], "float32")


def refusal(proto):
    """What the import says; it may not hand on an error of somebody else."""
    with pytest.raises(errors.UnsupportedOperatorError) as caught:
        from_onnx(proto)
    assert caught.value.__cause__ is None
    return str(caught.value)


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("operator", ["BiasGelu", "FastGelu"])
def test_gelu_of_large_values_does_not_overflow(operator, level, runs_as_onnxruntime):
    text = f"""<ir_version: 10, opset_import: ["": 17, "com.microsoft": 1]>
    test (float[5] x) => (float[5] y) <float[5] b> {{ y = com.microsoft.{operator}(x, b) }}"""
    bias = np.array([0, 1e38, 0, 0, 1], "float32")
    runs_as_onnxruntime(text, {"b": bias}, {"x": HUGE}, level)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("operator", ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
def test_functions_of_sums_of_integers_agree(operator, keepdims, model, agrees):
    node = NODE(operator, ["x"], ["y"], axes=[1], keepdims=keepdims)
    dtypes = dict.fromkeys("xy", TensorProto.INT32)
    proto = model([node], {"x": (2, 3)}, ["y"], opset=13, dtypes=dtypes)
    agrees(proto, {"x": np.array([[3, 4, 12], [20, 0, 1]], "int32")})


@pytest.mark.parametrize("position", [-3, 2])
@pytest.mark.parametrize("operator", ["SequenceAt", "SequenceErase"])
def test_positions_outside_of_a_sequence_are_refused(operator, position, model):
    nodes = [
        NODE("SplitToSequence", ["x"], ["s"]),
        NODE(operator, ["s", "i"], ["t"]),
        NODE("Identity", ["t"], ["y"]),
    ]
    proto = model(nodes, {"x": (2, 3)}, ["y"], {"i": np.array(position)})
    assert f"position {position} is outside of 2 tensors" in refusal(proto)


@pytest.mark.parametrize("position", [0, 1, -1])
@pytest.mark.parametrize(
    ("split", "keepdims"), [(None, 0), (None, 1), (np.array(2), 1), (np.array([1, 2]), 1)]
)
def test_tensors_of_split_sequences_agree(split, keepdims, position, model, agrees, rng):
    names, weights = ["x"], {"i": np.array(position)}
    if split is not None:
        names, weights = ["x", "split"], {**weights, "split": split}
    nodes = [
        NODE("SplitToSequence", names, ["s"], axis=1, keepdims=keepdims),
        NODE("SequenceAt", ["s", "i"], ["y"]),
    ]
    proto = model(nodes, {"x": (2, 3)}, ["y"], weights)
    agrees(proto, {"x": rng.normal(size=(2, 3)).astype("float32")})


def test_an_axis_of_one_is_split_to_a_sequence_of_one(model, agrees, rng):
    nodes = [
        NODE("SplitToSequence", ["x"], ["s"], axis=1),
        NODE("SequenceInsert", ["s", "x"], ["t"]),
        NODE("ConcatFromSequence", ["t"], ["y"], axis=0),
    ]
    proto = model(nodes, {"x": (2, 1)}, ["y"])
    agrees(proto, {"x": rng.normal(size=(2, 1)).astype("float32")})


def test_a_sequence_at_a_position_of_run_time_is_refused(model):
    nodes = [NODE("SplitToSequence", ["x"], ["s"]), NODE("SequenceAt", ["s", "i"], ["y"])]
    proto = model(nodes, {"x": (2, 3), "i": ()}, ["y"], dtypes={"i": TensorProto.INT64})
    assert "the position (input 1) must be a constant" in refusal(proto)


@pytest.mark.parametrize("activation", ["Softsign", "HardSigmoid"])
@pytest.mark.parametrize("clip", [{}, {"clip": 1.5}])
def test_activations_of_recurrent_layers_agree(activation, clip, model, agrees, rng):
    node = NODE(
        "GRU", ["x", "w", "r"], ["y"], hidden_size=2, activations=[activation, "Tanh"], **clip
    )
    weights = {
        "w": rng.normal(size=(1, 6, 3)).astype("float32"),
        "r": rng.normal(size=(1, 6, 2)).astype("float32"),
    }
    proto = model([node], {"x": (2, 1, 3)}, ["y"], weights)
    agrees(proto, {"x": rng.normal(size=(2, 1, 3)).astype("float32")})


@pytest.mark.parametrize("slope", [(3,), (2, 3)])
def test_slopes_of_integers_multiply(slope, model, run):
    dtypes = dict.fromkeys("xy", TensorProto.INT32)
    weights = {"s": np.arange(2, 2 + np.prod(slope), dtype="int32").reshape(slope)}
    proto = model([NODE("PRelu", ["x", "s"], ["y"])], {"x": (2, 3)}, ["y"], weights, dtypes=dtypes)
    values = np.array([[-3, 4, 0], [5, -6, -7]], "int32")
    (result,) = run(*from_onnx(proto), {"x": values})
    np.testing.assert_array_equal(result, np.where(values < 0, values * weights["s"], values))
    assert result.dtype == np.int32


def test_the_error_function_of_integers_is_an_integer(model, run):
    dtypes = dict.fromkeys("xy", TensorProto.INT64)
    proto = model([NODE("Erf", ["x"], ["y"])], {"x": (5,)}, ["y"], dtypes=dtypes)
    (result,) = run(*from_onnx(proto), {"x": np.array([-9, -1, 0, 1, 9])})
    assert result.tolist() == [-1, 0, 0, 0, 1] and result.dtype == np.int64


@pytest.mark.parametrize(
    "inputs", [["x", "s", "g"], ["x", "s", "g", "b"], ["x", "s", "g", "", "c"]]
)
@pytest.mark.parametrize("outputs", [["y"], ["y", "", "", "t"]])
def test_skipped_layer_normalization_agrees_without_beta_and_bias(
    inputs, outputs, model, agrees, rng
):
    node = NODE("SkipLayerNormalization", inputs, outputs, domain="com.microsoft", epsilon=1e-3)
    drawn = {name: rng.normal(size=4).astype("float32") for name in "gbc" if name in inputs}
    named = [name for name in outputs if name]
    shapes = {"x": (2, 3, 4), "s": (2, 3, 4)}
    proto = model([node], shapes, named, drawn, domains={"com.microsoft": 1})
    agrees(proto, {name: rng.normal(size=(2, 3, 4)).astype("float32") for name in "xs"})


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_mean_variance_normalization_keeps_the_dtype(dtype, model, run, rng):
    dtypes = dict.fromkeys("xy", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    node = NODE("MeanVarianceNormalization", ["x"], ["y"], axes=[0, 2])
    data = rng.normal(size=(2, 3, 4)).astype(dtype)
    proto = model([node], {"x": data.shape}, ["y"], dtypes=dtypes)
    (result,) = run(*from_onnx(proto), {"x": data})
    wide = data.astype("float64")
    expected = wide - wide.mean((0, 2), keepdims=True)
    expected /= wide.std((0, 2), keepdims=True)
    assert result.dtype == data.dtype
    np.testing.assert_allclose(result, expected, atol=1e-2 if dtype == "float16" else 1e-7)


@pytest.mark.parametrize(
    ("operator", "what"),
    [("Reshape", "the number of extents (input 1)"), ("Squeeze", "the shape of input 1")],
)
def test_operands_whose_number_must_be_known_are_named(operator, what, model):
    """Their values may be computed while the model runs, but not how many there are."""
    nodes = [NODE("NonZero", ["x"], ["n"]), NODE("ReduceMax", ["n"], ["a"], axes=[0], keepdims=0)]
    nodes.append(NODE(operator, ["x", "a"], ["y"], name="it"))
    proto = model(nodes, {"x": (2, 3)}, ["y"])
    message = refusal(proto)
    assert "'it'" in message and what in message


@pytest.mark.parametrize(("shape", "dtype"), [(("n", 4), "float32"), ((3, "n", 2), "bool")])
def test_places_that_are_not_zero_are_found_without_python(shape, dtype, model):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    dtypes = {"x": kind, "y": TensorProto.INT64}
    proto = model([NODE("NonZero", ["x"], ["y"])], {"x": shape}, ["y"], dtypes=dtypes)
    library = relay.build(from_onnx(proto)[0], "llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    assert "relax.run." not in library.get_lib()["as_text"]()  # functions of TVM's Python
    for count in (5, 0):
        numbers = np.arange(60.0).reshape(-1, 4) % 7 - 3
        numbers[1, :3] = np.nan, -0.0, np.inf
        known = [count if extent == "n" else extent for extent in shape]
        value = np.resize(numbers, known).astype(dtype)
        module.run(x=value)
        np.testing.assert_array_equal(module.get_output(0).numpy(), np.stack(np.nonzero(value)))


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_numbers_with_a_step_of_run_time_agree_and_a_step_of_zero_is_an_error(dtype, model):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    proto = model(
        [NODE("Range", ["a", "b", "d"], ["y"])],
        {"a": (), "b": (), "d": ()},
        ["y"],
        dtypes=dict.fromkeys("abdy", kind),
    )
    library = relay.build(from_onnx(proto)[0], "llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for values in ((1, 8, 3), (9, 2, -3), (4, 2, 1)):
        module.run(**{name: np.array(value, dtype) for name, value in zip("abd", values)})
        result = module.get_output(0).numpy()
        assert result.dtype == dtype and result.tolist() == list(range(*values))
    with pytest.raises(errors.DivisionByZeroError, match="arange: the step is 0"):
        module.run(a=np.array(1, dtype), b=np.array(2, dtype), d=np.array(0, dtype))


def test_a_known_step_of_zero_is_refused(model):
    dtypes = dict.fromkeys("aby", TensorProto.INT64)
    node = NODE("Range", ["a", "b", "d"], ["y"], name="count")
    proto = model([node], {"a": (), "b": ()}, ["y"], {"d": np.array(0)}, dtypes=dtypes)
    message = refusal(proto)
    assert "'count'" in message and "the delta is 0" in message


@pytest.mark.parametrize("size", [1, 3, 5])
def test_local_response_normalization_agrees(size, model, agrees, rng):
    node = NODE("LRN", ["x"], ["y"], size=size, alpha=0.3, beta=0.6, bias=1.5)
    shape = (1, 4, 2, 3)
    agrees(model([node], {"x": shape}, ["y"]), {"x": rng.normal(size=shape).astype("float32")})


@pytest.mark.parametrize(("dtype", "size"), [("float16", 3), ("float64", 3), ("float64", 2)])
def test_local_response_normalization_keeps_the_dtype(dtype, size, model, run, rng):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = NODE("LRN", ["x"], ["y"], size=size, alpha=0.3)
    proto = model([node], {"x": (2, 4, 3)}, ["y"], dtypes=dict.fromkeys("xy", kind))
    data = rng.normal(size=(2, 4, 3)).astype(dtype)
    (result,) = run(*from_onnx(proto), {"x": data})
    squares = np.pad(data.astype("float64") ** 2, ((0, 0), ((size - 1) // 2, size // 2), (0, 0)))
    means = sum(squares[:, i : i + 4] for i in range(size)) / size
    assert result.dtype == data.dtype
    tolerance = 1e-2 if dtype == "float16" else 1e-6
    np.testing.assert_allclose(result, data / (1 + 0.3 * means) ** 0.75, rtol=tolerance)


def test_a_scan_of_tensors_without_elements_agrees(runs_as_onnxruntime):
    text = """<ir_version: 10, opset_import: ["": 17]>
    test (float[2,0] x) => (float[2,0] y) {
        y = Scan <num_scan_inputs: int = 1, body: graph =
            step (float[0] a) => (float[0] b) { b = Neg(a) }> (x)
    }"""
    runs_as_onnxruntime(text, {}, {"x": np.zeros((2, 0), "float32")})


def test_integers_are_quantized_as_floats(model, run):
    weights = {"s": np.array(0.5, "float32"), "z": np.array(3, "uint8")}
    dtypes = {"x": TensorProto.INT32, "y": TensorProto.UINT8}
    node = NODE("QuantizeLinear", ["x", "s", "z"], ["y"])
    proto = model([node], {"x": (4,)}, ["y"], weights, opset=18, dtypes=dtypes)
    (result,) = run(*from_onnx(proto), {"x": np.array([-7, 0, 9, 1000], "int32")})
    assert result.dtype == np.uint8 and result.tolist() == [0, 3, 21, 255]


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
def test_a_softmax_of_nothing_is_nothing(operator, opset, model, run):
    proto = model([NODE(operator, ["x"], ["y"], axis=1)], {"x": (2, 0, 3)}, ["y"], opset=opset)
    (result,) = run(*from_onnx(proto), {"x": np.zeros((2, 0, 3), "float32")})
    assert result.shape == (2, 0, 3) and result.dtype == np.float32


@pytest.mark.parametrize("axis", [0, 2, 3])
def test_an_empty_tensor_is_flattened(axis, runs_as_onnxruntime):
    text = f"""<ir_version: 10, opset_import: ["": 17]> test (float[2,0,4] x) => (float[a,b] y)
    {{ y = Flatten <axis: int = {axis}> (x) }}"""
    runs_as_onnxruntime(text, {}, {"x": np.zeros((2, 0, 4), "float32")})


@pytest.mark.parametrize("shape", [(0, 8, 2, 4), (2, 0, 2, 4), (2, 8, 0, 4), (2, 8, 2, 0)])
@pytest.mark.parametrize("operator", ["DepthToSpace", "SpaceToDepth"])
def test_blocks_of_an_empty_image_are_empty(operator, shape, runs_as_onnxruntime):
    extents = ",".join(map(str, shape))
    text = f"""<ir_version: 10, opset_import: ["": 17]>
    test (float[{extents}] x) => (float[a,b,c,d] y) {{ y = {operator} <blocksize: int = 2> (x) }}"""
    runs_as_onnxruntime(text, {}, {"x": np.zeros(shape, "float32")})


@pytest.mark.parametrize(
    ("equation", "left", "right"),
    [
        ("bij,kj->bik", (1, 2, 0), (3, 0)),
        ("bij,kj->bik", (0, 2, 4), (3, 4)),
        ("bij,kj->bik", (2, 3, 4), (0, 4)),
        ("ij,jk->ik", (0, 0), (0, 3)),
    ],
)
def test_an_einsum_over_an_empty_axis_is_zero(equation, left, right, model):
    node = NODE("Einsum", ["x", "w"], ["y"], equation=equation)
    feeds = {"x": np.ones(left, "float32"), "w": np.ones(right, "float32")}
    mod, params = from_onnx(model([node], {"x": left, "w": right}, ["y"]))
    result = relay.build(mod, "llvm", params=params).session(num_threads=1).run(feeds)["y"]
    np.testing.assert_array_equal(result, np.einsum(equation, *feeds.values()), strict=True)


def test_a_tensor_of_unknown_extents_takes_constant_ones_that_fit(model, run):
    nodes = [NODE("NonZero", ["x"], ["n"]), NODE("Expand", ["n", "e"], ["y"], name="wide")]
    dtypes = {"y": TensorProto.INT64}
    proto = model(nodes, {"x": (2, 3)}, ["y"], {"e": np.array([2, 5])}, dtypes=dtypes)
    for x in ([[1, 0, 1], [1, 1, 1]], [[0, 0, 0], [0, 0, 1]]):
        (result,) = run(*from_onnx(proto), {"x": np.array(x, "float32")})
        expected = np.broadcast_to(np.array(np.nonzero(x)), (2, 5))
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("weights_are_constant", [True, False])
@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
def test_convolutions_of_doubles_keep_their_digits(
    operator, weights_are_constant, level, model, rng
):
    node = NODE(operator, ["x", "w"], ["y"], strides=[2])
    weight, data = rng.normal(size=(1, 1, 1)), rng.normal(size=(1, 1, 3))
    shapes = {"x": data.shape} | ({} if weights_are_constant else {"w": weight.shape})
    weights = {"w": weight} if weights_are_constant else {}
    dtypes = dict.fromkeys("xwy", TensorProto.DOUBLE)
    mod, params = from_onnx(model([node], shapes, ["y"], weights, dtypes=dtypes))
    with tvm.transform.PassContext(opt_level=level):
        library = relay.build(mod, "llvm", params=params)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(**{name: array for name, array in (("x", data), ("w", weight)) if name in shapes})
    expected = np.zeros((1, 1, 5)) if operator == "ConvTranspose" else (data * weight)[..., ::2]
    if operator == "ConvTranspose":
        expected[..., ::2] = data * weight
    np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-14)


def test_grids_that_cannot_be_sampled_are_refused(model):
    dtypes = dict.fromkeys("xy", TensorProto.INT32)
    sampled = NODE("GridSample", ["x", "g"], ["y"])
    proto = model([sampled], {"x": (1, 1, 2, 2), "g": (1, 2, 2, 2)}, ["y"], dtypes=dtypes, opset=17)
    assert "samples between integers" in refusal(proto)
    grid = NODE("AffineGrid", ["t", "s"], ["y"], align_corners=1)
    proto = model([grid], {"t": (1, 2, 3)}, ["y"], {"s": np.array([1, 1, 1, 4])}, opset=20)
    assert "aligned corners of a grid of [1, 4] places" in refusal(proto)


def test_axes_of_a_scalar_may_come_at_run_time(runs_as_onnxruntime):
    text = """<ir_version: 10, opset_import: ["": 16]>
    test (float x, int64[2] a) => (float[1,1] y) { y = Unsqueeze(x, a) }"""
    runs_as_onnxruntime(text, {}, {"x": np.array(3, "float32"), "a": np.array([-1, 0])})


@pytest.mark.parametrize("rows", [0, 2])
def test_a_mean_of_operands_broadcasts(rows, model, agrees, rng):
    shapes = {"a": (rows, 3), "b": (), "c": (1, 3)}
    proto = model([NODE("Mean", [*shapes], ["y"])], shapes, ["y"])
    agrees(proto, {name: rng.normal(size=s).astype("float32") for name, s in shapes.items()})


def test_an_image_resized_to_nothing_is_empty(model):
    node = NODE(
        *("Resize", ["x", "", "", "s"], ["y"]),
        **{"mode": "linear", "keep_aspect_ratio_policy": "not_larger", "axes": [2, 3]},
    )
    proto = model([node], {"x": (1, 1, 9, 1)}, ["y"], {"s": np.array([4, 1])}, opset=18)
    mod, params = from_onnx(proto)  # TVM alone can't load a constant without elements
    session = relay.build(mod, "llvm", params=params).session(num_threads=1)
    result = session.run({"x": np.ones((1, 1, 9, 1), "float32")})["y"]
    assert result.shape == (1, 1, 4, 0) and result.dtype == np.float32


def test_places_of_a_grid_that_are_0_do_not_hide_what_is_not_finite(runs_as_onnxruntime):
    text = """<ir_version: 10, opset_import: ["": 23]> test (float[1,2,3] t) => (float[1,1,2,2] y)
    <int64[4] s = {1,1,1,2}> { y = AffineGrid(t, s) }"""
    theta = np.array([[[1, -np.inf, 2], [np.nan, 3, 4]]], "float32")
    runs_as_onnxruntime(text, {}, {"t": theta})
