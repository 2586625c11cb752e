import re
from collections import Counter

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.errors import UnsupportedRelayOperatorError
from compiler.lowering.bind import bind_params
from compiler.relay import transform
from compiler.relay.expr_functor import ExprMutator, ExprVisitor
from tests.compiler.relay.oracle import run

HEADER = '#[version = "0.0.5"]\n'
CONV = "padding=[1, 1, 1, 1], channels=4, kernel_size=[3, 3]"
CONV_TYPE = "Tensor[(4, 2, 3, 3), float32]"


def module(text):
    return relay.fromtext(HEADER + "def @main(" + text)


def operators(mod):
    return Counter(re.findall(r"(?:= |  )([\w.]+)\(", relay.astext(mod, False)))


def inputs_of(mod, seed=0):
    rng = np.random.default_rng(seed)
    return {
        str(var.name): rng.uniform(0.2, 1, [int(n) for n in var.ty.shape.values]).astype(
            str(var.ty.dtype)
        )
        for var in mod["main"].params
    }


def check_same_results(before, after, rtol=1e-5):
    values = inputs_of(before)
    wanted = run(before, [values[str(var.name)] for var in before["main"].params])
    got = run(after, [values[str(var.name)] for var in after["main"].params])
    for mine, reference in zip(got, wanted):
        assert mine.dtype == reference.dtype
        np.testing.assert_allclose(mine, reference, rtol=rtol, atol=1e-6)


TEXTS = {
    "SimplifyInference": "%x: Tensor[(1, 3, 2, 2), float32], %g: Tensor[(3), float32]) "
    "{ %0 = nn.batch_norm(%x, %g, %g, %g, %g); nn.dropout(%0.0).0 }",
    "CanonicalizeOps": "%x: Tensor[(1, 3, 2, 2), float32], %b: Tensor[(3), float32]) "
    "{ nn.bias_add(%x, %b) }",
    "DivToMul": "%x: Tensor[(3), float32]) { divide(%x, 4f) }",
    "EliminateCommonSubexpr": "%x: Tensor[(3), float32]) { add(tanh(%x), tanh(%x)) }",
    "FoldConstant": "%x: Tensor[(3), float32]) { add(%x, exp(add(1f, 2f))) }",
    "SimplifyExpr": "%x: Tensor[(2, 3), float32]) { %0 = reshape(reshape(%x, newshape=[6]), "
    "newshape=[3, 2]); %1 = transpose(transpose(%0, axes=[1, 0]), axes=[1, 0]); "
    '%2 = add(multiply(%1, 1f), zeros_like(%1)); cast(%2, dtype="float32") }',
}
LEFT = {
    "SimplifyInference": {"divide", "sqrt", "add", "multiply", "negative", "expand_dims"},
    "CanonicalizeOps": {"expand_dims", "add"},
    "DivToMul": {"multiply"},
    "EliminateCommonSubexpr": {"tanh", "add"},
    "FoldConstant": {"add"},
    "SimplifyExpr": {"reshape"},
}


@pytest.mark.parametrize("name", LEFT)
def test_a_pass_leaves_simpler_operators_that_compute_the_same(name):
    before = module(TEXTS[name])
    after = getattr(transform, name)()(before)
    assert set(operators(after)) == LEFT[name]
    assert after is not before
    check_same_results(before, after)


def test_equal_expressions_are_computed_once():
    after = transform.EliminateCommonSubexpr()(module(TEXTS["EliminateCommonSubexpr"]))
    assert operators(after)["tanh"] == 1


def test_dynamic_operators_with_known_shapes_become_static():
    text = "%x: Tensor[(2, 3), float32]) { dyn.reshape(%x, meta[relay.Constant][0], newshape=[]) }"
    table = {"relay.Constant": [np.array([3, 2], "int64")]}
    before = relay.parse(HEADER + "def @main(" + text, init_meta_table=table)
    after = transform.DynamicToStatic()(before)
    assert set(operators(after)) == {"reshape"}
    check_same_results(before, after)


def test_scales_around_a_convolution_move_into_its_weights():
    before = module(
        f"%x: Tensor[(1, 2, 5, 5), float32], %w: {CONV_TYPE}, %s: Tensor[(4, 1, 1), float32], "
        "%i: Tensor[(2, 1, 1), float32]) "
        f"{{ %0 = nn.conv2d(multiply(nn.relu(%x), %i), %w, {CONV}); multiply(%0, %s) }}"
    )
    values = inputs_of(before)
    bound, _ = bind_params(before, {name: values[name] for name in "wsi"})
    after = transform.FoldScaleAxis()(bound)
    assert operators(after)["multiply"] == 0
    check_same_results(bound, after)


def test_convolutions_and_dense_layers_of_one_input_become_one():
    before = module(
        f"%x: Tensor[(1, 2, 5, 5), float32], %w: {CONV_TYPE}, %v: {CONV_TYPE}) "
        f"{{ add(nn.conv2d(%x, %w, {CONV}), nn.conv2d(%x, %v, {CONV})) }}"
    )
    after = transform.CombineParallelConv2D(min_num_branches=2)(before)
    assert operators(after)["nn.conv2d"] == 1
    check_same_results(before, after)

    before = module(
        "%x: Tensor[(2, 3), float32], %w: Tensor[(4, 3), float32], %v: Tensor[(4, 3), float32]) "
        "{ add(nn.dense(%x, %w, units=4), nn.dense(%x, %v, units=4)) }"
    )
    for to_batch, name in ((True, "nn.batch_matmul"), (False, "nn.dense")):
        after = transform.CombineParallelDense(2, to_batch)(before)
        assert operators(after)[name] == 1
        check_same_results(before, after)


def test_layouts_change_once_around_what_follows_a_convolution():
    before = module(
        f"%x: Tensor[(1, 2, 6, 6), float32], %w: {CONV_TYPE}, %b: Tensor[(4), float32]) {{ "
        f"%0 = nn.bias_add(nn.conv2d(%x, %w, {CONV}), %b); "
        "nn.max_pool2d(nn.relu(%0), pool_size=[2, 2], strides=[2, 2]) }"
    )
    after = transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]})(before)
    assert operators(after)["layout_transform"] == 4  # of data, weight, bias and result
    assert 'kernel_layout="HWIO"' in relay.astext(after)
    check_same_results(before, after)
    with pytest.raises(UnsupportedRelayOperatorError, match=r"nn\.konv"):
        transform.ConvertLayout({"nn.konv": ["NHWC"]})


def test_mixed_precision_keeps_the_result_type_and_its_value_nearly():
    before = module(
        "%x: Tensor[(2, 3), float32], %w: Tensor[(4, 3), float32]) "
        "{ nn.softmax(nn.relu(nn.dense(%x, %w, units=4))) }"
    )
    after = transform.ToMixedPrecision("float16")(before)
    assert "float16" in relay.astext(after)
    check_same_results(before, after, rtol=1e-2)


def test_fast_math_is_within_a_thousandth():
    before = module("%x: Tensor[(8), float32]) { add(exp(%x), tanh(%x)) }")
    after = transform.FastMath()(before)
    assert set(operators(after)) == {"fast_exp", "fast_tanh", "add"}
    check_same_results(before, after, rtol=1e-3)


def test_passes_obey_level_and_names_of_the_context():
    before = module(TEXTS["CanonicalizeOps"])
    sequence = tvm.transform.Sequential([transform.CanonicalizeOps()])
    for options, left in (
        ({"opt_level": 2}, "nn.bias_add"),
        ({"opt_level": 3}, "add"),
        ({"opt_level": 3, "disabled_pass": ["CanonicalizeOps"]}, "nn.bias_add"),
    ):
        with tvm.transform.PassContext(**options):
            assert left in operators(sequence(before))


def test_a_function_pass_of_a_script_runs_on_each_function():
    class ToTanh(ExprMutator):
        def visit_call(self, call):
            call = super().visit_call(call)
            return relay.tanh(call.args[0]) if call.op.name == "nn.relu" else call

    @transform.function_pass(opt_level=1)
    class Replace:
        def transform_function(self, func, mod, ctx):
            return ToTanh().visit(func)

    before = module("%x: Tensor[(3), float32]) { exp(nn.relu(%x)) }")
    assert set(operators(Replace()(before))) == {"tanh", "exp"}


def test_a_visitor_sees_nested_calls_once_with_their_attributes():
    class Names(ExprVisitor):
        def __init__(self):
            super().__init__()
            self.seen = []

        def visit_call(self, call):
            super().visit_call(call)
            self.seen.append((call.op.name, len(call.args)))

    visitor = Names()
    visitor.visit(module("%x: Tensor[(3), float32]) { %0 = exp(%x); add(%0, %0) }")["main"])
    assert visitor.seen == [("exp", 1), ("add", 2)]


def test_passes_that_relax_has_no_use_for_say_what_to_do():
    with pytest.raises(UnsupportedRelayOperatorError, match="StaticPlanBlockMemory"):
        transform.ManifestLifetimes  # noqa: B018


def test_optimize_takes_the_approximations_that_the_context_requires():
    before = module("%x: Tensor[(2, 8), float32]) { nn.softmax(add(exp(%x), tanh(%x)), axis=1) }")
    with tvm.transform.PassContext(opt_level=3, required_pass=["FastMath"]):
        after, _ = relay.optimize(before, "llvm")
    assert set(operators(after)) == {"fast_exp", "fast_tanh", "add", "nn.fast_softmax"}
    after, _ = relay.optimize(before, "llvm")
    assert "fast_exp" not in operators(after)
