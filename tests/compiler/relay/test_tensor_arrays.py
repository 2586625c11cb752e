"""Tensor arrays and loops of the builder, and types that are compared by their class."""

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import relay
from compiler.errors import RelayError
from compiler.relay.loops import while_loop
from compiler.relay.prelude import Prelude, StaticTensorArrayOps, import_from_std


def test_an_array_is_written_read_and_stacked():
    mod = tvm.IRModule()
    prelude = Prelude(mod)
    make, write, stack = (
        prelude.get_global_var(name, "float32")
        for name in ("tensor_array", "tensor_array_write", "tensor_array_stack")
    )
    tensor1 = prelude.get_tensor_ctor("tensor1", "float32")
    v = relay.var("v", shape=(3,))
    array = make(relay.const(2))
    array = write(array, relay.const(0), tensor1(v))
    array = write(array, relay.const(1), tensor1(relay.exp(v)))
    mod["main"] = relay.Function([v], stack(array))
    value = np.array([0, 1, 2], "float32")
    (found,) = relay.create_executor("vm", mod).evaluate()(value)
    np.testing.assert_allclose(found.numpy(), np.stack([value, np.exp(value)]), rtol=1e-6)


def test_an_array_of_one_shape_is_unstacked_and_joined():
    mod = tvm.IRModule()
    prelude = Prelude(mod)
    StaticTensorArrayOps(prelude, "int32", [2, 3]).register()
    StaticTensorArrayOps(prelude, "int32", [3]).register()
    unstack = prelude.get_global_var_static("tensor_array_unstack", "int32", [2, 3])
    concat = prelude.get_global_var_static("tensor_array_concat", "int32", [3])
    v = relay.var("v", shape=(2, 3), dtype="int32")
    mod["main"] = relay.Function([v], concat(unstack(v)))
    value = np.arange(6, dtype="int32").reshape(2, 3)
    (found,) = relay.create_executor("vm", mod).evaluate()(value)
    np.testing.assert_array_equal(found.numpy(), value.reshape(6))


def test_definitions_that_are_not_there_are_refused():
    with pytest.raises(RelayError, match=r"none in 'gradient\.rly'"):
        import_from_std(tvm.IRModule(), "gradient.rly")


def test_a_loop_goes_on_while_its_condition_holds():
    i = relay.var("i", shape=(), dtype="int32")
    total, n = relay.var("total", shape=(2,)), relay.var("n", shape=(), dtype="int32")
    loop = while_loop(
        lambda i, _: relay.less(i, n),
        [i, total],
        lambda i, total: (relay.add(i, relay.const(1)), relay.add(total, total)),
    )
    start = relay.var("start", shape=(2,))
    body = relay.TupleGetItem(relay.Call(loop, [relay.const(0), start]), 1)
    mod = tvm.IRModule()
    mod["main"] = relay.Function([n, start], body)
    with pytest.warns(UserWarning, match="a function calls itself"):
        run = relay.create_executor("vm", mod).evaluate()
    for count in (0, 3, 10):
        found = run(np.int32(count), np.ones(2, "float32"))
        np.testing.assert_array_equal(found.numpy(), [2.0**count] * 2)


@pytest.mark.parametrize(
    ("reader", "wanted"),
    [
        (
            lambda c, x, v: relay.If(c, v, relay.subtract(relay.exp(x), v)),
            lambda x, v: (v, np.exp(x) - v),
        ),
        (lambda c, x, v: relay.If(c, relay.If(c, v, x), relay.exp(v)), lambda x, v: (v, np.exp(v))),
        (
            lambda c, x, v: relay.add(relay.If(c, relay.exp(v), x), v),
            lambda x, v: (np.exp(v) + v, x + v),
        ),
    ],
    ids=["both branches", "a branch of a branch", "a branch, then the function"],
)
def test_a_loop_that_branches_share_is_computed_once_outside_of_them(reader, wanted):
    x, c = relay.var("x", shape=(2,)), relay.var("c", shape=(), dtype="bool")
    loop = while_loop(
        lambda i, _: relay.less(i, relay.const(2)),
        [relay.var("i", shape=(), dtype="int32"), relay.var("s", shape=(2,))],
        lambda i, s: (relay.add(i, relay.const(1)), relay.tanh(s)),
    )
    value = relay.TupleGetItem(relay.Call(loop, [relay.const(0), x]), 1)
    mod = tvm.IRModule.from_expr(relay.Function([x, c], reader(c, x, value)))
    assert relay.astext(mod).count("let %while_loop") == 1
    with pytest.warns(UserWarning, match="a function calls itself"):
        run = relay.create_executor("vm", mod).evaluate()
    data = np.array([0.5, -1], "float32")
    results = wanted(data, np.tanh(np.tanh(data)))
    for flag, expected in zip((True, False), results):
        np.testing.assert_allclose(run(data, np.array(flag)).numpy(), expected, rtol=1e-5)


def test_a_class_of_relay_is_the_class_of_its_nodes():
    pair = relay.Tuple([relay.const(1)])
    assert isinstance(pair, relay.Tuple) and relay.Tuple == relax.Tuple
    assert relay.Tuple != relay.TupleGetItem and {relay.Tuple: 1}[relax.Tuple] == 1
