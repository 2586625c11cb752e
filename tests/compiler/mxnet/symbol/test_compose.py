"""Symbols put together operator by operator."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.errors import FrontendError, InputError, OutOfScopeError
from compiler.mxnet import nd, npx
from compiler.mxnet import symbol as sym
from compiler.mxnet.model import load_checkpoint, save_checkpoint
from compiler.mxnet.name import NameManager, Prefix
from compiler.mxnet.np import array

X = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)


def test_missing_inputs_become_variables_and_values_are_computed():
    with NameManager():
        data = sym.var("data", shape=(2, 3))
        hidden = sym.FullyConnected(data=data, num_hidden=4, name="fc")
        out = sym.FullyConnected(sym.Activation(hidden, act_type="relu"), num_hidden=2)
    names = ["data", "fc_weight", "fc_bias", "fullyconnected0_weight", "fullyconnected0_bias"]
    assert out.list_arguments() == names
    assert out.list_outputs() == ["fullyconnected0_output"]
    shapes, outputs, states = out.infer_shape()
    assert (shapes[1], shapes[3], outputs, states) == ((4, 3), (2, 4), [(2, 2)], [])
    exe = out.simple_bind(ctx="cpu", grad_req="null")
    assert list(exe.arg_dict) == names and not exe.aux_dict
    exe.arg_dict["data"][:] = X
    exe.arg_dict["fc_weight"][:] = 1
    exe.arg_dict["fullyconnected0_weight"][:] = 2
    (result,) = exe.forward()
    wanted = np.maximum(X.sum(1, keepdims=True), 0) * 8
    np.testing.assert_allclose(result.asnumpy(), np.repeat(wanted, 2, 1), rtol=1e-5, atol=1e-6)
    with pytest.raises(OutOfScopeError):
        exe.forward(is_train=True)
    with pytest.raises(OutOfScopeError):
        exe.backward()


def test_arithmetic_methods_and_groups_share_what_they_have_in_common():
    x = sym.Variable("x")
    y = sym.exp(x)
    both = sym.Group([2 / (y + 1) - y * y, -((3 - y) ** 2), y.sum(axis=1)])
    assert [node.op for node in both.graph.nodes].count("exp") == 1
    values = both.eval(x=X)
    e = np.exp(X)
    wanted = [2 / (e + 1) - e * e, -((3 - e) ** 2), e.sum(1)]
    for value, right in zip(values, wanted, strict=True):
        np.testing.assert_allclose(value, right, rtol=1e-5)
    assert sym.loads(both.tojson()).list_outputs() == both.list_outputs()
    (product,) = sym.linalg.gemm2(x, x, transpose_b=True, alpha=0.5).eval(x=X)
    np.testing.assert_allclose(product, 0.5 * X @ X.T, rtol=1e-5)
    (holds,) = (y > 1).eval(x=X)
    np.testing.assert_array_equal(holds.astype(bool), e > 1)


def test_states_of_batch_norm_are_auxiliary():
    net = sym.BatchNorm(sym.var("x"), name="bn")
    assert net.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    exe = net.bind(
        args=[np.ones((1, 2, 3), "float32"), np.ones(2, "float32"), np.zeros(2, "float32")],
        aux_states=[np.zeros(2, "float32"), np.full(2, 4, "float32")],
    )
    np.testing.assert_allclose(exe.forward()[0], 0.5, rtol=1e-3)
    assert list(exe.aux_dict) == ["bn_moving_mean", "bn_moving_var"]
    with pytest.raises(InputError, match="list of 1 arrays"):
        net.bind(args=[np.ones(2, "float32")])


def test_names_are_numbered_and_prefixed():
    with NameManager(), Prefix("net_"):
        first = sym.sin(sym.var("x"))
        assert (first.name, sym.sin(first).name) == ("net_sin0", "net_sin1")
        assert sym.cos(first, name="mine").name == "net_mine"
    with NameManager():
        assert (first + first).name == "_plus0"


def test_what_makes_no_sense_is_refused():
    x = sym.var("x")
    with pytest.raises(AttributeError, match="no operator 'Convolutoin'"):
        sym.Convolutoin(x)
    with pytest.raises(TypeError, match="not an input"):
        sym.exp(3)
    with pytest.raises(FrontendError, match="__shap__"):
        sym.var("x", shap=(1,))
    with pytest.raises(FrontendError, match="stype"):
        sym.var("x", stype="sparse")
    with pytest.raises(TypeError):
        x + "1"


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda x: x == 1, X == 1),
        (lambda x: x != 1, X != 1),
        (lambda x: x == x, np.ones_like(X)),
        (lambda x: x != sym.zeros((2, 3)), X != 0),
        (abs, np.abs(X)),
        (lambda x: x.astype("int32"), X.astype("int32")),
        (lambda x: 2 - x, 2 - X),
        (lambda x: sym.maximum(x, 0.5), np.maximum(X, 0.5)),
        (lambda x: sym.minimum(0.5, x), np.minimum(X, 0.5)),
        (lambda x: sym.maximum(x, -x), np.abs(X)),
        (lambda x: x + sym.ones((2, 3)), X + 1),
        (lambda x: sym.broadcast_add(x, sym.full(3, 2.5)), X + 2.5),
        (lambda x: sym.broadcast_add(x, sym.arange(3)), X + np.arange(3)),
        (lambda x: sym.broadcast_add(x, sym.arange(1, 7, 2)), X + np.arange(1, 7, 2)),
    ],
)
def test_functions_and_operators_of_symbols_compute(make, wanted):
    found = make(sym.var("x")).eval(x=X)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_symbol_has_no_truth_value():
    x = sym.var("x")
    with pytest.raises(TypeError, match="no truth value"):
        bool(x == 1)
    assert x in {x} and x is not None


def test_variables_are_replaced_by_symbols():
    x, y = sym.var("x"), sym.var("y")
    net = sym.FullyConnected(sym.exp(x, name="e"), num_hidden=2, name="fc")
    assert net(x=sym.log(y)).list_inputs() == ["y", "fc_weight", "fc_bias"]
    assert net(y + 1).list_inputs() == ["y", "fc_weight", "fc_bias"]
    assert net.list_inputs() == ["x", "fc_weight", "fc_bias"]
    swapped = (x - y)(x=y, y=x)
    np.testing.assert_array_equal(swapped.eval(x=X, y=2 * X)[0], X)
    parts = sym.split(x, num_outputs=2, axis=0)
    second = (sym.exp(x))(x=parts[1])
    np.testing.assert_allclose(second.eval(x=X)[0], np.exp(X[1:]), rtol=1e-6)
    for given, message in (
        ({"z": y}, "'z' is no variable"),
        ({"x": 1}, "symbol of one output, not 1"),
        ({"x": parts}, "symbol of one output"),
    ):
        with pytest.raises(FrontendError, match=message):
            net(**given)
    with pytest.raises(FrontendError, match="'x' is given twice"):
        net(y, x=y)


def test_symbols_describe_themselves():
    x = sym.var("x")
    net = sym.FullyConnected(sym.exp(x, name="e"), num_hidden=2, name="fc")
    assert net.get_children().list_outputs() == ["e_output", "fc_weight", "fc_bias"]
    assert x.get_children() is None
    text = net.debug_str()
    assert "Op:FullyConnected, Name=fc\nInputs:\n\targ[0]=e(0)" in text
    assert "num_hidden=2" in text and "Variable:x" in text
    assert net.infer_shape_partial() == ([None, None, None], [None], [])
    assert net.infer_shape_partial(x=(3, 4)) == net.infer_shape(x=(3, 4))
    arguments, _, states = net.infer_type(x="float16")
    assert (arguments, states) == ([np.float16, np.float32, np.float32], [])
    declared = sym.exp(sym.var("x", shape=(2, 3)))
    assert declared.infer_type("float16") == ([np.float16], [np.float16], [])


def test_none_stands_in_place_of_an_input():
    x = sym.var("x")
    without = sym.FullyConnected(x, None, None, no_bias=True, num_hidden=3, name="f")
    assert without.list_inputs() == ["x", "f_weight"]
    assert sym.FullyConnected(x, None, None, num_hidden=3, name="f").list_inputs() == [
        *("x", "f_weight", "f_bias")
    ]
    data, weight = array(X), array(np.ones((4, 3), "float32"))
    for call in (npx.FullyConnected, nd.FullyConnected):
        for arguments in ((data, weight, None), (data, None, None)):
            named = {} if arguments[1] is not None else {"weight": weight}
            found = call(*arguments, no_bias=True, num_hidden=4, **named).asnumpy()
            np.testing.assert_allclose(found, X @ np.ones((3, 4)), rtol=1e-5, atol=1e-6)
    with pytest.raises(TypeError, match="None is not an input"):
        nd.FullyConnected(data, weight, None, None, None, num_hidden=4)


def test_executors_take_parameters_and_name_outputs():
    executor = (sym.var("x") * sym.var("w")).bind(args={"x": X, "w": X})
    executor.copy_params_from({"w": 2 * X, "other": X}, allow_extra_params=True)
    (result,) = executor.forward()
    np.testing.assert_allclose(result, 2 * X * X, rtol=1e-6)
    assert next(iter(executor.output_dict.values())) is result
    for given, message in (({"v": X}, "no parameter 'v'"), ({"w": X[0]}, r"shape \(3,\), not")):
        with pytest.raises(InputError, match=message):
            executor.copy_params_from(given)
    with pytest.raises(OutOfScopeError, match="get_internals"):
        executor.set_monitor_callback(print)


def test_checkpoints_are_written_and_read(tmp_path):
    net = sym.FullyConnected(sym.var("x"), num_hidden=2, name="fc")
    weight = np.ones((2, 3), "float32")
    save_checkpoint(f"{tmp_path}/net", 7, net, {"fc_weight": array(weight)}, {"s": X})
    found, args, aux = load_checkpoint(f"{tmp_path}/net", 7)
    assert found.tojson() == net.tojson()
    np.testing.assert_array_equal(args["fc_weight"], weight)
    np.testing.assert_array_equal(aux["s"], X)
