"""Layers, as they stand and hybridized, against onnxruntime and numpy in float64."""

from __future__ import annotations

import math

import numpy as onp
import onnxruntime
import pytest

from compiler.errors import BlockArgumentError
from compiler.mxnet import initializer, np
from compiler.mxnet.gluon import HybridBlock, nn
from compiler.mxnet.symbol import to_onnx

RNG = onp.random.default_rng(2)


class Many(HybridBlock):
    """Several layers on the same input, so that one build covers them."""

    def __init__(self, *layers):
        super().__init__()
        for number, layer in enumerate(layers):
            setattr(self, f"layer{number}", layer)

    def forward(self, x):
        return [layer(x) for layer in self._children.values()]


def prepared(*layers):
    np.random.seed(4)
    block = Many(*layers)
    block.initialize(initializer.Uniform(0.5))
    return block


def values(results):
    return [result.asnumpy() for result in results]


CHAINS = {
    "one axis": ((2, 6, 11), lambda: (
        nn.Conv1D(4, 3, padding=1, activation="relu"),
        nn.Conv1D(8, 3, strides=2, groups=2, use_bias=False),
        nn.Conv1DTranspose(4, 3, strides=2, padding=1, output_padding=1),
        nn.MaxPool1D(3, 2, 1), nn.AvgPool1D(2), nn.AvgPool1D(3, 2, 1, count_include_pad=False),
        nn.GlobalMaxPool1D(), nn.GlobalAvgPool1D(),
    )),
    "two axes": ((2, 6, 9, 8), lambda: (
        nn.Conv2D(4, 3, padding=1, activation="tanh"),
        nn.Conv2D(6, (3, 2), (2, 1), groups=3, dilation=(1, 2)),
        nn.Conv2DTranspose(5, 3, strides=2, padding=1, output_padding=1),
        nn.MaxPool2D(3, 2, ceil_mode=True), nn.AvgPool2D((2, 3)), nn.AvgPool2D(3, 2, 1),
        nn.GlobalMaxPool2D(), nn.GlobalAvgPool2D(), nn.BatchNorm(), nn.BatchNorm(scale=False),
        nn.Flatten(), nn.Dense(7), nn.Dense(7, flatten=False, activation="sigmoid"),
        nn.Dropout(0.3), nn.LeakyReLU(0.1), nn.ELU(0.7), nn.SELU(), nn.Swish(), nn.SiLU(),
        nn.Activation("softrelu"), nn.Activation("softsign"), nn.HybridLambda("tanh"),
    )),
    "three axes": ((1, 4, 5, 6, 4), lambda: (
        nn.Conv3D(3, 3, padding=1), nn.Conv3DTranspose(3, 2, strides=2),
        nn.MaxPool3D(2), nn.AvgPool3D(2), nn.GlobalMaxPool3D(), nn.GlobalAvgPool3D(),
    )),
}  # fmt: skip


@pytest.mark.parametrize("chain", CHAINS)
def test_layers_compute_what_onnxruntime_does(chain):
    shape, layers = CHAINS[chain]
    block = prepared(*layers())
    x = np.array(RNG.uniform(-1, 1, shape).astype("float32"))
    eager = values(block(x))
    block.hybridize()
    hybrid = values(block(x))
    symbol, arrays = block.export(None)
    params = {name[4:]: array.asnumpy() for name, array in arrays.items()}
    model = to_onnx(symbol, params, {"data": shape})
    session = onnxruntime.InferenceSession(model.SerializeToString())
    wanted = session.run(None, {"data": x.asnumpy()})
    for layer, one, two, right in zip(block._children.values(), eager, hybrid, wanted, strict=True):
        onp.testing.assert_allclose(one, right, rtol=1e-4, atol=1e-5, err_msg=repr(layer))
        onp.testing.assert_allclose(two, right, rtol=1e-4, atol=1e-5, err_msg=repr(layer))


def normalized(x, axes, eps):
    center = x - x.mean(axes, keepdims=True)
    return center / onp.sqrt((center**2).mean(axes, keepdims=True) + eps)


def test_layers_compute_their_formulas():
    x = RNG.uniform(-2, 2, (2, 6, 4, 3)).astype("float32")
    wide = x.astype("float64")
    layers = {
        nn.LayerNorm(): normalized(wide, -1, 1e-5),
        nn.LayerNorm(axis=1, epsilon=0.1): normalized(wide, 1, 0.1),
        nn.InstanceNorm(): normalized(wide, (2, 3), 1e-5),
        nn.InstanceNorm(axis=3): normalized(wide, (1, 2), 1e-5),
        nn.GroupNorm(2): normalized(wide.reshape(2, 2, 3, 4, 3), (2, 3, 4), 1e-5).reshape(x.shape),
        nn.GELU(): wide * (1 + onp.vectorize(math.erf)(wide / math.sqrt(2))) / 2,
        nn.GELU("tanh"): wide * (1 + onp.tanh(0.7978845608 * (wide + 0.044715 * wide**3))) / 2,
        nn.PReLU(): onp.where(wide > 0, wide, 0.25 * wide),
        nn.Swish(2.0): wide / (1 + onp.exp(-2 * wide)),
        nn.Identity(): wide,
        nn.Activation("log_sigmoid"): -onp.log1p(onp.exp(-wide)),
        nn.Activation("mish"): wide * onp.tanh(onp.log1p(onp.exp(wide))),
        nn.ReflectionPad2D(1): onp.pad(wide, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="reflect"),
        nn.Conv2D(3, 1, layout="NHWC", use_bias=False, weight_initializer="ones"): onp.repeat(
            wide.sum(-1, keepdims=True), 3, -1
        ),
        nn.MaxPool2D((2, 2), layout="NHWC"): wide.reshape(2, 3, 2, 2, 2, 3).max((2, 4)),
    }
    block = prepared(*layers)
    eager = values(block(np.array(x)))
    block.hybridize()
    hybrid = values(block(np.array(x)))
    for layer, one, two, wanted in zip(layers, eager, hybrid, layers.values(), strict=True):
        onp.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-5, err_msg=repr(layer))
        onp.testing.assert_allclose(two, wanted, rtol=1e-4, atol=1e-5, err_msg=repr(layer))


def test_embedding_takes_rows():
    layer = nn.Embedding(5, 3)
    layer.initialize()
    indices = onp.array([[0, 4], [2, 1]])
    wanted = layer.weight.data().asnumpy()[indices]
    onp.testing.assert_array_equal(layer(np.array(indices)).asnumpy(), wanted)
    layer.hybridize()
    onp.testing.assert_array_equal(layer(np.array(indices)).asnumpy(), wanted)


def test_containers_run_slice_and_concatenate():
    x = np.ones((2, 3))
    stack = nn.HybridSequential(nn.Dense(4), nn.Dense(5))
    stack.add(nn.Dense(6))
    stack.initialize()
    assert len(stack) == 3 and repr(next(iter(stack))) == "Dense(None -> 4, linear)"
    assert stack(x).shape == (2, 6) and repr(stack[0]) == "Dense(3 -> 4, linear)"
    assert isinstance(stack[:2], nn.HybridSequential) and stack[:2](x).shape == (2, 5)
    assert list(stack.collect_params()) == [
        f"{i}.{n}" for i in range(3) for n in ("weight", "bias")
    ]
    for kind in (nn.Concatenate, nn.HybridConcatenate):
        beside = kind(axis=1)
        beside.add(nn.Identity(), nn.HybridLambda("negative"))
        wanted = onp.concatenate([onp.ones((2, 3)), -onp.ones((2, 3))], 1)
        onp.testing.assert_array_equal(beside(x).asnumpy(), wanted)
    plain = nn.Sequential(nn.Lambda(lambda value: value * 2), nn.Lambda("exp"))
    onp.testing.assert_allclose(plain(x).asnumpy(), onp.exp(2), rtol=1e-6)


def test_settings_that_make_no_sense_are_refused():
    for make in (
        lambda: nn.Activation("rely"),
        lambda: nn.Conv2D(3, (1, 2, 3)),
        lambda: nn.Conv2D(3, 1, layout="NWC"),
        lambda: nn.LeakyReLU(-1),
        lambda: nn.GELU("quick"),
        lambda: nn.Lambda("no_such_function"),
        lambda: nn.HybridSequential(3),
    ):
        with pytest.raises(BlockArgumentError):
            make()


def test_transposed_convolutions_are_dilated():
    layer = nn.Conv2DTranspose(1, 3, padding=1, dilation=2, in_channels=1, use_bias=False)
    layer.initialize()
    weight = onp.arange(1, 10, dtype="float32").reshape(1, 1, 3, 3)
    layer.weight.set_data(weight)
    one = onp.zeros((1, 1, 3, 3), "float32")
    one[0, 0, 1, 1] = 2
    wanted = onp.zeros((1, 1, 5, 5), "float32")
    wanted[:, :, ::2, ::2] = 2 * weight
    onp.testing.assert_allclose(layer(np.array(one)).asnumpy(), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("layer", "factors", "extents"),
    [
        (nn.PixelShuffle1D, (3,), (5,)),
        (nn.PixelShuffle2D, (2, 3), (3, 5)),
        (nn.PixelShuffle3D, (2, 1, 3), (2, 3, 4)),
    ],
)
@pytest.mark.parametrize("hybridize", [False, True])
def test_pixel_shuffle_moves_blocks_of_channels_to_space(layer, factors, extents, hybridize):
    block = math.prod(factors)
    x = RNG.standard_normal((2, 2 * block, *extents)).astype("float32")
    want = onp.empty((2, 2, *(e * f for e, f in zip(extents, factors))), "float32")
    for channel in range(2):
        for number, offsets in enumerate(onp.ndindex(*factors)):
            places = tuple(slice(o, None, f) for o, f in zip(offsets, factors))
            want[(slice(None), channel, *places)] = x[:, channel * block + number]
    net = layer(factors)
    net.hybridize(hybridize)
    onp.testing.assert_array_equal(net(np.array(x)).asnumpy(), want)


def test_pixel_shuffle_names_what_does_not_fit():
    with pytest.raises(BlockArgumentError, match="one positive int or 2"):
        nn.PixelShuffle2D((1, 2, 3))
    with pytest.raises(BlockArgumentError, match="multiple of 4 channels"):
        nn.PixelShuffle2D(2)(np.ones((1, 6, 2, 2)))


def test_save_and_load_by_prefix(tmp_path):
    first, second = prepared(nn.Dense(2, in_units=3)), Many(nn.Dense(2, in_units=3))
    first.save(str(tmp_path / "net"))
    second.load(str(tmp_path / "net"))
    x = np.ones((1, 3))
    onp.testing.assert_array_equal(first(x)[0].asnumpy(), second(x)[0].asnumpy())
