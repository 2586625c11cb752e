"""Strides of 1x1 convolutions that go into the convolutions in front of them."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import compiler
from compiler.ir.rewrite import operator_name
from compiler.lowering.build import build
from compiler.lowering.graph_passes.hoist_conv_strides import move_strides
from compiler.runtime import graph_executor
from compiler.target import parse

CHANNELS = 8


def stage(
    size=13, readers=((1, 2, 0), (1, 2, 0)), layout="NCHW", read_too=False, residual="x", tail=None
):
    """A bottleneck block, and convolutions of (taps, stride, padding) that read its result.

    relu(conv1x1(relu(conv3x3(x))) + x), of which `residual` is another tensor and `tail` another
    operator instead of the last relu.
    """
    rng = np.random.default_rng(0)
    shape = {"N": 1, "C": CHANNELS, "H": size, "W": size}
    x = relax.Var("x", relax.TensorType([shape[axis] for axis in layout], "float32"))
    builder = relax.BlockBuilder()

    def conv(data, taps, stride, padding):
        weight = rng.normal(size=(CHANNELS, CHANNELS, taps, taps)).astype("float32")
        attributes = {"strides": stride, "padding": padding, "data_layout": layout}
        return builder.emit(op.nn.conv2d(data, relax.const(weight), **attributes))

    with builder.function("main", [x]):
        with builder.dataflow():
            inner = builder.emit(op.nn.relu(conv(x, 3, 1, 1)))
            added = {"x": x, "bias": relax.const(rng.normal(size=(1, CHANNELS, 1, 1)), "float32")}
            total = builder.emit(op.add(conv(inner, 1, 1, 0), added[residual]))
            result = builder.emit((tail or op.nn.relu)(total))
            outputs = [conv(result, *each) for each in readers]
            if read_too:
                outputs.append(result)
            outputs = [builder.emit_output(each) for each in outputs]
        builder.emit_func_output(relax.Tuple(outputs))
    return builder.get()


def strides(mod):
    """Of each convolution and pool, in order."""
    return [
        (operator_name(binding.value).removeprefix("nn."), *map(int, binding.value.attrs.strides))
        for block in mod["main"].body.blocks
        for binding in block.bindings
        if hasattr(binding.value, "attrs") and hasattr(binding.value.attrs, "strides")
    ]


def moved(mod, keeps=lambda _: False):
    result = move_strides(mod, "main", keeps)
    relax.analysis.well_formed(result)  # raises if it is not
    return result


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_strides_go_through_a_block_and_what_is_added_is_skipped_too(layout):
    mod = moved(stage(layout=layout))
    assert strides(mod) == [
        ("conv2d", 2, 2),
        ("conv2d", 1, 1),
        ("max_pool2d", 2, 2),
        ("conv2d", 1, 1),
        ("conv2d", 1, 1),
    ]


def test_what_is_the_same_for_all_pixels_is_added_as_it_is():
    mod = moved(stage(residual="bias"))
    assert strides(mod) == [("conv2d", 2, 2), *[("conv2d", 1, 1)] * 3]


def test_readers_of_several_strides_leave_out_what_none_reads():
    mod = moved(stage(readers=((1, 4, 0), (1, 2, 0)), residual="bias"))
    assert [each[1] for each in strides(mod)] == [2, 1, 2, 1]


@pytest.mark.parametrize(
    "changes",
    [
        {"readers": ((1, 2, 0), (1, 1, 0))},
        {"readers": ((1, 2, 0), (3, 2, 1))},
        {"readers": ((1, 2, 1),)},
        {"readers": ((1, 2, 0), (1, 3, 0))},
        {"read_too": True},
        {"size": tvm.tirx.Var("size", "int64")},
        {"tail": lambda x: op.nn.softmax(x, axis=3)},
        {"tail": lambda x: op.permute_dims(x, [0, 1, 3, 2])},
    ],
    ids=[
        "no_stride",
        "not_1x1",
        "padded",
        "unlike_strides",
        "read_too",
        "symbolic",
        "softmax",
        "transposed",
    ],
)
def test_other_blocks_stay_as_they_are(changes):
    mod = stage(**changes)
    assert move_strides(mod, "main", lambda _: False).same_as(mod)


def test_a_convolution_with_a_record_keeps_its_shapes():
    mod = stage()
    assert strides(moved(mod, lambda call: int(call.attrs.strides[0]) == 2)) == strides(mod)
    first = mod["main"].body.blocks[0].bindings[0].value
    kept = moved(mod, first.same_as)
    assert strides(kept)[:2] == [("conv2d", 1, 1), ("conv2d", 2, 2)]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("size", [13, 14])
def test_results_are_bit_for_bit_those_without_the_pass(layout, size):
    mod = stage(size=size, layout=layout)
    x = np.random.default_rng(1).normal(size=[int(e) for e in mod["main"].params[0].ty.shape])
    x = x.astype("float32")
    found = []
    for disabled in ([], ["MoveStrides"]):
        config = {"baton.precision": "strict"}
        with compiler.PassContext(opt_level=3, config=config, disabled_pass=disabled):
            executor = graph_executor.GraphModule(build(mod, parse("llvm"))["default"](tvm.cpu()))
        executor.run(x=x)
        found.append([executor.get_output(i).numpy() for i in range(2)])
    for here, there in zip(*found):
        np.testing.assert_array_equal(here, there)
