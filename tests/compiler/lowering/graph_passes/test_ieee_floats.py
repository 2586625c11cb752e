"""NaN, infinities, nothing at all and halves, through imported models at opt_level 0 and 3."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tvm
from onnx import helper, numpy_helper
from tvm import relax

from compiler import relay
from compiler.runtime import graph_executor

inf, nan = np.inf, np.nan
LEVELS = pytest.mark.parametrize("level", [0, 3])


def model_of(nodes, inputs, weights, opset=20):
    """A model with one output y0, y1, ... for each node."""
    made = [
        helper.make_node(operator, names, [f"y{index}"], **attributes)
        for index, (operator, names, attributes) in enumerate(nodes)
    ]
    graph = helper.make_graph(
        made,
        "test",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(node.output[0]) for node in made],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def outputs(nodes, inputs, weights, level, opset=20, target="llvm -mcpu=x86-64-v3"):
    """What the built model gives, output by output."""
    mod, params = relay.frontend.from_onnx(model_of(nodes, inputs, weights, opset))
    with tvm.transform.PassContext(opt_level=level):
        library = relay.build(mod, target, params=params)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(**inputs)
    return [module.get_output(index).numpy() for index in range(len(nodes))]


def check(nodes, inputs, weights, expected, level, **options):
    results = outputs(nodes, inputs, weights, level, **options)
    for (operator, names, attributes), result, wanted in zip(nodes, results, expected, strict=True):
        what = f"{operator}({', '.join(names)}) {attributes}"
        np.testing.assert_allclose(result, wanted, 1e-5, 1e-6, err_msg=what)


def hostile(rows=6, columns=21):
    """NaN in the first, a middle and the last place; rows of infinities, NaNs and zeros."""
    data = np.random.default_rng(1).standard_normal((rows, columns)).astype("float32")
    data[0, 0] = data[1, columns // 2] = data[2, -1] = nan
    data[0, 5] = inf
    data[1, 3] = -inf
    data[3], data[4], data[5] = -inf, nan, 0.0
    return data


@LEVELS
def test_no_elementwise_operator_makes_a_number_of_nan(level):
    x, y = hostile(), np.roll(hostile(), 2, axis=1)
    zero, one = np.float32(0), np.float32(1)
    weights = {"zero": zero, "one": one, "half": np.float32(0.5), "row": np.zeros(21, "float32")}
    with np.errstate(all="ignore"):
        cases = [
            (("Relu", ["x"], {}), np.maximum(x, 0)),
            (("Clip", ["x", "zero", "half"], {}), np.clip(x, 0, 0.5)),
            (("HardSigmoid", ["x"], {}), np.clip(0.2 * x + 0.5, 0, 1)),
            (("Sign", ["x"], {}), np.sign(x)),
            (("ThresholdedRelu", ["x"], {}), np.where(x > 1, x, 0)),
            (("Max", ["x", "y"], {}), np.maximum(x, y)),
            (("Min", ["x", "y"], {}), np.minimum(x, y)),
            (("Max", ["one", "x"], {}), np.maximum(x, 1)),
            (("Min", ["x", "one"], {}), np.minimum(x, 1)),
            (("Max", ["y", "x", "half"], {}), np.maximum(np.maximum(x, y), 0.5)),
            (("Mul", ["x", "zero"], {}), x * 0),
            (("Mul", ["row", "x"], {}), x * 0),
            (("Div", ["zero", "x"], {}), zero / x),
        ]
    nodes, expected = zip(*cases)
    check(nodes, {"x": x, "y": y}, weights, expected, level)


@LEVELS
def test_extremes_of_rows_keep_nan_and_infinities(level):
    x = hostile()
    weights = {"last": np.int64([1]), "first": np.int64([0])}
    nodes = [
        ("ReduceMax", ["x", "last"], {}),
        ("ReduceMin", ["x", "last"], {}),
        ("ReduceMax", ["x", "first"], {}),
        ("ReduceMin", ["x"], {"keepdims": 0}),
        ("Softmax", ["x"], {}),
    ]
    with np.errstate(all="ignore"):
        exponentials = np.exp(x - x.max(1, keepdims=True))
        softmax = exponentials / exponentials.sum(1, keepdims=True)
    expected = [
        x.max(1, keepdims=True),
        x.min(1, keepdims=True),
        x.max(0, keepdims=True),
        x.min(),
        softmax,
    ]
    check(nodes, {"x": x}, weights, expected, level)


def windows(x, size, stride, padding):
    """The largest of each window; NaN where it has one."""
    padded = np.pad(x, ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2), constant_values=-inf)
    view = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3))
    return view[:, :, ::stride, ::stride].max((4, 5))


@LEVELS
def test_pooling_and_fused_activations_keep_nan(level):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((1, 16, 9, 9)).astype("float32")
    x[0, 0, 0, 0] = x[0, 1, 4, 4] = x[0, 2, 8, 8] = nan
    x[0, 3], x[0, 4], x[0, 5, 4, 4] = -inf, inf, -inf
    w = rng.standard_normal((16, 16, 1, 1)).astype("float32")
    clean = np.where(np.isnan(x) | np.isinf(x), 1, x).astype("float32")
    clean[0, 0, 0, 0] = nan
    weights = {"w": w, "zero": np.float32(0), "six": np.float32(6)}
    product = np.einsum("oc,bchw->bohw", w[:, :, 0, 0].astype("float64"), clean)
    nodes = [
        ("MaxPool", ["x"], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("MaxPool", ["x"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("GlobalMaxPool", ["x"], {}),
        ("Conv", ["clean", "w"], {}),
        ("Relu", ["y3"], {}),
        ("Conv", ["clean", "w"], {}),
        ("Clip", ["y5", "zero", "six"], {}),
        ("MaxPool", ["y4"], {"kernel_shape": [3, 3], "strides": [2, 2]}),
    ]
    relu = np.maximum(product, 0)
    expected = [
        windows(x, 3, 2, 1),
        windows(x, 2, 2, 0),
        x.max((2, 3), keepdims=True),
        product,
        relu,
        product,
        np.clip(product, 0, 6),
        windows(relu, 3, 2, 0),
    ]
    check(nodes, {"x": x, "clean": clean}, weights, expected, level)


@LEVELS
def test_argmax_and_argmin_find_nan_and_always_an_index(level):
    x = hostile()
    lowest = np.full((2, 5), np.iinfo("int64").min)
    bytes_ = np.array([[0, 0, 0], [255, 255, 255]], "uint8")
    last = {"axis": 1, "select_last_index": 1}
    nodes = [
        ("ArgMax", ["x"], {"axis": 1}),
        ("ArgMin", ["x"], {"axis": 1}),
        ("ArgMax", ["x"], last),
        ("ArgMin", ["x"], last),
        ("ArgMax", ["x"], {"axis": 0}),
        ("ArgMax", ["lowest"], {"axis": 1}),
        ("ArgMax", ["bytes"], last),
        ("ArgMin", ["bytes"], {"axis": 1}),
    ]
    backwards = x[:, ::-1]
    expected = [
        x.argmax(1)[:, None],
        x.argmin(1)[:, None],
        20 - backwards.argmax(1)[:, None],
        20 - backwards.argmin(1)[:, None],
        x.argmax(0)[None],
        [[0], [0]],
        [[2], [2]],
        [[0], [0]],
    ]
    check(nodes, {"x": x, "lowest": lowest, "bytes": bytes_}, {}, expected, level)


@LEVELS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_sorts_behind_infinity(dtype, level):
    x = hostile().astype(dtype)
    x[5, 3] = -0.0
    nodes = [
        helper.make_node("TopK", ["x", "k"], ["v0", "i0"]),
        helper.make_node("TopK", ["x", "k"], ["v1", "i1"], largest=0),
    ]
    model = model_of([], {"x": x}, {"k": np.int64([21])})
    model.graph.node.extend(nodes)
    names = ["v0", "i0", "v1", "i1"]
    model.graph.output.extend(map(helper.make_empty_tensor_value_info, names))
    mod, params = relay.frontend.from_onnx(model)
    with tvm.transform.PassContext(opt_level=level):
        library = relay.build(mod, "llvm", params=params)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=x)
    v0, i0, v1, i1 = (module.get_output(index).numpy() for index in range(4))
    rising = np.argsort(x, 1, kind="stable")
    falling = 20 - np.argsort(x[:, ::-1], 1, kind="stable")[:, ::-1]
    np.testing.assert_array_equal(i1, rising)
    np.testing.assert_array_equal(v1, np.take_along_axis(x, rising, 1))
    np.testing.assert_array_equal(i0, falling)
    np.testing.assert_array_equal(v0, np.take_along_axis(x, falling, 1))


@LEVELS
def test_reductions_of_nothing_give_their_neutral_elements(level):
    empty, whole = np.zeros((2, 0, 3), "float32"), np.zeros((2, 0, 3), "int32")
    neutral = {
        "ReduceMax": -inf,
        "ReduceMin": inf,
        "ReduceSum": 0,
        "ReduceProd": 1,
        "ReduceMean": nan,
        "ReduceL1": 0,
        "ReduceLogSum": -inf,
    }
    nodes = [(name, ["e", "axis"], {}) for name in neutral]
    nodes += [("ReduceMax", ["i", "axis"], {}), ("ReduceMin", ["i", "axis"], {})]
    numbers = [*neutral.values(), np.iinfo("int32").min, np.iinfo("int32").max]
    expected = [np.full((2, 1, 3), number) for number in numbers]
    check(nodes, {"e": empty, "i": whole}, {"axis": np.int64([1])}, expected, level)


@LEVELS
def test_remainders_are_exact_and_smaller_than_their_divisors(level):
    a = np.float32([1e30, 5, -5, 1e8, 7, inf, 3, nan, -7.5, 0, 16777217, -1e20])
    b = np.float32([3, inf, 3, 0.3, 0, 3, nan, 3, 2, 5, 7, 0.7])
    with np.errstate(all="ignore"):
        expected = [np.fmod(a, b)]
    check([("Mod", ["a", "b"], {"fmod": 1})], {"a": a, "b": b}, {}, expected, level)


@LEVELS
def test_nan_is_unequal_to_everything(level):
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    y = relax.Var("y", relax.TensorType((4,), "float32"))
    function = relay.Function([x, y], relay.cast(relay.not_equal(x, y), "int32"))
    with tvm.transform.PassContext(opt_level=level):
        library = relay.build(tvm.IRModule.from_expr(function), "llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    a, b = np.float32([nan, 1, nan, 2]), np.float32([nan, nan, 0, 2])
    module.run(x=a, y=b)
    np.testing.assert_array_equal(module.get_output(0).numpy(), a != b)


@LEVELS
def test_what_is_taken_from_itself_keeps_nan(level):
    x = relay.var("x", shape=(4,), dtype="float32")
    negative = relay.negative(x)
    function = relay.Function([x], relay.sigmoid(relay.subtract(negative, negative)))
    with tvm.transform.PassContext(opt_level=level):
        library = relay.build(tvm.IRModule.from_expr(function), "llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=np.float32([np.nan, np.inf, 1.5, -0.0]))
    np.testing.assert_array_equal(module.get_output(0).numpy(), [np.nan, np.nan, 0.5, 0.5])


def test_signs_of_unsigned_integers():
    values = np.array([0, 1, 7], "uint16")
    x = relay.var("x", shape=values.shape, dtype="uint16")
    module = tvm.IRModule.from_expr(relay.Function([x], relay.sign(x)))
    executor = graph_executor.GraphModule(relay.build(module, "llvm")["default"](tvm.cpu()))
    executor.run(x=values)
    np.testing.assert_array_equal(executor.get_output(0).numpy(), [0, 1, 1])


@functools.cache
def halves():
    rng = np.random.default_rng(3)

    def normal(*shape):
        return rng.standard_normal(shape).astype("float16")

    inputs = {
        "ones": np.ones(4096, "float16"),
        "a": np.abs(normal(4, 4096)),
        "big": np.full((2, 4096), 100, "float16"),
        "x": normal(1, 64, 8, 8),
    }
    weights = {
        "b": np.abs(normal(4096, 8)),
        "w": np.abs(normal(16, 64, 3, 3)),
        "scale": np.ones(64, "float16"),
        "whole": np.ones(4096, "float16"),
        "first": np.int64([0]),
        "last": np.int64([1]),
        "axis": np.int64(1),
    }
    nodes = [
        ("ReduceMean", ["ones", "first"], {}),
        ("ReduceSum", ["ones", "first"], {}),
        ("MatMul", ["a", "b"], {}),
        ("Relu", ["y2"], {}),
        ("ReduceL2", ["big", "last"], {}),
        ("Softmax", ["a"], {}),
        ("LogSoftmax", ["a"], {}),
        ("LayerNormalization", ["a", "whole"], {}),
        ("InstanceNormalization", ["x", "scale", "scale"], {}),
        ("CumSum", ["a", "axis"], {}),
        ("AveragePool", ["x"], {"kernel_shape": [7, 7]}),
        ("GlobalAveragePool", ["x"], {}),
        ("Conv", ["x", "w"], {"pads": [1, 1, 1, 1]}),
        ("Einsum", ["a", "b"], {"equation": "ij,jk->ik"}),
    ]
    return nodes, inputs, weights


@LEVELS
def test_sums_of_float16_are_as_good_as_one_rounding(level):
    import onnxruntime

    nodes, inputs, weights = halves()
    wide = [
        {
            name: array.astype("float32") if array.dtype == "float16" else array
            for name, array in group.items()
        }
        for group in (inputs, weights)
    ]
    session = onnxruntime.InferenceSession(model_of(nodes, *wide).SerializeToString())
    expected = session.run(None, wide[0])
    results = outputs(nodes, inputs, weights, level)
    for (operator, *_), result, wanted in zip(nodes, results, expected, strict=True):
        assert result.dtype == "float16", operator
        error = np.abs(result - wanted).max() / np.abs(wanted).max()
        assert error <= 2**-10, (operator, error)


@LEVELS
def test_sums_of_bfloat16_are_as_good_as_one_rounding(level):
    import ml_dtypes

    x = relax.Var("x", relax.TensorType((2, 4096), "bfloat16"))
    w = relax.Var("w", relax.TensorType((4096, 8), "bfloat16"))
    op = relax.op
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            sums = [op.mean(x, [1]), op.matmul(x, w), op.nn.softmax(x, 1), op.cumsum(x, 1)]
            out = builder.emit_output(relax.Tuple([builder.emit(each) for each in sums]))
        builder.emit_func_output(out)
    with tvm.transform.PassContext(opt_level=level):
        library = relay.build(builder.get(), "llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    rng = np.random.default_rng(4)
    a, b = (
        np.abs(rng.standard_normal(s)).astype(ml_dtypes.bfloat16) for s in ((2, 4096), (4096, 8))
    )
    module.run(x=tvm.runtime.tensor(a), w=tvm.runtime.tensor(b))
    a, b = a.astype("float64"), b.astype("float64")
    exponentials = np.exp(a)
    softmax = exponentials / exponentials.sum(1, keepdims=True)
    for index, wanted in enumerate([a.mean(1), a @ b, softmax, np.cumsum(a, 1)]):
        result = module.get_output(index).numpy().astype("float64")
        assert np.abs(result - wanted).max() <= 2**-8 * np.abs(wanted).max(), index


def test_a_plain_relu_is_one_instruction_of_the_cpu():
    from tvm.script import tirx as T

    from compiler.lowering.kernel_passes import propagate_nan

    @T.prim_func
    def relu(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in T.vectorized(8):
            y[i] = T.max(x[i], T.float32(0))

    mod = tvm.IRModule({"main": relu})
    body = propagate_nan.propagate_nan()(mod)["main"].body
    assert "T.max(T.float32(0.0), " in str(body)


@LEVELS
def test_what_is_not_less_may_be_unordered(level):
    a, b = np.array([1, 2, nan, 1, nan], "float32"), np.array([2, 1, 1, nan, nan], "float32")
    operands = [relay.var(name, shape=(5,)) for name in "ab"]
    function = relay.Function(operands, relay.logical_not(relay.less(*operands)))
    with tvm.transform.PassContext(opt_level=level):
        library = relay.build(tvm.IRModule.from_expr(function), "llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(a=a, b=b)
    assert module.get_output(0).numpy().tolist() == (~(a < b)).tolist()


@LEVELS
def test_booleans_are_ordered(level):
    a, b = np.array([0, 0, 1, 1], bool), np.array([[0, 1, 0, 1], [1, 0, 1, 0]], bool)
    functions = {
        "equal": np.equal,
        "not_equal": np.not_equal,
        "less": np.less,
        "less_equal": np.less_equal,
        "greater": np.greater,
        "greater_equal": np.greater_equal,
        "maximum": np.logical_or,
        "minimum": np.logical_and,
    }
    x, y = (relay.var(name, shape=v.shape, dtype="bool") for name, v in (("a", a), ("b", b)))
    results = relay.Tuple([getattr(relay, name)(x, y) for name in functions])
    with tvm.transform.PassContext(opt_level=level):
        library = relay.build(tvm.IRModule.from_expr(relay.Function([x, y], results)), "llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(a=a, b=b)
    for index, (name, function) in enumerate(functions.items()):
        np.testing.assert_array_equal(module.get_output(index).numpy(), function(a, b), name)


@LEVELS
def test_a_division_by_the_constant_zero_is_infinite(level):
    x = np.array([1, -1, 0, nan], "float32")
    nodes = [("Div", ["x", "zero"], {}), ("Div", ["zero", "x"], {})]
    expected = [[inf, -inf, nan, nan], [0, 0, nan, nan]]
    check(nodes, {"x": x}, {"zero": np.float32(0)}, expected, level)


@LEVELS
def test_what_is_selected_of_float16_between_sums_is_not_rounded(level):
    rng = np.random.default_rng(5)
    scores = rng.uniform(0, 8, (16, 64)).astype("float16")
    values = rng.uniform(0, 1, (64, 32)).astype("float16")
    keep = rng.uniform(size=(16, 64)) < 0.9
    x, v = (relay.var(n, shape=a.shape, dtype="float16") for n, a in (("x", scores), ("v", values)))
    k = relay.var("k", shape=keep.shape, dtype="bool")
    chosen = relay.where(k, relay.nn.softmax(x), relay.const(np.float16(0)))
    mod = tvm.IRModule.from_expr(relay.Function([x, v, k], relay.nn.matmul(chosen, v)))
    with tvm.transform.PassContext(opt_level=level):
        result = relay.create_executor("graph", mod, target="llvm").evaluate()(scores, values, keep)
    exponentials = np.exp(scores.astype("float64"))
    softmax = exponentials / exponentials.sum(1, keepdims=True)
    wanted = np.where(keep, softmax, 0) @ values.astype("float64")
    error = np.abs(result.numpy() - wanted)
    assert (error <= 0.501 * np.spacing(wanted.astype("float16"))).all()


@LEVELS
def test_what_is_computed_twice_is_no_less_nan(level):
    """TVM takes x == x for true and cancels (x + y) - y, for floats too."""
    x, y = np.array([0, 1, inf, nan], "float32"), np.array([0, inf, 1, 2], "float32")
    made = [("Div", ["x", "y"]), ("Add", ["x", "y"]), ("Relu", ["x"]), ("Relu", ["x"])]
    read = [
        ("Equal", ["y0", "y0"]),
        ("Sub", ["y1", "y"]),
        ("Sub", ["x", "y1"]),
        ("Sub", ["y2", "y3"]),
        ("Equal", ["y2", "y3"]),
    ]
    with np.errstate(all="ignore"):
        ratio, total, rectified = x / y, x + y, np.maximum(x, 0)
        expected = [ratio, total, rectified, rectified, ratio == ratio]
        expected += [total - y, x - total, rectified - rectified, rectified == rectified]
    check([(*node, {}) for node in made + read], {"x": x, "y": y}, {}, expected, level)


@pytest.mark.parametrize("form", ["loaded", "added"])
def test_bfloat16_in_values_of_variables_are_computed_in_float32(form):
    """The sigmoid's exponential is a chain of variables, whose values TVM's pass leaves alone."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    whole = "cast(%0, dtype='bfloat16')" if form == "loaded" else "add(%x, %x)"
    text = (
        "def @main(%x: Tensor[(1, 16), bfloat16]) { %0 = cast(%x, dtype='float32'); "
        f"%1 = {whole}; %2 = split(%1, indices_or_sections=4, axis=1); "
        "%3 = %2.0; sigmoid(%3) }"
    ).replace("'", '"')
    mod = relay.fromtext('#[version = "0.0.5"]\n' + text)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, "llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    data = np.linspace(-2, 2, 16).astype(ml_dtypes.bfloat16).reshape(1, 16)
    module.run(x=data)
    wide = data.astype("float32")[:, :4]
    expected = 1 / (1 + np.exp(-(wide if form == "loaded" else 2 * wide)))
    found = module.get_output(0).numpy().astype("float32")
    np.testing.assert_allclose(found, expected, rtol=1e-2)
