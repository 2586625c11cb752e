"""Blocks written for MXNet 1.x: `hybrid_forward`, prefixes, shared parameters, `params.get`."""

from __future__ import annotations

import numpy as onp
import pytest

from compiler.errors import (
    ArrayError,
    BlockArgumentError,
    BlockError,
    DeferredInitializationError,
    OutOfScopeError,
)
from compiler.mxnet import autograd, nd, np, npx
from compiler.mxnet import symbol as sym
from compiler.mxnet.gluon import HybridBlock, Parameter, ParameterDict, SymbolBlock, nn, utils
from compiler.mxnet.gluon.model_zoo import vision

X = onp.linspace(-1, 1, 10, dtype="float32").reshape(2, 5)


class Perceptron(HybridBlock):
    """Its weight's second extent follows from the data."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.weight = self.params.get("weight", shape=(units, 0), allow_deferred_init=True)
            self.shift = self.params.get("offset", shape=(units,), init="ones")
            self.scale = self.params.get_constant("scale", onp.float32(2))
            self.out = nn.Dense(3, prefix="out_")

    def hybrid_forward(self, F, x, weight, shift, scale):
        hidden = F.FullyConnected(x, weight, shift, num_hidden=4, name="hidden")
        return self.out(F.broadcast_mul(F.relu(hidden), scale))


@pytest.mark.parametrize("hybridized", [False, True])
def test_shapes_of_own_parameters_follow_from_the_operator_that_reads_them(hybridized):
    net = Perceptron(4, prefix="net_")
    net.collect_params().initialize(init="xavier", ctx=npx.cpu())
    if hybridized:
        net.hybridize()
    result = net(np.array(X)).asnumpy()
    assert net.weight.shape == (4, 5)
    assert list(net.collect_params()) == ["weight", "shift", "scale", "out.weight", "out.bias"]
    w, b, _, w2, b2 = (p.data().asnumpy() for p in net.collect_params().values())
    assert (b == 1).all()
    wanted = 2 * onp.maximum(X @ w.T + b, 0) @ w2.T + b2
    onp.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)
    assert (net.prefix, net.name, net.out.name) == ("net_", "net", "out")
    if hybridized:
        assert "hidden" in [node.name for node in net.export(None)[0].graph.nodes]


def test_a_shape_that_does_not_follow_is_an_error():
    class Adds(HybridBlock):
        def __init__(self):
            super().__init__()
            self.bias = self.params.get("bias", shape=(0,), allow_deferred_init=True)

        def hybrid_forward(self, F, x, bias):
            return F.broadcast_add(x, bias)

    net = Adds()
    net.initialize()
    with pytest.raises(DeferredInitializationError, match=r"'bias' does not follow .*infer_shape"):
        net(np.array(X))
    assert not net.bias.is_known


def test_infer_shape_of_the_block_comes_first():
    class Own(HybridBlock):
        def __init__(self):
            super().__init__()
            self.bias = self.params.get("bias", shape=(0,), init="ones", allow_deferred_init=True)

        def infer_shape(self, x):
            self.bias.shape = (x.shape[-1],)

        def hybrid_forward(self, F, x, bias):
            return F.broadcast_add(x, bias)

    for hybridized in (False, True):
        net = Own()
        net.initialize()
        net.hybridize(hybridized)
        onp.testing.assert_allclose(net(np.array(X)).asnumpy(), X + 1)


def test_params_of_the_constructor_are_shared_by_name():
    first = Perceptron(4)
    first.initialize()
    first(np.array(X))
    second = Perceptron(4, params=first.collect_params())
    assert second.weight is first.weight and second.out.weight is first.out.weight
    layer = nn.Dense(3, in_units=4, params=first.out.params)
    assert layer.weight is first.out.weight
    onp.testing.assert_array_equal(second(np.array(X)).asnumpy(), first(np.array(X)).asnumpy())
    with pytest.raises(TypeError, match="unexpected keyword argument 'prefex'"):
        nn.Dense(3, prefex="a_")


def test_dicts_of_parameters_save_load_and_set(tmp_path):
    params = ParameterDict("net_")
    params.get("w", shape=(2, 3), init="ones")
    assert params.get("w") is params["net_w"] and params.get("v") is None
    params.initialize(ctx=npx.cpu(1))
    assert params.list_ctx() == [npx.cpu(1)]
    params.reset_ctx(ctx=npx.cpu(0))
    params.setattr("grad_req", "null")
    params.save(tmp_path / "w.params", strip_prefix="net_")
    other = ParameterDict("net_")
    other.get("w", shape=(2, 3))
    other.load(tmp_path / "w.params", restore_prefix="net_")
    assert (other["net_w"].data().asnumpy() == 1).all()
    assert str(other).splitlines()[0] == "net_ (" and "(2, 3)" in str(other)


def test_operators_have_the_names_of_mxnet_and_take_a_name():
    class Named(HybridBlock):
        def forward(self, x, w):
            y = npx.FullyConnected(x, w, num_hidden=4, no_bias=True, name="fc")
            return npx.leaky_relu(npx.Activation(y, act_type="relu"), name="leak")

    block = Named()
    block.hybridize()
    x, w = np.array(X), np.ones((4, 5))
    onp.testing.assert_allclose(
        block(x, w).asnumpy(), onp.maximum(X @ onp.ones((5, 4)), 0), rtol=1e-5, atol=1e-6
    )
    names = [node.name for node in block.export(None)[0].graph.nodes]
    assert "fc" in names and names[-1] == "leak"
    with pytest.raises(AttributeError, match="no operator 'FullyConected'"):
        npx.FullyConected  # noqa: B018


def test_parameters_of_operators_come_by_position_too():
    x = np.array(X)
    for drawn in (nd.random_normal(0, 1, (2, 3)), nd.random_uniform(low=-1, shape=(2, 3))):
        assert drawn.shape == (2, 3) and str(drawn.dtype) == "float32"
    assert [part.shape for part in nd.split(x, 2, axis=0)] == [(1, 5), (1, 5)]
    assert nd.reshape(x, (5, 2)).shape == (5, 2)
    assert nd.random.uniform(shape=(2, 2), ctx=npx.cpu()).shape == (2, 2)
    assert nd.concat(x, x, dim=0).shape == (4, 5)
    with pytest.raises(TypeError, match="not an input"):
        nd.relu(x, 3)


def test_operators_write_into_the_arrays_of_out():
    x = np.array(X)
    result = nd.zeros(X.shape)
    assert nd.relu(x, out=result) is result
    onp.testing.assert_array_equal(result.asnumpy(), onp.maximum(X, 0))
    halves = [nd.zeros((1, 5)), nd.zeros((1, 5))]
    nd.split(x, num_outputs=2, axis=0, out=halves)
    onp.testing.assert_array_equal(halves[1].asnumpy(), X[1:])
    nd.relu(x, out=x)
    onp.testing.assert_array_equal(x.asnumpy(), result.asnumpy())
    with pytest.raises(ArrayError, match="split has 2 results, out= 1"):
        nd.split(x, num_outputs=2, axis=0, out=halves[:1])


def test_training_is_refused_and_says_so():
    net = nn.Dense(3, in_units=5)
    net.initialize()
    with autograd.pause(), autograd.predict_mode():
        result = net(np.array(X))
    assert not autograd.is_recording() and not autograd.is_training()
    for refused in (
        autograd.record,
        autograd.train_mode,
        result.backward,
        result.attach_grad,
        net.weight.grad,
        lambda: autograd.pause(train_mode=True).__enter__(),
    ):
        with pytest.raises(OutOfScopeError, match="inference only"):
            refused()


def test_what_else_old_code_asks_for_works_or_says_why_not():
    x = np.array(X)
    leaky = nn.HybridLambda(lambda F, x: F.LeakyReLU(x, slope=0.1))
    leaky.hybridize()
    onp.testing.assert_allclose(leaky(x).asnumpy(), onp.where(X > 0, X, 0.1 * X), rtol=1e-6)
    parts = utils.split_and_load(onp.arange(5), [npx.cpu(0), npx.cpu(1)], even_split=False)
    assert [(part.tolist(), part.device) for part in parts] == [
        ([0, 1, 2], npx.cpu(0)),
        ([3, 4], npx.cpu(1)),
    ]
    with pytest.raises(BlockArgumentError, match="equal parts"):
        utils.split_data(onp.arange(5), 2)
    with pytest.raises(BlockArgumentError, match="load_parameters"):
        vision.get_resnet(1, 18, pretrained=True)
    for refused in (
        lambda: x.tostype("csr"),
        lambda: SymbolBlock(sym.dot(sym.var("x"), sym.var("w", stype="csr")), sym.var("x")),
        lambda: Parameter("w", stype="row_sparse"),
    ):
        with pytest.raises(OutOfScopeError, match="only dense"):
            refused()
    with pytest.raises(BlockError, match="no hooks of operators"):
        nn.Dense(2).register_op_hook(print)
    assert (
        nd.ones((2,), npx.cpu(1), "int32").dtype == "int32" and nd.array([1, 2]).dtype == "float32"
    )

    class Hides(HybridBlock):
        def __init__(self):
            super().__init__()
            self.layers = {}
            self.layers["a"] = [nn.Dense(2)]

    block = Hides()
    with pytest.warns(UserWarning, match="not registered"):
        block.collect_params()
