"""Operators of ONNX that draw random numbers."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from compiler import relay
from compiler.relay.frontend import from_onnx

NODE = helper.make_node


@pytest.mark.parametrize(
    ("node", "mean", "deviation"),
    [
        (NODE("RandomUniform", [], ["y"], shape=[60, 70], low=2.0, high=6.0), 4, 4 / 12**0.5),
        (NODE("RandomUniformLike", ["x"], ["y"], seed=0.5), 0.5, 1 / 12**0.5),
        (NODE("RandomNormal", [], ["y"], shape=[60, 70], mean=1.0, scale=3.0), 1, 3),
        (NODE("RandomNormalLike", ["x"], ["y"], seed=4.0), 0, 1),
        (NODE("Bernoulli", ["x"], ["y"], dtype=TensorProto.FLOAT), 0.25, (0.25 * 0.75) ** 0.5),
    ],
)
def test_numbers_have_the_moments_that_were_asked_for(node, mean, deviation, model, run):
    feeds = {"x": np.full((60, 70), 0.25, "float32")} if node.input else {}
    (values,) = run(
        *from_onnx(model([node], {"x": (60, 70)} if feeds else {}, ["y"], opset=15)), feeds
    )
    assert values.shape == (60, 70) and values.dtype == np.float32
    assert abs(values.mean() - mean) < 0.2 and abs(values.std() - deviation) < 0.15


@pytest.mark.parametrize(
    "node",
    [
        NODE("RandomUniformLike", ["c"], ["y"]),
        NODE("RandomNormalLike", ["c"], ["y"]),
        NODE("Bernoulli", ["c"], ["y"]),
        NODE("Dropout", ["c", "ratio", "training"], ["y"]),
    ],
)
def test_open_shapes_draw_the_numbers_of_static_ones(node, model, rng):
    data = rng.random((3, 4, 8, 8)).astype("float32")
    weights = {"ratio": np.array(0.5, "float32"), "training": np.array(True)}
    weights |= {"w": rng.random((1, 4, 3, 3)).astype("float32") / 40}
    nodes = [NODE("Conv", ["x", "w"], ["c"]), node]

    def session(batch):
        mod, params = from_onnx(model(nodes, {"x": (batch, 4, 8, 8)}, ["y"], weights, opset=15))
        return relay.build(mod, "llvm", params=params).session()

    every = session("batch")
    for batch in (1, 3):
        feeds = {"x": data[:batch]}
        np.testing.assert_array_equal(every.run(feeds)["y"], session(batch).run(feeds)["y"])


def test_nodes_differ_and_seeds_repeat(model, run):
    nodes = [
        *(NODE("RandomNormal", [], [name], shape=[8]) for name in "ab"),
        *(NODE("RandomNormal", [], [name], shape=[8], seed=7.0) for name in "cd"),
    ]
    a, b, c, d = run(*from_onnx(model(nodes, {}, ["a", "b", "c", "d"])), {})
    assert len({*a.tolist(), *b.tolist()}) == 16
    np.testing.assert_array_equal(c, d)


def test_classes_are_drawn_by_the_logarithms_of_their_shares(model, run):
    shares = np.array([[0.1, 0, 0.6, 0.3], [0, 1, 0, 0]], "float32")
    with np.errstate(divide="ignore"):
        logarithms = np.log(shares) + 5
    node = NODE("Multinomial", ["x"], ["y"], sample_size=3000)
    proto = model([node], {"x": (2, 4)}, ["y"], dtypes={"y": TensorProto.INT32})
    (classes,) = run(*from_onnx(proto), {"x": logarithms})
    assert classes.dtype == np.int32
    found = np.array([np.bincount(row, minlength=4) for row in classes]) / 3000
    np.testing.assert_allclose(found, shares, atol=0.05)
