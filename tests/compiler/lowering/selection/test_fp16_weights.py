"""Weights of few-row products as numbers of 16 bits: imported models, built and compared."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from compiler import PassContext, autotvm, precision, relay
from compiler.errors import BuildError
from compiler.records.autotvm.record import LoggedTask, MeasureInput
from compiler.records.measure_result import MeasureResult
from compiler.runtime import graph_executor
from compiler.runtime.disassembly import assembly
from compiler.target import parse
from schedules.matmul import DenseWorkload
from schedules.x86.matmul import dense, dense_fp16_weight

AVX2, AVX512, SSE = "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v4", "llvm -mcpu=x86-64-v2"
TYPES = {"float16": TensorProto.FLOAT16, "float32": TensorProto.FLOAT}


def layers(dtype: str, rows: int = 1, beyond: float = 0.0) -> tuple[onnx.ModelProto, Any, Any]:
    """A model of two dense layers, data for it, and what it makes of them."""
    rng = np.random.default_rng(rows)
    first = (rng.standard_normal((192, 320)) / 14).astype(dtype)
    second = (rng.standard_normal((50, 320)) / 18).astype(dtype)
    first[0, 0] += beyond
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "first"], ["a"]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("Gemm", ["b", "second"], ["y"], transB=1),
        ],
        "layers",
        [helper.make_tensor_value_info("x", TYPES[dtype], [rows, 192])],
        [helper.make_tensor_value_info("y", TYPES[dtype], [rows, 50])],
        [numpy_helper.from_array(first, "first"), numpy_helper.from_array(second, "second")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = rng.standard_normal((rows, 192)).astype(dtype)
    wide = np.maximum(x.astype("float64") @ first.astype("float64"), 0)
    return model, x, wide @ second.T.astype("float64")


def built(model: onnx.ModelProto, target: str = "llvm", value: str = "default") -> Any:
    mod, params = relay.frontend.from_onnx(model)
    with PassContext(opt_level=3, config={precision.KEY: value}):
        return relay.build(mod, target, params=params)


def implementations(library: Any) -> set[str]:
    return {each.implementation for each in library.report.kernels if each.operands}


def result(library: Any, x: np.ndarray) -> np.ndarray:
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(x=x)
    return executor.get_output(0).numpy()


@pytest.mark.parametrize("target", ["llvm", AVX2])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_float16_model_keeps_its_weights(target, rows):
    model, x, expected = layers("float16", rows)
    library = built(model, target)
    assert implementations(library) == {dense_fp16_weight.NAME}
    assert library.report.weights_bytes < 1.2 * 2 * (192 * 320 + 320 * 64)
    np.testing.assert_allclose(result(library, x), expected, rtol=3e-3, atol=3e-3)


def test_they_are_widened_where_there_are_many_rows_or_no_instruction():
    assert implementations(built(layers("float16", 128)[0], AVX2)) == {dense.PACKED}
    assert implementations(built(layers("float16")[0], SSE)) == {dense.PACKED}
    assert "vcvtph2ps" in assembly(built(layers("float16")[0], AVX512).get_lib())


def test_float32_weights_are_rounded_where_a_build_asks_for_it():
    model, x, expected = layers("float32")
    exact, short = built(model), built(model, value="f16")
    assert implementations(exact) == {dense.PACKED}
    assert implementations(short) == {dense_fp16_weight.NAME}
    assert short.report.precision == "f16"
    assert 2 * short.report.weights_bytes == exact.report.weights_bytes
    assert any("float32 x float16" in each.multiplies for each in short.report.kernels)
    rounded = result(short, x)
    assert 0 < np.abs(rounded - result(exact, x)).max() < 2e-3
    np.testing.assert_allclose(rounded, expected, rtol=2e-3, atol=2e-3)


def test_weights_beyond_float16_stay():
    model, x, expected = layers("float32", beyond=1e5)
    library = built(model, value="f16")
    assert implementations(library) == {dense.PACKED, dense_fp16_weight.NAME}
    assert np.abs(result(library, x) - expected).max() < 1e-3 * np.abs(expected).max()


def test_weights_that_are_bfloat16_numbers_are_kept_as_such():
    model, x, _ = layers("float32")
    for each in model.graph.initializer:
        short = numpy_helper.to_array(each).astype(ml_dtypes.bfloat16).astype("float32")
        each.CopyFrom(numpy_helper.from_array(short, each.name))
    library = built(model)
    assert any("float32 x bfloat16" in each.multiplies for each in library.report.kernels)
    first, second = (
        numpy_helper.to_array(each).astype("float64") for each in model.graph.initializer
    )
    expected = np.maximum(x @ first, 0) @ second.T
    np.testing.assert_allclose(result(library, x), expected, rtol=1e-5, atol=1e-5)


def test_a_record_of_the_float32_product_is_followed():
    model, x, expected = layers("float16")
    target, inputs = parse("llvm"), []
    for n, k in ((320, 192), (50, 320)):
        w = DenseWorkload((1,), n, k)
        config = dense.fallback(w, target)
        task = LoggedTask(dense.PACKED, w.stored_args())
        inputs.append((MeasureInput(target, task, config), MeasureResult((1e-9,), 0, 0.0, 0.0)))
    with autotvm.apply_history_best(inputs):
        library = built(model)
    assert implementations(library) == {dense.PACKED}
    np.testing.assert_allclose(result(library, x), expected, rtol=3e-3, atol=3e-3)


def test_int8_needs_samples():
    with pytest.raises(BuildError, match="needs samples"):
        PassContext(config={precision.KEY: "int8"})
