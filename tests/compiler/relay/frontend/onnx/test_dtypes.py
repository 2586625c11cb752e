"""Dtypes that are rare, and tensors without elements, give what onnxruntime or ONNX's text says."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper

from compiler import errors, relay
from compiler.relay.frontend import from_onnx
from compiler.runtime import graph_executor

NODE = helper.make_node


def built(proto, feeds):
    """Outputs of `relay.build`."""
    module = graph_executor.GraphModule(
        relay.build(from_onnx(proto)[0], "llvm")["default"](tvm.cpu())
    )
    module.run(**feeds)
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_of_halves_are_halves(mode, model, run):
    node = NODE("RoiAlign", ["x", "r", "i"], ["y"], mode=mode, output_height=1, output_width=2)
    half = TensorProto.FLOAT16
    weights = {"r": np.array([[0, 0, 2, 2]], "float16"), "i": np.array([0])}
    proto = model([node], {"x": (1, 1, 3, 3)}, ["y"], weights, dtypes={"x": half, "y": half})
    x = np.arange(9, dtype="float16").reshape(1, 1, 3, 3)
    (result,) = run(*from_onnx(proto), {"x": x})
    single = model([node], {"x": (1, 1, 3, 3)}, ["y"], {**weights, "r": np.float32(weights["r"])})
    (expected,) = run(*from_onnx(single), {"x": x.astype("float32")})
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, expected, rtol=1e-3)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32"])
def test_shrinking_rounds_once(dtype, model, agrees):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = NODE("Shrink", ["x"], ["y"], bias=0.25, lambd=0.9)
    proto = model([node], {"x": (4,)}, ["y"], dtypes=dict.fromkeys("xy", kind))
    agrees(proto, {"x": np.array([0, 1, 2, 9], dtype)})
    if dtype == "int32":
        agrees(proto, {"x": np.array([-1, -2, -9, 5], dtype)})


@pytest.mark.parametrize(
    "values", [[0.5, -1.5, 1.5, -0.5], [2.0, 5.0], [-3.0, -0.1], [0.0, 0.0], []]
)
def test_tensors_are_quantized_to_their_own_range(values, runs_as_onnxruntime):
    text = f"""<ir_version: 10, opset_import: ["": 13]>
    test (float[{len(values)}] x) => (uint8[{len(values)}] y, float s, uint8 z) {{
        y, s, z = DynamicQuantizeLinear(x)
    }}"""
    runs_as_onnxruntime(text, {}, {"x": np.array(values, "float32")})


def test_the_mean_of_no_integers_is_a_number(model):
    dtypes = dict.fromkeys("xy", TensorProto.INT64)
    node = NODE("ReduceMean", ["x"], ["y"], axes=[1])
    (result,) = built(
        model([node], {"x": (2, 0)}, ["y"], dtypes=dtypes), {"x": np.zeros((2, 0), int)}
    )
    assert result.tolist() == [[0], [0]]


@pytest.mark.parametrize(
    ("operator", "neutral"),
    [("ReduceProd", 1.0), ("ReduceMin", np.inf), ("ReduceMax", -np.inf), ("ReduceSum", 0.0)],
)
def test_reductions_of_as_many_elements_as_running_tells_start_with_none(operator, neutral, model):
    nodes = [NODE("Unique", ["x"], ["u"]), NODE(operator, ["u"], ["y"], keepdims=0)]
    proto = model(nodes, {"x": (0,)}, ["y"], opset=12)
    (result,) = built(proto, {"x": np.zeros(0, "float32")})
    assert float(result) == neutral


def test_integers_resized_to_nothing_are_none(model):
    dtypes = dict.fromkeys("xy", TensorProto.UINT64)
    node = NODE("Resize", ["x", "", "f"], ["y"], mode="nearest")
    weights = {"f": np.array([1, 1, 0.5, 0.5], "float32")}
    proto = model([node], {"x": (1, 1, 1, 1)}, ["y"], weights, dtypes=dtypes)
    (result,) = built(proto, {"x": np.ones((1, 1, 1, 1), "uint64")})
    assert result.shape == (1, 1, 0, 0)


@pytest.mark.parametrize(("operator", "expected"), [("ArgMax", 3), ("ArgMin", 1)])
def test_the_order_of_integers_without_sign_has_their_64_bits(operator, expected, model):
    x = np.array([2**63, 5, 2**63 - 1, 2**64 - 1], "uint64")
    dtypes = {"x": TensorProto.UINT64, "y": TensorProto.INT64}
    proto = model([NODE(operator, ["x"], ["y"], keepdims=0)], {"x": (4,)}, ["y"], dtypes=dtypes)
    (result,) = built(proto, {"x": x})
    assert int(result[()]) == expected


@pytest.mark.parametrize(("operator", "apart"), [("ScatterElements", 3), ("ScatterND", (3, 1))])
@pytest.mark.parametrize(("reduction", "expected"), [("add", [1, 0, 1]), ("mul", [1, 0, 0])])
def test_bits_are_scattered_by_or_and_and(reduction, expected, operator, apart, model):
    node = NODE(operator, ["x", "i", "u"], ["y"], reduction=reduction)
    weights = {"i": np.array([2, 2, 0]).reshape(apart), "u": np.array([True, False, True])}
    dtypes = dict.fromkeys("xy", TensorProto.BOOL)
    proto = model([node], {"x": (3,)}, ["y"], weights, opset=16, dtypes=dtypes)
    x = np.array([True, False, True])
    (result,) = built(proto, {"x": x})
    assert result.tolist() == [bool(bit) for bit in expected]


@pytest.mark.parametrize(("image", "grid"), [("float16", "float64"), ("float32", "float16")])
def test_samples_have_the_dtype_of_their_image(image, grid, model, run, rng):
    kinds = {name: helper.np_dtype_to_tensor_dtype(np.dtype(d)) for name, d in
             (("x", image), ("g", grid), ("y", image))}  # fmt: skip
    node = NODE("GridSample", ["x", "g"], ["y"])
    x = rng.normal(size=(1, 1, 3, 3)).astype(image)
    g = rng.uniform(-1, 1, (1, 2, 2, 2)).astype(grid)
    shapes = {"x": x.shape, "g": g.shape}
    (result,) = run(*from_onnx(model([node], shapes, ["y"], dtypes=kinds)), {"x": x, "g": g})
    feeds = {"x": x.astype("float32"), "g": g.astype("float32")}
    (expected,) = run(*from_onnx(model([node], shapes, ["y"])), feeds)
    assert result.dtype == image
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(-6, 2, -1), (3, 1, -1), (1, 3, -1), (9, -9, -2), (-1, -9, -3), (2, -1, -1), (-4, -9, -1)],
)
def test_slices_backwards_agree(start, end, step, runs_as_onnxruntime):
    bounds = {"s": start, "e": end, "a": 1, "t": step}
    weights = {name: np.array([value]) for name, value in bounds.items()}
    text = """<ir_version: 10, opset_import: ["": 17]> test (float[2,5] x) => (float[m,n] y)
    <int64[1] s, int64[1] e, int64[1] a, int64[1] t> { y = Slice(x, s, e, a, t) }"""
    runs_as_onnxruntime(text, weights, {"x": np.arange(10, dtype="float32").reshape(2, 5)})


def test_a_slice_from_behind_the_axis_is_empty(runs_as_onnxruntime):
    text = """<ir_version: 10, opset_import: ["": 17]> test (float[2,5] x) => (float[m,n] y)
    <int64[1] s, int64[1] e, int64[1] a>
    { z = Slice(x, s, e, a) y = CumSum <reverse: int = 1>(z, a) }"""
    weights = {"s": np.array([6]), "e": np.array([-6]), "a": np.array([1])}
    runs_as_onnxruntime(text, weights, {"x": np.ones((2, 5), "float32")})


def test_integers_are_quantized_by_a_whole_scale_that_is_not_0(model):
    dtypes = {"x": TensorProto.INT32, "y": TensorProto.UINT8}
    node, zero = NODE("QuantizeLinear", ["x", "s", "z"], ["y"]), np.array(3, "uint8")

    def by(scale):
        weights = {"s": np.array(scale, "int32"), "z": zero}
        return model([node], {"x": (3,)}, ["y"], weights, opset=20, dtypes=dtypes)

    (result,) = built(by(2), {"x": np.array([5, -600, 1001], "int32")})
    assert result.tolist() == [5, 0, 255]
    with pytest.raises(errors.UnsupportedOperatorError, match="a scale is 0"):
        from_onnx(by(0))


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "uint64"])
def test_the_first_of_integers_of_every_width(dtype, largest, model):
    most = np.iinfo(dtype).max
    x = np.array([3, most // 2 + 1, 7, most, most // 2, 0], dtype)
    dtypes = dict.fromkeys("xy", helper.np_dtype_to_tensor_dtype(x.dtype))
    node = NODE("TopK", ["x", "k"], ["y", "z"], largest=largest)
    proto = model([node], {"x": x.shape}, ["y"], {"k": np.array([4])}, dtypes=dtypes)
    (values,) = built(proto, {"x": x})
    assert values.dtype == dtype
    assert values.tolist() == sorted(x.tolist(), reverse=bool(largest))[:4]


@pytest.mark.parametrize("operator", ["ReduceSumSquare", "ReduceSum", "ReduceProd", "CumSum"])
def test_sums_of_constants_keep_their_dtype(operator, model):
    weights = {"c": np.array([2, 3], "int32"), "a": np.array(0)}
    inputs = ["c", "a"] if operator == "CumSum" else ["c"]
    nodes = [NODE(operator, inputs, ["s"]), NODE("Add", ["x", "s"], ["y"])]
    dtypes = dict.fromkeys("xy", TensorProto.INT32)
    mod, _ = from_onnx(model(nodes, {"x": (2,)}, ["y"], weights, opset=13, dtypes=dtypes))
    assert str(mod["main"].ret_ty.dtype) == "int32"


def test_sums_along_an_axis_of_tensors_without_elements_are_empty(model):
    x = np.zeros((3, 0, 2), "float32")
    node = NODE("CumSum", ["x", "axis"], ["y"])
    (found,) = built(model([node], {"x": x.shape}, ["y"], {"axis": np.array(0)}), {"x": x})
    assert found.shape == x.shape


@pytest.mark.parametrize("operator", ["Celu", "Elu", "Selu"])
def test_halves_near_zero_keep_their_digits(operator, model):
    x = np.array([-(2.0**-14), -0.001], "float16")
    dtypes = dict.fromkeys("xy", TensorProto.FLOAT16)
    proto = model([NODE(operator, ["x"], ["y"])], {"x": x.shape}, ["y"], dtypes=dtypes)
    (found,) = built(proto, {"x": x})
    slope = 1.0507 * 1.67326 if operator == "Selu" else 1.0
    np.testing.assert_allclose(found, slope * np.expm1(x.astype("float64")), rtol=2e-3)


def test_integer_powers_cut_fractions_off(model):
    dtypes = {"x": TensorProto.INT32, "e": TensorProto.FLOAT, "y": TensorProto.INT32}
    x, e = np.array([5, 5, 7, 2], "int32"), np.array([2.5, 3.0, 2.0, 0.5], "float32")
    node = NODE("Pow", ["x", "e"], ["y"])
    proto = model([node], {"x": x.shape, "e": e.shape}, ["y"], dtypes=dtypes, opset=15)
    (found,) = built(proto, {"x": x, "e": e})
    assert found.tolist() == [55, 125, 49, 1]


@pytest.mark.parametrize("level", [0, 3])
def test_graphs_of_tensors_without_elements_are_built(level, runs_as_onnxruntime):
    text = """<ir_version: 10, opset_import: ["": 20]>
    test (float[3,1] x, int64[0,2] i, float[2,3,0] e, float[0] s, float[2,0] f, int64 k)
        => (float[0] a, float[2,3,0] b, float[0] c, float[2,0] d, float[2,3,0] t) {
        a = GatherND(x, i)
        b = Min(e, x)
        c, d = Scan<num_scan_inputs = 1, body = step (float[n] u, float[n] v)
            => (float[n] w, float[n] z) { w = Sub(u, v)
                                          z = Identity(w) }>(s, f)
        t = Trilu(e, k)
    }"""
    shapes = {"x": (3, 1), "e": (2, 3, 0), "s": (0,), "f": (2, 0)}
    feeds = {name: np.zeros(shape, "float32") for name, shape in shapes.items()}
    feeds |= {"i": np.zeros((0, 2), "int64"), "k": np.array(1)}
    runs_as_onnxruntime(text, {}, feeds, opt_level=level)


def test_the_mean_of_integers_is_cut_off_in_their_dtype(runs_as_onnxruntime):
    text = """<ir_version: 10, opset_import: ["": 13]>
    test (int32[3,3] x) => (int32[3] m, int32[3] s) <int64 axis = {0}>
        { m = ReduceMean<axes = [1], keepdims = 0>(x)
          s = CumSum(m, axis) }"""
    most = 2**31 - 1
    x = np.array([[1, 2, 2], [-1, -2, -2], [most - 2, 1, -7]], "int32")
    runs_as_onnxruntime(text, {}, {"x": x})


@pytest.mark.parametrize("upper", [0, 1])
def test_the_diagonal_may_be_known_only_at_run_time(upper, runs_as_onnxruntime, rng):
    text = f"""<ir_version: 10, opset_import: ["": 14]>
    test (float[2,3,4] x, int64 k) => (float[2,3,4] y) {{ y = Trilu<upper = {upper}>(x, k) }}"""
    x = rng.standard_normal((2, 3, 4)).astype("float32")
    runs_as_onnxruntime(text, {}, {"x": x, "k": np.array(-1)})


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_clips_end_at_the_largest_float_by_default(dtype, model):
    """Before opset 11; onnxruntime has no such Clip of doubles."""
    x = np.array([np.inf, -np.inf, 3], dtype)
    dtypes = dict.fromkeys("xy", helper.np_dtype_to_tensor_dtype(x.dtype))
    proto = model([NODE("Clip", ["x"], ["y"], max=2.0)], {"x": (3,)}, ["y"], opset=7, dtypes=dtypes)
    (found,) = built(proto, {"x": x})
    with np.errstate(over="ignore"):
        assert found.tolist() == [2, -np.finfo("float32").max.astype(dtype), 2]


@pytest.mark.parametrize("operator", ["Max", "Mean", "Min", "Sum"])
def test_functions_of_many_operands_agree(operator, runs_as_onnxruntime):
    text = f"""<ir_version: 10, opset_import: ["": 13]>
    test (float16[2,1] a, float16[3] b, float16 c) => (float16[2,3] y, float16[3] z)
        {{ y = {operator}(a, b, c)
           z = {operator}(b) }}"""
    feeds = {
        "a": np.array([[2048], [np.nan]], "float16"),
        "b": np.array([1, -3, 5], "float16"),
        "c": np.array(1, "float16"),
    }
    runs_as_onnxruntime(text, {}, feeds)


def test_powers_of_halves_have_their_whole_exponents(model):
    dtypes = {"x": TensorProto.FLOAT16, "e": TensorProto.INT32, "y": TensorProto.FLOAT16}
    x, e = np.array([-1.5, -1.0, 2.0], "float16"), np.array([2**31 - 1, 2049, 3], "int32")
    node = NODE("Pow", ["x", "e"], ["y"])
    proto = model([node], {"x": x.shape, "e": e.shape}, ["y"], dtypes=dtypes, opset=15)
    (found,) = built(proto, {"x": x, "e": e})
    assert found.tolist() == [-np.inf, -1, 8]


def test_bytes_that_are_constant_are_convolved(runs_as_onnxruntime):
    text = """<ir_version: 10, opset_import: ["": 13]>
    test (uint8[1] b) => (uint8[1,1,2,1] y)
        <uint8[1,4,2,1] x = {6, 2, 3, 4, 5, 1, 7, 8}, uint8[1,4,1,1] w = {4, 0, 2, 3},
         float one = {1.0}, uint8 zx = {2}, uint8 zw = {1}, uint8 zy = {0}>
        { c = QLinearConv(x, one, zx, w, one, zw, one, zy)
          y = Max(c, b) }"""
    runs_as_onnxruntime(text, {}, {"b": np.zeros(1, "uint8")})


def test_halves_are_quantized_by_scales_of_halves(runs_as_onnxruntime):
    text = """
<ir_version: 10, opset_import: ["" : 21]>
halves (float16[2,2,3] x) => (y) { y = QuantizeLinear <axis: int = 1> (x, s) }
"""
    x = np.linspace(-1, 40, 12).reshape(2, 2, 3).astype("float16")
    runs_as_onnxruntime(text, {"s": np.array([0.08295, 0.378], "float16")}, {"x": x})


def test_normalizations_of_halves_round_once(model):
    x = np.array([[-1.06640625, 2.0], [-1.0537109375, 2.0]], "float16")
    kinds = dict.fromkeys("xy", TensorProto.FLOAT16)
    node = NODE("MeanVarianceNormalization", ["x"], ["y"], axes=[0])
    for feeds, weights in (({"x": x}, {}), ({}, {"x": x})):
        shapes = {name: x.shape for name in feeds}
        (result,) = built(model([node], shapes, ["y"], weights, dtypes=kinds), feeds)
        np.testing.assert_array_equal(result, np.array([[-1, 0], [1, 0]], "float16"))


def test_constants_that_are_not_finite_become_integers(model):
    x = np.array(-2, "int64")
    node = NODE("ReduceLogSum", ["x"], ["y"])
    proto = model([node], {}, ["y"], {"x": x}, opset=8, dtypes={"y": TensorProto.INT64})
    (result,) = built(proto, {})
    assert (result.shape, result.dtype) == ((), np.int64)


@pytest.mark.parametrize("operator", ["Sigmoid", "Tanh", "Erf", "Gelu"])
def test_formulas_of_halves_are_computed_in_float32(operator, model):
    """Every half: e**x overflows from 11.1 on, and 1 + erf(x) has no digits below -2."""
    x = np.arange(2**16, dtype="uint16").view("float16")
    x = x[np.isfinite(x)]
    node = NODE(operator, ["x"], ["y"])
    half = TensorProto.FLOAT16
    proto = model([node], {"x": x.shape}, ["y"], {}, dtypes={"x": half, "y": half}, opset=20)
    (result,) = built(proto, {"x": x})
    single = model([node], {"x": x.shape}, ["y"], {}, opset=20)
    (expected,) = built(single, {"x": x.astype("float32")})
    wanted = expected.astype("float16")
    with np.errstate(over="ignore"):
        assert (np.abs(result - wanted) <= 4 * np.spacing(np.abs(wanted))).all()
