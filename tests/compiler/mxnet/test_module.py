"""`mx.mod.Module`: inference of a symbol by batches."""

from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest

from compiler import mxnet as mx
from compiler.errors import InputError, OutOfScopeError

RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((4, 3)).astype("float32")
DATA = RNG.standard_normal((5, 3)).astype("float32")


def network():
    """A dense layer with batch norm and a loss, and its parameters."""
    data = mx.sym.var("data")
    dense = mx.sym.FullyConnected(data, num_hidden=4, name="fc")
    normal = mx.sym.BatchNorm(dense, name="bn", fix_gamma=False, eps=0)
    symbol = mx.sym.SoftmaxOutput(normal, name="softmax")
    arguments = {"fc_weight": WEIGHT, "fc_bias": np.ones(4, "float32")}
    arguments |= {"bn_gamma": np.full(4, 2, "float32"), "bn_beta": np.zeros(4, "float32")}
    states = {"bn_moving_mean": np.ones(4, "float32"), "bn_moving_var": np.ones(4, "float32")}
    return symbol, arguments, states


def expected(data):
    """The network in numpy: mean and bias cancel."""
    scores = np.exp(2 * (data @ WEIGHT.T))
    return scores / scores.sum(axis=1, keepdims=True)


def bound(shape=(5, 3)):
    """A bound module with parameters."""
    symbol, arguments, states = network()
    module = mx.mod.Module(symbol, context=mx.cpu())
    module.bind([("data", shape)], for_training=False)
    module.set_params(arguments, states)
    return module


def test_forward_and_get_outputs():
    module = bound()
    module.forward(SimpleNamespace(data=[mx.nd.array(DATA)]))
    np.testing.assert_allclose(module.get_outputs()[0].asnumpy(), expected(DATA), rtol=1e-5)
    assert module.output_names == ["softmax_output"]


def test_predict_joins_batches_of_any_size_without_padding():
    module = bound((2, 3))
    batches = [
        SimpleNamespace(data=[DATA[:2]], pad=0),
        SimpleNamespace(data=[DATA[2:].astype("float64")], pad=1),
    ]
    np.testing.assert_allclose(module.predict(batches), expected(DATA[:4]), rtol=1e-5)
    assert len(module.predict(batches, merge_batches=False)) == 2
    assert len(module.predict(batches, num_batch=1)) == 2


def test_a_checkpoint_is_saved_and_loaded(tmp_path):
    bound().save_checkpoint(str(tmp_path / "net"), 3)
    module = mx.mod.Module.load(str(tmp_path / "net"), 3)
    module.bind([("data", (5, 3))])  # for_training is MXNet's default
    np.testing.assert_allclose(module.predict(DATA), expected(DATA), rtol=1e-5)
    with pytest.warns(UserWarning, match="is_train=False"):
        module.forward(SimpleNamespace(data=[DATA]))
    np.testing.assert_allclose(module.get_outputs()[0], expected(DATA), rtol=1e-5)


def test_a_checkpoint_without_a_parameter_is_refused_when_bound(tmp_path):
    symbol, arguments, states = network()
    del arguments["fc_bias"]
    mx.model.save_checkpoint(str(tmp_path / "net"), 0, symbol, arguments, states)
    module = mx.mod.Module.load(str(tmp_path / "net"), 0)
    with pytest.raises(InputError, match="'fc_bias' has no value"):
        module.bind([("data", (5, 3))], for_training=False)


def test_data_have_the_dtype_of_their_description():
    description = namedtuple("description", "name shape dtype")
    module = mx.mod.Module(mx.sym.var("data") * 2, label_names=None)
    module.bind([description("data", (2,), "int32")], for_training=False)
    module.set_params({}, {})
    found = module.predict(np.array([1, 16777217]))
    assert found.tolist() == [2, 33554434]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.bind([("data", (1, 3))], inputs_need_grad=True), "inputs_need_grad"),
        (lambda m: m.init_params(mx.init.One(), force_init=True), "drawing parameters"),
        (lambda m: m.fit(None), "Module.fit"),
        (lambda m: m.backward(), "Module.backward"),
        (lambda m: m.forward(SimpleNamespace(data=[DATA]), is_train=True), "is_train"),
    ],
)
def test_training_is_refused(call, message):
    with pytest.raises(OutOfScopeError, match=message):
        call(bound())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.set_params({}, {}), "has no value"),
        (lambda m: m.bind([("x", (1,))], None, False, False, True), "'x' is no data"),
        (lambda m: m.forward(SimpleNamespace(data=[])), "a batch of 0 arrays"),
        (lambda m: m.predict([]), "no batch"),
        (lambda m: mx.mod.Module(m.symbol).get_outputs(), "not bound"),
        (lambda m: mx.mod.Module(m.symbol, ["x"]), "no input 'x'"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(InputError, match=message):
        call(bound())
