"""Expressions, functions and analyses as scripts make them."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import relay
from compiler.errors import RelayError, RelayTypeError
from compiler.relay.build_module import bind_params_by_name
from compiler.relay.nested_expressions import nested


def _calls(function: relax.Function) -> list[str]:
    return [
        str(binding.value.op.name)
        for block in function.body.blocks
        for binding in block.bindings
        if isinstance(binding.value, tvm.ir.Call)
    ]


def test_weights_without_a_type_get_it_from_their_operator():
    x = relay.var("x", shape=(1, 3, 8, 8))
    weight, bias = relay.var("w"), relay.var("b")
    y = relay.nn.conv2d(x, weight, channels=4, kernel_size=(3, 3), padding=(1, 1))
    relay.nn.bias_add(y, bias)
    assert [int(size) for size in weight.ty.shape.values] == [4, 3, 3, 3]
    assert [int(size) for size in bias.ty.shape.values] == [4]


def test_calls_hold_attributes_as_relay_did():
    x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    call = relay.nn.conv2d(x, w, padding=1)
    assert str(call.op.name) == "nn.conv2d"
    assert [int(value) for value in call.attrs["padding"]] == [1, 1, 1, 1]
    assert [int(value) for value in call.attrs["strides"]] == [1, 1]


def test_a_shared_expression_is_bound_once():
    x = relay.var("x", shape=(2, 3))
    shared = relay.exp(x)
    function = relay.Function([x], relay.multiply(relay.add(shared, shared), shared))
    assert _calls(function) == ["exp", "add", "multiply"]


def test_free_variables_come_in_the_order_of_evaluation():
    a, b, c = (relay.var(name, shape=(2,)) for name in "abc")
    names = [var.name for var in relay.analysis.free_vars(relay.add(relay.add(b, a), c))]
    assert names == ["b", "a", "c"]


def test_symbols_of_shapes_are_not_free_variables():
    x = relay.var("x", shape=(relay.Any(), 8))
    assert [var.name for var in relay.analysis.free_vars(relay.exp(x))] == ["x"]


def test_a_tuple_of_results_is_indexed_unpacked_and_has_a_length():
    x = relay.var("x", shape=(4, 3))
    parts = relay.split(x, 2)
    first, second = parts
    assert len(parts) == 2 and isinstance(first, relay.TupleGetItem)
    with pytest.raises(IndexError):
        parts[2]
    joined = relay.concatenate([second, first], 0)
    assert [int(size) for size in joined.ty.shape.values] == [4, 3]


def test_operators_on_expressions_build_and_run():
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    function = relay.Function([x, y], -(x + y) * x - y / relay.const(2.0))
    a, b = np.array([1, 2], "float32"), np.array([3, 4], "float32")
    got = relay.create_executor("graph").evaluate(function)(a, b).numpy()
    np.testing.assert_allclose(got, -(a + b) * a - b / 2)


def test_a_shared_expression_is_bound_once_below_a_let_too():
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    made = y
    for _ in range(60):
        made = relay.add(made, made)
    function = relay.Function([x], relay.Let(y, relay.nn.relu(x), made))
    assert len(function.body.blocks[0].bindings) == 61


def test_let_and_if_run():
    x = relay.var("x", shape=(2,))
    flag = relay.var("flag", "bool")
    doubled = relay.var("doubled", shape=(2,))
    body = relay.If(flag, doubled, relay.negative(doubled))
    function = relay.Function([x, flag], relay.Let(doubled, relay.add(x, x), body))
    run = relay.create_executor("vm").evaluate(function)
    data = np.array([1, 2], "float32")
    assert run(data, np.array(True)).numpy().tolist() == [2, 4]
    assert run(data, np.array(False)).numpy().tolist() == [-2, -4]


def test_extents_may_be_open():
    x = relay.var("x", shape=(relay.Any(), 3))
    function = relay.Function([x], relay.nn.softmax(relay.add(x, relay.const(1.0))))
    data = np.random.RandomState(0).rand(5, 3).astype("float32")
    executable = relay.vm.compile(tvm.IRModule.from_expr(function), "llvm")
    got = relay.vm.VirtualMachine(executable, tvm.cpu()).run(data).numpy()
    powers = np.exp(data)
    np.testing.assert_allclose(got, powers / powers.sum(1, keepdims=True), rtol=1e-5)


def test_a_variable_takes_a_type_or_a_shape_not_both():
    with pytest.raises(RelayTypeError, match="not both"):
        relay.var("x", relay.TensorType((2,)), shape=(2,))


def test_an_untyped_parameter_is_named():
    function = relay.Function([relay.var("w")], relay.const(1.0))
    with pytest.raises(RelayTypeError, match="parameter w"):
        relay.build(function, "llvm")


def test_a_call_types_the_parameters_of_a_function():
    w = relay.var("w")
    function = relay.Function([w], relay.nn.relu(w)).with_attr("Composite", "mine.relu")
    x = relay.var("x", shape=(2, 3))
    call = function(x)
    assert [int(extent) for extent in call.ty.shape] == [2, 3]
    assert call.op.attrs["Composite"] == "mine.relu"
    run = relay.create_executor("graph").evaluate(relay.Function([x], call))
    np.testing.assert_array_equal(run(-np.ones((2, 3), "float32")).numpy(), np.zeros((2, 3)))


def test_expressions_over_untyped_variables_get_types_with_their_variable():
    free = relay.var("free")
    log = relay.log(free)
    with pytest.raises(RelayTypeError, match="parameter free has no type"):
        relay.create_executor("graph").evaluate(relay.add(log, log))
    x = relay.var("x", shape=(4,))
    bound = relay.Let(free, x, relay.add(log, log))
    run = relay.create_executor("graph").evaluate(relay.Function([x], bound))
    np.testing.assert_allclose(run(np.full(4, np.e, "float32")).numpy(), np.full(4, 2), rtol=1e-6)


def test_parameters_are_bound_by_name_and_checked():
    x, w = relay.var("x", shape=(2,)), relay.var("w", shape=(2,))
    function = relay.Function([x, w], relay.add(x, w))
    bound = bind_params_by_name(function, {"w": np.ones(2, "float32"), "other": np.ones(3)})
    assert [var.name for var in bound.params] == ["x"]
    with pytest.raises(RelayTypeError, match="'w'"):
        bind_params_by_name(function, {"w": np.ones(3, "float32")})


def test_constants_have_relays_dtypes():
    assert str(relay.const(1).ty.dtype) == "int32"
    assert str(relay.const(1.5).ty.dtype) == "float32"
    assert str(relay.const(np.float64(1.5)).ty.dtype) == "float32"
    assert str(relay.const(np.ones(2, "int64"), "int64").ty.dtype) == "int64"


def test_analyses_count_operators_layers_and_multiplications():
    x = relay.var("x", shape=(1, 3, 8, 8))
    y = relay.nn.relu(relay.nn.conv2d(x, relay.var("w"), channels=4, kernel_size=(3, 3)))
    y = relay.nn.conv2d(y, relay.var("v"), channels=2, kernel_size=(1, 1))
    y = relay.nn.dense(relay.nn.batch_flatten(y), relay.var("d"), units=5)
    function = relay.Function(relay.analysis.free_vars(y), y)
    mod = tvm.IRModule.from_expr(function)
    assert relay.analysis.list_op_freqs(mod)["nn.conv2d"] == 2
    fused = relay.transform.FuseOps(2)(mod)
    assert relay.analysis.list_op_freqs(fused) == relay.analysis.list_op_freqs(mod)
    assert relay.analysis.count_layers(function, ["nn.conv2d"]) == 2
    want = 36 * 4 * 27 + 36 * 2 * 4 + 72 * 5
    assert relay.analysis.get_total_mac_number(function) == want
    assert relay.analysis.all_dtypes(function) == {"float32"}


def test_an_expression_of_a_thousand_operators_is_flat_and_deep_ones_do_not_recurse():
    x = relay.var("x", shape=(2, 3))
    value = x
    start = time.process_time()
    for index in range(3000):
        value = relay.add(value, x) if index % 2 else relay.nn.relu(value)
    function = relay.Function([x], value)
    assert len(_calls(function)) == 3000
    assert time.process_time() - start < 30


def test_nested_tuples_are_flattened_by_a_build():
    x = relay.var("x", shape=(2,))
    pair = relay.Tuple([relay.exp(x), x])
    lib = relay.build(relay.Function([x], relay.Tuple([pair, relay.negative(x)])), "llvm")
    from compiler.runtime.graph_executor import GraphModule

    module = GraphModule(lib["default"](tvm.cpu()))
    module.set_input("x", np.array([0, 1], "float32"))
    module.run()
    assert module.get_num_outputs() == 3
    np.testing.assert_allclose(module.get_output(2).numpy(), [0, -1])


def test_a_range_has_defaults_and_constants_are_values_of_variables():
    evaluate = relay.create_executor("graph").evaluate
    for given, wanted in (((4,), np.arange(4)), ((1, 7), np.arange(1, 7))):
        bounds = [relay.const(float(each), "float32") for each in given]
        np.testing.assert_array_equal(evaluate(relay.arange(*bounds)).numpy(), wanted)
    by_two = relay.arange(relay.const(5, "int32"), step=relay.const(2, "int32"), dtype="int32")
    np.testing.assert_array_equal(evaluate(by_two).numpy(), [0, 2, 4])
    x = relay.var("x", shape=(3,))
    found = evaluate(relay.negative(x), {x: relay.const(np.ones(3, "float32"))})
    np.testing.assert_array_equal(found.numpy(), -np.ones(3))


def test_a_global_function_may_call_itself():
    total = relay.GlobalVar("total")
    i = relay.var("i", shape=(), dtype="int32")
    below = relay.Call(total, [relay.subtract(i, relay.const(1))])
    body = relay.If(relay.equal(i, relay.const(0)), i, relay.add(below, i))
    mod = tvm.IRModule({})
    mod[total] = relay.Function([i], body, ret_type=relay.TensorType([], "int32"))
    n = relay.var("n", shape=(), dtype="int32")
    mod["main"] = relay.Function([n], total(n))
    with pytest.warns(UserWarning, match="a function calls itself"):
        run = relay.create_executor("vm", mod).evaluate()
    assert [int(run(np.int32(count)).numpy()) for count in (0, 5)] == [0, 15]


def test_a_step_of_a_module_is_a_call_or_a_field_of_a_tuple():
    x = relay.var("x", shape=(4, 2))
    parts = relay.split(relay.exp(x), 2)
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.add(parts[0], parts[1])))
    names = []
    for number in range(5):
        body = nested(relay.analysis.extract_intermdeiate_expr(mod, number)["main"])
        names.append(type(body).__name__ if isinstance(body, relax.TupleGetItem) else body.op.name)
    assert names == ["exp", "split", "TupleGetItem", "TupleGetItem", "add"]
    with pytest.raises(RelayError, match="has 5 steps"):
        relay.analysis.extract_intermdeiate_expr(mod, 5)


def test_a_condition_without_a_type_is_a_scalar_of_bool():
    b, x = relay.var("b"), relay.var("x", shape=(2,))
    function = relay.Function([b, x], relay.If(b, relay.exp(x), x))
    run = relay.create_executor("vm").evaluate(function)
    zeros = np.zeros(2, "float32")
    assert [float(run(taken, zeros).numpy()[0]) for taken in (True, False)] == [1.0, 0.0]


def test_a_call_has_the_span_that_it_is_given():
    x = relay.var("x", shape=(2,))
    made = relay.add(x, x)
    span = relay.Span(relay.SourceName("sum"), 3, 3, 0, 5)
    named = relay.Call(made.op, made.args, made.attrs, span=span)
    assert named.span.source_name.name == "sum"
    assert "span=sum:3:0" in relay.astext(relay.Function([x], relay.nn.relu(named)))


def test_a_function_that_calls_itself_returns_what_its_other_branch_does():
    count, data = relay.var("count", shape=(), dtype="int32"), relay.var("data", shape=(2,))
    itself = relay.GlobalVar("halve")
    again = itself(relay.subtract(count, relay.const(1)), relay.multiply(data, relay.const(0.5)))
    body = relay.If(relay.equal(count, relay.const(0)), data, again)
    mod = tvm.IRModule()
    mod[itself] = relay.Function([count, data], body)
    assert [int(extent) for extent in mod["halve"].ret_ty.shape.values] == [2]
    x = relay.var("x", shape=(2,))
    mod["main"] = relay.Function([x], itself(relay.const(3), x))
    run = relay.create_executor("vm", mod=mod).evaluate()
    np.testing.assert_array_equal(run(np.array([8, 16], "float32")).numpy(), [1, 2])


def test_the_text_of_a_function_declares_what_it_does_not_bind():
    x, y = relay.var("x"), relay.var("y")
    text = relay.astext(relay.Function([x], y))
    assert text.splitlines()[1:3] == ["free_var %y;", "fn (%x) {"]
    assert [var.name for var in relay.analysis.free_vars(relay.parse_expr(text))] == ["y"]


def test_a_call_of_a_tensor_is_refused():
    x = relay.var("x", shape=(2,))
    with pytest.raises(RelayTypeError, match=r"must be a function, not Tensor\[\(2\), float32\]"):
        relay.Call(x, [x])
