"""Networks against onnxruntime running their ONNX export."""

from __future__ import annotations

import numpy as onp
import onnxruntime
import pytest

from compiler.errors import BlockArgumentError
from compiler.mxnet import deferred_compute, initializer, np, set_variable
from compiler.mxnet.gluon import nn
from compiler.mxnet.gluon.model_zoo import vision
from compiler.mxnet.gluon.model_zoo.vision import DenseNet, ResNetV1, ResNetV2
from compiler.mxnet.gluon.model_zoo.vision.mobilenet import LinearBottleneck
from compiler.mxnet.gluon.model_zoo.vision.resnet import (
    BasicBlockV1,
    BasicBlockV2,
    BottleneckV1,
    BottleneckV2,
)
from compiler.mxnet.symbol import to_onnx, var

SMALL = {
    "resnet v1": (32, lambda: ResNetV1(BottleneckV1, (1, 1), (8, 16, 32), classes=10)),
    "resnet v1, basic": (32, lambda: ResNetV1(BasicBlockV1, (1, 1), (8, 8, 16), 10, True)),
    "resnet v2": (32, lambda: ResNetV2(BottleneckV2, (1, 1), (8, 16, 32), classes=10)),
    "resnet v2, basic": (32, lambda: ResNetV2(BasicBlockV2, (1, 1), (8, 8, 16), 10, True)),
    "densenet": (32, lambda: DenseNet(8, 4, (2, 1), classes=10)),
    "squeezenet": (47, lambda: vision.get_model("squeezenet1.1", classes=10)),
    "mobilenet v2": (
        16,
        lambda: nn.HybridSequential(LinearBottleneck(3, 8, 6, 2), LinearBottleneck(8, 8, 6, 1)),
    ),
}
"""Networks that compile in a second or two, with the size of the image.

They have the blocks of the large ones; how those fit together, the numbers of parameters tell.
"""


def exported(net, shape):
    symbol, arrays = net.export(None)
    values = {key[4:]: value.asnumpy() for key, value in arrays.items()}
    return to_onnx(symbol, values, {"data": shape})


@pytest.mark.parametrize("name", SMALL)
def test_hybridized_networks_compute_what_onnxruntime_does(name):
    size, make = SMALL[name]
    np.random.seed(7)
    net = make()
    net.initialize(initializer.Xavier("gaussian", "in", 2))
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
