"""Quantized networks, built from ONNX models and compared with onnxruntime.

Weights have 7 bits: without VNNI, onnxruntime saturates sums of two products of 8 bits at 16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from compiler import relay
from compiler.runtime import graph_executor
from schedules.x86.conv import depthwise, depthwise_dot
from schedules.x86.machine.dot_product import vnni_lanes
from schedules.x86.machine.host import host_name
from tests.kernel_names import without_amx

onnxruntime = pytest.importorskip("onnxruntime")

HOST = "llvm"
AVX2 = "llvm -mcpu=x86-64-v3"
HAS_VNNI = vnni_lanes(tvm.target.Target({"kind": "llvm", "mcpu": host_name()})) > 0
DEPTHWISE = depthwise_dot.NAME if HAS_VNNI else depthwise.DIRECT
TYPES = {
    "float32": TensorProto.FLOAT,
    "uint8": TensorProto.UINT8,
    "int8": TensorProto.INT8,
    "int32": TensorProto.INT32,
}


class Network:
    """A quantized ONNX graph under construction; methods append nodes and return names."""

    def __init__(self, **inputs: tuple[str, tuple[int, ...]]) -> None:
        self.rng = np.random.default_rng(7)
        self.inputs = inputs
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, value: Any, dtype: str = "float32") -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def node(self, kind: str, *operands: str, domain: str = "", **attrs: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, operands, [name], name, domain=domain, **attrs))
        return name

    def numbers(self, scale: float, zero: int, dtype: str = "uint8") -> tuple[str, str]:
        """A scale and a zero point."""
        return self.constant(scale), self.constant(zero, dtype)

    def integers(self, *shape: int) -> str:
        return self.constant(self.rng.integers(-63, 64, shape), "int8")

    def scales(self, count: int) -> tuple[str, str]:
        """Scales of weights along an axis, and their zero points."""
        return self.constant(self.rng.random(count) * 0.01 + 0.002), self.constant(
            np.zeros(count), "int8"
        )

    def quantize(self, x: str, scale: float, zero: int, dtype: str = "uint8") -> str:
        """QuantizeLinear and DequantizeLinear."""
        numbers = self.numbers(scale, zero, dtype)
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *numbers), *numbers)

    def model(self, output: str, dtype: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "quantized",
            [
                helper.make_tensor_value_info(name, TYPES[kind], shape)
                for name, (kind, shape) in self.inputs.items()
            ],
            [helper.make_tensor_value_info(output, TYPES[dtype], None)],
            self.weights,
        )
        sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=sets, ir_version=8)

    def feeds(self) -> dict[str, np.ndarray]:
        found = {}
        for name, (dtype, shape) in self.inputs.items():
            if dtype == "float32":
                found[name] = self.rng.standard_normal(shape).astype(dtype)
            else:
                info = np.iinfo(dtype)
                found[name] = self.rng.integers(info.min, info.max, shape).astype(dtype)
        return found


def built(model: onnx.ModelProto, target: str = HOST) -> Any:
    mod, params = relay.frontend.from_onnx(model)
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(mod, target, params=params)


def compared(
    net: Network, output: str, dtype: str, target: str = HOST, quantum: float = 1,
    share: float = 0.02,
) -> Any:  # fmt: skip
    """The library, whose results are onnxruntime's but for one quantum in a share of places."""
    model, feeds = net.model(output, dtype), net.feeds()
    library = built(model, target)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(**feeds)
    result = module.get_output(0).numpy()
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(None, feeds)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    error = np.abs(result.astype("float64") - expected)
    assert error.max() <= quantum * 1.001
    assert np.mean(error > quantum * 1e-3) < share
    assert len(np.unique(expected)) > min(20, expected.size // 2)  # not all saturated
    return library


def implementations(library: Any) -> set[str]:
    return {without_amx(kernel.implementation) for kernel in library.report.kernels}


def convolution(
    channels: int, outputs: int, size: tuple[int, int], kernel: int, dtype: str = "uint8",
    batch: int = 1, groups: int = 1, per_channel: bool = True, **attrs: Any,
) -> tuple[Network, str]:  # fmt: skip
    net = Network(x=(dtype, (batch, channels, *size)))
    taps = channels // groups * kernel * kernel
    scales = net.scales(outputs) if per_channel else net.numbers(0.007, 0, "int8")
    y = net.node(
        "QLinearConv",
        "x",
        *net.numbers(0.02, 7 if dtype == "int8" else 120, dtype),
        net.integers(outputs, channels // groups, kernel, kernel),
        *scales,
        *net.numbers(0.01 * taps**0.5, -3 if dtype == "int8" else 117, dtype),
        net.constant(net.rng.integers(-999, 999, outputs), "int32"),
        group=groups,
        **attrs,
    )
    return net, y


CONVOLUTIONS = {
    "pointwise": dict(channels=16, outputs=32, size=(5, 8), kernel=1),
    "odd": dict(channels=7, outputs=13, size=(6, 11), kernel=3, pads=[1, 0, 2, 1]),
    "first layer": dict(channels=3, outputs=20, size=(17, 17), kernel=5, strides=[2, 2]),
    "prime width": dict(channels=16, outputs=16, size=(3, 31), kernel=1),
    "dilated": dict(channels=8, outputs=16, size=(9, 9), kernel=3, dilations=[2, 2], batch=2),
    "taps in padding": dict(
        channels=3, outputs=16, size=(7, 7), kernel=5, pads=[2, 0, 1, 2], dilations=[2, 1]
    ),
    "groups": dict(channels=32, outputs=32, size=(6, 6), kernel=3, groups=2, pads=[1] * 4),
    "narrow groups": dict(channels=32, outputs=64, size=(6, 5), kernel=3, groups=8, pads=[1] * 4),
    "odd groups": dict(channels=32, outputs=22, size=(4, 9), kernel=1, groups=2, pads=[1] * 4),
    "depthwise": dict(channels=24, outputs=24, size=(9, 7), kernel=3, groups=24, pads=[1] * 4),
    "depthwise by two": dict(
        channels=72, outputs=72, size=(28, 27), kernel=5, groups=72, pads=[2] * 4, strides=[2, 2]
    ),
    "depthwise of int8": dict(
        channels=32, outputs=32, size=(7, 30), kernel=3, groups=32, pads=[1] * 4, dtype="int8"
    ),
    "signed": dict(channels=12, outputs=16, size=(6, 6), kernel=3, dtype="int8", pads=[1] * 4),
    "taps on padding alone": dict(channels=6, outputs=5, size=(1, 4), kernel=3, pads=[1] * 4),
    "one scale": dict(channels=16, outputs=16, size=(6, 6), kernel=3, per_channel=False),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_quantized_convolution_is_one_of_bytes(name):
    given: dict[str, Any] = dict(CONVOLUTIONS[name])
    net, y = convolution(**given)
    library = compared(net, y, given.get("dtype", "uint8"))
    kernel = DEPTHWISE if name.startswith("depthwise") else "conv2d_direct_int8.x86"
    assert kernel in implementations(library)
    assert not library.report.notes


@pytest.mark.parametrize("name", ["odd", "depthwise", "depthwise by two", "narrow groups"])
def test_without_dot_products_of_bytes_results_are_the_same(name):
    net, y = convolution(**CONVOLUTIONS[name])
    compared(net, y, "uint8", AVX2)


def residual_block(dtype: str) -> tuple[Network, str]:
    """QDQ: conv, relu, conv, add, relu, max pool, concat, mean, dense."""
    net = Network(x=("float32", (1, 16, 8, 8)))
    zero = 0 if dtype == "int8" else 110
    low = -128 if dtype == "int8" else 0

    def conv(x: str, scale: float) -> str:
        weights = net.node("DequantizeLinear", net.integers(16, 16, 3, 3), *net.scales(16), axis=0)
        bias = net.constant(net.rng.standard_normal(16))
        return net.node("Conv", x, weights, bias, pads=[1] * 4)

    x = net.quantize("x", 0.03, zero, dtype)
    y = net.quantize(net.node("Relu", conv(x, 0.1)), 0.04, low, dtype)
    z = net.quantize(conv(y, 0.1), 0.15, zero, dtype)
    total = net.quantize(net.node("Relu", net.node("Add", z, x)), 0.07, low, dtype)
    pooled = net.node("MaxPool", total, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    pooled = net.quantize(pooled, 0.07, low, dtype)
    joined = net.quantize(net.node("Concat", pooled, pooled, axis=1), 0.09, low, dtype)
    mean = net.quantize(net.node("GlobalAveragePool", joined), 0.02, low, dtype)
    flat = net.node("Flatten", mean)
    weights = net.node("DequantizeLinear", net.integers(10, 32), *net.scales(10), axis=0)
    dense = net.node("Gemm", flat, weights, net.constant(net.rng.standard_normal(10)), transB=1)
    return net, net.quantize(dense, 0.05, zero, dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_a_residual_block_between_quantize_and_dequantize_runs_on_integers(dtype):
    net, y = residual_block(dtype)
    library = compared(net, y, "float32", quantum=0.05)
    assert {"conv2d_direct_int8.x86", "dense_packed_int8.x86"} <= implementations(library)
    assert not library.report.notes
    assert sum("nn.conv2d" in kernel.operators for kernel in library.report.kernels) == 2
    assert not any(kernel.operators == ["add"] for kernel in library.report.kernels)


def test_the_pass_can_be_left_out():
    net, y = convolution(**CONVOLUTIONS["pointwise"])
    mod, params = relay.frontend.from_onnx(net.model(y, "uint8"))
    with tvm.transform.PassContext(opt_level=3, disabled_pass=["ComputeOnIntegers"]):
        library = relay.build(mod, HOST, params=params)
    assert "conv2d_direct_int8.x86" not in implementations(library)


def test_a_product_of_quantized_matrices():
    net = Network(x=("uint8", (2, 5, 18)))
    y = net.node(
        "QLinearMatMul",
        "x",
        *net.numbers(0.02, 131),
        net.integers(18, 21),
        *net.scales(21),
        *net.numbers(0.05, 120),
    )
    assert "dense_packed_int8.x86" in implementations(compared(net, y, "uint8"))


def test_a_dense_layer_of_microsofts_operators():
    net = Network(x=("uint8", (3, 16)))
    y = net.node(
        "QGemm",
        "x",
        *net.numbers(0.02, 131),
        net.integers(24, 16),
        *net.numbers(0.01, 0, "int8"),
        net.constant(net.rng.integers(-999, 999, 24), "int32"),
        *net.numbers(0.05, 120),
        transB=1,
        alpha=1.0,
        domain="com.microsoft",
    )
    assert "dense_packed_int8.x86" in implementations(compared(net, y, "uint8"))


def test_rows_that_are_quantized_to_their_own_range():
    """MatMulInteger: its zero point is known only at run time."""
    net = Network(x=("float32", (4, 32)))
    net.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]))
    total = net.node("MatMulInteger", "q", net.integers(32, 48), "zero")
    y = net.node("Mul", net.node("Cast", total, to=TensorProto.FLOAT), "scale")
    library = compared(net, y, "float32", quantum=1e-3)
    assert "dense_packed_int8.x86" in implementations(library)


def test_an_integer_convolution_less_its_zero_point():
    net = Network(x=("uint8", (1, 8, 6, 6)))
    y = net.node(
        "ConvInteger", "x", net.integers(16, 8, 3, 3), net.constant(7, "uint8"), pads=[1] * 4
    )
    assert "conv2d_direct_int8.x86" in implementations(compared(net, y, "int32", quantum=0))


def test_an_open_batch_of_integers_stays_open():
    weights = np.random.default_rng(1).integers(0, 255, (5, 4, 3, 3)).astype("uint8")
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("ConvInteger", ["x", "w"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.UINT8, ("n", 4, 8, 8))],
            [helper.make_tensor_value_info("y", TensorProto.INT32, ("n", 5, 6, 6))],
            [numpy_helper.from_array(weights, "w")],
        )
    )
    mod, params = relay.frontend.from_onnx(model)
    session = relay.build(mod, "llvm", params=params).session()
    assert session.inputs[0].shape == ("n", 4, 8, 8)
    wide = weights.astype("int64")
    for batch in (0, 1, 3):
        x = np.random.default_rng(batch).integers(0, 255, (batch, 4, 8, 8)).astype("uint8")
        windows = np.lib.stride_tricks.sliding_window_view(x.astype("int64"), (3, 3), (2, 3))
        np.testing.assert_array_equal(
            session.run({"x": x})["y"], np.einsum("nchwij,ocij->nohw", windows, wide)
        )


def test_parts_of_a_concatenation_are_quantized_where_they_are_made():
    net = Network(x=("uint8", (1, 16, 6, 6)))
    parts = []
    for scale in (0.1, 0.2):
        numbers = net.numbers(scale, 100)
        made = net.node(
            "QLinearConv", "x", *net.numbers(0.02, 120), net.integers(16, 16, 1, 1),
            *net.scales(16), *numbers,
        )  # fmt: skip
        parts += [made, *numbers]
    y = net.node("QLinearConcat", *net.numbers(0.15, 110), *parts, axis=1, domain="com.microsoft")
    compared(net, y, "uint8")


@pytest.mark.parametrize(
    "keys, depth, dtype, target",
    [(12, 8, "uint8", HOST), (7, 6, "int8", HOST), (9, 8, "int8", AVX2)],
)
def test_an_attention_between_quantize_and_dequantize_multiplies_bytes(keys, depth, dtype, target):
    net = Network(x=("float32", (2, 5, 3 * depth)), y=("float32", (2, keys, 3 * depth)))
    zero = 0 if dtype == "int8" else 128

    def heads(tensor: str, rows: int, scale: float, less: int) -> str:
        quantized = net.quantize(tensor, scale, zero - less, dtype)
        split = net.node("Reshape", quantized, net.constant([2, rows, 3, depth], "int64"))
        return net.node("Transpose", split, perm=[0, 2, 1, 3])

    q, k, v = heads("x", 5, 0.03, 3), heads("y", keys, 0.028, -5), heads("y", keys, 0.027, 9)
    scores = net.node("MatMul", q, net.node("Transpose", k, perm=[0, 1, 3, 2]))
    scores = net.quantize(scores, 0.0713, zero + 4, dtype)
    weights = net.quantize(net.node("Softmax", scores, axis=-1), 0.0039, 0 if zero else -128, dtype)
    mixed = net.quantize(net.node("MatMul", weights, v), 0.0213, zero, dtype)
    joined = net.node("Transpose", mixed, perm=[0, 2, 1, 3])
    y = net.node("Reshape", joined, net.constant([2, 5, 3 * depth], "int64"))
    library = compared(net, y, "float32", target, quantum=0.0213, share=0.1)
    kernels = [without_amx(kernel.implementation) for kernel in library.report.kernels]
    assert kernels.count("batch_matmul_dots.x86") == 2
    assert not library.report.notes


POOLS = {
    "plain": dict(kernel_shape=[2, 2], strides=[2, 2]),
    "padded": dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "padding counts": dict(kernel_shape=[3, 2], pads=[1, 0, 1, 1], count_include_pad=1),
    "last window beyond": dict(kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
}


@pytest.mark.parametrize("name", POOLS)
def test_averages_of_windows_are_sums_of_bytes(name):
    net = Network(x=("float32", (1, 20, 8, 9)))
    x = net.quantize("x", 0.03, 90)
    y = net.quantize(net.node("AveragePool", x, **POOLS[name]), 0.0213, 128)
    library = compared(net, y, "float32", quantum=0.0213)
    is_of_bytes = DEPTHWISE in implementations(library)
    assert is_of_bytes == (name in ("plain", "padded"))


def asymmetric(**layer: Any) -> tuple[Network, str]:
    """A convolution by uint8 weights, whose zero point leaves no room for them in int8."""
    groups = layer.get("group", 1)
    net = Network(x=("uint8", (1, 8, 5, 5)))
    y = net.node(
        "QLinearConv",
        "x",
        *net.numbers(0.02, 120),
        net.constant(net.rng.integers(0, 255, (8, 8 // groups, 3, 3)), "uint8"),
        *net.numbers(0.01, 3),
        *net.numbers(0.5, 20),
        **layer,
    )
    return net, y


@pytest.mark.parametrize("layer", [{}, {"pads": [1] * 4}, {"group": 8, "pads": [0, 1, 1, 0]}])
@pytest.mark.parametrize("target", [HOST, AVX2])
def test_the_sum_of_the_data_makes_up_for_weights_that_do_not_fit_int8(layer, target):
    library = compared(*asymmetric(**layer), "uint8", target)
    assert not library.report.notes
    types = {each.operands for each in library.report.kernels if each.operands}
    assert types <= {"uint8 x int8", "int16"}


def test_so_it_does_for_matrices_of_such_weights():
    net = Network(x=("uint8", (5, 30)))
    y = net.node(
        "QLinearMatMul",
        "x",
        *net.numbers(0.02, 101),
        net.constant(net.rng.integers(0, 255, (30, 21)), "uint8"),
        *net.numbers(0.01, 200),
        *net.numbers(0.5, 20),
    )
    library = compared(net, y, "uint8")
    assert implementations(library) >= {"dense_packed_int8.x86"} and not library.report.notes


def test_an_integer_convolution_is_padded_with_a_zero_point_of_run_time():
    net = Network(x=("uint8", (1, 8, 6, 6)), zero=("uint8", ()))
    weights = net.integers(16, 8, 3, 3)
    y = net.node("ConvInteger", "x", weights, "zero", pads=[1, 0, 0, 2])
    model, x = net.model(y, "int32"), net.feeds()["x"]
    library = built(model)
    assert "conv2d_direct_int8.x86" in implementations(library) and not library.report.notes
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for zero in (0, 77, 255):
        feeds = {"x": x, "zero": np.array(zero, "uint8")}
        module.run(**feeds)
        np.testing.assert_array_equal(module.get_output(0).numpy(), session.run(None, feeds)[0])


def test_what_has_no_kernel_of_bytes_is_in_the_report():
    """Groups of several channels, whose weights do not fit int8."""
    library = compared(*asymmetric(group=2), "uint8")
    (note,) = library.report.notes
    assert "nn.conv2d of [1, 8, 5, 5] by [8, 4, 3, 3]" in note and "do not fit int8" in note


@pytest.mark.parametrize(
    "scale, zero, why",
    [
        (0.0, np.uint8(3), "a scale is 0"),
        (np.nan, np.uint8(3), "a scale is infinite or NaN"),
        (np.inf, np.uint8(3), "a scale is infinite or NaN"),
        (0.1, np.int8(3), "a tensor of uint8 has a zero point of int8"),
    ],
)
def test_numbers_that_quantize_nothing_are_refused_by_the_nodes_name(scale, zero, why):
    net = Network(x=("uint8", (1, 8, 5, 5)))
    y = net.node(
        "QLinearConv",
        "x",
        net.constant(scale),
        net.constant(zero, zero.dtype),
        net.integers(8, 8, 1, 1),
        *net.numbers(0.01, 0, "int8"),
        *net.numbers(0.5, 20),
    )
    from compiler.errors import UnsupportedOperatorError

    with pytest.raises(UnsupportedOperatorError, match=f"'v0'.*{why}"):
        relay.frontend.from_onnx(net.model(y, "uint8"))


def test_a_constant_image_is_blocked_like_any():
    net = Network()
    y = net.node(
        "QLinearConv",
        net.constant(net.rng.integers(0, 255, (1, 2, 3, 9)), "uint8"),
        *net.numbers(0.02, 70, "uint8"),
        net.integers(5, 2, 3, 3),
        *net.numbers(0.007, 0, "int8"),
        *net.numbers(0.05, 120, "uint8"),
        pads=[1] * 4,
    )
    compared(net, y, "uint8")


def qnn_network(layout: str) -> tvm.IRModule:
    """Two convolutions of Relay's qnn dialect, each with its requantization."""
    rng = np.random.default_rng(3)
    kernel, axis = ("OIHW", 1) if layout == "NCHW" else ("HWIO", 3)
    x = relay.var("x", shape=(1, 8, 7, 9) if axis == 1 else (1, 7, 9, 8), dtype="uint8")
    scales = (rng.random(16) * 0.01 + 0.002).astype("float32")
    value: Any = x
    for taps, channels, padding, numbers in ((3, 8, 1, (0.03, 117)), (1, 16, 0, (0.2, 120))):
        weights = rng.integers(-100, 100, (16, channels, taps, taps)).astype("int8")
        scale, zero = relay.const(numbers[0]), relay.const(numbers[1], "int32")
        value = relay.qnn.op.conv2d(
            value,
            relay.const(weights.transpose(["OIHW".index(each) for each in kernel])),
            zero,
            relay.const(0, "int32"),
            scale,
            relay.const(scales),
            kernel_size=(taps, taps),
            channels=16,
            padding=(padding, padding),
            data_layout=layout,
            kernel_layout=kernel,
            out_dtype="int32",
        )
        value = relay.qnn.op.requantize(
            value,
            relay.const((numbers[0] * scales).astype("float32")),
            relay.const(0, "int32"),
            relay.const(0.2),
            relay.const(120, "int32"),
            axis=axis,
            rounding="TONEAREST" if taps == 1 else "UPWARD",
            out_dtype="uint8",
        )
    return tvm.IRModule({"main": relay.Function([x], value)})


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_relays_operators_on_quantized_tensors_give_the_same_integers(layout):
    mod = qnn_network(layout)
    shape = [int(extent) for extent in mod["main"].params[0].ty.shape.values]
    data = np.random.default_rng(5).integers(0, 256, shape).astype("uint8")
    results = []
    for disabled in ([], ["ComputeOnIntegers"]):
        with tvm.transform.PassContext(opt_level=3, disabled_pass=disabled):
            library = relay.build(mod, HOST)
        assert ("conv2d_direct_int8.x86" in implementations(library)) != bool(disabled)
        module = graph_executor.GraphModule(library["default"](tvm.cpu()))
        module.run(x=data)
        results.append(module.get_output(0).numpy())
    np.testing.assert_array_equal(*results)
    assert len(np.unique(results[0])) > 100
