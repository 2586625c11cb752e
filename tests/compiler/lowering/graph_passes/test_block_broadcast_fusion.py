"""Anchors whose small result is spread over a larger tensor, built as a whole."""

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler.lowering.build import build
from compiler.runtime import graph_executor
from schedules.x86.machine.host import host_name

HOST = tvm.target.Target({"kind": "llvm", "mcpu": host_name()})


def values(seed, *shape):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("float32")


def built(emit, shape, opt_level):
    """Report of a library with `emit(bind, data)`, and its result for `values(0, *shape)`."""
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType(shape, "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(emit(builder.emit, data)))
        builder.emit_func_output(out)
    with tvm.transform.PassContext(opt_level=opt_level):
        library = build(builder.get(), HOST)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(data=values(0, *shape))
    return library.report, module.get_output(0).numpy()


def kernel_of(report, operator):
    """Operators of the kernel that has the given one."""
    (found,) = (kernel.operators for kernel in report.kernels if operator in kernel.operators)
    return found


@pytest.mark.parametrize("opt_level", [2, 3])
def test_a_gate_is_computed_once_and_not_for_each_pixel_that_it_scales(opt_level):
    weight, bias = values(1, 32, 32, 1, 1), values(2, 1, 32, 1, 1)

    def emit(bind, data):
        mean = bind(relax.op.mean(data, [2, 3], True))
        conv = bind(relax.op.nn.conv2d(mean, relax.const(weight)))
        gate = bind(relax.op.sigmoid(bind(relax.op.add(conv, relax.const(bias)))))
        return relax.op.multiply(data, gate)

    report, result = built(emit, (1, 32, 9, 9), opt_level)
    assert "multiply" not in kernel_of(report, "nn.conv2d")
    if opt_level == 3:  # below, the epilogue runs on plain tensors
        assert kernel_of(report, "nn.conv2d") == ["nn.conv2d", "add", "sigmoid"]
    x = values(0, 1, 32, 9, 9).astype("f8")
    mean = x.mean((2, 3))[0]
    gate = 1 / (1 + np.exp(-(weight[:, :, 0, 0].astype("f8") @ mean + bias.ravel())))
    np.testing.assert_allclose(result, x * gate.reshape(1, -1, 1, 1), atol=1e-5)


def test_a_dense_layer_is_computed_once_and_not_for_each_row_that_it_shifts():
    weight, rows = values(1, 24, 40), values(2, 1, 7, 40)

    def emit(bind, data):
        return relax.op.add(bind(relax.op.matmul(data, relax.const(weight))), relax.const(rows))

    report, result = built(emit, (1, 1, 24), 3)
    assert kernel_of(report, "nn.dense") == ["nn.dense"]
    expected = values(0, 1, 1, 24).astype("f8") @ weight + rows
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_an_epilogue_of_the_same_size_stays_fused_beside_one_that_spreads():
    weight = values(1, 24, 40)

    def emit(bind, data):
        product = bind(relax.op.matmul(data, relax.const(weight)))
        shifted = bind(relax.op.add(product, relax.const(values(2, 40))))
        spread = bind(relax.op.add(shifted, relax.const(values(3, 5, 3, 40))))
        return relax.op.nn.relu(spread)

    report, result = built(emit, (1, 24), 3)
    assert kernel_of(report, "nn.dense") == ["nn.dense", "add"]
    shifted = values(0, 1, 24).astype("f8") @ weight + values(2, 40)
    np.testing.assert_allclose(result, np.maximum(shifted + values(3, 5, 3, 40), 0), atol=1e-5)
