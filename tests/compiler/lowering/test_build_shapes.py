"""Tensors without elements, results of unknown extent, and operators that only dispatch builds."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from compiler import relay
from compiler.errors import InputError
from compiler.runtime import graph_executor, load_module


def module(emit, *arrays):
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{i}", relax.TensorType(a.shape, str(a.dtype))) for i, a in enumerate(arrays)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(emit(builder, *params)))
        builder.emit_func_output(out)
    return builder.get()


def run(library, *arrays):
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(**{f"x{i}": array for i, array in enumerate(arrays)})
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def random(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


EMPTY = {
    "elementwise": (lambda b, x: op.exp(x), np.exp, (0, 4)),
    "concat to an empty cache": (
        lambda b, x, y: op.concat([op.exp(x), op.exp(y)], 1),
        lambda x, y: np.exp(np.concatenate([x, y], 1)), (2, 0), (2, 300)),
    "nothing of a slice": (
        lambda b, x: op.strided_slice(x, [1], [3], [3]), lambda x: x[:, 3:3], (4, 8)),
    "sum over nothing, fused": (
        lambda b, x: op.add(op.sum(op.exp(x), 1), relax.const(np.float32(1))),
        lambda x: np.ones(4), (4, 0)),
    "softmax": (lambda b, x: op.nn.softmax(x, 1), lambda x: x, (0, 4)),
    "transpose": (lambda b, x: op.permute_dims(x), np.transpose, (0, 4)),
    "matmul without rows": (
        lambda b, x, y: op.nn.relu(op.matmul(x, y)), np.matmul, (0, 4), (4, 8)),
    "matmul over nothing": (lambda b, x, y: op.matmul(x, y), np.matmul, (3, 0), (0, 8)),
    "batch of no matrices": (lambda b, x, y: op.matmul(x, y), np.matmul, (0, 3, 4), (0, 4, 5)),
    "convolution of no image": (
        lambda b, x, y: op.nn.conv2d(x, y, padding=1), lambda x, y: x, (0, 16, 8, 8),
        (16, 16, 3, 3)),
    "pooling of no image": (
        lambda b, x: op.nn.max_pool2d(x, (2, 2), (2, 2)), lambda x: x[..., ::2, ::2],
        (0, 16, 8, 8)),
}  # fmt: skip


@pytest.mark.parametrize("name", EMPTY)
def test_tensors_without_elements_are_built_and_run(name):
    emit, reference, *shapes = EMPTY[name]
    arrays = [random(*shape) for shape in shapes]
    want = reference(*arrays)
    (got,) = run(relay.build(module(emit, *arrays), "llvm"), *arrays)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


SORTS_AND_SCANS = {
    "cumsum": (lambda b, x: op.cumsum(x, 1), lambda x: [x.cumsum(1)]),
    "cumprod, exclusive": (
        lambda b, x: op.cumprod(x, 0, exclusive=True),
        lambda x: [np.concatenate([np.ones((1, 9)), x.cumprod(0)[:-1]])]),
    "topk": (
        lambda b, x: op.topk(x, 3, 1, "both", True, "int64"),
        lambda x: [-np.sort(-x, 1)[:, :3], np.argsort(-x, 1)[:, :3]]),
    "sort, in a fused function's place": (
        lambda b, x: op.multiply(op.sort(op.negative(x), 1), relax.const(np.float32(2))),
        lambda x: [np.sort(-x, 1) * 2]),
    "bucketize": (
        lambda b, x: op.bucketize(x, relax.const(np.float32([-1, 0, 1]))),
        lambda x: [np.searchsorted(np.float32([-1, 0, 1]), x)]),
}  # fmt: skip


@pytest.mark.parametrize("name", SORTS_AND_SCANS)
@pytest.mark.parametrize("opt_level", [2, 3])
def test_sorts_and_scans_are_built_and_run(name, opt_level):
    emit, reference = SORTS_AND_SCANS[name]
    x = random(5, 9)
    with tvm.transform.PassContext(opt_level=opt_level):
        library = relay.build(module(emit, x), "llvm")
    for got, want in zip(run(library, x), reference(x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_results_of_unknown_extent_are_run_exported_and_loaded(tmp_path):
    x = np.array([[0, 3, 0], [4, 0, 5]], "float32")
    library = relay.build(module(lambda b, x: op.nonzero(x), x), "llvm")
    assert library.metadata.outputs[0].shape[1] == -1
    library.export_library(str(tmp_path / "nonzero.so"))
    for each in (library, load_module(str(tmp_path / "nonzero.so"))):
        (got,) = run(each, x)
        np.testing.assert_array_equal(got, np.nonzero(x))

    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(x0=x)
    out = np.zeros((2, 3), "int64")
    np.testing.assert_array_equal(executor.get_output(0, out), np.nonzero(x))
    with pytest.raises(InputError, match="shape"):
        executor.get_output(0, np.zeros((2, 4), "int64"))
