"""Scales in front of relu move into the convolutions behind it."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from compiler.ir.fold_scale_axis import ForwardFoldScaleAxis
from compiler.ir.rewrite import operator_name

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (1, 6, 6, 4)).astype("float32")


def per_channel(low, high):
    return RNG.uniform(low, high, (1, 1, 1, 4)).astype("float32")


def network(scale, read_twice=False):
    """multiply -> add -> relu -> two convolutions whose results are added."""
    x = relax.Var("x", relax.TensorType(X.shape, "float32"))
    builder, op = relax.BlockBuilder(), relax.op
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(op.multiply(x, relax.const(scale)))
            total = builder.emit(op.add(product, relax.const(per_channel(-1, 1))))
            active = builder.emit(op.nn.relu(total))
            results = [
                builder.emit(
                    op.nn.conv2d(
                        active,
                        relax.const(RNG.uniform(-1, 1, (3, 3, 4, 4)).astype("float32")),
                        padding=1,
                        data_layout="NHWC",
                        kernel_layout="HWIO",
                    )
                )
                for _ in range(2)
            ]
            both = builder.emit(op.add(*results))
            if read_twice:
                both = builder.emit(op.add(both, product))
            out = builder.emit_output(both)
        builder.emit_func_output(out)
    return builder.get()


def operators(mod):
    return [
        operator_name(binding.value)
        for block in mod["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call)
    ]


def result(mod):
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(X)).numpy()


def test_a_positive_scale_moves_into_every_convolution():
    mod = network(per_channel(0.5, 2))
    folded = ForwardFoldScaleAxis()(mod)
    assert operators(folded) == ["add", "nn.relu", "nn.conv2d", "nn.conv2d", "add"]
    np.testing.assert_allclose(result(folded), result(mod), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "mod",
    [network(per_channel(-2, -1)), network(per_channel(0.5, 2), read_twice=True)],
    ids=["a scale that is not positive", "a product that is read twice"],
)
def test_what_relu_or_another_reader_would_notice_stays(mod):
    assert tvm_ffi.structural_equal(ForwardFoldScaleAxis()(mod), mod)


@pytest.mark.parametrize("groups", [1, 4], ids=["a convolution", "a depthwise one"])
def test_a_scale_of_any_sign_moves_where_nothing_is_between(groups, build, run):
    data = np.ascontiguousarray(X.transpose(0, 3, 1, 2))
    weight = RNG.uniform(-1, 1, (4, 4 // groups, 3, 3)).astype("float32")
    scale = RNG.uniform(-1, 1, (4, 1, 1)).astype("float32")

    def body(builder, x):
        scaled = relax.op.multiply(x, relax.const(scale))
        return relax.op.nn.conv2d(scaled, relax.const(weight), groups=groups)

    mod = build(body, x=(data.shape, "float32"))
    folded = ForwardFoldScaleAxis()(mod)
    assert operators(folded) == ["nn.conv2d"]
    np.testing.assert_allclose(run(folded, data), run(mod, data), rtol=1e-4, atol=1e-5)
