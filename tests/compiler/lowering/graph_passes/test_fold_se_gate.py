"""Gates of squeeze-and-excite blocks that multiply weights instead of images."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from compiler.ir.rewrite import operator_name
from compiler.lowering.build import build
from compiler.lowering.graph_passes.fold_se_gate import fold_gates
from compiler.runtime import graph_executor

CHANNELS, SIZE, OUT = 24, 20, 16


def block(batch=1, size=SIZE, kernel=1, groups=1, swapped=False, read_twice=False, fixed=False):
    """conv2d(x * sigmoid(w1 mean(x))), and the product itself if it is `read_twice`."""
    rng = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((batch, CHANNELS, size, size), "float32"))
    squeeze = rng.normal(size=(CHANNELS, CHANNELS, 1, 1)).astype("float32")
    weight = rng.normal(size=(OUT, CHANNELS // groups, kernel, kernel)).astype("float32")
    with builder.function("main", [x]):
        with builder.dataflow():
            gate = builder.emit(op.mean(x, [2, 3], keepdims=True))
            gate = builder.emit(op.sigmoid(builder.emit(op.nn.conv2d(gate, relax.const(squeeze)))))
            if fixed:
                gate = relax.const(rng.uniform(size=(1, CHANNELS, 1, 1)).astype("float32"))
            gated = builder.emit(op.multiply(gate, x) if swapped else op.multiply(x, gate))
            padding = kernel // 2
            conv = builder.emit(
                op.nn.conv2d(gated, relax.const(weight), padding=padding, groups=groups)
            )
            result = (conv, gated) if read_twice else conv
            out = builder.emit_output(relax.Tuple(result) if read_twice else result)
        builder.emit_func_output(out)
    return builder.get(), squeeze, weight


def product_shape(mod):
    """Shape of the only product with a gate."""
    (product,) = [
        binding.var
        for each in mod["main"].body.blocks
        for binding in each.bindings
        if operator_name(binding.value) == "multiply"
    ]
    return tuple(int(dim) for dim in product.ty.shape.values)


@pytest.mark.parametrize("changes", [{}, {"swapped": True}, {"kernel": 3, "size": 64}])
def test_a_gate_multiplies_weights_that_are_few(changes):
    mod, _, weight = block(**changes)
    size = changes.get("size", SIZE)
    assert product_shape(mod) == (1, CHANNELS, size, size)
    folded = fold_gates(mod, "main")
    relax.analysis.well_formed(folded)  # raises if it is not
    assert product_shape(folded) == weight.shape


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": 2},
        {"size": 4},
        {"kernel": 3},
        {"groups": 2},
        {"read_twice": True},
        {"fixed": True},
    ],
    ids=str,
)
def test_other_images_stay_as_they_are(changes):
    mod, *_ = block(**changes)
    assert fold_gates(mod, "main").same_as(mod)


@pytest.mark.parametrize("mcpu", ["x86-64-v3", "x86-64"])
@pytest.mark.parametrize("disabled", [[], ["FoldGate"], ["AlterOpLayout"]], ids=str)
def test_results_are_right(mcpu, disabled):
    mod, squeeze, weight = block()
    target = tvm.target.Target({"kind": "llvm", "mcpu": mcpu})
    with tvm.transform.PassContext(opt_level=3, disabled_pass=disabled):
        library = build(mod, target)
    multiplies = [k for k in library.report.kernels if "multiply" in k.operators]
    image_bytes = 4 * CHANNELS * SIZE * SIZE
    assert any(kernel.bytes > image_bytes for kernel in multiplies) == ("FoldGate" in disabled)
    x = np.random.default_rng(1).normal(size=(1, CHANNELS, SIZE, SIZE)).astype("float32")
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.set_input("x", x)
    executor.run()
    means = x.astype("float64").mean((2, 3))[0]
    gate = 1 / (1 + np.exp(-(squeeze[:, :, 0, 0].astype("float64") @ means)))
    want = np.einsum("oc,chw->ohw", weight[:, :, 0, 0], x[0] * gate[:, None, None])
    np.testing.assert_allclose(executor.get_output(0).numpy()[0], want, rtol=1e-4, atol=1e-4)
