"""Operators that few networks have, against numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import relay

RANDOM = np.random.default_rng(0)
ANY = relay.Any()


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype("float32")


def run(parameters: list[relax.Var], body: Any, *values: Any) -> Any:
    body = body.astuple() if hasattr(body, "astuple") else body
    return run_module(tvm.IRModule.from_expr(relay.Function(parameters, body)), *values)


def run_module(mod: tvm.IRModule, *values: Any) -> Any:
    result = relay.create_executor("vm", mod=mod, target="llvm").evaluate()(*values)
    return [each.numpy() for each in result] if isinstance(result, list) else result.numpy()


def var(name: str, shape: tuple[Any, ...], dtype: str = "float32") -> relax.Var:
    return relay.var(name, relay.TensorType(shape, dtype))


def test_reshape_reads_its_codes_at_run_time() -> None:
    data = normal(2, 3, 4)
    x, codes = var("x", (2, 3, 4)), var("codes", (2,), "int64")
    body = relay.reshape(x, codes)
    mod = tvm.IRModule.from_expr(relay.Function([x, codes], body))
    for shape, expected in (
        ([-1, 8], (3, 8)),
        ([0, -1], (2, 12)),
        ([-3, 4], (6, 4)),
        ([-3, 0], (6, 4)),
    ):
        got = run_module(mod, data, np.array(shape, "int64"))
        np.testing.assert_array_equal(got, data.reshape(expected))


def test_reshape_like_takes_ranges_of_axes() -> None:
    data = normal(1, 2, 3, 4)
    x, y = var("x", (1, 2, 3, 4)), var("y", (1, 6, 5))
    body = relay.reshape_like(x, y, lhs_begin=1, lhs_end=3, rhs_begin=1, rhs_end=2)
    np.testing.assert_array_equal(run([x, y], body, data, normal(1, 6, 5)), data.reshape(1, 6, 4))
    x, y = var("x", (ANY, ANY, 4)), var("y", (ANY, 5))
    body = relay.reshape_like(x, y, lhs_begin=0, lhs_end=2, rhs_begin=0, rhs_end=1)
    got = run([x, y], body, data[0], normal(6, 5))
    np.testing.assert_array_equal(got, data.reshape(6, 4))


def test_weights_of_a_gemm_convolution_lie_in_tiles() -> None:
    weight = RANDOM.integers(-5, 5, (3, 3, 5, 7)).astype("int8")
    w = var("w", weight.shape, "int8")
    padded = np.zeros((48, 8), "int8")  # 45 products to tiles of 16, 7 filters to tiles of 4
    padded[:45, :7] = weight.reshape(45, 7)
    tiles = padded.reshape(3, 16, 2, 4).transpose(2, 0, 3, 1)
    body = relay.nn.contrib_conv2d_gemm_weight_transform(w, 4, 16)
    np.testing.assert_array_equal(run([w], body, weight), tiles)


def test_suppression_of_all_classes_has_two_forms() -> None:
    rows = [0, 0.1, -0.1, 10, 10.1, 100]
    boxes = np.array([[[0, each, 1, each + 1] for each in rows]], "float32")
    scores = np.array([[[0.9, 0.75, 0.6, 0.95, 0.5, 0.3]] * 2], "float32")
    b, s = var("b", boxes.shape), var("s", scores.shape)
    limits = [relay.const(each) for each in (np.int64(2), np.float32(0.5), np.float32(0))]
    suppress = relay.vision.all_class_non_max_suppression
    chosen = [[0, 0, 3], [0, 0, 0], [0, 1, 3], [0, 1, 0]]
    places, count = run([b, s], suppress(b, s, *limits), boxes, scores)
    assert places[: int(count[0])].tolist() == chosen
    body = suppress(b, s, *limits, output_format="tensorflow")
    places, best, count = run([b, s], body, boxes, scores)
    assert places[0, : int(count[0])].tolist() == [each[1:] for each in chosen]
    np.testing.assert_allclose(best[0, :4], [0.95, 0.9, 0.95, 0.9], rtol=1e-6)


def test_a_quantized_average_is_of_real_numbers() -> None:
    data = RANDOM.integers(0, 255, (1, 3, 6, 6)).astype("uint8")
    x = var("x", data.shape, "uint8")
    scales = [relay.const(each) for each in (np.float32(0.1), np.int32(10))]
    scales += [relay.const(each) for each in (np.float32(0.2), np.int32(5))]
    window = {"pool_size": (2, 2), "strides": (2, 2), "padding": (0, 0)}
    got = run([x], relay.qnn.op.avg_pool2d(x, *scales, **window), data)
    mean = ((data.astype("float64") - 10) * 0.1).reshape(1, 3, 3, 2, 3, 2).mean((3, 5))
    expected = np.clip(np.round(mean / 0.2) + 5, 0, 255)
    assert got.dtype == np.uint8 and np.abs(got.astype("int64") - expected).max() <= 1


def test_batches_come_back_from_blocks_that_padding_made_whole() -> None:
    data = normal(2, 5, 4, 2)
    x = var("x", data.shape)
    crops = ((1, 0), (0, 2))
    blocks = relay.nn.space_to_batch_nd(x, (3, 2), crops, 7.0)
    padded = np.pad(data, ((0, 0), *crops, (0, 0)), constant_values=7)
    expected = padded.reshape(2, 2, 3, 3, 2, 2).transpose(2, 4, 0, 1, 3, 5).reshape(12, 2, 3, 2)
    np.testing.assert_array_equal(run([x], blocks, data), expected)
    back = relay.nn.batch_to_space_nd(blocks, (3, 2), crops)
    np.testing.assert_array_equal(run([x], back, data), data)


def test_a_sparse_reshape_takes_shapes_of_any_length() -> None:
    places = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 2, 3]], "int64")
    old, new = np.array([2, 3, 6], "int64"), np.array([9, -1], "int64")
    i, o, n = (var(name, (ANY,) * rank, "int64") for name, rank in (("i", 2), ("o", 1), ("n", 1)))
    got, shape = run([i, o, n], relay.sparse_reshape(i, o, n), places, old, new)
    flat = np.ravel_multi_index(tuple(places.T), (2, 3, 6))
    np.testing.assert_array_equal(got, np.stack(np.unravel_index(flat, (9, 4)), 1))
    assert shape.tolist() == [9, 4]


def test_a_permutation_is_inverted() -> None:
    order = RANDOM.permutation(7).astype("int32")
    x = var("x", (ANY,), "int32")
    np.testing.assert_array_equal(run([x], relay.invert_permutation(x), order), np.argsort(order))


def test_a_range_with_constants_of_the_metadata_section_comes_back_from_text() -> None:
    bounds = [relay.const(np.array([each], "float32")) for each in (2.5, 11, 3)]
    mod = tvm.IRModule.from_expr(relay.Function([], relay.arange(*bounds, dtype="float32")))
    text = relay.astext(mod)
    assert "meta[relay.Constant]" in text
    got = run_module(relay.fromtext(text))
    np.testing.assert_array_equal(got, np.arange(2.5, 11, 3, dtype="float32"))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool"])
def test_a_cast_to_bfloat16_and_back_rounds_to_the_nearest(dtype: str) -> None:
    data = normal(1000) * 100
    data[:4] = [np.nan, np.inf, 1.00390625, 1.01171875]  # ties, one to each side
    data = data[4 if dtype == "int32" else 0 :].astype(dtype)
    x = var("x", data.shape, dtype)
    got, short = run([x], relay.Tuple([back(x), relay.cast(x, "bfloat16")]), data)
    expected = data.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(got, expected.astype("float32"))
    np.testing.assert_array_equal(short.astype("float32"), expected.astype("float32"))


def back(x: relax.Var) -> Any:
    return relay.cast(relay.cast(x, "bfloat16"), "float32")
