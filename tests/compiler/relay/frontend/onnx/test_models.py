"""Tests of importing and simplifying the bundled networks: what is left is what must run."""

from __future__ import annotations

import pytest
import tvm

from compiler.ir import simplify_passes
from compiler.models.fill_weights import hydrate
from compiler.relay.frontend import from_onnx
from compiler.relay.relax_to_relay import to_relax

CONVOLUTIONAL = {
    "nn.conv2d",
    "nn.relu",
    "clip",
    "add",
    "concat",
    "nn.adaptive_avg_pool2d",
    "reshape",
    "matmul",
}
EXPECTED = {
    "resnet18_v1": ({"nn.conv2d": 20, "nn.relu": 17, "matmul": 1}, CONVOLUTIONAL),
    "mobilenetv2_1_0": ({"nn.conv2d": 54, "clip": 36}, CONVOLUTIONAL),
    "squeezenet1_1": ({"nn.conv2d": 26, "nn.relu": 26, "concat": 8}, CONVOLUTIONAL),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_convolutional_network_comes_down_to_its_kernels(name, operators):
    counts, allowed = EXPECTED[name]
    mod, params = from_onnx(hydrate(name))
    with tvm.transform.PassContext(opt_level=3):
        after = operators(tvm.transform.Sequential(simplify_passes())(to_relax(mod)))
    assert params == {}
    assert {operator: after[operator] for operator in counts} == counts
    assert set(after) <= allowed | {"nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d"}


def test_a_transformer_keeps_its_norms_and_activations(operators):
    mod, _ = from_onnx(hydrate("minilm"))
    assert operators(mod)["nn.dense"] == 36 and operators(mod)["nn.batch_matmul"] == 12
    after = operators(to_relax(mod))
    assert after["nn.layer_norm"] == 13 and after["nn.gelu"] == 6 and after["nn.softmax"] == 6
    assert after["shape_of"] == after["shape_to_tensor"] == 0


def test_a_model_comes_out_the_same_on_every_machine():
    tensors = {tensor.name: tensor for tensor in hydrate("squeezenet1_1").graph.initializer}
    again = {tensor.name: tensor for tensor in hydrate("squeezenet1_1").graph.initializer}
    assert tensors == again
    with pytest.raises(FileNotFoundError):
        hydrate("no_such_network")
