"""Symbols put together operator by operator."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.errors import FrontendError, InputError, OutOfScopeError
from compiler.mxnet import symbol as sym
from compiler.mxnet.name import NameManager, Prefix

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
