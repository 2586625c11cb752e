"""Layer norms whose results are read in two types become one kernel with both."""

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from compiler.lowering.graph_passes.dual_output_layer_norm import round_norms
from compiler.lowering.graph_passes.legalize import legalize_ops


def module(*, plain=True, types=("float16", "float16")):
    """norm(x) as it is, or nothing, and a cast of it for each type."""
    builder = relax.BlockBuilder()
    shapes = [(3, 8), (8,), (8,)]
    params = [
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in zip(("x", "gamma", "beta"), shapes)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            norm = builder.emit(op.nn.layer_norm(*params, axes=[-1]))
            results = [builder.emit(op.add(norm, norm))] if plain else []
            results += [
                builder.emit(op.negative(builder.emit(op.astype(norm, each)))) for each in types
            ]
            out = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(out)
    return builder.get()


def results(mod):
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(-1, 1, shape).astype("float32") for shape in ((3, 8), (8,), (8,))]
    library = tvm.compile(legalize_ops()(mod), "llvm")
    machine = relax.VirtualMachine(library, tvm.cpu())
    return [each.numpy() for each in machine["main"](*map(tvm.runtime.tensor, inputs))]


def test_both_results_are_those_of_the_operators():
    mod = module()
    rounded = round_norms(mod, "main")
    text = rounded["main"].script()
    assert "layer_norm" in text
    assert "R.nn.layer_norm" not in text
    assert "astype" not in text
    for found, expected in zip(results(rounded), results(mod), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "options", [{"plain": False}, {"types": ()}, {"types": ("float16", "bfloat16")}]
)
def test_others_stay_as_they_are(options):
    mod = module(**options)
    assert round_norms(mod, "main").same_as(mod)
