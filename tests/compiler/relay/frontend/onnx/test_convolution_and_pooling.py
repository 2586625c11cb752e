"""Pooling with places, unpooling, regions, padding, and shapes that only running tells."""

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper, parser
from onnx.reference import ReferenceEvaluator

from compiler import errors, relay
from compiler.relay.frontend import from_onnx
from compiler.runtime import graph_executor

INT64 = TensorProto.INT64
NODE = helper.make_node
IMAGE = np.random.default_rng(0).normal(size=(2, 3, 6, 7)).astype("float32")


def one_node(model, op, feeds, opset, weights=None, outputs=("y",), dtypes=None, **attributes):
    """A model of one node; its operands are `feeds` and `weights` in alphabetical order."""
    weights = weights or {}
    node = NODE(op, sorted([*feeds, *weights]), outputs, **attributes)
    kinds = {name: helper.np_dtype_to_tensor_dtype(v.dtype) for name, v in feeds.items()}
    shapes = {name: value.shape for name, value in feeds.items()}
    return model([node], shapes, outputs, weights, opset=opset, dtypes=kinds | (dtypes or {}))


def built(proto, feeds):
    """The results of the model, built by Baton."""
    mod, params = from_onnx(proto)
    library = relay.build(mod, "llvm", params=params)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(**feeds)
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]


# ---------------------------------------------------------------- places of largest elements


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"storage_order": 1},
        {"pads": [1, 0, 1, 1], "strides": [2, 1]},
        {"strides": [2, 2], "ceil_mode": 1},
        {"dilations": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
    ],
)
def test_max_pooling_says_where_each_largest_element_was(options, model, agrees):
    feeds = {"x": IMAGE}
    proto = one_node(
        model, "MaxPool", feeds, 12, outputs=["y", "p"], dtypes={"p": INT64}, kernel_shape=[3, 3],
        **options,
    )  # fmt: skip
    agrees(proto, feeds)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("rank", [1, 3])
def test_places_along_one_axis_and_three(rank, order, model, agrees, rng):
    feeds = {"x": rng.normal(size=(2, 3, 4, 5, 6)[: rank + 2]).astype("float32")}
    kernel = {"kernel_shape": [2] * rank, "storage_order": order}
    names = {"outputs": ["y", "p"], "dtypes": {"p": INT64}}
    agrees(one_node(model, "MaxPool", feeds, 12, **names, **kernel), feeds)


def test_the_largest_element_is_the_first_nan_and_the_first_of_equal_ones(model):
    data = np.zeros((1, 1, 4, 4), "float32")
    data[0, 0, :2, 2:] = [[1, np.nan], [np.nan, 5]]
    data[0, 0, 2:, :2] = -np.inf
    names = {"outputs": ["y", "p"], "dtypes": {"p": INT64}}
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    proto = one_node(model, "MaxPool", {"x": data}, 12, **names, **window)
    largest, places = built(proto, {"x": data})
    np.testing.assert_array_equal(largest, [[[[0, np.nan], [-np.inf, 0]]]])
    np.testing.assert_array_equal(places, [[[[0, 3], [8, 10]]]])


@pytest.mark.parametrize("wanted", [None, (1, 1, 5, 7)])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 0, 1, 0]])
def test_unpooling_puts_elements_back_and_goes_on_with_zeros(wanted, pads, model, run, rng):
    feeds = {
        "a": rng.normal(size=(1, 1, 3, 3)).astype("float32"),
        "b": 2 * np.arange(9).reshape(1, 1, 3, 3),
    }
    weights = {} if wanted is None else {"c": np.array(wanted)}
    if wanted and not any(pads):
        weights["c"] = np.array([1, 1, 6, 8])
    windows = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": pads}
    proto = one_node(model, "MaxUnpool", feeds, 11, weights, **windows)
    (want,) = ReferenceEvaluator(proto).run(None, feeds)
    (got,) = run(*from_onnx(proto), feeds)
    np.testing.assert_array_equal(got, want)


def test_unpooling_refuses_shapes_that_are_too_small(model):
    feeds = {"a": np.ones((1, 1, 2, 2), "float32"), "b": np.arange(4).reshape(1, 1, 2, 2)}
    windows = {"kernel_shape": [2, 2], "strides": [2, 2]}
    late = {**feeds, "c": np.array([1, 1, 5, 5])}
    proto = one_node(model, "MaxUnpool", late, 11, **windows)
    (want,) = ReferenceEvaluator(proto).run(None, late)
    mod, params = from_onnx(proto)
    library = relay.build(mod, "llvm", params=params)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(**late)
    np.testing.assert_array_equal(executor.get_output(0).numpy(), want)
    with pytest.raises(errors.InputError, match="too small"):
        executor.run(**{**late, "c": np.array([1, 1, 3, 5])})
    with pytest.raises(errors.UnsupportedOperatorError, match="no room"):
        small = {"c": np.array([1, 1, 3, 5])}
        from_onnx(one_node(model, "MaxUnpool", feeds, 11, small, **windows))


# ---------------------------------------------------------------- regions


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("opset", [10, 16])
def test_regions_of_a_scaled_image(opset, ratio, mode, model, agrees):
    feeds = {
        "a": IMAGE,
        "b": np.array([[0, 0, 4, 4], [1, 1, 9, 5], [-3, 0.5, 3, 3.5]], "float32"),
        "c": np.array([0, 1, 0]),
    }
    size = {"output_height": 3, "output_width": 2, "spatial_scale": 0.7}
    agrees(
        one_node(model, "RoiAlign", feeds, opset, mode=mode, sampling_ratio=ratio, **size), feeds
    )


def test_a_region_of_no_extent_has_no_samples_and_one_of_no_image_is_an_error(model):
    feeds = {"a": IMAGE, "b": np.array([[2, 2, 2, 2]], "float32"), "c": np.array([1])}
    proto = one_node(model, "RoiAlign", feeds, 16, mode="max", output_height=2, output_width=2)
    assert not built(proto, feeds)[0].any()
    with pytest.raises(errors.IndexRangeError):
        built(proto, {**feeds, "c": np.array([2])})


# ---------------------------------------------------------------- padding


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_a_value_that_only_running_tells_is_what_pads(dtype, model, agrees):
    feeds = {"a": IMAGE[0, 0].astype(dtype), "c": np.array(3, dtype)}
    pads = {"b": np.array([1, -2, 0, 3])}
    proto = one_node(model, "Pad", feeds, 18, pads, dtypes={"y": helper.np_dtype_to_tensor_dtype(
        np.dtype(dtype))})  # fmt: skip
    agrees(proto, feeds)


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_modes_that_need_no_value_take_any(mode, model, agrees):
    feeds = {"a": IMAGE[0, 0], "c": np.array(3, "float32")}
    proto = one_node(model, "Pad", feeds, 19, {"b": np.array([1, 2, 0, 3])}, mode=mode)
    agrees(proto, feeds)


@pytest.mark.parametrize(("mode", "least"), [("edge", 1), ("reflect", 4), ("wrap", 1)])
def test_padding_needs_elements_to_repeat(mode, least):
    proto = parser.parse_model(f"""<ir_version: 9, opset_import: ["": 19]>
        padded (float[rows, n] x) => (float[rows, k] y) <int64[4] widths = {{0, 3, 0, 2}}>
        {{ y = Pad<mode = "{mode}">(x, widths) }}""")
    mod, params = from_onnx(proto)
    library = relay.build(mod, "llvm", params=params)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for extent in range(6):
        x = np.arange(2.0 * extent, dtype="float32").reshape(2, extent)
        if extent < least:
            with pytest.raises(errors.InputError, match=f"nn.pad needs at least {least} of n"):
                executor.run(x=x)
        else:
            executor.run(x=x)
            want = np.pad(x, [(0, 0), (3, 2)], mode)
            np.testing.assert_array_equal(executor.get_output(0).numpy(), want)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_negative_pads_cut_off_first(mode, model, agrees):
    feeds = {"a": IMAGE[0, 0]}
    proto = one_node(model, "Pad", feeds, 18, {"b": np.array([1, -2, -1, 2])}, mode=mode)
    agrees(proto, feeds)


@pytest.mark.parametrize(
    ("op", "weights", "feeds"),
    [
        ("Pad", {}, {"b": np.array([0, 1, 0, 1])}),
        ("Pad", {"b": np.array([0, 1]), "c": np.array(0, "float32")}, {"d": np.array([1])}),
        ("Split", {}, {"b": np.array([2, 4])}),
    ],
)
def test_operands_that_decide_a_shape_may_be_inputs(op, weights, feeds, model, agrees):
    feeds = {"a": IMAGE[0, 0], **feeds}
    outputs = ["y", "z"] if op == "Split" else ["y"]
    agrees(one_node(model, op, feeds, 18, weights, outputs), feeds)


# ---------------------------------------------------------------- shapes


def test_a_constant_fills_a_shape_that_only_running_tells(model):
    value = helper.make_tensor("value", TensorProto.INT64, [1], [7])
    feeds = {"s": np.array([2, 0, 3])}
    proto = one_node(model, "ConstantOfShape", feeds, 9, dtypes={"y": INT64}, value=value)
    assert built(proto, feeds)[0].shape == (2, 0, 3)
    (got,) = built(proto, {"s": np.array([1, 2, 1])})
    np.testing.assert_array_equal(got, np.full((1, 2, 1), 7))


@pytest.mark.parametrize(("values", "shape"), [([1.0, 2.0], [2]), ([1.0], [-2])])
def test_a_constant_of_shape_takes_one_value_and_extents_that_exist(values, shape, model):
    value = helper.make_tensor("value", TensorProto.FLOAT, [len(values)], values)
    weights = {"s": np.array(shape)}
    with pytest.raises(errors.UnsupportedOperatorError, match=r"elements|negative"):
        from_onnx(one_node(model, "ConstantOfShape", {}, 9, weights, value=value))


# ---------------------------------------------------------------- slopes and factors


@pytest.mark.parametrize("slope", [(), (1,), (7,), (3, 1, 1), (6, 7), (2, 3, 6, 7)])
def test_slopes_broadcast_to_the_operand(slope, model, agrees, rng):
    feeds = {"a": IMAGE, "b": rng.normal(size=slope).astype("float32")}
    agrees(one_node(model, "PRelu", feeds, 16), feeds)


@pytest.mark.parametrize("slope", [(3,), (1, 2, 3, 6, 7)])
def test_slopes_that_do_not_are_refused(slope, model):
    feeds = {"a": IMAGE, "b": np.ones(slope, "float32")}
    with pytest.raises(errors.UnsupportedOperatorError, match="does not broadcast"):
        from_onnx(one_node(model, "PRelu", feeds, 9))


def test_integers_are_not_multiplied_by_half_a_factor(model):
    feeds = {"a": np.ones((2, 3), "int32"), "b": np.ones((3, 2), "int32")}
    with pytest.raises(errors.UnsupportedOperatorError, match="alpha"):
        from_onnx(one_node(model, "Gemm", feeds, 13, dtypes={"y": TensorProto.INT32}, alpha=0.5))


# ---------------------------------------------------------------- attributes and dtypes


@pytest.mark.parametrize("mode", [None, "DCR", "CRD"])
def test_blocks_become_channels_in_either_order(mode, model, run):
    feeds = {"x": IMAGE[..., :6]}
    options = {"mode": mode} if mode else {}
    proto = one_node(model, "SpaceToDepth", feeds, 28 if mode else 13, blocksize=2, **options)
    blocks = feeds["x"].reshape(2, 3, 3, 2, 3, 2)
    order = (0, 1, 3, 5, 2, 4) if mode == "CRD" else (0, 3, 5, 1, 2, 4)
    (got,) = run(*from_onnx(proto), feeds)
    np.testing.assert_array_equal(got, blocks.transpose(order).reshape(2, 12, 3, 3))


def test_an_attribute_that_the_converter_does_not_read_must_have_its_default(model):
    protos = [
        one_node(
            model, "Cast", {"x": IMAGE}, 25, dtypes={"y": TensorProto.FLOAT16},
            to=TensorProto.FLOAT16, round_mode=mode,
        )
        for mode in ("up", "down")
    ]  # fmt: skip
    from_onnx(protos[0])
    with pytest.raises(errors.UnsupportedOperatorError, match="round_mode='down'"):
        from_onnx(protos[1])


@pytest.mark.parametrize("kind", ["INT4", "FLOAT4E2M1", "FLOAT8E4M3FN"])
def test_dtypes_that_tvm_does_not_convert_are_refused(kind, model):
    number = TensorProto.DataType.Value(kind)
    to = one_node(model, "Cast", {"x": IMAGE}, 25, dtypes={"y": number}, to=number)
    back = one_node(model, "Cast", {"x": IMAGE}, 25, dtypes={"x": number}, to=TensorProto.FLOAT)
    for proto in (to, back):
        with pytest.raises(errors.UnsupportedOperatorError, match="which is not supported"):
            from_onnx(proto)


def test_the_order_of_places_is_nothing_to_a_pooling_without_them(model, agrees):
    feeds = {"x": IMAGE}
    agrees(one_node(model, "MaxPool", feeds, 12, kernel_shape=[2, 2], storage_order=1), feeds)


def test_double_precision_is_no_narrow_dtype(model, agrees):
    feeds = {"x": IMAGE.astype("float64")}
    agrees(one_node(model, "Abs", feeds, 13, dtypes={"y": TensorProto.DOUBLE}), feeds)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_an_image_of_one_row_is_reflected(mode, runs_as_onnxruntime):
    text = f"""<ir_version: 10, opset_import: ["": 20]>
    test (float[1,1,1,3] x, float[1,1,3,2] g) => (float[1,1,1,3] y) {{
        y = GridSample<align_corners = 1, mode = "{mode}", padding_mode = "reflection">(x, g)
    }}"""
    grid = np.array([[[[-0.86, 0.3], [0.4, -1.7], [1.9, 1.2]]]], "float32")
    image = np.array([[[[1, 2, 4]]]], "float32")
    runs_as_onnxruntime(text, {}, {"x": image, "g": grid})


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize(
    "options",
    [
        {"strides": [3, 1]},
        {"strides": [4, 3], "pads": [0, 1, 2, 0]},
        {"strides": [2, 2], "dilations": [2, 1]},
        {"strides": [2, 4], "auto_pad": "VALID"},
    ],
)
def test_sums_of_windows_beyond_the_image_are_of_what_is_in_it(options, p, model, agrees):
    feeds = {"x": IMAGE}
    kernel = {"kernel_shape": [3, 2], "ceil_mode": 1}
    agrees(one_node(model, "LpPool", feeds, 18, p=p, **kernel, **options), feeds)


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_samples_of_images_agree(mode, padding, corners, runs_as_onnxruntime, rng):
    text = f"""<ir_version: 10, opset_import: ["": 20]>
    test (float[2,2,5,3] x, float[2,2,4,2] g) => (float[2,2,2,4] y) {{
        y = GridSample<align_corners = {corners}, mode = "{mode}", padding_mode = "{padding}">(x, g)
    }}"""
    grid = 1.7 * rng.normal(size=(2, 2, 4, 2))
    grid.flat[:4] = 1, -1, 0, 100
    image = rng.normal(size=(2, 2, 5, 3))
    runs_as_onnxruntime(text, {}, {"x": image.astype("float32"), "g": grid.astype("float32")})
