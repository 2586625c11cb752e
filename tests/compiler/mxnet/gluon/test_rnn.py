"""`gluon.rnn`: fused layers against cells that are unrolled, which know nothing of each other."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import mxnet as mx
from compiler.errors import BlockArgumentError, OutOfScopeError
from compiler.mxnet.gluon import rnn

RNG = np.random.default_rng(0)
PAIRS = [
    (lambda **a: rnn.LSTM(5, **a), lambda: rnn.LSTMCell(5)),
    (lambda **a: rnn.GRU(5, **a), lambda: rnn.GRUCell(5)),
    (lambda **a: rnn.RNN(5, activation="tanh", **a), lambda: rnn.RNNCell(5)),
    (lambda **a: rnn.RNN(5, **a), lambda: rnn.RNNCell(5, activation="relu")),
]
pairs = pytest.mark.parametrize(("layer", "cell"), PAIRS, ids=["lstm", "gru", "tanh", "relu"])


def array(*shape):
    return mx.np.array(RNG.standard_normal(shape).astype("float32"))


def with_values(block, *args):
    """The block with random parameters of the shapes that a call gives them."""
    block.initialize()
    block(*args)
    for parameter in block.collect_params().values():
        parameter.set_data(array(*parameter.shape))
    return block


def unrolled(cell, layer, prefix, x, states):
    """Outputs and states of a cell with one direction's parameters of a layer."""
    cell.initialize()
    cell(x[:, 0], states)
    for name, parameter in cell.collect_params().items():
        parameter.set_data(layer.collect_params()[prefix + name].data())
    return cell.unroll(x.shape[1], x, states, layout="NTC", merge_outputs=True)


@pytest.mark.parametrize("is_hybrid", [False, True])
@pairs
def test_a_layer_is_its_cell_unrolled(layer, cell, is_hybrid):
    x, net = array(2, 4, 3), layer(layout="NTC")
    states = [array(1, 2, 5) for _ in net.state_info()]
    with_values(net, x, states)
    if is_hybrid:
        net.hybridize()
    outputs, ends = net(x, states)
    wanted, wanted_ends = unrolled(cell(), net, "l0_", x, [each[0] for each in states])
    np.testing.assert_allclose(outputs.asnumpy(), wanted.asnumpy(), rtol=1e-5, atol=1e-6)
    for end, other in zip(ends, wanted_ends, strict=True):
        np.testing.assert_allclose(end[0].asnumpy(), other.asnumpy(), rtol=1e-5, atol=1e-6)


@pairs
def test_layers_of_two_directions_read_both_outputs(layer, cell):
    x, net = array(4, 2, 3), layer(num_layers=2, bidirectional=True)
    outputs = with_values(net, x)(x)  # without states they are zeros, and none are returned
    data = mx.np.swapaxes(x, 0, 1)
    for number in range(2):
        zeros = net.begin_state(2)[0][0]
        states = [zeros for _ in net.state_info()]
        forward, _ = unrolled(cell(), net, f"l{number}_", data, states)
        back, _ = unrolled(cell(), net, f"r{number}_", data[:, ::-1], states)
        data = mx.np.concatenate([forward, back[:, ::-1]], axis=2)
    wanted = mx.np.swapaxes(data, 0, 1).asnumpy()
    np.testing.assert_allclose(outputs.asnumpy(), wanted, rtol=1e-4, atol=1e-5)


def test_parameters_are_read_from_files_of_mxnet_1(tmp_path):
    shapes = {"i2h_weight": (20, 3), "h2h_weight": (20, 5), "i2h_bias": (20,), "h2h_bias": (20,)}
    values = {f"l0_{name}": array(*shape) for name, shape in shapes.items()}
    mx.nd.save(str(tmp_path / "lstm.params"), values)
    net = rnn.LSTM(5)
    net.load_parameters(str(tmp_path / "lstm.params"))
    assert {name: p.shape for name, p in net.collect_params().items()} == {
        f"l0_{name}": shape for name, shape in shapes.items()
    }
    assert repr(net) == "LSTM(5, TNC)" and net(array(4, 2, 3)).shape == (4, 2, 5)


def test_an_exported_layer_is_imported_again(tmp_path):
    x, net = array(4, 2, 3), rnn.GRU(5)
    with_values(net, x).hybridize()
    wanted = net(x).asnumpy()
    net.export(str(tmp_path / "gru"))
    files = str(tmp_path / "gru-symbol.json"), ["data"], str(tmp_path / "gru-0000.params")
    np.testing.assert_allclose(mx.gluon.SymbolBlock.imports(*files)(x).asnumpy(), wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: rnn.LSTM(5, layout="CNT"), BlockArgumentError, "expected 'TNC' or 'NTC'"),
        (lambda: rnn.RNN(5, activation="elu"), BlockArgumentError, "'elu'; expected 'relu'"),
        (lambda: rnn.LSTM(5, projection_size=2), OutOfScopeError, "LSTM: projection_size"),
        (lambda: rnn.LSTM(5, input_size=3)(array(4, 3)), BlockArgumentError, "must have 3 axes"),
        (
            lambda: with_values(rnn.GRU(5), array(4, 2, 3), array(1, 1, 5)),
            BlockArgumentError,
            r"states of shapes \[\(1, 1, 5\)\] must be 1 of \(1, 2, 5\)",
        ),
        (lambda: rnn.GRUCell(5).unroll(3, [array(2, 3)]), BlockArgumentError, "1 steps are given"),
        (lambda: rnn.GRUCell(5).unroll(1, [], valid_length=1), OutOfScopeError, "valid_length"),
    ],
)
def test_mistakes_of_recurrent_blocks_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
