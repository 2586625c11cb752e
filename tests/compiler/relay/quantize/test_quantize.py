"""`relay.quantize` on an imported network, against the network of floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from compiler import PassContext, legacy, relay
from compiler.errors import NotIntegralError, RelayError
from compiler.ir.constants import array_of
from compiler.ir.rewrite import operator_name
from compiler.relay.nested_expressions import nested, post_order
from compiler.relay.quantize.ranges import Histogram
from compiler.runtime import graph_executor
from tests.kernel_names import without_amx

SHAPE = (1, 4, 9, 9)


def network() -> tuple[tvm.IRModule, dict[str, Any]]:
    """Three convolutions, a residual sum between them, and a dense layer."""
    rng = np.random.default_rng(1)
    shapes = {"w0": (8, 4, 3, 3), "w1": (8, 8, 3, 3), "w2": (8, 8, 1, 1), "w3": (8, 5), "b": (8,)}
    weights = [
        numpy_helper.from_array((rng.standard_normal(shape) * 0.2).astype("float32"), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b"], ["c0"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c1", "r0"], ["s"]),
        helper.make_node("Relu", ["s"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"]),
        helper.make_node("GlobalAveragePool", ["c2"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "w3"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return relay.frontend.from_onnx(model)


def samples(count: int = 3) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(2)
    return [{"x": rng.standard_normal(SHAPE).astype("float32")} for _ in range(count)]


def run(mod: tvm.IRModule, params: Any = None) -> tuple[np.ndarray, list[str]]:
    """The result for the first sample, and the implementations of the layers."""
    with PassContext(opt_level=3):
        library = relay.build(mod, "llvm", params=params)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(**samples(1)[0])
    layers = [
        without_amx(kernel.implementation)
        for kernel in library.report.kernels
        if {"nn.conv2d", "nn.dense"} & set(kernel.operators)
    ]
    return executor.get_output(0).numpy(), sorted(layers)


def dtypes(mod: tvm.IRModule) -> list[str]:
    """Of the weights, in the order of computation."""
    constants = [array_of(each) for each in post_order(nested(mod["main"]))]
    return [str(each.dtype) for each in constants if each is not None and each.size > 8]


@pytest.mark.parametrize("mode", ["global_scale", "kl_divergence", "percentile"])
def test_each_mode_computes_on_integers_what_the_floats_are(mode):
    mod, params = network()
    expected, _ = run(mod, params)
    with relay.quantize.qconfig(
        calibrate_mode=mode, weight_scale="max", skip_dense_layer=False, skip_conv_layers=[]
    ):
        quantized = relay.quantize.quantize(mod, params, samples())
    got, layers = run(quantized)
    assert layers == ["conv2d_direct_int8.x86"] * 3 + ["dense_packed_int8.x86"]
    assert 0 < np.abs(got - expected).max() < 0.1 * np.abs(expected).max()


@pytest.mark.parametrize("bits", [1, 3, 8])
def test_inputs_of_few_bits_are_rounded_and_clipped_to_them(bits):
    x = relay.var("x", shape=(1, 8))
    weight = relay.const(np.eye(8, dtype="float32") * 127 / 128)
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, weight)))
    settings = {"global_scale": 4.0, "skip_dense_layer": False, "weight_scale": "power2"}
    with relay.quantize.qconfig(nbit_input=bits, **settings):
        quantized = relay.quantize.quantize(mod)
    values = np.array([[-9, -2.9, -1.6, -0.3, 0.2, 1.4, 2.6, 9]], "float32")
    executor = graph_executor.GraphModule(relay.build(quantized, "llvm")["default"](tvm.cpu()))
    executor.run(x=values)
    levels = 2 ** (bits - 1)
    most = levels - 1 if bits < 8 else np.array([levels - 1, levels])[[1] + [0] * 7]
    integers = np.clip(np.round(values * levels / 4), -most, most)
    expected = integers * 4 / levels * 127 / 128
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["float32", "int8", "int8", "float32"]),
        ({"skip_conv_layers": [1, 2]}, ["int8", "float32", "float32", "float32"]),
        ({"skip_conv_layers": None, "skip_dense_layer": False}, ["int8"] * 4),
        ({"do_simulation": True}, ["float32"] * 4),
    ],
)
def test_layers_are_skipped_as_the_configuration_says(settings, expected):
    mod, params = network()
    with relay.quantize.qconfig(**settings):
        assert dtypes(relay.quantize.quantize(mod, params)) == expected


def test_the_steps_by_themselves_are_the_whole():
    mod, params = network()
    with relay.quantize.qconfig(weight_scale="max"):
        whole = relay.quantize.quantize(mod, params)
        mod = relay.quantize.prerequisite_optimize(mod, params)
        sequence = [relay.quantize.annotate(), relay.quantize.calibrate(), relay.quantize.realize()]
        steps = tvm.transform.Sequential(sequence)(mod)
    np.testing.assert_array_equal(run(whole)[0], run(steps)[0])
    names = [operator_name(each) for each in post_order(nested(steps["main"]))]
    assert names.count("quantize") == 2  # r0 and r1, whoever reads them


def chain() -> tvm.IRModule:
    """Two layers with a ReLU between, and one beside them, summed, without biases."""
    rng = np.random.default_rng(6)
    w = [relay.const(rng.uniform(-1, 1, (4, 4, 3, 3)).astype("float32")) for _ in range(3)]
    x = relay.var("x", shape=SHAPE)
    first = relay.nn.relu(relay.nn.conv2d(x, w[0], padding=(1, 1), channels=4, kernel_size=(3, 3)))
    y = relay.nn.conv2d(first, w[1], padding=(1, 1), channels=4, kernel_size=(3, 3))
    z = relay.nn.conv2d(first, w[2], padding=(1, 1), channels=4, kernel_size=(3, 3))
    return tvm.IRModule({"main": relay.Function([x], relay.add(y, z))})


def test_conversions_become_functions_around_one_of_integers():
    mod, names = chain(), ["dequantize_outputs", "main", "quantize_inputs", "quantized_main"]
    settings = {"skip_conv_layers": [], "global_scale": 16.0}
    with relay.quantize.qconfig(**settings):
        whole = relay.quantize.quantize(mod)
    with relay.quantize.qconfig(**settings, partition_conversions="fully_integral"):
        parts = relay.quantize.quantize(mod)
    assert sorted(str(each.name_hint) for each in parts.get_global_vars()) == names
    core = nested(parts["quantized_main"])
    computed = [each for each in post_order(core) if isinstance(each, relax.Call)]
    assert {str(each.ty.dtype) for each in computed} == {"int8", "int32"}
    (expected, layers), (got, own) = run(whole), run(parts)
    assert own == layers == ["conv2d_direct_int8.x86"] * 3
    assert np.ptp(expected) > 1
    np.testing.assert_allclose(got, expected, atol=0.02 * np.ptp(expected))


def test_floats_between_conversions_are_left_there_or_refused():
    mod, params = network()
    with relay.quantize.qconfig(partition_conversions="enabled"):
        parts = relay.quantize.quantize(mod, params)
    with relay.quantize.qconfig():
        whole = relay.quantize.quantize(mod, params)
    np.testing.assert_array_equal(run(parts)[0], run(whole)[0])
    message = r"nn\.conv2d of .*float32.* computes floats"
    with (
        relay.quantize.qconfig(partition_conversions="fully_integral"),
        pytest.raises(NotIntegralError, match=message),
    ):
        relay.quantize.quantize(mod, params)


@pytest.mark.parametrize(("bits", "least", "most"), [(8, -128, 127), (7, -64, 63)])
def test_weights_have_as_many_bits_as_are_asked_for(bits, least, most):
    mod, params = network()
    settings = {"nbit_weight": bits, "skip_conv_layers": [], "skip_dense_layer": False}
    with relay.quantize.qconfig(weight_scale="max", **settings):
        made = relay.quantize.quantize(mod, params)
    found = [array_of(each) for each in post_order(nested(made["main"]))]
    weights = [
        each for each in found if each is not None and each.dtype == "int8" and each.size > 8
    ]
    assert len(weights) == 4
    assert all(each.min() == least or each.max() == most for each in weights)
    assert all(least <= each.min() and each.max() <= most for each in weights)


def test_settings_hold_inside_of_the_context_alone():
    with relay.quantize.qconfig(global_scale=4.0):
        assert relay.quantize.current_qconfig().global_scale == 4.0
        with relay.quantize.qconfig():
            assert relay.quantize.current_qconfig().global_scale == 8.0
    assert relay.quantize.current_qconfig() == relay.quantize.QConfig()


def test_what_is_wrong_is_said():
    mod, params = network()
    with relay.quantize.qconfig(calibrate_mode="percentile"):
        with pytest.raises(RelayError, match="needs samples"):
            relay.quantize.quantize(mod, params)
        with pytest.raises(RelayError, match="has 'data'; the network reads 'x'"):
            relay.quantize.quantize(mod, params, [{"data": np.zeros(SHAPE)}])
        with pytest.raises(RelayError, match="not finite"):
            relay.quantize.quantize(mod, params, [{"x": np.full(SHAPE, np.nan)}])
    for name, value in (
        *(("nbit_input", 0), ("nbit_weight", 6), ("calibrate_mode", "best"), ("global_scale", 0.0)),
        ("partition_conversions", "fully"),
    ):
        with pytest.raises(RelayError, match=name), relay.quantize.qconfig(**{name: value}):
            pass


def test_the_old_name_is_this_package():
    with legacy.installed():
        from tvm.relay import quantize

        assert quantize.qconfig is relay.quantize.qconfig
        with quantize.qconfig(skip_conv_layers=[]):
            assert run(quantize.quantize(chain()))[1] == ["conv2d_direct_int8.x86"] * 3


def test_ranges_follow_the_elements():
    rng = np.random.default_rng(0)
    histogram = Histogram("x")
    histogram.add(np.zeros(10))
    assert histogram.percentile() == histogram.least_divergence() == histogram.largest == 1.0
    values = np.concatenate([rng.standard_normal(100_000), [50.0]])
    for part in np.array_split(values, 7):
        histogram.add(np.maximum(part, 0))
    assert histogram.least == 0.0 and histogram.largest == 50.0
    assert histogram.counts.sum() == np.count_nonzero(values > 0)
    assert 4.0 < histogram.percentile() < 5.5
    assert 2.0 < histogram.least_divergence() < 12.0
