"""Batches that are taken apart: image by image the result is that of the whole batch."""

import json
from unittest import mock

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from compiler import autotvm, relay
from compiler.lowering.build import build
from compiler.lowering.graph_passes import split_batch as module
from compiler.lowering.graph_passes.split_batch import split_batch
from compiler.runtime import graph_executor
from tests.sweep import examples

from ..test_random_shapes import ACTIVATIONS, TARGETS, convolution, values

OPERATORS = relay.op  # once loaded, they name kernels
TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})


def network(batch, emit, channels=16, size=64):
    """A module whose main applies `emit(builder.emit, x)` to images."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((batch, channels, size, size), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(emit(builder.emit, x)))
        builder.emit_func_output(out)
    return builder.get()


def conv(emit, x, outputs, kernel=1, seed=0, **attrs):
    groups = attrs.get("groups", 1)
    weight = values(seed, outputs, int(x.ty.shape[1]) // groups, kernel, kernel)
    return emit(op.nn.conv2d(x, relax.const(weight), **attrs))


def always_split():
    """Batches are split however small their images are."""
    return mock.patch.object(module, "SHARE_OF_L3", 0.0)


def calls(function, name):
    """How often a function calls another one."""
    found = []

    def visit(expr):
        if isinstance(expr, relax.Call) and isinstance(expr.op, relax.GlobalVar):
            found.append(expr.op.name_hint)

    relax.analysis.post_order_visit(function, visit)
    return found.count(name)


def run(library, x):
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(x=x)
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


@examples(4)
@given(
    st.sampled_from(TARGETS),
    st.integers(2, 4),
    st.integers(1, 20),
    st.tuples(*[st.integers(0, 2)] * 4),
    st.sampled_from([1, 2]),
    st.sampled_from([3, 5]),
    st.sampled_from(sorted(ACTIVATIONS)),
    st.sampled_from([7, 12, 17]),
    st.booleans(),
)
def test_images_one_at_a_time_agree_with_numpy(
    target, batch, channels, padding, stride, kernel, activation, size, gated
):
    """An inverted residual block: expansion, depthwise, gate, projection, residual, pooling."""
    apply, expected_of = ACTIVATIONS[activation]
    wide = 2 * channels
    weights = {
        "expand": values(1, wide, channels, 1, 1),
        "depthwise": values(2, wide, 1, kernel, kernel),
        "project": values(3, channels, wide, 1, 1),
    }
    bias = values(4, 1, wide, 1, 1)

    def emit(emit, x):
        y = emit(op.nn.conv2d(x, relax.const(weights["expand"])))
        y = emit(apply(emit(op.add(y, relax.const(bias)))))
        y = emit(
            op.nn.conv2d(y, relax.const(weights["depthwise"]), stride, list(padding), groups=wide)
        )
        if gated:
            mean = emit(op.mean(y, axis=[2, 3], keepdims=True))
            y = emit(op.multiply(y, emit(op.sigmoid(mean))))
        y = emit(op.nn.conv2d(y, relax.const(weights["project"])))
        y = emit(op.concat([y, emit(op.add(y, y))], axis=1))
        return emit(op.mean(y, axis=[2, 3]))

    x = values(0, batch, channels, size, size)
    y = convolution(x, weights["expand"], (1, 1), (0, 0, 0, 0), (1, 1), 1)
    y = expected_of(y + bias)
    y = convolution(y, weights["depthwise"], (stride, stride), padding, (1, 1), wide)
    if gated:
        y = y / (1 + np.exp(-y.mean((2, 3), keepdims=True)))
    y = convolution(y, weights["project"], (1, 1), (0, 0, 0, 0), (1, 1), 1)
    expected = np.concatenate([y, 2 * y], 1).mean((2, 3))

    with always_split(), tvm.transform.PassContext(opt_level=3):
        library = build(network(batch, emit, channels, size), target)
    assert any("SplitBatch" in note for note in library.report.notes)
    (result,) = run(library, x)
    assert np.abs(result - expected).max() <= 1e-5 * max(np.abs(expected).max(), 1e-3)


def test_a_batch_that_exceeds_the_cache_is_split_and_one_that_fits_is_not():
    def emit(emit, x):
        return op.nn.relu(conv(emit, x, 16))

    # Of each image a megabyte is read and a megabyte written; L3 has 8 MB.
    large, note = split_batch(network(8, emit, size=128), TARGET)
    assert calls(large["main"], module.NAME) == 8
    assert note == "SplitBatch: 2 operators for one of 8 images"
    small = network(2, emit, size=128)
    assert split_batch(small, TARGET) == (small, "")
    single = network(1, emit, size=512)
    assert split_batch(single, TARGET) == (single, "")


def test_many_cores_get_the_whole_batch():
    mod = network(8, lambda emit, x: op.nn.relu(conv(emit, x, 16)), size=128)
    cores = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": module.MOST_CORES + 1}
    assert split_batch(mod, tvm.target.Target(cores)) == (mod, "")


def test_the_cut_is_in_front_of_layers_whose_weights_are_larger_than_their_images():
    def emit(emit, x):
        wide = emit(op.nn.relu(conv(emit, x, 16)))
        small = emit(op.nn.max_pool2d(wide, [32, 32], [32, 32]))
        heavy = conv(emit, small, 64, kernel=3, padding=1)
        return emit(op.nn.relu(heavy))

    with always_split():
        split, note = split_batch(network(4, emit), TARGET)
    assert "3 operators" in note
    kept = split["main"].script()
    assert "nn.conv2d" in kept and "nn.max_pool2d" not in kept


def test_every_value_that_is_read_later_comes_back_as_a_batch():
    def emit(emit, x):
        first = emit(op.nn.relu(conv(emit, x, 8)))
        second = emit(op.nn.relu(conv(emit, first, 8, kernel=3, seed=1, padding=1)))
        flat = [emit(op.reshape(each, (3, -1))) for each in (first, second)]
        return emit(op.subtract(*flat))

    mod = network(3, emit)
    with always_split():
        split, _ = split_batch(mod, TARGET)
        assert len(split[module.NAME].ret_ty.fields) == 2
        with tvm.transform.PassContext(opt_level=3):
            (result,) = run(build(mod, TARGET), values(5, 3, 16, 64, 64))
    with tvm.transform.PassContext(opt_level=3, disabled_pass=["SplitBatch"]):
        (expected,) = run(build(mod, TARGET), values(5, 3, 16, 64, 64))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mixes", ["batch norm over images", "roll", "other batch"])
def test_operators_that_mix_images_are_not_split(mixes):
    constant = relax.const(values(6, 4, 16, 64, 64))

    def emit(emit, x):
        if mixes == "batch norm over images":
            y = emit(op.subtract(x, emit(op.mean(x, axis=[0, 2, 3], keepdims=True))))
        elif mixes == "roll":
            y = emit(
                op.concat(
                    [emit(op.strided_slice(x, [0], [1], [4]))]
                    + 1 * [emit(op.strided_slice(x, [0], [0], [1]))],
                    axis=0,
                )
            )
        else:
            y = emit(op.add(x, constant))
        return emit(op.nn.relu(conv(emit, y, 16)))

    mod = network(4, emit)
    with always_split():
        assert split_batch(mod, TARGET) == (mod, "")


def test_the_report_counts_calls_of_all_images_and_the_pass_can_be_disabled():
    mod = network(4, lambda emit, x: op.nn.relu(conv(emit, x, 16)))
    with always_split():
        with tvm.transform.PassContext(opt_level=3):
            split = build(mod, TARGET).report
        with tvm.transform.PassContext(opt_level=3, disabled_pass=["SplitBatch"]):
            whole = build(mod, TARGET).report
        with tvm.transform.PassContext(opt_level=2):
            plain = build(mod, TARGET).report
    of_conv = [k.calls for k in split.kernels if "nn.conv2d" in k.operators]
    assert of_conv == [4]
    for report in (whole, plain):
        assert [k.calls for k in report.kernels if "nn.conv2d" in k.operators] == [1]
        assert not report.notes


def test_a_layer_with_a_record_for_the_whole_batch_keeps_it(tmp_path):
    mod = network(4, lambda emit, x: op.nn.relu(conv(emit, x, 16)))
    data, weight = ["TENSOR", [4, 16, 64, 64], "float32"], ["TENSOR", [16, 16, 1, 1], "float32"]
    arguments = [data, weight, [1, 1], [0, 0, 0, 0], [1, 1], "NCHW", "NCHW", "float32"]
    entity = [
        ["tile_ic", "sp", [-1, 8]],
        ["tile_oc", "sp", [-1, 8]],
        ["tile_ow", "sp", [-1, 8]],
        ["tile_oh", "ot", 1],
    ]
    record = {
        "input": ["llvm -mcpu=x86-64-v3", "conv2d_NCHWc.x86", arguments, {}],
        "config": {"index": 0, "code_hash": None, "entity": entity},
        "result": [[0.001], 0, 1.0, 1.0],
        "version": 0.2,
        "tvm_version": "0.18.0",
    }
    log = tmp_path / "conv.log"
    log.write_text(json.dumps(record) + "\n")
    context = tvm.transform.PassContext(opt_level=3)
    with always_split(), context, autotvm.apply_history_best(str(log)):
        report = build(mod, TARGET).report
    (kernel,) = [k for k in report.kernels if "nn.conv2d" in k.operators]
    assert kernel.calls == 1 and kernel.source == "topi:conv.log:1"
    assert not report.notes
