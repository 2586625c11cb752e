"""Graphs of reports about the partitioning passes of TVM 0.6 to 0.12: regions and results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.relay import dialect, transform
from compiler.relay.dataflow_pattern import is_constant, is_op, is_tuple_get_item, wildcard
from compiler.relay.transform.regions import begin, end
from compiler.runtime.graph_executor import GraphModule
from compiler.runtime.load import load_module
from tests.compiler.relay.oracle import run

RNG = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def module(params: list[Any], *results: Any) -> tvm.IRModule:
    body = results[0] if len(results) == 1 else relay.Tuple(list(results))
    return tvm.IRModule.from_expr(relay.Function(params, body))


def partitioned(mod: tvm.IRModule, name: str, *operators: str, table: Any = ()) -> tvm.IRModule:
    """Regions of a compiler that takes these operators, or what the patterns of a table match."""
    for each in operators:
        attribute = f"target.{name}"
        tvm.ir.register_op_attr(dialect.operator(each).name, attribute, lambda _: True, 11)
    steps = [transform.InferType(), *([transform.MergeComposite(list(table))] if table else [])]
    steps += [transform.AnnotateTarget(name), transform.MergeCompilerRegions()]
    return tvm.transform.Sequential([*steps, transform.PartitionGraph()])(mod)


def regions(mod: tvm.IRModule) -> list[Any]:
    return [each for gvar, each in mod.functions_items() if gvar.name_hint != "main"]


def check(made: tvm.IRModule, mod: tvm.IRModule, *values: np.ndarray) -> None:
    for got, expected in zip(run(made, list(values)), run(mod, list(values)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("merges", [True, False])
def test_a_result_of_a_region_is_read_inside_and_outside(merges):
    x, y, z = (relay.var(name, shape=(3, 3)) for name in "xyz")
    first = end(relay.add(begin(x, "inout"), begin(y, "inout")), "inout")
    second = end(relay.add(begin(first, "inout"), begin(z, "inout")), "inout")
    mod = module([x, y, z], relay.add(first, second))
    if merges:
        mod = transform.MergeCompilerRegions()(mod)
    made = transform.PartitionGraph("own_name")(mod)
    assert len(regions(made)) == (1 if merges else 2)
    names = [gvar.name_hint for gvar, _ in made.functions_items() if gvar.name_hint != "main"]
    assert all(name.startswith("tvmgen_own_name_inout_main_") for name in names)
    values = [array(3, 3) for _ in range(3)]
    (got,) = run(made, values)
    np.testing.assert_allclose(got, 2 * (values[0] + values[1]) + values[2], rtol=1e-5)


def test_a_result_that_three_operators_read_is_returned_once():
    x = relay.var("x", shape=(4,))
    inner = relay.abs(x)
    mod = module([x], relay.nn.relu(inner), relay.tanh(inner), relay.log(inner))
    made = partitioned(mod, "threefold", "abs")
    (region,) = regions(made)
    assert isinstance(region.ret_ty, tvm.relax.TensorType)
    check(made, mod, array(4))


def test_a_region_does_not_reach_around_a_condition():
    x = relay.var("x", shape=(3,))
    first = relay.exp(x)
    branch = relay.If(
        relay.greater(relay.sum(first), relay.const(0.0)), relay.negative(x), relay.abs(x)
    )
    mod = module([x], relay.exp(relay.add(relay.tanh(branch), first)))
    made = partitioned(mod, "around_if", "exp", "tanh")
    assert len(regions(made)) == 3
    check(made, mod, array(3))


def test_operators_that_share_an_input_make_one_parameter_of_a_composite():
    x = relay.var("x", shape=(2, 3))
    shared = relay.add(relay.exp(x), relay.tanh(x))
    pattern = is_op("add")(is_op("exp")(wildcard()), is_op("tanh")(wildcard()))
    lengths = relay.const(np.float32([1, 2, 1]))
    mod = module([x], relay.sequence_mask(shared, lengths))
    made = partitioned(mod, "shares", table=[("shares.both", pattern)])
    (region,) = regions(made)
    assert len(region.params) == 1
    check(made, mod, array(2, 3))


@pytest.mark.parametrize("between", [True, False])
def test_a_pattern_that_joins_again_has_no_operator_between(between):
    x = relay.var("x", shape=(4,))
    inner = relay.nn.relu(x)
    clipped = relay.clip(relay.add(inner, inner) if between else inner, 0, 6)
    mod = module([x], relay.multiply(inner, clipped))
    joined = is_op("nn.relu")(wildcard())
    pattern = is_op("multiply")(joined, is_op("clip")(joined))
    made = partitioned(mod, "joins", table=[("joins.both", pattern)])
    assert len(regions(made)) == (0 if between else 1)
    check(made, mod, array(4))


@pytest.mark.parametrize("reverse", [True, False])
def test_operands_of_an_addition_match_in_either_order(reverse):
    row, x = relay.const(array(8)), relay.var("x", shape=(1, 8, 4, 4))
    operands = [
        relay.reshape(row, (1, 8, 1, 1)),
        relay.nn.conv2d(x, relay.const(array(8, 8, 1, 1))),
    ]
    total = relay.add(*(operands[::-1] if reverse else operands))
    statistics = [relay.const(np.abs(array(8)) + 0.5) for _ in range(4)]
    mod = module([x], relay.nn.relu(relay.nn.batch_norm(total, *statistics)[0]))
    added = is_op("add")(is_op("reshape")(wildcard()), is_op("nn.conv2d")(wildcard(), wildcard()))
    normal = is_op("nn.batch_norm")(added, *(wildcard() for _ in range(4)))
    pattern = is_op("nn.relu")(is_tuple_get_item(normal, 0))
    made = partitioned(mod, "either", table=[("either.all", pattern)])
    assert len(regions(made)) == 1
    check(made, mod, array(1, 8, 4, 4))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("relu", [True, False])
def test_optional_operators_after_an_attribute_may_be_absent(bias, relu):
    x = relay.var("x", shape=(1, 3, 8, 8))
    result = relay.nn.conv2d(x, relay.const(array(4, 3, 3, 3)))
    result = relay.nn.bias_add(result, relay.const(array(4))) if bias else result
    mod = module([x], relay.exp(relay.nn.relu(result) if relu else result))
    pattern = is_op("nn.conv2d")(wildcard(), is_constant()).has_attr({"groups": 1})
    pattern = pattern.optional(lambda each: is_op("nn.bias_add")(each, is_constant()))
    pattern = pattern.optional(lambda each: is_op("nn.relu")(each))
    made = partitioned(mod, "options", table=[("options.conv", pattern)])
    text = relay.astext(made)
    assert text.count("Composite=") == 1
    assert ("nn.bias_add_" in text, "nn.relu_" in text) == (bias, relu)
    check(made, mod, array(1, 3, 8, 8))


def test_two_libraries_with_a_region_of_one_name_run_their_own(tmp_path):
    loaded = []
    for factor, operators in ((1.0, ("exp", "multiply")), (2.0, ())):  # registered once
        x = relay.var("x", shape=(4,))
        mod = module([x], relay.add(relay.exp(relay.multiply(x, relay.const(factor))), x))
        made = partitioned(mod, "twins", *operators)
        relay.build(made, "llvm").export_library(tmp_path / f"{factor}.so")
        loaded.append((factor, load_module(tmp_path / f"{factor}.so")))
    for factor, library in loaded:
        executor = GraphModule(library["default"](tvm.cpu()))
        executor.run(x=np.ones(4, "float32"))
        np.testing.assert_allclose(
            executor.get_output(0).numpy(), np.full(4, np.exp(factor) + 1), rtol=1e-6
        )


def test_constants_of_regions_are_stored_once(tmp_path):
    weight, x = relay.const(array(256, 256)), relay.var("x", shape=(1, 256))
    mod = module([x], relay.nn.dense(relay.nn.relu(relay.nn.dense(x, weight)), weight))
    sizes = []
    for each in (mod, partitioned(mod, "stores", "nn.dense")):
        relay.build(each, "llvm").export_library(tmp_path / "library.so")
        sizes.append((tmp_path / "library.so").stat().st_size)
    assert sizes[1] < sizes[0] + 32 * 1024
