"""CombineParallel*: elementwise operators behind the combined ones are computed once, too."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.relay.analysis import list_op_freqs
from compiler.relay.transform import (
    CombineParallelBatchMatmul,
    CombineParallelConv2D,
    CombineParallelDense,
)

nn = relay.nn


def combined(run, outputs):
    """Operators after a pass, and that the values are those of before."""
    whole = relay.Tuple(list(outputs))
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(whole), whole))
    new = run(mod)
    random = np.random.default_rng(0)
    values = {
        var.name: random.standard_normal([int(n) for n in var.ty.shape]).astype("float32")
        for var in mod["main"].params
    }
    wanted, got = (relay.create_executor("graph", each).evaluate()(**values) for each in (mod, new))
    for one, other in zip(wanted, got, strict=True):
        np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=1e-5, atol=1e-6)
    return dict(list_op_freqs(new))


def var(name, *shape):
    return relay.var(name, shape=shape)


def test_channels_of_convolutions_keep_their_scales_and_activations():
    x = var("x", 1, 4, 8, 8)
    convs = [nn.conv2d(x, var(f"w{i}", 2 + i, 4, 3, 3), padding=(1, 1)) for i in range(3)]
    scaled = [relay.multiply(conv, var(f"s{i}", 2 + i, 1, 1)) for i, conv in enumerate(convs)]
    found = combined(CombineParallelConv2D(2), map(nn.relu, scaled))
    assert found["nn.conv2d"] == found["multiply"] == found["nn.relu"] == 1
    assert found["strided_slice"] == 3


@pytest.mark.parametrize("shapes", [[(5,), (7,)], [(1,), (7,)], [(), ()], [(3, 1), (3, 7)]])
def test_dense_layers_become_a_wider_one_with_their_biases(shapes):
    x = var("x", 3, 4)
    layers = [nn.dense(x, var("w0", 5, 4)), nn.dense(x, var("w1", 7, 4))]
    biased = [relay.add(each, var(f"b{i}", *shapes[i])) for i, each in enumerate(layers)]
    found = combined(CombineParallelDense(2, to_batch=False), biased)
    assert found["nn.dense"] == found["add"] == 1


@pytest.mark.parametrize(("shape", "adds"), [((5,), 1), ((3, 5), 1), ((), 2), ((2, 3, 5), 2)])
def test_a_stack_of_dense_layers_takes_what_broadcasts_inside_of_a_layer(shape, adds):
    x = var("x", 3, 4)
    layers = [nn.dense(x, var(f"w{i}", 5, 4)) for i in range(2)]
    found = combined(
        CombineParallelDense(2), [relay.add(y, var(f"b{i}", *shape)) for i, y in enumerate(layers)]
    )
    assert found["nn.batch_matmul"] == 1
    assert found["add"] == adds


def test_products_of_stacks_keep_their_biases():
    x = var("x", 2, 3, 4)
    products = [nn.batch_matmul(x, var(f"w{i}", 2, 5 + i, 4)) for i in range(2)]
    biased = [relay.add(y, var(f"b{i}", 5 + i)) for i, y in enumerate(products)]
    found = combined(CombineParallelBatchMatmul(2), biased)
    assert found["nn.batch_matmul"] == found["add"] == 1


def test_branches_go_on_alone_from_where_they_differ_or_read_each_other():
    x = var("x", 3, 4)
    one, other = nn.dense(x, var("w0", 5, 4)), nn.dense(x, var("w1", 5, 4))
    found = combined(CombineParallelDense(2, to_batch=False), [nn.relu(one), relay.tanh(other)])
    assert (found["nn.dense"], found["nn.relu"], found["tanh"]) == (1, 1, 1)
    first = relay.add(one, var("b", 3, 5))
    found = combined(CombineParallelDense(2, to_batch=False), [relay.add(other, first)])
    assert (found["nn.dense"], found["add"]) == (1, 2)
    found = combined(CombineParallelDense(2, to_batch=False), [nn.relu(one), one, nn.relu(other)])
    assert (found["nn.dense"], found["nn.relu"]) == (1, 2)


def test_numbers_that_tvm_made_become_pythons_in_attributes():
    x = var("x", 2, 3)
    extent = x.ty.shape.values[1]
    call = relay.strided_slice(x, [0, 0], [2, extent], [1, 1])
    assert [type(each) for each in call.attrs.end] == [int, int]
