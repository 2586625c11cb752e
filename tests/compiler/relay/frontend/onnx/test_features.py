"""Operators of signals, features, columns and bits against onnxruntime and numpy."""

import numpy as np
import onnx.reference
import pytest
import tvm
from onnx import TensorProto, helper

from compiler import errors, relay
from compiler.relay.frontend import from_onnx
from compiler.runtime import graph_executor

NODE = helper.make_node
ML = "ai.onnx.ml"


def built(proto, **feeds):
    """The outputs of an imported model that `relay.build` built."""
    mod, params = from_onnx(proto)
    module = graph_executor.GraphModule(
        relay.build(mod, "llvm", params=params)["default"](tvm.cpu())
    )
    module.run(**feeds)
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]


@pytest.mark.parametrize(
    ("image", "taps", "attributes"),
    [
        ((5, 6), (2, 3), {}),
        ((5, 7), (3, 2), {"pads": [1, 0, 0, 1], "strides": [2, 1], "dilations": [1, 2]}),
        ((3, 4, 5), (1, 2, 3), {"pads": [0, 1, 1, 0, 1, 0]}),
    ],
)
def test_columns_become_the_image_whose_windows_they_are(
    image, taps, attributes, model, agrees, rng
):
    rank = len(image)
    pads = attributes.get("pads", [0] * 2 * rank)
    steps = attributes.get("strides", [1] * rank)
    wide = attributes.get("dilations", [1] * rank)
    places = [
        (image[i] + pads[i] + pads[i + rank] - wide[i] * (taps[i] - 1) - 1) // steps[i] + 1
        for i in range(rank)
    ]
    shape = (2, 3 * int(np.prod(taps)), int(np.prod(places)))
    weights = {"i": np.array(image), "t": np.array(taps)}
    node = NODE("Col2Im", ["x", "i", "t"], ["y"], **attributes)
    proto = model([node], {"x": shape}, ["y"], weights, opset=18)
    agrees(proto, {"x": rng.standard_normal(shape).astype("float32")})


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("masked", [False, True])
def test_taps_of_a_convolution_are_moved_and_weighted(groups, masked, model, agrees, rng):
    shapes = {
        "x": (2, 4, 6, 7),
        "w": (6, 4 // groups, 3, 2),
        "o": (2, 2 * 2 * 6, 3, 7),
        "b": (6,),
        "m": (2, 2 * 6, 3, 7),
    }
    names = [*"xwob", *("m" if masked else "")]
    node = NODE(
        *("DeformConv", names, ["y"]),
        group=groups,
        offset_group=2,
        strides=[2, 1],
        pads=[1, 0, 0, 1],
        kernel_shape=[3, 2],
    )
    proto = model([node], {name: shapes[name] for name in names}, ["y"], opset=19)
    feeds = {name: 2 * rng.standard_normal(shapes[name]).astype("float32") for name in names}
    agrees(proto, feeds, tolerance=1e-4)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("shape", [(12,), (2, 6)])
def test_n_grams_of_a_pool_are_counted(mode, shape, model, agrees):
    node = NODE(
        *("TfIdfVectorizer", ["x"], ["y"]),
        mode=mode,
        min_gram_length=1,
        max_gram_length=2,
        max_skip_count=2,
        ngram_counts=[0, 3],
        ngram_indexes=[4, 1, 2, 3, 0],
        pool_int64s=[2, 3, 5, 2, 3, 3, 5],
        weights=[0.5, 1.5, 2.0, 3.0, 4.0],
    )
    proto = model([node], {"x": shape}, ["y"], dtypes={"x": TensorProto.INT64})
    agrees(proto, {"x": np.array([2, 3, 5, 2, 3, 3, 9, 2, 5, 3, 2, 2]).reshape(shape)})


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("axis", [-2, 1])
def test_a_cache_is_written_from_each_samples_place_on(mode, axis, model, rng):
    cache, update = np.zeros((2, 5, 5, 3), "float32"), [2, 5, 5, 3]
    update[axis] = 2
    part = rng.standard_normal(update).astype("float32")
    first = np.array([1, 4 if mode == "circular" else 3])
    node = NODE("TensorScatter", ["c", "u", "i"], ["y"], mode=mode, axis=axis)
    shapes = {"c": cache.shape, "u": part.shape, "i": (2,)}
    proto = model([node], shapes, ["y"], opset=24, dtypes={"i": TensorProto.INT64})
    expected = cache.copy()
    for sample in range(2):
        for step in range(2):
            to, of = [sample, *[slice(None)] * 3], [sample, *[slice(None)] * 3]
            to[axis], of[axis] = (first[sample] + step) % 5, step
            expected[tuple(to)] = part[tuple(of)]
    np.testing.assert_array_equal(built(proto, c=cache, u=part, i=first)[0], expected)


def complex_parts(values):
    return np.stack([values.real, values.imag], -1).astype("float32")


@pytest.mark.parametrize("length", [None, 4, 9])
@pytest.mark.parametrize("inverse", [0, 1])
def test_transforms_are_numpys(length, inverse, model, rng):
    x = rng.standard_normal((2, 6, 3, 2)).astype("float32")
    weights = {"a": np.array(1)} | ({} if length is None else {"n": np.array(length)})
    node = NODE("DFT", ["x", "n" if length else "", "a"], ["y"], inverse=inverse)
    proto = model([node], {"x": x.shape}, ["y"], weights, opset=20)
    function = np.fft.ifft if inverse else np.fft.fft
    expected = complex_parts(function(x[..., 0] + 1j * x[..., 1], length, axis=1))
    np.testing.assert_allclose(built(proto, x=x)[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("length", [6, 7])
def test_the_half_of_a_real_transform_gives_the_numbers_back(length, model, rng):
    x = rng.standard_normal((2, length, 1)).astype("float32")
    nodes = [
        NODE("DFT", ["x", "", "a"], ["h"], onesided=1),
        NODE("DFT", ["h", "n", "a"], ["y"], onesided=1, inverse=1),
    ]
    weights = {"a": np.array(1), "n": np.array(length)}
    half, back = built(model(nodes, {"x": x.shape}, ["h", "y"], weights, opset=20), x=x)
    expected = complex_parts(np.fft.rfft(x[..., 0]))
    np.testing.assert_allclose(half, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(back, x, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("windowed", [False, True])
def test_windows_of_a_signal_are_transformed(windowed, model, agrees, rng):
    weights = {"s": np.array(3), "w": np.hanning(8).astype("float32"), "l": np.array(8)}
    names = ["x", "s", "w", ""] if windowed else ["x", "s", "", "l"]
    proto = model([NODE("STFT", names, ["y"])], {"x": (2, 25, 1)}, ["y"], weights)
    agrees(proto, {"x": rng.standard_normal((2, 25, 1)).astype("float32")}, tolerance=1e-4)


def test_bits_are_read_as_another_type(model):
    node = NODE("BitCast", ["x"], ["y"], to=TensorProto.INT32)
    x = np.array([1.5, -0.0, np.nan, np.inf], "float32")
    proto = model([node], {"x": (4,)}, ["y"], opset=26, dtypes={"y": TensorProto.INT32})
    np.testing.assert_array_equal(built(proto, x=x)[0], x.view("int32"))


@pytest.mark.parametrize("largest", [0, 1])
def test_unsigned_numbers_of_64_bits_are_sorted(largest, model):
    node = NODE("TopK", ["x", "k"], ["y", "i"], largest=largest)
    types = {"x": TensorProto.UINT64, "y": TensorProto.UINT64, "i": TensorProto.INT64}
    weights = {"k": np.array([2])}
    x = np.array([3, 2**64 - 1, 2**63, 2**63 - 1, 0], "uint64")
    values, places = built(model([node], {"x": (5,)}, ["y", "i"], weights, dtypes=types), x=x)
    order = [1, 2] if largest else [4, 0]
    assert places.tolist() == order and values.tolist() == x[order].tolist()


@pytest.mark.parametrize("dtype", ["uint8", "int16"])
def test_a_scale_may_be_of_a_block_of_elements(dtype, model, rng):
    x = rng.uniform(0, 9, (3, 10)).astype("float32")
    scale = rng.uniform(0.1, 0.2, (3, 3)).astype("float32")
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        NODE("QuantizeLinear", ["x", "s"], ["q"], block_size=4, output_dtype=kind),
        NODE("DequantizeLinear", ["q", "s"], ["y"], block_size=4),
    ]
    shapes = {"x": x.shape, "s": scale.shape}
    proto = model(nodes, shapes, ["q", "y"], opset=21, dtypes={"q": kind})
    quantized, back = built(proto, x=x, s=scale)
    wide = np.repeat(scale, 4, axis=1)[:, :10]
    np.testing.assert_array_equal(quantized, np.rint(x / wide).astype(dtype))
    np.testing.assert_allclose(back, quantized * wide, rtol=1e-6)


def test_columns_and_thresholds_of_classical_models(model, agrees, rng):
    for node, shapes in (
        (NODE("ArrayFeatureExtractor", ["x", "i"], ["y"], domain="ai.onnx.ml"), {"i": (1, 2)}),
        (NODE("Binarizer", ["x"], ["y"], threshold=0.5, domain="ai.onnx.ml"), {}),
    ):
        inputs = {"x": (3, 4), **shapes}
        types, domains = {"i": TensorProto.INT64}, {"ai.onnx.ml": 1}
        proto = model([node], inputs, ["y"], domains=domains, dtypes=types)
        feeds = {"x": rng.standard_normal((3, 4)).astype("float32"), "i": np.array([[3, 1]])}
        agrees(proto, {name: feeds[name] for name in inputs})


@pytest.mark.parametrize("targets", [1, 4])
def test_a_regressor_sums_weighted_features(targets, model, agrees, rng):
    attributes = {
        "coefficients": rng.standard_normal(3 * targets).astype("float32").tolist(),
        "intercepts": rng.standard_normal(targets).astype("float32").tolist(),
    }
    node = NODE("LinearRegressor", ["x"], ["y"], "", None, ML, targets=targets, **attributes)
    proto = model([node], {"x": (5, 3)}, ["y"], domains={ML: 1})
    agrees(proto, {"x": rng.standard_normal((5, 3)).astype("float32")})
    node.attribute.append(helper.make_attribute("post_transform", "PROBIT"))
    with pytest.raises(errors.UnsupportedOperatorError, match="post_transform='PROBIT'"):
        from_onnx(model([node], {"x": (5, 3)}, ["y"], domains={ML: 1}))


def test_determinants_take_the_largest_pivots(model, agrees, rng):
    x = rng.standard_normal((2, 2, 4, 4)).astype("float32")
    x[0, 0, 0, 0], x[1, 1, 2] = 0, x[1, 1, 3]  # a first pivot of 0; a matrix that is singular
    agrees(model([NODE("Det", ["x"], ["y"])], {"x": x.shape}, ["y"], opset=22), {"x": x})


@pytest.mark.parametrize("aggregate", [0, 1])
@pytest.mark.parametrize("transform", [0, 1, 2])
def test_leaves_that_are_reached_are_summed(aggregate, transform, model, rng):
    tensor = onnx.numpy_helper.from_array
    node = NODE(  # x[0] <= 0 -> (x[1] in {1, 3} -> 0, 1), 2;  x[2] > 0.5 -> 3, 1
        *("TreeEnsemble", ["x"], ["y"]),
        domain="ai.onnx.ml",
        n_targets=2,
        aggregate_function=aggregate,
        post_transform=transform,
        tree_roots=[0, 2],
        nodes_featureids=[0, 1, 2],
        nodes_modes=tensor(np.array([0, 6, 3], "uint8")),
        nodes_splits=tensor(np.array([0, 0, 0.5], "float32")),
        membership_values=tensor(np.array([1, 3, np.nan], "float32")),
        nodes_truenodeids=[1, 0, 3],
        nodes_trueleafs=[0, 1, 1],
        nodes_falsenodeids=[2, 1, 1],
        nodes_falseleafs=[1, 1, 1],
        leaf_targetids=[0, 1, 1, 0],
        leaf_weights=tensor(np.array([1, 2, 4, 8], "float32")),
    )
    x = rng.standard_normal((8, 3)).astype("float32")
    x[:, 1], x[0, 0] = [0, 1, 2, 3, 1, 3, 1, 0], 0
    low, member, right = x[:, 0] <= 0, np.isin(x[:, 1], [1, 3]), x[:, 2] > 0.5
    total = np.stack(
        [1.0 * (low & member) + 8 * right, 2 * (low & ~member) + 4.0 * ~low + 2.0 * ~right], 1
    )
    total = total if aggregate else total / 2
    exponents = np.exp(total)  # onnxruntime has 1 and 2 the other way round than the specification
    expected = [total, exponents / exponents.sum(1, keepdims=True), exponents / (1 + exponents)]
    proto = model([node], {"x": x.shape}, ["y"], domains={"ai.onnx.ml": 5})
    np.testing.assert_allclose(built(proto, x=x)[0], expected[transform], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("updates", [0, 3])
@pytest.mark.parametrize(
    ("operator", "kept", "attributes"),
    [
        ("Adagrad", 1, {}),
        ("Adagrad", 1, {"decay_factor": 0.1, "epsilon": 0.01, "norm_coefficient": 0.2}),
        ("Adam", 2, {}),
        ("Adam", 2, {"alpha": 0.7, "beta": 0.8, "epsilon": 0.01, "norm_coefficient_post": 0.1}),
        ("Momentum", 1, {"mode": "standard"}),
        ("Momentum", 1, {"mode": "nesterov"}),
    ],
)
def test_a_step_of_an_optimizer(operator, kept, attributes, updates, model, rng):
    if operator == "Momentum":
        attributes |= {"alpha": 0.9, "beta": 0.8, "norm_coefficient": 0.1}
    shapes = {"r": (), "t": ()}
    for group in range(2 + kept):
        shapes |= {f"a{group}": (3,), f"b{group}": (2, 2)}
    outputs = [f"{name}{group}" for group in range(1 + kept) for name in "yz"]
    domain = "ai.onnx.preview.training"
    node = NODE(operator, list(shapes), outputs, domain=domain, **attributes)
    types = {"t": TensorProto.INT64}
    proto = model([node], shapes, outputs, domains={domain: 1}, dtypes=types)
    feeds = {name: rng.uniform(0.1, 1, shape).astype("float32") for name, shape in shapes.items()}
    feeds["t"] = np.array(updates)
    expected = onnx.reference.ReferenceEvaluator(proto).run(None, feeds)
    for got, wanted in zip(built(proto, **feeds), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_frames_that_a_signal_does_not_have_are_an_error(model):
    node = NODE("STFT", ["x", "s", "", "n"], ["y"])
    types = {"s": TensorProto.INT64, "n": TensorProto.INT64}
    proto = model([node], {"x": (1, "samples", 1), "s": (), "n": ()}, ["y"], dtypes=types)
    mod, params = from_onnx(proto)
    module = graph_executor.GraphModule(
        relay.build(mod, "llvm", params=params)["default"](tvm.cpu())
    )
    x = np.arange(9, dtype="float32").reshape(1, 9, 1)
    for samples, step, length in ((9, 2, 4), (8, 8, 8)):
        module.run(x=x[:, :samples], s=np.array(step), n=np.array(length))
        frames = range(0, samples - length + 1, step)
        expected = [np.fft.rfft(x[0, begin : begin + length, 0]) for begin in frames]
        got = module.get_output(0).numpy()
        np.testing.assert_allclose(got, complex_parts(np.array([expected])), atol=1e-4)
    for step, length in ((0, 4), (2, 0), (2, 10)):
        with pytest.raises(errors.InputError, match=r"signals: .* known at run time"):
            module.run(x=x, s=np.array(step), n=np.array(length))


@pytest.mark.parametrize("onesided", [0, 1])
def test_transforms_take_axis_and_length_of_run_time(onesided, model, rng):
    nodes = [
        NODE("DFT", ["x", "n", "a"], ["h"], onesided=onesided),
        NODE("DFT", ["h", "n", "a"], ["y"], onesided=onesided, inverse=1),
    ]
    types = {"n": TensorProto.INT64, "a": TensorProto.INT64}
    shapes = {"x": (2, "rows", 4, 1), "n": (), "a": ()}
    mod, params = from_onnx(model(nodes, shapes, ["h", "y"], opset=20, dtypes=types))
    module = graph_executor.GraphModule(
        relay.build(mod, "llvm", params=params)["default"](tvm.cpu())
    )
    function = np.fft.rfft if onesided else np.fft.fft
    x = rng.standard_normal((2, 5, 4, 1)).astype("float32")
    for axis, length in ((1, 5), (1, 8), (-2, 3)):
        module.run(x=x, n=np.array(length), a=np.array(axis))
        half, back = (module.get_output(i).numpy() for i in range(2))
        axis %= 4
        expected = complex_parts(function(x[..., 0], length, axis))
        np.testing.assert_allclose(half, expected, rtol=1e-4, atol=1e-5)
        given = np.take(x, range(min(length, x.shape[axis])), axis)
        np.testing.assert_allclose(
            np.take(back, range(given.shape[axis]), axis)[..., :1], given, atol=1e-5
        )
    with pytest.raises(errors.InputError, match="signals: an axis"):
        module.run(x=x, n=np.array(4), a=np.array(3))


def test_a_squeeze_without_axes_keeps_what_is_not_known_to_be_one(model):
    proto = model([NODE("Squeeze", ["x"], ["y"])], {"x": ("n", 1, 3)}, ["y"])
    mod, params = from_onnx(proto)
    module = graph_executor.GraphModule(
        relay.build(mod, "llvm", params=params)["default"](tvm.cpu())
    )
    x = np.arange(6, dtype="float32").reshape(2, 1, 3)
    module.run(x=x)
    np.testing.assert_array_equal(module.get_output(0).numpy(), x[:, 0])
    with pytest.raises(errors.InputError, match="squeeze: the node names no axes"):
        module.run(x=x[:1])


@pytest.mark.parametrize("axes", [np.array([1]), np.array(-2)])
def test_a_squeezed_axis_is_compared_with_one_at_run_time(axes, model):
    nodes = [NODE("Unsqueeze", ["x", "u"], ["t"]), NODE("Squeeze", ["t", "a"], ["y"])]
    weights = {"a": axes, "u": np.array(0)}
    proto = model(nodes, {"x": ("n", 3)}, ["y"], weights)
    mod, params = from_onnx(proto)
    module = graph_executor.GraphModule(
        relay.build(mod, "llvm", params=params)["default"](tvm.cpu())
    )
    x = np.arange(6, dtype="float32").reshape(2, 3)
    module.run(x=x[:1])
    np.testing.assert_array_equal(module.get_output(0).numpy(), x[:1])
    with pytest.raises(errors.InputError):
        module.run(x=x)
