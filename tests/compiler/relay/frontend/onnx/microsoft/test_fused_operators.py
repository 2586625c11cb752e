"""Activations, products, convolutions and normalizations that onnxruntime fuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper

from compiler import errors, relay
from compiler.relay.frontend import from_onnx
from compiler.runtime import graph_executor
from tests.compiler.relay.frontend.onnx.microsoft.nodes import DOMAINS, own


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# ------------------------------------------------- activations


def test_activations_agree(as_onnxruntime, floats):
    nodes = [
        own("Gelu", "x", "y0"),
        own("FastGelu", "x", "y1"),
        own("FastGelu", "x b", "y2"),
        own("BiasGelu", "x b", "y3"),
        own("QuickGelu", "x", "y4"),
        own("QuickGelu", "x", "y5", alpha=0.5),
        own("ScaledSiLU", "x", "y6", alpha=2.0),
        own("ScaledSiLU", "x s", "y7"),
    ]
    weights = {"b": floats(4), "s": np.array(0.25, "float32")}
    as_onnxruntime(nodes, {"x": floats(2, 3, 4)}, weights)


def test_biases_of_diffusion_models_are_added(computes, floats):
    erf = np.vectorize(math.erf, otypes=["float32"])
    x, bias, skip = floats(2, 3, 4), floats(4), floats(2, 3, 4)
    left, right = np.split(x + bias, 2, -1)
    gate, up = np.split(x, 2, -1)
    gate, up = np.minimum(gate, 0.5), np.clip(up, -0.5, 0.5)
    expected = {
        "y0": x + bias + skip,
        "y1": left * right * 0.5 * (1 + erf(right / np.sqrt(2, dtype="float32"))),
        "y2": x + bias + skip,
        "y3": np.ones(x.shape, "bool"),
        "y4": gate * sigmoid(2 * gate) * (up + 1),
        "y5": x,
    }
    nodes = [
        own("BiasAdd", "x b s", "y0"),
        own("BiasSplitGelu", "x b", "y1"),
        own("BiasDropout", "x b s", "y2 y3", seed=3),
        own("SwiGLU", "x", "y4", limit=0.5, activation_alpha=2.0, activation_beta=1.0),
        own("BitmaskDropout", "x", "y5"),
    ]
    computes(nodes, {"x": x, "s": skip}, expected, {"b": bias})


@pytest.mark.parametrize("axis", [2, 3])
@pytest.mark.parametrize(("inner", "shape"), [(0, (3, 5)), (1, (2, 1, 3, 5)), (0, (1, 4, 3, 5))])
def test_softmax_with_a_bias(inner, shape, axis, computes, floats):
    x, bias = floats(2, 4, 3, 5), floats(*shape)
    power = np.exp(x + bias)
    expected = power / power.sum(tuple(range(axis, 4)), keepdims=True)
    node = own("BiasSoftmax", "x b", "y", axis=axis, is_inner_broadcast=inner)
    computes([node], {"x": x, "b": bias}, {"y": expected})


def test_dropout_that_drops_is_refused(refusal, floats):
    weights = {"b": floats(4), "r": np.array(0.5, "float32"), "t": np.array(True)}
    node = own("BiasDropout", "x b  r t", "y")
    assert "training mode draws random numbers" in refusal(node, {"x": floats(2, 4)}, weights)


def test_attributes_that_nobody_reads_are_refused(refusal, floats):
    node = own("QuickGelu", "x", "y", beta=1.0)
    assert "the attribute beta=1.0 is not supported" in refusal(node, {"x": floats(2, 4)})


# ------------------------------------------------- convolutions and products


ACTIVATIONS = {
    "Relu": {},
    "Tanh": {},
    "Sigmoid": {},
    "LeakyRelu": {"activation_params": [0.3]},
    "Clip": {"activation_params": [-0.5, 0.25]},
    "HardSigmoid": {"activation_params": [0.1, 0.4]},
}


def test_fused_convolutions_agree(as_onnxruntime, floats):
    nodes = [
        own("FusedConv", "x w b", f"y{name}", activation=name, **parameters)
        for name, parameters in ACTIVATIONS.items()
    ]
    nodes += [
        own("FusedConv", "x w b z", "y0", activation="Relu"),
        own("FusedConv", "x w", "y1", activation="Relu", pads=[1, 0, 1, 2], strides=[2, 1]),
        own("FusedConv", "x v", "y2", activation="Relu", group=2, auto_pad="SAME_UPPER"),
    ]
    weights = {"w": floats(4, 2, 3, 3), "b": floats(4), "v": floats(4, 1, 2, 2)}
    as_onnxruntime(nodes, {"x": floats(1, 2, 5, 6), "z": floats(1, 4, 3, 4)}, weights)


def test_channels_last_convolutions_are_convolutions(computes, model, run, floats):
    x, weight, bias, skip = floats(1, 5, 6, 2), floats(4, 2, 3, 3), floats(4), floats(1, 3, 4, 4)
    weights = {"w": weight, "b": bias}
    plain = [helper.make_node("Conv", ["x", "w", "b"], ["y"])]
    moved = x.transpose(0, 3, 1, 2)
    (result,) = run(*from_onnx(model(plain, {"x": moved.shape}, ["y"], weights)), {"x": moved})
    result = result.transpose(0, 2, 3, 1)
    nodes = [
        own("NhwcConv", "x w b", "y0"),
        own("NhwcFusedConv", "x w b z", "y1", activation="LeakyRelu", activation_params=[0.5]),
    ]
    total = result + skip
    expected = {"y0": result, "y1": np.where(total > 0, total, total / 2)}
    computes(nodes, {"x": x, "z": skip}, expected, weights)


def test_fused_gemms_agree(as_onnxruntime, floats):
    nodes = [
        own("FusedGemm", "x w c", "y0", activation="Relu", alpha=0.5, beta=2.0),
        own("FusedGemm", "x v", "y1", activation="LeakyRelu", activation_alpha=0.3, transB=1),
        own("FusedGemm", "t w c", "y2", activation="Tanh", transA=1),
        own("FusedGemm", "x w c", "y3", activation="Sigmoid"),
    ]
    weights = {"w": floats(3, 4), "v": floats(4, 3), "c": floats(4)}
    as_onnxruntime(nodes, {"x": floats(2, 3), "t": floats(3, 2)}, weights)


def test_fused_products_agree(as_onnxruntime, floats):
    nodes = [
        own("FusedMatMul", "x w", "y0", alpha=0.5),
        own("FusedMatMul", "x x", "y1", transB=1),
        own("FusedMatMul", "x x", "y2", transA=1, alpha=-2.0),
        own("TransposeMatMul", "x x", "y3", transB=1),
        own("FusedMatMul", "p q", "y4", transBatchA=1, transBatchB=1),
        own("FusedMatMul", "p r", "y5", transBatchA=1, transA=1, transBatchB=1, transB=1),
    ]
    feeds = {"x": floats(2, 3, 4), "p": floats(5, 2, 3), "q": floats(3, 2, 4), "r": floats(4, 2, 5)}
    as_onnxruntime(nodes, feeds, {"w": floats(4, 5)})


def test_products_with_activations(computes, floats):
    x, weight, bias = floats(2, 3), floats(3, 4), floats(4)
    product = x @ weight
    power = np.exp(product)
    nodes = [
        own("FusedMatMulActivation", "x w", "y0", activation="Relu"),
        own("FusedMatMulActivation", "x w", "y1", activation="Softmax", activation_axis=-1),
        own("GemmFastGelu", "x w b", "y2"),
    ]
    inner = product + bias
    expected = {
        "y0": np.maximum(product, 0),
        "y1": power / power.sum(-1, keepdims=True),
        "y2": 0.5 * inner * (1 + np.tanh(0.797885 * inner + 0.035677 * inner**3)),
    }
    computes(nodes, {"x": x}, expected, {"w": weight, "b": bias})


def test_transposed_convolution_with_pads_as_operand_agrees(as_onnxruntime, floats):
    node = own(
        "ConvTransposeWithDynamicPads", "x w p b", "y", strides=[2, 2], output_padding=[1, 0]
    )
    weights = {"w": floats(2, 3, 3, 3), "p": np.array([1, 0, 1, 2]), "b": floats(3)}
    as_onnxruntime([node], {"x": floats(1, 2, 4, 5)}, weights)


# ------------------------------------------------- normalizations


@pytest.mark.parametrize("skip", [(2, 3, 4), (1, 3, 4), (3, 4)])
def test_skipped_layer_normalizations_agree(skip, as_onnxruntime, floats):
    nodes = [
        own("SkipLayerNormalization", "x s g b c", "y0   y1", epsilon=1e-3),
        own("SkipLayerNormalization", "x s g", "y2"),
        own("SkipSimplifiedLayerNormalization", "x s g", "y3", epsilon=1e-3),
        own("SkipSimplifiedLayerNormalization", "x s g c", "y4   y5"),
    ]
    weights = {name: floats(4) for name in "gbc"}
    as_onnxruntime(nodes, {"x": floats(2, 3, 4), "s": floats(*skip)}, weights)


def test_simplified_layer_normalization_agrees(as_onnxruntime, floats):
    nodes = [
        helper.make_node("SimplifiedLayerNormalization", ["x", "g"], ["y0"], epsilon=1e-3),
        helper.make_node("SimplifiedLayerNormalization", ["x", "h"], ["y1"], axis=1),
    ]
    as_onnxruntime(nodes, {"x": floats(2, 3, 4)}, {"g": floats(4), "h": floats(3, 4)})


@pytest.mark.parametrize("last", [0, 1])
def test_group_normalizations_are_layer_norms_of_groups(last, computes, floats):
    x, gamma, beta, bias = floats(2, 6, 3, 3), floats(6), floats(6), floats(6)
    skip = floats(2, 6)

    def normal(value):
        groups = value.reshape(2, 2, -1)
        centered = groups - groups.mean(-1, keepdims=True)
        scaled = centered / np.sqrt(groups.var(-1, keepdims=True) + np.float32(1e-3))
        along = (1, 6, 1, 1)
        return scaled.reshape(x.shape) * gamma.reshape(along) + beta.reshape(along)

    def placed(value):
        return value.transpose(0, 2, 3, 1) if last else value

    total = x + skip.reshape(2, 6, 1, 1) + bias.reshape(1, 6, 1, 1)
    activated = normal(total) * sigmoid(normal(total))
    common = {"groups": 2, "epsilon": 1e-3, "channels_last": last}
    nodes = [
        own("GroupNorm", "x g b", "y0", activation=0, **common),
        own("SkipGroupNorm", "x g b s c", "y1 y2", activation=1, **common),
    ]
    expected = {"y0": placed(normal(x)), "y1": placed(activated), "y2": placed(total)}
    weights = {"g": gamma, "b": beta, "c": bias}
    computes(nodes, {"x": placed(x), "s": skip}, expected, weights, 1e-4)


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_gated_rms_normalization_agrees(activation, as_onnxruntime, floats):
    node = own("GatedRMSNorm", "x s g", "y", activation=activation)
    as_onnxruntime([node], {"x": floats(2, 3, 8), "g": floats(2, 3, 8)}, {"s": floats(4)})


EMBEDDING = {
    "ids": np.array([[1, 4, 0], [2, 2, 3]], "int32"),
    "kinds": np.array([[0, 1, 1], [1, 0, 0]], "int32"),
}


def test_embeddings_agree(as_onnxruntime, floats):
    weights = {
        "w": floats(5, 4),
        "p": floats(6, 4),
        "s": floats(2, 4),
        "g": floats(4),
        "b": floats(4),
        "at": np.array([[5, 0, 1]], "int32"),
    }
    mask = np.array([[1, 1, 0], [1, 0, 0]], "int32")
    nodes = [
        own("EmbedLayerNormalization", "ids kinds w p s g b", "y0 y1"),
        own("EmbedLayerNormalization", "ids kinds w p s g b mask", "y2 y3 y4", epsilon=1e-3),
        own("EmbedLayerNormalization", "ids  w p  g b  at", "y5  y6"),
    ]
    integers = dict.fromkeys(("y1", "y3"), "int32")
    as_onnxruntime(nodes, {**EMBEDDING, "mask": mask}, weights, dtypes=integers)


@pytest.mark.parametrize("name", ["ids", "kinds"])
def test_an_embedding_of_an_id_out_of_range_is_an_error(name, model, run, floats):
    weights = {
        "w": floats(5, 4),
        "p": floats(6, 4),
        "s": floats(2, 4),
        "g": floats(4),
        "b": floats(4),
    }
    node = own("EmbedLayerNormalization", "ids kinds w p s g b", "y")
    shapes = {key: value.shape for key, value in EMBEDDING.items()}
    types = dict.fromkeys(shapes, TensorProto.INT32)
    mod, params = from_onnx(model([node], shapes, ["y"], weights, domains=DOMAINS, dtypes=types))
    with tvm.transform.PassContext(opt_level=0):
        library = relay.build(mod, "llvm", params=params)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(**EMBEDDING)
    wrong = EMBEDDING[name].copy()
    wrong[1, 2] = 5
    with pytest.raises(errors.IndexRangeError):
        module.run(**{**EMBEDDING, name: wrong})


def test_quantized_embeddings_agree(as_onnxruntime, rng):
    def table(*shape):
        return rng.integers(0, 200, shape).astype("uint8")

    weights = {"w": table(5, 4), "p": table(6, 4), "s": table(2, 4), "g": table(4), "b": table(4)}
    scales = {f"{name}s": np.array(0.02 + 0.01 * i, "float32") for i, name in enumerate("wpsgb")}
    zeros = {f"{name}z": np.array(90 + i, "uint8") for i, name in enumerate("wpsgb")}
    mask = np.array([[1, 1, 0], [1, 0, 0]], "int32")
    inputs = f"ids kinds w p s g b mask {' '.join(scales)} {' '.join(zeros)}"
    node = own("QEmbedLayerNormalization", inputs, "y0 y1")
    feeds = {**EMBEDDING, "mask": mask}
    as_onnxruntime([node], feeds, {**weights, **scales, **zeros}, dtypes={"y1": "int32"})
