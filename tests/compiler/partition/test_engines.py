"""The back ends onnxruntime, openvino and onednn: numbers, buffers, threads, shapes, errors."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper, numpy_helper

from compiler import relay
from compiler.errors import BuildError, InputError, LoadError, PartitionError
from compiler.partition import explain, partition, subgraphs
from compiler.runtime import graph_executor, load_module, onednn_engine, openvino_engine
from compiler.version import package_version

ENGINES = ["onnxruntime", "openvino", "onednn"]


def require(engine: str) -> None:
    """Skip the test if the engine is not installed."""
    if engine != "onednn":
        pytest.importorskip(engine)
    elif not package_version(onednn_engine.PACKAGE):
        pytest.skip(f"needs {onednn_engine.PACKAGE}")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    require(request.param)
    return str(request.param)


@pytest.fixture
def onednn() -> None:
    require("onednn")


def network(rows: Any = 2) -> tvm.IRModule:
    """Two results: a convolution with relu, and its transposed sum with a constant."""
    x = relay.var("x", shape=(rows, 3, 8, 8))
    w = relay.const(np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype("float32"))
    conv = relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1)))
    second = relay.add(relay.transpose(conv, axes=(0, 2, 3, 1)), relay.const(1.5))
    return tvm.IRModule.from_expr(relay.Function([x], relay.Tuple([conv, second])))


def data(rows: int = 2, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, 3, 8, 8)).astype("float32")


def run(library: Any, x: np.ndarray) -> list[np.ndarray]:
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(x=x)
    return [executor.get_output(number).numpy() for number in range(2)]


def test_results_are_those_of_the_build_also_of_an_exported_library(
    engine: str, tmp_path: Path
) -> None:
    expected = run(relay.build(network(), "llvm"), data())
    library = relay.build(partition(network(), engine), "llvm")
    (info,) = library.partition_info().values()
    assert info["runtime"] == engine
    library.export_library(tmp_path / "network.so")
    for each in (library, load_module(tmp_path / "network.so")):
        for seed in (1, 2):  # the second run writes to other memory
            plain = run(relay.build(network(), "llvm"), data(seed=seed))
            for result, reference in zip(run(each, data(seed=seed)), plain):
                np.testing.assert_allclose(result, reference, rtol=1e-5, atol=1e-5)
    assert expected[0].shape == (2, 4, 8, 8)


@pytest.mark.parametrize("engine", ENGINES[:2])
def test_one_library_runs_dynamic_batches(engine: str) -> None:
    require(engine)
    library = relay.build(partition(network(relay.Any()), engine), "llvm")
    assert {each["runtime"] for each in library.partition_info().values()} == {engine}
    for rows in (1, 5, 3):
        plain = run(relay.build(network(rows), "llvm"), data(rows))
        for result, reference in zip(run(library, data(rows)), plain):
            np.testing.assert_allclose(result, reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES[:2])
def test_a_batch_of_0_is_empty_and_leaves_later_runs_right(engine: str) -> None:
    require(engine)
    x = relay.var("x", shape=(relay.Any(), 2, 4, 4))
    y = relay.nn.lrn(relay.nn.instance_norm(x, weight(2), weight(2)), 3)
    y = relay.nn.conv2d(relay.reshape(y, (0, 2, 4, 4)), weight(3, 2, 3, 3), padding=(1, 1))
    mod = tvm.IRModule.from_expr(relay.Function([x], y))
    plain, mixed = (relay.build(m, "llvm").session() for m in (mod, partition(mod, engine)))
    for rows in (2, 0, 1, 3):
        feed = {"x": np.random.default_rng(rows).standard_normal((rows, 2, 4, 4)).astype("float32")}
        (expected,), (found,) = plain.run(feed).values(), mixed.run(feed).values()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_openvino_rejects_sums_over_no_elements() -> None:
    require("openvino")
    x = relay.var("x", shape=(3, relay.Any()))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.sum(x, axis=[1])))
    session = relay.build(partition(mod, "openvino"), "llvm").session()
    with pytest.raises(InputError, match=r"shape \(3, 0\), without elements"):
        session.run({"x": np.ones((3, 0), "float32")})


def test_threads_share_a_library(engine: str) -> None:
    library = relay.build(partition(network(), engine), "llvm")
    found: dict[int, list[np.ndarray]] = {}

    def work(seed: int) -> None:
        found[seed] = run(library, data(seed=seed))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for seed, results in found.items():
        np.testing.assert_array_equal(results[0], run(library, data(seed=seed))[0])


def test_openvino_writes_results_of_known_shapes_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openvino")
    copies: list[int] = []

    def counted(number: int, result: np.ndarray, output: np.ndarray) -> None:
        copies.append(result.nbytes)
        np.copyto(output, result)

    monkeypatch.setattr(openvino_engine, "_copy", counted)
    run(relay.build(partition(network(), "openvino"), "llvm"), data())
    assert not copies
    run(relay.build(partition(network(relay.Any()), "openvino"), "llvm"), data(3))
    assert copies == [3 * 4 * 64 * 4] * 2


def test_what_an_engine_lacks_stays_with_the_build(engine: str) -> None:
    x = relay.var("x", shape=(1, 8, 8, 4))
    w = relay.const(np.ones((3, 3, 4, 4), "float32"))
    body = relay.exp(relay.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO"))
    mod = tvm.IRModule.from_expr(relay.Function([x], body))
    assert [each.operators for each in subgraphs(partition(mod, engine))] == [("exp",)]


def test_options_and_a_missing_package_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    for threads in ("0", "two", "-1"):
        with pytest.raises(PartitionError, match=r"threads is .*; give a whole number above 0"):
            partition(network(), "openvino", threads=threads)
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(BuildError, match="pip install openvino"):
        relay.build(partition(network(), "openvino"), "llvm")


def compared(result: Any, *variables: Any) -> list[tuple[str, ...]]:
    """Run a function in oneDNN and in the build on random inputs; return the operators there."""
    mod = tvm.IRModule.from_expr(relay.Function(list(variables), result))
    partitioned = partition(mod, "onednn")
    plain, engine = (relay.build(each, "llvm").session() for each in (mod, partitioned))
    inputs = {
        str(var.name): np.random.default_rng(number)
        .standard_normal([int(extent) for extent in var.ty.shape])
        .astype("float32")
        for number, var in enumerate(variables)
    }
    for expected, found in zip(plain.run(inputs).values(), engine.run(inputs).values()):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    return [each.operators for each in subgraphs(partitioned)]


def image() -> Any:
    return relay.var("x", shape=(1, 8, 17, 15))


def rows() -> Any:
    return relay.var("x", shape=(4, 8))


def weight(*shape: int) -> Any:
    return relay.const(np.random.default_rng(5).standard_normal(shape).astype("float32"))


@pytest.mark.parametrize(
    ("data", "make"),
    [
        (image, lambda x: relay.nn.avg_pool2d(x, (3, 3), (2, 2), padding=(1, 1))),
        (image, lambda x: relay.nn.avg_pool2d(x, (3, 2), padding=(1, 0), count_include_pad=True)),
        (image, lambda x: relay.nn.max_pool2d(x, (3, 3), (2, 2), padding=(1, 1), ceil_mode=True)),
        # The last window would begin in the padding: there is none.
        (image, lambda x: relay.nn.max_pool2d(x, (2, 2), (2, 2), padding=(1, 1), ceil_mode=True)),
        (image, lambda x: relay.nn.max_pool2d(x, (3, 3), dilation=(2, 2))),
        (image, relay.nn.global_avg_pool2d),
        (image, lambda x: relay.nn.conv2d(x, weight(8, 4, 3, 3), groups=2, dilation=(2, 2))),
        (
            image,
            lambda x: relay.nn.conv2d_transpose(
                x, weight(8, 4, 3, 3), (2, 2), (1, 1), output_padding=(1, 1)
            ),
        ),
        (image, lambda x: relay.nn.batch_flatten(relay.transpose(relay.exp(x), [0, 2, 3, 1]))),
        (rows, lambda x: relay.nn.dense(x, relay.transpose(weight(8, 6), [1, 0]))),
        (rows, lambda x: relay.nn.bias_add(x, weight(8))),
        (rows, lambda x: relay.nn.layer_norm(x, weight(8), weight(8))),
        (rows, lambda x: relay.nn.softmax(x, axis=0)),
        (rows, relay.nn.log_softmax),
        (rows, lambda x: relay.nn.leaky_relu(x, 0.1)),
        (rows, lambda x: relay.clip(x, -0.5, 0.25)),
        (rows, lambda x: relay.sum(x, axis=[1])),
        (rows, lambda x: relay.exp(relay.sum(x))),
        (rows, lambda x: relay.mean(x, axis=[0], keepdims=True)),
        (rows, lambda x: relay.concatenate([x, relay.tanh(x)], axis=1)),
        (rows, lambda x: relay.divide(relay.subtract(weight(8), x), relay.const(3.0))),
        (rows, lambda x: relay.nn.batch_matmul(*[relay.reshape(x, (2, 4, 4))] * 2)),
        (rows, lambda x: relay.reshape(relay.transpose(relay.exp(x), [1, 0]), (2, 16))),
        # An output that is an input, a constant, another output, or a view of one.
        (rows, lambda x: relay.Tuple([relay.nn.relu(x), x, relay.transpose(relay.exp(x))])),
        (rows, lambda x: relay.Tuple([*[relay.nn.relu(x)] * 2, relay.transpose(relay.nn.relu(x))])),
        (rows, lambda x: relay.add(x, relay.transpose(relay.abs(weight(8, 4)), [1, 0]))),
    ],
)
@pytest.mark.usefixtures("onednn")
def test_onednn_agrees_with_the_build(data: Any, make: Any) -> None:
    x = data()
    assert compared(make(x), x)


@pytest.mark.usefixtures("onednn")
def test_onednn_leaves_dynamic_shapes_and_other_dtypes_with_a_reason() -> None:
    x, y = relay.var("x", shape=(relay.Any(), 8)), relay.var("y", shape=(4,), dtype="int32")
    empty = relay.sum(relay.const(np.ones((2, 0), "float32")), axis=[1])
    image = relay.reshape(relay.cast(y, "float32"), (1, 1, 2, 2))
    up = relay.nn.avg_pool2d(image, (2, 2), padding=(1, 1), ceil_mode=True)
    body = relay.Tuple(
        [up, relay.exp(x), relay.add(y, y), relay.erf(relay.cast(y, "float32")), empty]
    )
    found = explain(tvm.IRModule.from_expr(relay.Function([x, y], body)), "onednn")
    reasons = {each.operator: each.reasons[0].reason for each in found.left}
    assert reasons["exp"] == "shape [any, 8] is not static, or has no elements"
    assert reasons["add"] == "dtype is int32; oneDNN gets float32"
    assert "ceil_mode is set" in reasons["nn.avg_pool2d"]
    assert reasons["sum"] == "shape [2, 0] is not static, or has no elements"
    assert reasons["erf"] == "erf is not given to oneDNN"


def test_a_subgraph_that_only_moves_data_is_left_to_the_build(engine: str) -> None:
    x = relay.var("x", shape=(2, 3))
    moved = relay.reshape(relay.transpose(x), (6,))
    mod = tvm.IRModule.from_expr(relay.Function([x], moved))
    left = explain(mod, engine).left
    assert [each.operator for each in left] == ["transpose", "reshape"]
    assert {reason.reason for each in left for reason in each.reasons} == {"it only moves data"}
    asked = partition(mod, engine, ops="transpose")
    assert len(subgraphs(asked)) == 1


@pytest.mark.usefixtures("onednn")
def test_damaged_onednn_code_is_a_load_error() -> None:
    good = {"inputs": [0], "outputs": [1], "tensors": [[[4, 2], None], [[2, 4], None]]}
    move = ["Transpose", [0], [1], {"order": [1, 0]}]
    assert onednn_engine.load({**good, "operators": [move]}, b"")
    for damage in (
        {"operators": [["Unknown", [0], [1], {}]]},
        {"operators": [["Transpose", [0], [7], {"order": [1, 0]}]]},
        {"operators": [["Transpose", [0], [1], {"order": [0, 0]}]]},
        {"operators": [["Reshape", [0], [1], {}]], "tensors": [[[4, 2], None], [[3, 4], None]]},
        {"operators": [move], "tensors": [[[4, 2], 0], [[2, 4], None]]},
        {"operators": [move], "tensors": [[[4, 0], None], [[2, 4], None]]},
        {"operators": [["Abs", [0], [1], {"size": 3}]]},
        {"operators": 3},
    ):
        with pytest.raises(LoadError, match="is damaged; build again"):
            onednn_engine.load({**good, **damage}, b"")


def test_engines_take_the_matmuls_of_an_imported_transformer(engine: str, tmp_path: Path) -> None:
    x, indices = relay.var("x", shape=(2, 8, 16)), relay.var("i", shape=(2, 8), dtype="int64")
    looked_up = relay.take(weight(10, 16), indices, axis=0)
    first = relay.take(looked_up, relay.const(0, "int64"), axis=0)  # a scalar index drops the axis
    heads = relay.nn.batch_matmul(relay.add(relay.add(x, looked_up), first), x)
    flat = relay.reshape(relay.nn.softmax(heads), (16, 8))
    result = relay.nn.bias_add(relay.nn.dense(flat, weight(4, 8)), weight(4))
    mod = tvm.IRModule.from_expr(relay.Function([x, indices], result))
    found = explain(mod, engine)
    assert {each.operator for each in found.left} <= ({"take"} if engine == "onednn" else set())
    inputs = {
        "x": np.random.default_rng(0).standard_normal((2, 8, 16)).astype("float32"),
        "i": np.array([[0, 9, -3, 12, 1, 2, 3, 4]] * 2),  # clipped, as Relay does
    }
    (expected,) = relay.build(mod, "llvm").session().run(inputs).values()
    (result,) = relay.build(partition(mod, engine), "llvm").session().run(inputs).values()
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES[:2])
def test_engines_take_whole_quantized_models(engine: str) -> None:
    require(engine)
    random = np.random.default_rng(3)
    constants = {
        "xs": np.float32(0.05),
        "xz": np.uint8(128),
        "w": random.integers(-100, 100, (8, 6)).astype("int8"),
        "ws": random.uniform(0.01, 0.02, 6).astype("float32"),
        "wz": np.zeros(6, "int8"),
        "ys": np.float32(0.25),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=1),
        helper.make_node("MatMul", ["xd", "wd"], ["m"]),
        helper.make_node("QuantizeLinear", ["m", "ys", "xz"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "ys", "xz"], ["y"]),
    ]
    inputs, outputs = (
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)]
        for name, shape in (("x", (4, 8)), ("y", (4, 6)))
    )
    weights = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    graph = helper.make_graph(nodes, "quantized", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    mod, params = relay.frontend.from_onnx(model, freeze_params=False)
    assert not explain(mod, engine, params).left
    x = random.standard_normal((4, 8)).astype("float32")
    (expected,) = relay.build(mod, "llvm", params=params).session().run({"x": x}).values()
    library = relay.build(partition(mod, engine, params), "llvm", params=params)
    (found,) = library.session().run({"x": x}).values()
    np.testing.assert_allclose(found, expected, atol=0.25)
    assert len({*found.ravel()}) > 5
