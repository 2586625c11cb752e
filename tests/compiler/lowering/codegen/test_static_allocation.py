"""Memory that calls keep, kernels in segments, and CUDA graphs, on a chain of matrix products."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import relay
from compiler.lowering.codegen import bulk_segments, static_allocation

RNG = np.random.default_rng(9)
WEIGHTS = [RNG.uniform(-1, 1, (8, 8)).astype("float32") for _ in range(4)]
X = RNG.uniform(-1, 1, (3, 8)).astype("float32")


def module():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, 8), "float32"))
    with builder.function("main", [x], {"num_input": 1}):
        with builder.dataflow():
            value = x
            for weight in WEIGHTS:
                product = relax.op.matmul(value, relax.const(weight))
                value = builder.emit(relax.op.nn.softmax(builder.emit(product)))
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    return builder.get()


def expected():
    value = X.astype("float64")
    for weight in WEIGHTS:
        value = np.exp(value @ weight)
        value /= value.sum(-1, keepdims=True)
    return value


def build(target="llvm", **context):
    with tvm.transform.PassContext(opt_level=3, **context):
        return relay.build(module(), target=target)


def code(lib):
    return lib._executable.as_text()


def test_intermediate_tensors_are_allocated_apart_and_results_by_every_call():
    lib = build(required_pass=[static_allocation.NAME])
    text = code(lib)
    static = text[text.index("@main_static:") :].split("\n\n")[0]
    workspace = text[text.index("@workspace:") :].split("\n\n")[0]
    assert static.count("alloc_storage") == 1 and workspace.count("alloc_storage") >= 1
    first, second = lib.entry(tvm.cpu()), lib.entry(tvm.cpu())
    x = tvm.runtime.tensor(X)
    results = [first(x), first(x), second(x)]
    assert len({result.data_ptr() for result in results}) == 3
    for result in results:
        np.testing.assert_allclose(result.numpy(), expected(), rtol=1e-5)


def test_a_library_with_kept_memory_still_makes_executors():
    executor = build(required_pass=[static_allocation.NAME])["default"](tvm.cpu())
    executor.run(x=X)
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected(), rtol=1e-5)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_segments_hold_as_many_kernels_as_asked_for_and_compute_the_same(size):
    lib = build(required_pass=[bulk_segments.required_pass(size)])
    kernels = code(build()).count("dst: %void") - 2  # two lines check the input
    pieces = -(-kernels // size)
    assert code(lib).count("@segment_") == (pieces if pieces > 1 else 0)
    result = lib.entry(tvm.cpu())(tvm.runtime.tensor(X))
    np.testing.assert_allclose(result.numpy(), expected(), rtol=1e-5)


def test_the_pass_context_says_how_large_segments_are():
    assert bulk_segments.wanted() is None
    with tvm.transform.PassContext(required_pass=[bulk_segments.required_pass(7)]):
        assert bulk_segments.wanted() == 7


def test_launches_on_a_gpu_are_captured_where_tvms_option_asks_for_it():
    from compiler.errors import UnavailableTargetError

    try:
        lib = build("cuda -arch=sm_90", config={"relax.backend.use_cuda_graph": True})
    except UnavailableTargetError:
        pytest.skip("there is no nvcc")
    assert "cuda_graph.run_or_capture" in code(lib)
