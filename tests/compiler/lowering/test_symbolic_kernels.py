"""Kernels over extents that only running tells: which they are, and that they are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper

from compiler import relay
from compiler.runtime import graph_executor

RNG = np.random.default_rng(0)
COUNTS = [0, 1, 2, 5, 7, 8, 9, 15, 16, 17, 31, 64, 65]


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def build(body: Any, *parameters: Any) -> Any:
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(relay.Function(list(parameters), body), "llvm")


def run(library: Any, **inputs: np.ndarray) -> np.ndarray:
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(**inputs)
    return module.get_output(0).numpy()


def implementations(library: Any) -> list[str]:
    return [kernel.implementation for kernel in library.report.kernels]


@pytest.fixture(scope="module")
def dense() -> tuple[Any, Any]:
    x, r = (relay.var(name, shape=("batch", "seq", size)) for name, size in (("x", 40), ("r", 50)))
    weight, bias = floats(50, 40), floats(50)
    product = relay.nn.dense(relay.reshape(x, (-1, 40)), relay.const(weight))
    product = relay.reshape_like(product, r)
    total = relay.add(relay.nn.relu(relay.add(product, relay.const(bias))), r)
    library = build(total, x, r)
    return library, lambda x, r: np.maximum(x @ weight.T + bias, 0) + r


@pytest.mark.parametrize("count", COUNTS)
def test_a_dense_layer_takes_any_number_of_rows(dense, count):
    library, reference = dense
    assert "dense_packed.x86" in implementations(library)
    for batch in (1, 3):
        x, r = floats(batch, count, 40), floats(batch, count, 50)
        np.testing.assert_allclose(run(library, x=x, r=r), reference(x, r), rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def norm() -> Any:
    x = relay.var("x", shape=("rows", 24))
    return build(relay.nn.layer_norm(x, relay.const(floats(24)), relay.const(floats(24))), x)


@pytest.mark.parametrize("count", [0, 1, 7, 40])
def test_rows_of_a_normalization_are_independent(norm, count):
    assert implementations(norm) == ["RowOps"]
    x = floats(40, 24)
    np.testing.assert_allclose(run(norm, x=x[:count]), run(norm, x=x)[:count], rtol=1e-6)


def images(mixed: bool) -> tuple[Any, Any]:
    """A small network for images of any number, with its operand; `mixed` adds neighbors."""
    x = relay.var("x", shape=("batch", 3, 8, 8))
    weight, head = (relay.const(floats(*shape)) for shape in ((16, 3, 3, 3), (5, 16)))
    body = relay.nn.relu(relay.nn.conv2d(x, weight, padding=(1, 1)))
    body = relay.add(body, relay.reverse(body, axis=0)) if mixed else body
    pooled = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(body))
    return relay.nn.dense(pooled, head), x


def test_convolutions_of_any_number_of_images_are_those_of_one():
    body, x = images(mixed=False)
    library = build(body, x)
    assert "conv2d_direct.x86" in implementations(library)
    data = floats(4, 3, 8, 8)
    whole = run(library, x=data)
    assert whole.shape == (4, 5)
    for image in range(4):
        alone = run(library, x=data[image : image + 1])
        np.testing.assert_allclose(alone[0], whole[image], rtol=1e-5, atol=1e-6)
    assert run(library, x=data[:0]).shape == (0, 5)


def test_entries_of_a_permuted_tensor_are_those_of_each_sample():
    """As vision transformers take queries, keys and values from the product that makes them."""
    image = relay.var("x", shape=("batch", 3, 8, 8))
    weight = floats(24, 3, 4, 4)
    patches = relay.nn.conv2d(image, relay.const(weight), strides=(4, 4))
    stack = relay.reshape(patches, (-1, 3, 2, 4, 4))
    stack = relay.transpose(stack, (1, 0, 2, 3, 4))
    entries = [relay.take(stack, relay.const(i, "int64"), axis=0) for i in range(3)]
    library = build(relay.add(relay.multiply(entries[0], entries[1]), entries[2]), image)
    assert any("conv2d" in each for each in implementations(library))
    for count in (1, 3):
        x = floats(count, 3, 8, 8)
        tiles = x.reshape(count, 3, 2, 4, 2, 4)
        made = np.einsum("nchiwj,ocij->nohw", tiles, weight).reshape(count, 3, 2, 4, 4)
        expected = made[:, 0] * made[:, 1] + made[:, 2]
        np.testing.assert_allclose(run(library, x=x), expected, rtol=1e-3, atol=1e-3)


def test_images_that_meet_each_other_are_not_taken_apart():
    body, x = images(mixed=True)
    library = build(body, x)
    data = floats(3, 3, 8, 8)
    same = np.repeat(data[:1], 3, 0)
    np.testing.assert_allclose(run(library, x=same)[0], run(library, x=same[:1])[0], rtol=1e-5)
    assert not np.allclose(run(library, x=data)[0], run(library, x=data[:1])[0])


def test_what_mixes_rows_is_not_cut_into_rows():
    x = relay.var("x", shape=("rows", 24))
    library = build(relay.reverse(x, axis=0), x)
    x = floats(9, 24)
    np.testing.assert_array_equal(run(library, x=x), x[::-1])


def test_what_counts_rows_is_not_cut_into_rows():
    x = relay.var("x", shape=("rows", 24))
    library = build(relay.cumsum(x, axis=0), x)
    x = floats(9, 24)
    np.testing.assert_allclose(run(library, x=x), np.cumsum(x, 0), rtol=1e-5)


def test_a_row_for_all_samples_is_not_cut_into_rows():
    x, table = relay.var("x", shape=("batch", "seq", 8)), relay.var("table", shape=("seq", 8))
    library = build(relay.add(x, table), x, table)
    x, table = floats(3, 5, 8), floats(5, 8)
    np.testing.assert_allclose(run(library, x=x, table=table), x + table)


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_in_another_order_are_not_taken_apart(axis):
    x = relay.var("x", shape=("batch", "seq", 8))
    library = build(relay.reverse(x, axis=axis), x)
    x = floats(3, 5, 8)
    np.testing.assert_array_equal(run(library, x=x), np.flip(x, axis))


def attention() -> Any:
    """Softmax over products of queries (1, 2, n, 16) and keys (1, 2, t, 16), times values."""
    nodes = [
        helper.make_node("Transpose", ["k"], ["turned"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["y"]),
    ]
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, extent, 16])
        for name, extent in (("q", "n"), ("k", "t"), ("v", "t"), ("y", "n"))
    ]
    graph = helper.make_graph(nodes, "attention", infos[:3], infos[3:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64-v3"])
def test_attention_of_few_and_of_many_rows_and_keys(target):
    """Each way that its kernel goes, with NaN as in numpy too."""
    mod, params = relay.frontend.from_onnx(attention())
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, target, params=params)
    assert [kernel.name for kernel in library.report.kernels] == ["attention"]
    for n, t in ((1, 1), (1, 40), (2, 129), (3, 8), (5, 16), (3, 17), (7, 70), (33, 31)):
        q, k, v = (floats(1, 2, extent, 16) for extent in (n, t, t))
        for with_nan in (False, True):
            if with_nan:
                k[0, 1, t // 2, 3] = np.nan
            scores = q @ k.swapaxes(2, 3)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            expected = weights / weights.sum(-1, keepdims=True) @ v
            np.testing.assert_allclose(run(library, q=q, k=k, v=v), expected, rtol=1e-4, atol=1e-5)


def grouped_attention() -> Any:
    """Four heads of queries (b, 4, n, 16) on two of keys and values (b, 2, n, 16), as LLaMA's
    exporters repeat these, behind a mask that is repeated for all scores."""
    node = helper.make_node

    def repeated(name: str) -> list[Any]:
        return [
            node("Unsqueeze", [name, "two"], [f"{name}_1"]),
            node("Expand", [f"{name}_1", "wide"], [f"{name}_2"]),
            node("Reshape", [f"{name}_2", "heads"], [f"{name}_3"]),
        ]

    nodes = [
        node("Shape", ["k"], ["shape"]),
        node("Gather", ["shape", "zero"], ["b"]),
        node("Gather", ["shape", "two"], ["n"]),
        node("Concat", ["b", "two", "two", "n", "sixteen"], ["wide"], axis=0),
        *repeated("k"),
        *repeated("v"),
        node("Transpose", ["k_3"], ["turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "turned"], ["scores"]),
        node("Concat", ["b", "four", "n", "n"], ["full"], axis=0),
        node("Expand", ["mask", "full"], ["mask_full"]),
        node("Add", ["scores", "mask_full"], ["masked"]),
        node("Softmax", ["masked"], ["weights"], axis=-1),
        node("MatMul", ["weights", "v_3"], ["y"]),
    ]
    sizes = {"zero": [0], "two": [2], "four": [4], "sixteen": [16], "heads": [0, 4, -1, 16]}
    weights = [
        helper.make_tensor(name, TensorProto.INT64, [len(each)], each)
        for name, each in sizes.items()
    ]
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (
            *(("q", ["b", 4, "n", 16]), ("k", ["b", 2, "n", 16]), ("v", ["b", 2, "n", 16])),
            *(("mask", ["b", 1, 1, "n"]), ("y", ["b", 4, "n", 16])),
        )
    ]
    graph = helper.make_graph(nodes, "attention", infos[:4], infos[4:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_heads_of_queries_share_keys_and_values():
    mod, params = relay.frontend.from_onnx(grouped_attention())
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, "llvm", params=params)
    assert [kernel.name for kernel in library.report.kernels] == ["attention"]
    for b, n in ((1, 1), (2, 9), (3, 40)):
        q, mask = floats(b, 4, n, 16), floats(b, 1, 1, n)
        k, v = floats(b, 2, n, 16), floats(b, 2, n, 16)
        keys, values = (each.repeat(2, axis=1) for each in (k, v))
        weights = np.exp(q @ keys.swapaxes(2, 3) + mask)
        expected = weights / weights.sum(-1, keepdims=True) @ values
        found = run(library, q=q, k=k, v=v, mask=mask)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
