"""Tests of the simplification of calls, and of the whole pipeline."""

from __future__ import annotations

import numpy as np
import pytest
import tvm_ffi
from tvm import relax

from compiler.ir import simplify_passes
from compiler.ir.simplify import SimplifyExpr

OPS = relax.op
TENSOR = ((2, 3, 4), "float32")


def number(value):
    return relax.const(value, "float32")


NOTHING = {
    "reshape": lambda x: OPS.reshape(x, (2, 3, 4)),
    "permute_dims": lambda x: OPS.permute_dims(x, [0, 1, 2]),
    "astype": lambda x: OPS.astype(x, "float32"),
    "broadcast_to": lambda x: OPS.broadcast_to(x, (2, 3, 4)),
    "strided_slice": lambda x: OPS.strided_slice(x, [1], [0], [3]),
    "concat": lambda x: OPS.concat([x], 1),
    "x + 0": lambda x: OPS.add(number(0.0), x),
    "x - 0": lambda x: OPS.subtract(x, number(0.0)),
    "x * 1": lambda x: OPS.multiply(x, relax.const(np.ones((3, 1), "float32"))),
    "x / 1": lambda x: OPS.divide(x, number(1.0)),
    "x ** 1": lambda x: OPS.power(x, number(1.0)),
    "there and back": lambda x: OPS.permute_dims(OPS.permute_dims(x, [2, 0, 1]), [1, 2, 0]),
    "expanded and squeezed": lambda x: OPS.squeeze(OPS.expand_dims(x, [1]), [1]),
}


@pytest.mark.parametrize("name", NOTHING)
def test_what_changes_nothing_disappears(name, build, operators):
    mod = build(lambda b, x: OPS.exp(NOTHING[name](x)), x=TENSOR)
    assert operators(SimplifyExpr()(mod)) == {"exp": 1}


ONE = {
    "two reshapes": (lambda x: OPS.reshape(OPS.reshape(x, (6, 4)), (4, 6)), "reshape"),
    "flatten of a reshape": (lambda x: OPS.flatten(OPS.reshape(x, (6, 4))), "reshape"),
    "two transpositions": (
        lambda x: OPS.permute_dims(OPS.permute_dims(x, [2, 0, 1]), [2, 1, 0]),
        "permute_dims",
    ),
    "moving an axis of extent 1": (
        lambda x: OPS.permute_dims(OPS.expand_dims(x, [0]), [1, 2, 0, 3]),
        "reshape",
    ),
    "division by a power of two": (lambda x: OPS.divide(x, number(8.0)), "multiply"),
    "square": (lambda x: OPS.power(x, number(2.0)), "multiply"),
    "root": (lambda x: OPS.power(OPS.exp(x), number(0.5)), "sqrt"),
    "inverse root": (lambda x: OPS.divide(number(1.0), OPS.sqrt(OPS.exp(x))), "rsqrt"),
    "an empty operand": (
        lambda x: OPS.concat([x, OPS.zeros((2, 0, 4), "float32"), x], 1),
        "concat",
    ),
    "relu twice": (lambda x: OPS.nn.relu(OPS.nn.relu(x)), "nn.relu"),
    "clip twice": (lambda x: OPS.clip(OPS.clip(x, -1, 3), 0, 6), "clip"),
}


@pytest.mark.parametrize("exponent", [0.25, 0.75])
def test_quarters_of_a_power_are_roots(exponent, build, operators, run, rng):
    mod = build(lambda b, x: OPS.power(OPS.exp(x), number(exponent)), x=TENSOR)
    after = SimplifyExpr()(mod)
    assert set(operators(after)) <= {"exp", "sqrt", "multiply"}
    data = rng.normal(size=TENSOR[0]).astype("float32")
    np.testing.assert_allclose(run(after, data), run(mod, data), rtol=1e-6)


@pytest.mark.parametrize("name", ONE)
def test_what_one_operator_can_do_is_done_by_one(name, build, operators, run, rng):
    expression, operator = ONE[name]
    mod = build(lambda b, x: expression(x), x=TENSOR)
    after = SimplifyExpr()(mod)
    counts = operators(after)
    counts.pop("exp", None)
    assert counts == {operator: 1}
    data = rng.normal(size=TENSOR[0]).astype("float32")
    np.testing.assert_allclose(run(after, data), run(mod, data), rtol=1e-5)


KEPT = {
    "a broadcasting addition of zeros": lambda x: OPS.add(x, OPS.zeros((5, 2, 3, 4), "float32")),
    "a division by three": lambda x: OPS.divide(x, number(3.0)),
    "a cast": lambda x: OPS.astype(x, "float16"),
    "a slice that reverses nothing but skips": lambda x: OPS.strided_slice(x, [1], [0], [3], [2]),
    "a transposition": lambda x: OPS.permute_dims(x, [1, 0, 2]),
    "clips that exclude each other's range": lambda x: OPS.clip(OPS.clip(x, 5, 6), 0, 1),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_does_something_keeps_its_result(name, build, run, rng):
    mod = build(lambda b, x: KEPT[name](x), x=TENSOR)
    data = rng.normal(size=TENSOR[0]).astype("float32") * 3
    np.testing.assert_allclose(run(SimplifyExpr()(mod), data), run(mod, data), rtol=1e-6)


def test_the_pipeline_runs_by_level_and_name():
    names = [(p.info.name, p.info.opt_level) for p in simplify_passes()]
    assert set(names) == {
        ("FoldConstant", 2),
        ("SimplifyExpr", 0),
        ("FoldExplicitPadding", 0),
        ("RecognizeLayerNorm", 1),
        ("RecognizeGelu", 0),
        ("RecognizeSilu", 1),
        ("SimplifyInference", 0),
        ("FoldScaleAxis", 3),
    }


def test_functions_of_code_generators_are_left_alone(build, operators):
    mod = build(lambda b, x: OPS.multiply(x, number(1.0)), x=TENSOR)
    mod["main"] = mod["main"].with_attr("Codegen", "other")
    assert operators(SimplifyExpr()(mod)) == {"multiply": 1}
    assert tvm_ffi.structural_equal(SimplifyExpr()(mod), mod)


@pytest.mark.parametrize(
    "body",
    [
        lambda x: OPS.squeeze(x, [1]),
        lambda x: OPS.expand_dims(x, [0]),
        lambda x: OPS.permute_dims(x, [1, 0, 2]),
    ],
)
def test_axes_of_empty_tensors_are_left_to_operators_that_know_them(body, build):
    """To a reshape, an extent of 0 is the operand's in the same place."""
    mod = build(lambda b, x: body(x), x=((0, 1, 3), "float32"))
    shape = mod["main"].ret_ty.shape
    assert tvm_ffi.structural_equal(SimplifyExpr()(mod)["main"].ret_ty.shape, shape)


def test_nothing_is_computed_for_what_has_no_elements(build, operators):
    def body(b, x):
        none = OPS.strided_slice(OPS.exp(x), [1], [3], [3])
        return OPS.sum(OPS.matmul(none, OPS.permute_dims(x, [0, 2, 1])), [1])

    assert operators(SimplifyExpr()(build(body, x=TENSOR))) == {"sum": 1}
