"""What old scripts and tests do with expressions, under the old names."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from compiler import legacy
from compiler.errors import BuildError, LegacyImportError


@pytest.fixture(autouse=True)
def old_names():
    legacy.install()
    yield
    legacy.uninstall()


@pytest.fixture
def relay():
    from compiler import relay

    return relay


def test_arithmetic_makes_relays_operators(relay):
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    assert [e.op.name for e in (x + y, x - y, x * y, x / y)] == [
        *("add", "subtract", "multiply", "divide")
    ]
    assert (x < y).op.name == "less" and (-x).op.name == "negative"
    assert x.astype("int32").ty.dtype == "int32"
    reversed_difference = 1.0 - x
    run = relay.create_executor("graph").evaluate(relay.Function([x], reversed_difference))
    np.testing.assert_array_equal(run(np.array([3, 1], "float32")).numpy(), [-2, 0])


def test_a_function_body_has_the_attributes_of_what_it_computes(relay):
    x = relay.var("x", shape=(1, 8))
    function = relay.Function([x], relay.nn.softmax(relay.exp(x), axis=1))
    body = tvm.IRModule.from_expr(function)["main"].body
    assert isinstance(body, relay.Call) and not isinstance(body, relay.Tuple)
    assert body.op == relay.op.get("nn.softmax") and body.attrs.axis == 1
    assert body.args[0].op.name == "exp"
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = body.no_such_thing


def test_expressions_are_compared_whatever_their_variables_are_called(relay):
    def made(name, reverse=False, power=2.0):
        x = relay.var(name, shape=(3,))
        left, right = relay.exp(x), relay.power(x, relay.const(power))
        if reverse:
            left, right = right, left
        return relay.Function([x], relay.add(left, right))

    tvm.ir.assert_structural_equal(made("x"), tvm.IRModule.from_expr(made("y"))["main"])
    assert tvm.ir.structural_hash(made("x")) == tvm.ir.structural_hash(made("y"))
    assert not tvm.ir.structural_equal(made("x"), made("x", reverse=True))
    with pytest.raises(ValueError, match="StructuralEqual"):
        tvm.ir.assert_structural_equal(made("x"), made("x", power=3.0))


def test_types_with_equal_extents_are_equal(relay):
    n, m = tvm.te.size_var("n"), tvm.te.size_var("m")
    x = relay.var("x", relay.TensorType((n, 4), "float32"))
    joined = relay.concatenate([x, x, x], axis=0)
    assert joined.checked_type == relay.TensorType((n * 3, 4), "float32")
    assert joined.checked_type != relay.TensorType((n * 2, 4), "float32")
    assert joined.checked_type != relay.TensorType((m * 3, 4), "float32")
    anything = relay.TensorType((relay.Any(), 2))
    assert anything == relay.TensorType((tvm.tir.Any(), 2))
    assert anything != relay.TensorType((n, 2))
    assert np.zeros(2, joined.checked_type.dtype).dtype == np.float32


def test_an_operator_takes_attributes_before_it_is_called(relay):
    tvm.ir.register_op_attr("nn.upsampling3d", "target.of_this_test", True)
    assert tvm.ir.Op.get("nn.upsampling3d").get_attr("target.of_this_test")
    assert tvm.ir.Op.get("nn.upsampling3d").get_attr("no.such.attribute") is None
    x = relay.var("x", shape=(1, 2, 2, 2, 2))
    assert relay.nn.upsampling3d(x).op.get_attr("target.of_this_test")


def test_an_attribute_set_for_a_while_is_taken_back(relay):
    from tvm.relay.testing.temp_op_attr import TempOpAttr

    def legal(_attrs, inputs, _types):
        return relay.multiply(inputs[0], relay.const(2.0))

    x = relay.var("x", shape=(2,))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))
    with TempOpAttr("nn.relu", "FTVMLegalize", legal):
        inside = relay.transform.Legalize()(mod)
    assert inside["main"].body.op.name == "multiply"
    assert relay.transform.Legalize()(mod)["main"].body.op.name == "nn.relu"


def test_a_mutated_call_keeps_its_attributes(relay):
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(4, 3))
    call = relay.nn.softmax(x, axis=0)
    again = relay.Call(call.op, [y], call.attrs, call.type_args)
    assert again.attrs.axis == 0 and [int(n) for n in again.checked_type.shape] == [4, 3]


def test_scopes_are_built_in_the_order_in_which_they_happen(relay):
    cond, x = relay.var("cond", "bool"), relay.var("x", shape=(2,))
    builder = relay.ScopeBuilder()
    with builder.if_scope(cond):
        twice = builder.let("twice", relay.add(x, x))
        builder.ret(relay.add(twice, twice))
    with builder.else_scope():
        builder.ret(x)
    run = relay.create_executor("vm").evaluate(relay.Function([cond, x], builder.get()))
    ones = np.ones(2, "float32")
    np.testing.assert_array_equal(run(np.array(True), ones).numpy(), 4 * ones)
    np.testing.assert_array_equal(run(np.array(False), ones).numpy(), ones)


def test_importers_helpers_tell_types_shapes_and_values():
    from tvm import relay
    from tvm.relay.frontend import common

    x = relay.var("x", shape=(2, 3))
    assert common.infer_shape(relay.transpose(x)) == (3, 2)
    assert common.infer_channels(x) == 2
    doubled = relay.add(x, x)
    ones = np.ones((2, 3), "float32")
    np.testing.assert_array_equal(common.infer_value(doubled, {"x": ones}).numpy(), 2 * ones)
    value, known = common.try_infer_value(doubled)
    assert not known and value is doubled
    parts = common.unbind(x, axis=0)
    assert len(parts) == 2 and common.infer_shape(parts[1]) == (3,)


def test_executor_options_are_checked_and_reach_the_build(relay):
    executor = relay.backend.Executor("graph", {"link-params": True})
    assert executor["link-params"] and "interface-api" not in executor
    assert (
        relay.backend.Executor.list_registered_options("aot")["interface-api"] == "runtime.String"
    )
    with pytest.raises(tvm.TVMError, match='Executor "woof" is not defined'):
        relay.backend.Executor("woof")
    with pytest.raises(tvm.TVMError, match="should have type"):
        relay.backend.Executor("graph", {"link-params": "yes"})
    x = relay.var("x", shape=(2,))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))
    relay.build(mod, "llvm", executor=executor, runtime=relay.backend.Runtime("cpp"))
    with pytest.raises(BuildError, match="crt"):
        relay.build(mod, "llvm", runtime=relay.backend.Runtime("crt"))


def test_the_targets_of_tests_are_those_that_run_here():
    import tvm.testing

    assert ("llvm", tvm.cpu()) in tvm.testing.enabled_targets()
    assert tvm.testing.device_enabled("llvm -mcpu=core-avx2")
    assert not tvm.testing.device_enabled("hexagon")


def test_a_name_of_an_absent_module_refuses_when_it_is_called():
    from tvm.relay.quantize import quantize

    with pytest.raises(LegacyImportError, match=r"tvm\.relay\.quantize\.quantize is gone"):
        quantize(None)


def test_logsumexp_is_made_of_relays_operators(relay):
    x = relay.var("x", shape=(2, 5))
    made = relay.logsumexp(x, axis=1)
    assert made.op.name == "squeeze" and "axis=" in made.astext()
    assert len(relay.mean_std(x, axis=1)) == 2
    values = np.linspace(-4, 4, 10, dtype="float32").reshape(2, 5)
    run = relay.create_executor("graph").evaluate(relay.Function([x], made))
    np.testing.assert_allclose(run(values).numpy(), np.log(np.exp(values).sum(1)), rtol=1e-6)


def test_a_deformable_convolution_types_its_offsets(relay):
    x, offset, weight = relay.var("x", shape=(2, 4, 9, 8)), relay.var("o"), relay.var("w")
    relay.nn.deformable_conv2d(
        x, offset, weight, kernel_size=(3, 3), channels=6, strides=(2, 1), deformable_groups=2
    )
    assert [int(n) for n in offset.checked_type.shape] == [2, 36, 4, 6]


def test_a_float_is_limited_by_whole_numbers(relay):
    x = relay.var("x", shape=(3,))
    run = relay.create_executor("graph").evaluate(relay.Function([x], relay.clip(x, 0, 6)))
    np.testing.assert_array_equal(run(np.array([-1, 2.5, 9], "float32")).numpy(), [0, 2.5, 6])
