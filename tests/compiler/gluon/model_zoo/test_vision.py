"""Networks against onnxruntime running their ONNX export."""

from __future__ import annotations

import numpy as onp
import onnxruntime
import pytest

from compiler import np
from compiler.errors import BlockArgumentError
from compiler.gluon import deferred_compute, initializer, set_variable
from compiler.gluon.model_zoo import vision
from compiler.symbol import var
from compiler.symbol.to_onnx import to_onnx

SMALL = [
    ("resnet18_v1", 32),
    ("mobilenet0.25", 32),
    ("mobilenetv2_0.25", 32),
    ("squeezenet1.1", 47),
]
"""Networks that compile in seconds, with the size of the image; the others are large."""


def network(name, classes=10):
    np.random.seed(7)
    net = vision.get_model(name, classes=classes)
    net.initialize(initializer.Xavier("gaussian", "in", 2))
    return net


def exported(net, shape):
    symbol, arrays = net.export(None)
    values = {key[4:]: value.asnumpy() for key, value in arrays.items()}
    return to_onnx(symbol, values, {"data": shape})


@pytest.mark.parametrize(("name", "size"), SMALL)
def test_hybridised_networks_compute_what_onnxruntime_does(name, size):
    net = network(name)
    net.hybridize()
    x = np.random.uniform(-1, 1, (1, 3, size, size))
    found = net(x).asnumpy()
    model = exported(net, x.shape)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (wanted,) = session.run(None, {"data": x.asnumpy()})
    scale = onp.abs(wanted).max()
    assert scale > 1e-3
    onp.testing.assert_allclose(found, wanted, atol=1e-4 * scale, rtol=1e-3)


TYPICAL = {
    "alexnet": (61_100_840, (1, 3, 224, 224)),
    "densenet121": (8_062_504, (1, 3, 224, 224)),
    "densenet201": (20_242_984, (1, 3, 224, 224)),
    "inceptionv3": (23_869_000, (1, 3, 299, 299)),
    "mobilenet1.0": (4_253_864, (1, 3, 224, 224)),
    "mobilenetv2_1.0": (3_539_136, (1, 3, 224, 224)),
    "resnet18_v1": (11_699_112, (1, 3, 224, 224)),
    "resnet50_v1": (25_629_032, (1, 3, 224, 224)),
    "resnet50_v2": (25_595_060, (1, 3, 224, 224)),
    "resnet152_v1": (60_404_072, (1, 3, 224, 224)),
    "squeezenet1.0": (1_248_424, (1, 3, 224, 224)),
    "squeezenet1.1": (1_235_496, (1, 3, 224, 224)),
}
"""Numbers of parameters, moving statistics included, that MXNet's summaries of them print."""


@pytest.mark.parametrize("name", TYPICAL)
def test_networks_have_the_number_of_parameters_that_they_are_known_for(name):
    expected, shape = TYPICAL[name]
    net = vision.get_model(name)
    net.initialize(initializer.Zero())
    x = np.zeros(shape)
    set_variable(x, var("data"))
    with deferred_compute():
        y = net(x)
    assert y.shape == (1, 1000)
    params = net.collect_params().values()
    assert sum(int(onp.prod(param.shape)) for param in params) == expected


def test_an_unknown_network_is_an_error_that_lists_the_known_ones():
    with pytest.raises(BlockArgumentError, match="resnet18_v1"):
        vision.get_model("resnet19_v1")
