"""The networks of relay.testing: parameters and weights of real Relay 0.18 from the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import relay
from compiler.errors import RelayError

CASES = [
    ("mlp", {"batch_size": 1}, 6, 109_386, 4896.953),
    (
        "resnet",
        {"num_layers": 20, "image_shape": (3, 28, 28), "num_classes": 10},
        104,
        273_926,
        12958.765,
    ),
    ("mobilenet", {}, 137, 4_253_864, 159286.08),
    ("squeezenet", {}, 52, 1_248_424, 41892.229),
    ("squeezenet", {"version": "1.1"}, 52, 1_235_496, 41690.295),
    ("densenet", {}, 606, 3_568_808, 157912.493),
    ("dqn", {"batch_size": 1}, 10, 1_693_362, 35638.834),
    ("lstm", {"iterations": 2, "num_hidden": 4}, 8, 320, 69.016184),
]
"""Network, arguments, number of parameters, of their elements, and the sum of magnitudes."""


@pytest.mark.parametrize(("name", "arguments", "count", "elements", "total"), CASES)
def test_parameters_are_those_of_relay(name, arguments, count, elements, total):
    _, params = getattr(relay.testing, name).get_workload(**arguments)
    arrays = [value.numpy().astype("float64") for value in params.values()]
    assert len(params) == count
    assert sum(array.size for array in arrays) == elements
    assert sum(np.abs(array).sum() for array in arrays) == pytest.approx(total, rel=1e-6, abs=1e-3)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_layouts_of_a_network_compute_the_same_shape(layout):
    shape = (3, 32, 32) if layout == "NCHW" else (32, 32, 3)
    mod, _ = relay.testing.resnet.get_workload(
        num_layers=18, image_shape=shape, num_classes=10, layout=layout
    )
    assert [int(size) for size in mod["main"].ret_ty.shape.values] == [1, 10]


def test_generators_inception_and_3d_networks_have_their_results():
    nets = {
        (1, 3, 64, 64): relay.testing.dcgan.get_net(1, ngf=4),
        (1, 10): relay.testing.inception_v3.get_net(1, 10, (3, 299, 299), "float32"),
        (2, 10): relay.testing.resnet_3d.get_net(2, 10, 18, (3, 8, 32, 32)),
        (3, 10): relay.testing.vgg.get_net(3, (3, 32, 32), 10, "float32", batch_norm=True),
    }
    for shape, net in nets.items():
        assert [int(size) for size in net.ret_ty.shape.values] == list(shape)


def test_unknown_sizes_are_refused():
    with pytest.raises(RelayError, match="VGG"):
        relay.testing.vgg.get_workload(1, num_layers=12)
    with pytest.raises(RelayError, match="layers"):
        relay.testing.resnet.get_workload(num_layers=19)


def test_initializers_fill_by_name():
    array = np.ones((4, 8), "float32")
    relay.testing.init.Xavier()("fc_weight", array)
    assert np.abs(array).max() <= np.sqrt(3 / 6)
    with pytest.raises(RelayError, match="names end in"):
        relay.testing.init.Xavier()("unknown", array)
