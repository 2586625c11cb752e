"""Products with weights of a few bits, from ONNX models, compared with numpy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from compiler import PassContext, relay
from compiler.runtime import graph_executor
from schedules.x86.matmul.low_bit_matmul import FLOATS, INT8


def product(
    rows: tuple[int, ...], k: int, n: int, bits: int, has_zeros: bool, size: int = 16,
    accuracy: int = 0,
) -> tuple[onnx.ModelProto, np.ndarray]:  # fmt: skip
    """MatMulNBits and a ReLU, and the weights (n, k) in float64."""
    rng = np.random.default_rng(bits)
    blocks, together = -(-k // size), 8 // bits
    whole = rng.integers(0, 1 << bits, (n, blocks, size))
    zeros = rng.integers(0, 1 << bits, (n, -(-blocks // together) * together))
    if not has_zeros:
        zeros[:] = 1 << (bits - 1)
    scales = rng.random((n, blocks)).astype("float32")

    def packed(values: np.ndarray) -> np.ndarray:
        parts = values.reshape(*values.shape[:-1], -1, together) << np.arange(0, 8, bits)
        return parts.sum(-1).astype("uint8")

    weights = {"q": packed(whole), "s": scales.ravel()}
    if has_zeros:
        weights["z"] = packed(zeros).ravel()
    node = helper.make_node(
        "MatMulNBits", ["x", *weights], ["y"], domain="com.microsoft", K=k, N=n, bits=bits,
        block_size=size, accuracy_level=accuracy,
    )  # fmt: skip
    graph = helper.make_graph(
        [node, helper.make_node("Relu", ["y"], ["z1"])],
        "bits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (*rows, k))],
        [helper.make_tensor_value_info("z1", TensorProto.FLOAT, (*rows, n))],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    real = (whole - zeros[:, :blocks, np.newaxis]) * scales[..., np.newaxis].astype("float64")
    return helper.make_model(graph, opset_imports=sets, ir_version=8), real.reshape(n, -1)[:, :k]


@pytest.mark.parametrize(
    "rows, k, n, bits, has_zeros, target",
    [
        ((1,), 64, 96, 4, True, "llvm"),
        ((1, 3), 64, 32, 4, False, "llvm -mcpu=x86-64-v3"),
        ((2,), 48, 48, 8, True, "llvm"),
        ((5,), 32, 16, 2, True, "llvm"),
    ],
)
def test_few_rows_read_packed_weights(rows, k, n, bits, has_zeros, target):
    library = agrees(*product(rows, k, n, bits, has_zeros), target)
    (kernel,) = library.report.kernels
    assert kernel.implementation == FLOATS
    assert kernel.operators == ["nn.matmul_of_bits", "nn.relu"]
    assert library.report.weights_bytes < k * n * (bits / 8 + 2 * 4 / 16) + 1024


@pytest.mark.parametrize("rows, k, n", [((40,), 64, 48), ((1,), 50, 48), ((1,), 64, 19)])
def test_other_products_take_widened_weights(rows, k, n):
    library = agrees(*product(rows, k, n, 4, True), "llvm")
    assert library.report.weights_bytes >= 4 * k * n
    assert not library.report.unscheduled


@pytest.mark.parametrize("has_zeros", [True, False])
def test_any_number_of_rows_reads_packed_weights(has_zeros):
    model, weights = product((1, 1), 64, 48, 4, has_zeros)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[1].dim_param = "rows"
    mod, params = relay.frontend.from_onnx(model)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, "llvm", params=params)
    assert library.report.weights_bytes < 64 * 48 * (4 / 8 + 2 * 4 / 16) + 1024
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    rng = np.random.default_rng(0)
    for rows in (1, 3, 8, 21):
        data = rng.standard_normal((1, rows, 64)).astype("float32")
        module.run(x=data)
        expected = np.maximum(data.astype("float64") @ weights.T, 0)
        np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-4, atol=1e-4)


def agrees(model: onnx.ModelProto, weights: np.ndarray, target: str) -> Any:
    library = built(model, target)
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    data = np.random.default_rng(0).standard_normal(shape).astype("float32")
    expected = np.maximum(data.astype("float64") @ weights.T, 0)
    np.testing.assert_allclose(
        run(library, data), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max()
    )
    return library


def built(model: onnx.ModelProto, target: str) -> Any:
    mod, params = relay.frontend.from_onnx(model)
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(mod, target, params=params)


def run(library: Any, data: np.ndarray) -> np.ndarray:
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=data)
    result: np.ndarray = module.get_output(0).numpy()
    return result


ROUNDED = [
    ((1,), 64, 96, 4, True, "llvm"),
    ((1, 3), 64, 48, 4, False, "llvm -mcpu=x86-64-v3"),
    ((2,), 64, 32, 2, True, "llvm -mcpu=x86-64-v3"),
    ((9,), 96, 64, 8, False, "llvm"),
]


@pytest.mark.parametrize("rows, k, n, bits, has_zeros, target", ROUNDED)
def test_rows_are_rounded_where_the_model_allows_it(rows, k, n, bits, has_zeros, target):
    model, weights = product(rows, k, n, bits, has_zeros, size=32, accuracy=4)
    library = built(model, target)
    (kernel,) = library.report.kernels
    assert kernel.implementation == INT8 or bits == 8  # which AVX2 does not multiply
    rng = np.random.default_rng(1)
    data = rng.standard_normal((*rows, k)).astype("float32")
    data[..., :32] = 0
    data[..., 32:48] = 1e30 * np.sign(data[..., 32:48])
    blocks = data.reshape(*rows, -1, 32)
    unit = np.abs(blocks).max(-1, keepdims=True) / 127
    near = np.rint(np.divide(blocks, unit, out=np.zeros_like(blocks), where=unit > 0)) * unit
    read = data if kernel.implementation == FLOATS else near.reshape(data.shape)
    expected = np.maximum(read.astype("float64") @ weights.T, 0)
    np.testing.assert_allclose(
        run(library, data), expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max()
    )


@pytest.mark.parametrize(
    "precision, name", [("strict", FLOATS), ("f32", FLOATS), ("default", INT8)]
)
def test_precisions_of_floats_round_no_rows(precision, name):
    model, _ = product((1,), 64, 32, 4, False, accuracy=4)
    mod, params = relay.frontend.from_onnx(model)
    with PassContext(config={"baton.precision": precision}):
        library = relay.build(mod, "llvm -mcpu=x86-64-v3", params=params)
    assert [kernel.implementation for kernel in library.report.kernels] == [name]


@pytest.mark.parametrize("has_zeros", [True, False])
@pytest.mark.parametrize("accuracy, instruction", [(0, "vfmadd"), (4, "vpdpbusd")])
def test_kernels_for_avx512_name_their_instruction(has_zeros, accuracy, instruction):
    model, _ = product((1,), 64, 64, 4, has_zeros, accuracy=accuracy)
    (kernel,) = built(model, "llvm -mcpu=icelake-server").report.kernels
    assert kernel.instruction == instruction


def test_halves_are_computed_in_float32():
    model, weights = product((2,), 32, 32, 4, True)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    scales = next(each for each in model.graph.initializer if each.name == "s")
    halves = numpy_helper.to_array(scales).astype("float16")
    scales.CopyFrom(numpy_helper.from_array(halves, "s"))
    library = built(model, "llvm")
    data = np.random.default_rng(0).standard_normal((2, 32)).astype("float16")
    result = run(library, data)
    assert result.dtype == "float16"
    assert FLOATS in {kernel.implementation for kernel in library.report.kernels}
    expected = np.maximum(data.astype("float64") @ weights.T, 0)
    np.testing.assert_allclose(result, expected, rtol=2e-2, atol=2e-2 * np.abs(expected).max())


def test_what_is_infinite_or_huge_is_not_nan():
    model, weights = product((2,), 32, 32, 4, True)
    model.graph.node.pop()
    model.graph.output[0].name = "y"
    data = np.zeros((2, 32), "float32")
    data[0, 3], data[1, ::2] = -np.inf, 2e36
    result = run(built(model, "llvm"), data)
    with np.errstate(all="ignore"):
        expected = np.float32(data.astype("float64") @ weights.T)
    expected[0, weights[:, 3] == 0] = np.nan
    assert np.isinf(expected[0]).any()
    np.testing.assert_array_equal(result[0], expected[0])
    np.testing.assert_allclose(result[1], expected[1], rtol=1e-4)
