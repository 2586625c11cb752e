"""Convolutions over images and signals of unknown extents: products over patches."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from compiler import PassContext, relay
from compiler.errors import InputError
from compiler.runtime import graph_executor
from schedules.x86.conv import winograd_dynamic

RNG = np.random.default_rng(0)


def model(nodes: list[Any], shape: list[Any], **weights: Any) -> Any:
    """A model of x (shape) with the result y."""
    kept = [
        numpy_helper.from_array(np.asarray(value, getattr(value, "dtype", "int64")), name)
        for name, value in weights.items()
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape))
    graph = helper.make_graph(nodes, "test", [x], [y], kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def build(proto: Any, target: str = "llvm", **context: Any) -> Any:
    mod, params = relay.frontend.from_onnx(proto)
    with PassContext(opt_level=3, **context):
        return relay.build(mod, target, params=params)


def compare(library: Any, proto: Any, shapes: list[tuple[int, ...]]) -> None:
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for shape in shapes:
        x = floats(*shape)
        module.run(x=x)
        (expected,) = session.run(None, {"x": x})
        np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-4, atol=1e-4)


def anchors(library: Any) -> list[str]:
    kernels = library.report.kernels
    return [each.implementation for each in kernels if "matmul" in each.name]


@pytest.fixture(scope="module")
def sound() -> Any:
    """Two convolutions over time, the second one with stride 2, and positions behind them."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1], kernel_shape=[3]),
        node("Gelu", ["c1"], ["g1"]),
        node("Conv", ["g1", "w2", "b2"], ["c2"], pads=[1, 1], strides=[2], kernel_shape=[3]),
        node("Gelu", ["c2"], ["g2"]),
        node("Transpose", ["g2"], ["rows"], perm=[0, 2, 1]),
        node("Shape", ["rows"], ["shape"]),
        node("Gather", ["shape", "one"], ["count"]),
        node("Slice", ["table", "zero", "count", "zero", "one"], ["places"]),
        node("Add", ["rows", "places"], ["sum"]),
        node("MatMul", ["sum", "w3"], ["y"]),
    ]
    weights = {"w1": floats(32, 20, 3), "b1": floats(32), "w2": floats(32, 32, 3), "b2": floats(32)}
    integers = {"one": [1], "zero": [0]}
    proto = model(
        nodes,
        ["batch", 20, "frames"],
        **weights,
        table=floats(50, 32),
        w3=floats(32, 16),
        **integers,
    )
    return build(proto), proto


def test_signals_of_any_length(sound):
    library, proto = sound
    assert anchors(library) == ["dense_packed.x86"] * 3
    compare(library, proto, [(1, 20, 1), (1, 20, 2), (2, 20, 7), (3, 20, 100)])


def test_a_table_is_as_long_as_what_is_computed_of_the_symbol(sound):
    """(frames - 1) // 2 + 1 places are at most 50."""
    library, _ = sound
    assert library.metadata.bounds == {"frames": 100}
    assert not any("agree" in kernel.name for kernel in library.report.kernels)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    with pytest.raises(InputError, match="'frames' is at most 100"):
        module.run(x=floats(1, 20, 101))


def test_images_of_any_size():
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 0, 2, 1], strides=[2, 1]),
        node("Relu", ["c1"], ["r"]),
        node("Conv", ["r", "w2"], ["c2"]),
        node("Conv", ["r", "w3"], ["c3"], pads=[2, 2, 2, 2], dilations=[2, 2]),
        node("Mul", ["c2", "factor"], ["scaled"]),
        node("Add", ["scaled", "c3"], ["y"]),
    ]
    weights = {"w1": floats(20, 3, 3, 2), "b1": floats(20), "w2": floats(16, 20, 1, 1)}
    proto = model(
        nodes, ["n", 3, "h", "w"], **weights, w3=floats(16, 20, 3, 3), factor=floats(16, 1, 1)
    )
    library = build(proto)
    assert anchors(library) == ["dense_packed.x86"] * 3
    compare(library, proto, [(1, 3, 7, 9), (3, 3, 20, 15), (2, 3, 1, 4), (0, 3, 5, 5)])


def test_parts_and_joints_of_images_keep_channels_last():
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "first"], ["a"], pads=[1, 1, 1, 1]),
        node("Split", ["a", "sizes"], ["b", "c"], axis=1),
        node("Conv", ["c", "second"], ["d"], pads=[0, 1, 1, 0]),
        node("Add", ["c", "d"], ["e"]),
        node("Concat", ["b", "e", "a"], ["f"], axis=1),
        node("Resize", ["f", "", "scales"], ["g"], mode="nearest",
             coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        node("Conv", ["g", "third"], ["y"]),
    ]  # fmt: skip
    proto = model(
        nodes, [1, 3, "h", "w"], first=floats(16, 3, 3, 3), sizes=[4, 12],
        scales=np.array([1, 1, 2, 2], "float32"),
        second=floats(12, 12, 2, 2), third=floats(4, 32, 1, 1),
    )  # fmt: skip
    library = build(proto)
    compare(library, proto, [(1, 3, 6, 9), (1, 3, 1, 1), (1, 3, 7, 5)])
    moved = [kernel.name for kernel in library.report.kernels if "transpose" in kernel.name]
    assert len(moved) <= 2, moved  # in front of the first convolution, and behind the last one


@pytest.mark.parametrize("size", [1, 3])
def test_groups_of_channels_are_matmuls(size):
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], group=4, pads=[1, 1], strides=[2])]
    proto = model(nodes, ["n", 8, "frames"], w=floats(8, 2, size))
    library = build(proto)
    assert set(anchors(library)) == {"dense_packed.x86"}
    compare(library, proto, [(1, 8, 1), (2, 8, 9), (0, 8, 4)])


@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [
        ((3, 3), {"pads": [1, 1, 1, 1]}),
        ((3, 3), {"pads": [0, 1, 1, 0], "strides": [2, 1]}),
        ((7, 5), {"pads": [3, 2, 3, 2], "strides": [1, 2]}),
        ((3, 2), {"pads": [2, 2, 2, 2], "dilations": [2, 3]}),
        ((5, 5), {}),
    ],
)
@pytest.mark.parametrize("channels", [16, 24])
def test_depthwise_images_of_any_size(kernel, attributes, channels):
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], group=channels, **attributes)]
    proto = model(nodes, ["n", channels, "h", "w_"], w=floats(channels, 1, *kernel))
    library = build(proto, "llvm -mcpu=x86-64-v3")
    assert "conv2d_depthwise" in [kernel.name for kernel in library.report.kernels]
    compare(library, proto, [(2, channels, h, w) for h, w in ((7, 5), (8, 9), (12, 23), (33, 6))])


def test_a_depthwise_convolution_of_odd_channels_is_right():
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], group=3, pads=[1, 1, 1, 1])]
    proto = model(nodes, ["n", 3, "h", "w_"], w=floats(3, 1, 3, 3))
    compare(build(proto), proto, [(2, 3, 5, 7), (1, 3, 1, 1)])


def test_pools_keep_channels_last():
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "first"], ["a"], pads=[1, 1, 1, 1]),
        node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["b", "second"], ["c"]),
        node("AveragePool", ["c"], ["d"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", ["d"], ["y"]),
    ]
    proto = model(nodes, ["n", 3, "h", "w"], first=floats(8, 3, 3, 3), second=floats(8, 8, 1, 1))
    library = build(proto)
    compare(library, proto, [(1, 3, 5, 5), (2, 3, 2, 9), (1, 3, 30, 21)])
    moved = [kernel.name for kernel in library.report.kernels if "transpose" in kernel.name]
    assert len(moved) <= 2, moved


def pyramid() -> Any:
    """Features of two scales, joined where their extents agree, as detectors have them."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["c1"], pads=[1] * 4),
        node("Relu", ["c1"], ["fine"]),
        node("Conv", ["fine", "w2"], ["c2"], pads=[1] * 4, strides=[2, 2]),
        node("Resize", ["c2", "", "scales"], ["up"], mode="nearest",
             coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        node("Concat", ["up", "fine"], ["both"], axis=1),
        node("Conv", ["both", "w3"], ["y"]),
    ]  # fmt: skip
    return model(
        nodes,
        ["n", 16, "h", "w"],
        w1=floats(32, 16, 3, 3) / 12,
        w2=floats(16, 32, 3, 3) / 12,
        w3=floats(32, 48, 1, 1) / 8,
        scales=np.array([1, 1, 2, 2], "float32"),
    )


def test_joined_scales_whose_extents_must_agree_keep_channels_last():
    proto = pyramid()
    library = build(proto)
    compare(library, proto, [(1, 16, 8, 12), (2, 16, 2, 4), (1, 16, 18, 34)])
    moved = [each.name for each in library.report.kernels if "transpose" in each.name]
    assert len(moved) == 2, moved  # of the image and of the result
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    with pytest.raises(InputError, match="do not agree"):
        module.run(x=floats(1, 16, 7, 12))


def of_three_by_three(channels: int, outputs: int, pads: list[int]) -> Any:
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=pads),
        node("Sigmoid", ["c"], ["s"]),
        node("Mul", ["c", "s"], ["y"]),
    ]
    weight = floats(outputs, channels, 3, 3) / (3 * channels**0.5)
    return model(nodes, ["n", channels, "h", "w"], w=weight, b=floats(outputs))


SIZES = [(1, 1, 1), (1, 2, 3), (2, 5, 4), (1, 16, 21), (3, 33, 18), (0, 4, 4), (1, 70, 64)]


LARGE, SMALL = "winograd F(4x4,3x3)", "winograd F(2x2,3x3)"


@pytest.mark.parametrize(
    ("channels", "outputs", "pads", "algorithm"),
    [
        (16, 48, [1, 1, 1, 1], LARGE),
        (32, 48, [2, 1, 3, 4], LARGE),
        (160, 192, [1, 1, 1, 1], f"{LARGE} or {SMALL}"),
    ],
)
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64-v3"])
def test_convolutions_of_three_by_three_are_winograds(channels, outputs, pads, algorithm, target):
    proto = of_three_by_three(channels, outputs, pads)
    library = build(proto, target)
    (kernel,) = (each for each in library.report.kernels if "winograd" in each.name)
    if target != "llvm":
        assert kernel.algorithm == algorithm
    assert [each.implementation for each in library.report.kernels if "silu" in each.name]
    compare(library, proto, [(n, channels, h, w) for n, h, w in SIZES])


def test_weights_beyond_the_limit_of_large_tiles_have_small_tiles(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(winograd_dynamic, "LARGE_TILE_L2S", 0)
    monkeypatch.setattr(winograd_dynamic, "SMALL_TILE_L2S", 0)
    proto = of_three_by_three(64, 56, [1, 1, 1, 1])
    library = build(proto, "llvm -mcpu=x86-64-v3")
    (kernel,) = (each for each in library.report.kernels if "winograd" in each.name)
    assert kernel.algorithm == SMALL
    compare(library, proto, [(n, 64, h, w) for n, h, w in SIZES])


@pytest.mark.parametrize("channels", [48, 20])
def test_instance_norms_keep_channels_last(channels):
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("InstanceNormalization", ["c", "s", "b"], ["i"]),
        node("Relu", ["i"], ["y"]),
    ]
    weights = {"w": floats(channels, 16, 3), "s": floats(channels), "b": floats(channels)}
    proto = model(nodes, ["n", 16, "t"], **weights)
    library = build(proto)
    names = [kernel.name for kernel in library.report.kernels]
    assert [name for name in names if name.startswith("transpose")] == []
    compare(library, proto, [(1, 16, 8), (2, 16, 40), (1, 16, 700)])


def test_what_may_not_round_differently_is_no_winograd():
    proto = of_three_by_three(16, 32, [1, 1, 1, 1])
    library = build(proto, config={"baton.precision": "strict"})
    assert anchors(library) == ["dense_packed.x86"]
    compare(library, proto, [(1, 16, 7, 6)])


def test_channels_that_fill_no_vectors_are_patches():
    proto = of_three_by_three(10, 32, [1, 1, 1, 1])
    assert anchors(build(proto)) == ["dense_packed.x86"]
