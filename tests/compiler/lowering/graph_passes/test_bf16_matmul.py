"""Networks with products of bfloat16: imported, built, and compared with float32."""

from __future__ import annotations

import io
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from compiler import PassContext, precision, relay
from compiler.runtime import graph_executor
from compiler.runtime.cpu import missing_features
from compiler.runtime.disassembly import assembly
from compiler.target import cpu_features, parse
from schedules.x86.conv import depthwise, winograd

# A Zen 4 without what Intel's CPUs lack, which multiply pairs more slowly than floats.
WITH, WITHOUT = "llvm -mcpu=znver4 -mattr=-sse4a", "llvm -mcpu=x86-64-v3"
TILES = "llvm -mcpu=sapphirerapids"
CONV, DENSE = "conv2d_direct_bf16.x86", "dense_packed_bf16.x86"
can_run = pytest.mark.skipif(
    bool(missing_features(cpu_features(parse(WITH)))), reason="this CPU has no AVX512-BF16"
)


def network() -> onnx.ModelProto:
    """Convolutions with a residual sum, a grouped one and one of depth, GELU, a dense layer."""
    rng = np.random.default_rng(3)
    nodes: list[Any] = []
    weights: list[Any] = []

    def weight(*shape: int) -> str:
        name = f"w{len(weights)}"
        array = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        weights.append(numpy_helper.from_array(array.astype("float32"), name))
        return name

    def node(kind: str, *operands: str, **attrs: Any) -> str:
        nodes.append(helper.make_node(kind, operands, [f"v{len(nodes)}"], **attrs))
        return f"v{len(nodes) - 1}"

    def conv(x: str, *shape: int, group: int = 1, stride: int = 1) -> str:
        pads, strides = [shape[2] // 2] * 4, [stride] * 2
        return node("Conv", x, weight(*shape), pads=pads, group=group, strides=strides)

    x = node("Relu", conv("x", 24, 3, 3, 3, stride=2))
    y = node("Concat", node("Relu", conv(x, 20, 24, 1, 1)), conv(x, 4, 24, 3, 3), axis=1)
    y = node("Relu", node("Add", y, x))
    y = node("Add", conv(node("Tanh", conv(y, 24, 12, 3, 3, group=2)), 24, 1, 3, 3, group=24), y)
    y = node("Flatten", node("GlobalAveragePool", y))
    nodes.append(helper.make_node("MatMul", [y, weight(24, 7)], ["y"]))
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 17, 19])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 7])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def of_squares() -> tuple[onnx.ModelProto, np.ndarray]:
    """Convolutions for Winograd's product, one of narrow groups, a residual sum; and an image."""
    rng = np.random.default_rng(8)
    shapes = {"a": (64, 32, 3, 3), "b": (64, 64, 3, 3), "g": (64, 4, 3, 3), "c": (48, 64, 3, 1)}
    weights = [
        numpy_helper.from_array((rng.standard_normal(s) / np.sqrt(np.prod(s[1:]))).astype("f"), n)
        for n, s in shapes.items()
    ]
    same = [1, 1, 1, 1]
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["v"], pads=same),
        helper.make_node("Relu", ["v"], ["r"]),
        helper.make_node("Conv", ["r", "b"], ["w"], pads=[0, 1, 1, 1]),
        helper.make_node("Relu", ["w"], ["s"]),
        helper.make_node("Conv", ["s", "g"], ["u"], pads=same, group=16),
        helper.make_node("Add", ["u", "w"], ["t"]),
        helper.make_node("Conv", ["t", "c"], ["y"], pads=[1, 0, 1, 0]),
    ]
    value = helper.make_tensor_value_info
    x, y = (
        value("x", TensorProto.FLOAT, [1, 32, 14, 14]),
        value("y", TensorProto.FLOAT, [1, 48, 13, 14]),
    )
    graph = helper.make_graph(nodes, "squares", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model, rng.standard_normal((1, 32, 14, 14)).astype("float32")


def built(mod: Any, params: Any, target: str = WITH, value: str = "bf16") -> Any:
    with PassContext(opt_level=3, config={precision.KEY: value}):
        return relay.build(mod, target, params=params)


def implementations(library: Any, operator: str) -> set[str]:
    return {each.implementation for each in library.report.kernels if operator in each.operators}


def result(library: Any, x: np.ndarray) -> np.ndarray:
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(x=x)
    return executor.get_output(0).numpy()


@can_run
def test_an_imported_network_is_near_its_float32_form_and_not_the_same():
    mod, params = relay.frontend.from_onnx(network())
    x = np.random.default_rng(0).standard_normal((1, 3, 17, 19)).astype("float32")
    library = built(mod, params)
    expected, short = result(built(mod, params, value="f32"), x), result(library, x)
    assert short.dtype == "float32"
    assert 0 < np.abs(short - expected).max() < 0.02 * np.abs(expected).max()
    assert library.report.precision == "bf16"
    assert CONV in implementations(library, "nn.conv2d")
    assert implementations(library, "nn.dense") == {DENSE}


def test_depthwise_convolutions_between_tiles_are_of_bfloat16():
    mod, params = relay.frontend.from_onnx(network())
    library = built(mod, params, TILES)
    assert {"conv2d_amx_bf16.x86", depthwise.OF_SHORT} <= implementations(library, "nn.conv2d")
    if missing_features(cpu_features(parse(TILES))):
        return
    x = np.random.default_rng(0).standard_normal((1, 3, 17, 19)).astype("float32")
    expected, got = result(built(mod, params, TILES, value="f32"), x), result(library, x)
    assert 0 < np.abs(got - expected).max() < 0.02 * np.abs(expected).max()


@can_run
def test_sums_of_residuals_that_matrix_products_read_are_not_rounded():
    """x + x w + (x + x w) w ..., whose rounded sums would be off by a digit of bfloat16."""
    rng = np.random.default_rng(5)
    layers = [
        numpy_helper.from_array((1e-4 * rng.standard_normal((64, 64))).astype("float32"), f"w{i}")
        for i in range(6)
    ]
    nodes, x = [], "x"
    for i in range(6):
        nodes.append(helper.make_node("MatMul", [x, f"w{i}"], [f"v{i}"]))
        nodes.append(helper.make_node("Add", [f"v{i}", x], [f"x{i}" if i < 5 else "y"]))
        x = f"x{i}"
    value = helper.make_tensor_value_info
    ends = ([value(name, TensorProto.FLOAT, [32, 64])] for name in "xy")
    graph = helper.make_graph(nodes, "residuals", *ends, layers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    mod, params = relay.frontend.from_onnx(model)
    data = rng.standard_normal((32, 64)).astype("float32")
    expected, short = (result(built(mod, params, value=kind), data) for kind in ("f32", "bf16"))
    assert 0 < np.abs(short - expected).max() < 1e-4 * np.abs(expected).max()


@can_run
def test_to_mixed_precision_takes_the_same_kernels():
    mod, params = relay.frontend.from_onnx(network())
    mod = relay.transform.ToMixedPrecision("bfloat16")(mod)
    x = np.random.default_rng(0).standard_normal((1, 3, 17, 19)).astype("float32")
    library = built(mod, params, value="default")
    wide = built(mod, params, value="f32")
    assert DENSE in implementations(library, "nn.dense")
    assert DENSE not in implementations(wide, "nn.dense")
    got, expected = (result(each, x).astype("float32") for each in (library, wide))
    assert np.abs(got - expected).max() < 0.02 * np.abs(expected).max()


@can_run
def test_winograds_products_are_as_exact_as_openvinos_hint_and_groups_are_joined():
    model, x = of_squares()
    mod, params = relay.frontend.from_onnx(model)
    library = built(mod, params)
    used = [k for k in library.report.kernels if "nn.conv2d" in k.operators]
    assert "winograd F(2x2,3x3)" in {k.algorithm for k in used}
    assert {k.implementation for k in used} == {winograd.OF_SHORT, CONV}
    with PassContext(opt_level=3, config={precision.KEY: "bf16"}, disabled_pass=["Winograd"]):
        direct = relay.build(mod, WITH, params=params)
    assert set(implementations(direct, "nn.conv2d")) == {CONV}
    wide = result(built(mod, params, value="f32"), x)

    def error(got: np.ndarray) -> float:
        return float(np.sqrt(np.square(got - wide).mean() / np.square(wide).mean()))

    own = error(result(library, x))
    assert 1e-4 < own < 2 * error(result(direct, x))
    openvino = pytest.importorskip("openvino")
    peer = openvino.compile_model(
        openvino.convert_model(io.BytesIO(model.SerializeToString())),
        "CPU",
        {"INFERENCE_PRECISION_HINT": "bf16"},
    )
    assert own < 1.5 * error(peer(x)[0])


@can_run
@pytest.mark.parametrize("disabled", [(), ("Winograd",)])
def test_groups_are_joined_where_what_is_not_a_number_may_spread(disabled):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((1, 32, 5, 4)).astype("float32")
    x[0, 5] = np.nan
    w = relax.const(rng.standard_normal((32, 4, 3, 3)).astype("float32"))
    var = relax.Var("x", relax.TensorType(x.shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [var]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.conv2d(var, w, padding=1, groups=8))
        builder.emit_func_output(out)
    context = PassContext(3, config={precision.KEY: "bf16"}, disabled_pass=disabled)
    with context:
        library = relay.build(builder.get(), WITH)
    (channels,) = np.nonzero(np.isnan(result(library, x)).any((0, 2, 3)))
    assert list(channels) == list(range(4, 8) if disabled else range(16))


def test_the_target_decides_and_the_report_says_why_not():
    mod, params = relay.frontend.from_onnx(network())
    library = built(mod, params, WITH)
    assert implementations(library, "nn.dense") == {DENSE} and not library.report.notes
    assert "vdpbf16ps" in assembly(library.get_lib())
    without = built(mod, params, WITHOUT)
    assert implementations(without, "nn.dense") == {"dense_packed.x86"}
    assert any("no AVX512-BF16" in note for note in without.report.notes)


@can_run
@pytest.mark.parametrize("k", [2, 7, 30])
def test_products_are_those_of_rounded_numbers(k):
    rng = np.random.default_rng(k)
    x, w = (rng.standard_normal(shape).astype("float32") for shape in ((5, k), (k, 19)))
    x[0, 0], x[1, 1], x[2] = np.nan, np.inf, 0
    var = relax.Var("x", relax.TensorType(x.shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [var]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.matmul(var, relax.const(w)))
        builder.emit_func_output(out)
    library = built(builder.get(), {})
    assert implementations(library, "nn.dense") == {DENSE if k % 2 == 0 else "dense_packed.x86"}
    if k % 2 == 0:
        x, w = (each.astype(ml_dtypes.bfloat16).astype("float32") for each in (x, w))
    got = result(library, x)
    np.testing.assert_allclose(got, x @ w, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["llvm", WITHOUT])
def test_numbers_are_stored_as_the_nearest_and_moved_as_they_are(target):
    x = np.random.default_rng(5).standard_normal((3, 37)).astype("float32")
    x[0, :5] = [np.nan, -np.inf, 3.4e38, -0.0, 1 + 2.0**-8]
    x[1, 0] = np.uint32(0x7FFFFFFF).view("float32")  # a NaN of all ones
    var = relax.Var("x", relax.TensorType(x.shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [var]):
        with builder.dataflow():
            short = builder.emit(relax.op.astype(var, "bfloat16"))
            out = builder.emit_output(relax.op.nn.pad(short, [0, 0, 1, 0]))
        builder.emit_func_output(out)
    got = result(built(builder.get(), {}, target, "default"), x).astype("float32")
    expected = np.pad(x.astype(ml_dtypes.bfloat16).astype("float32"), [(0, 0), (1, 0)])
    np.testing.assert_array_equal(got, expected)
