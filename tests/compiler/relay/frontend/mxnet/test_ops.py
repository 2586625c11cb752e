"""Single MXNet operators against numpy."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler.errors import FrontendError, UnsupportedOperatorError
from compiler.mxnet.symbol import Symbol
from compiler.relay.frontend import from_mxnet
from compiler.relay.relax_to_relay import to_relax

RANDOM = np.random.default_rng(3)


def symbol_of(op, names, outputs=1, **attrs):
    """A symbol of one operator."""
    nodes = [{"op": "null", "name": name, "inputs": []} for name in names]
    text = {key: str(value) for key, value in attrs.items()}
    inputs = [[i, 0, 0] for i in range(len(names))]
    nodes.append({"op": op, "name": "node", "inputs": inputs, "attrs": text})
    heads = [[len(names), i, 0] for i in range(outputs)]
    variables = list(range(len(names)))
    return Symbol.loads(json.dumps({"nodes": nodes, "arg_nodes": variables, "heads": heads}))


def run(op, *arrays, outputs=1, **attrs):
    """Outputs of one operator; one array, or a list of several."""
    names = [f"x{i}" for i in range(len(arrays))]
    values = {name: np.asarray(value) for name, value in zip(names, arrays)}
    module, params = from_mxnet(
        symbol_of(op, names, outputs, **attrs),
        {name: value.shape for name, value in values.items()},
        {name: str(value.dtype) for name, value in values.items()},
    )
    assert not params
    executable = tvm.compile(to_relax(module), target=tvm.target.Target({"kind": "llvm"}))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    read = [tvm.runtime.tensor(values[param.name]) for param in module["main"].params]
    result = machine["main"](*read)
    results = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    return results[0].numpy() if outputs == 1 else [value.numpy() for value in results]


def array(*shape):
    return RANDOM.uniform(-2, 2, shape).astype("float32")


def close(got, want, rtol=1e-5, atol=1e-5):
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)


X, Y = array(2, 3, 4), array(2, 3, 4)
POSITIVE = np.abs(X) + 0.5
erf = np.vectorize(math.erf)


@pytest.mark.parametrize(
    ("op", "data", "expected"),
    [
        ("log2", POSITIVE, np.log2(POSITIVE)),
        ("log10", POSITIVE, np.log10(POSITIVE)),
        ("log1p", POSITIVE, np.log1p(POSITIVE)),
        ("expm1", X, np.expm1(X)),
        ("cbrt", X, np.cbrt(X)),
        ("rcbrt", X, 1 / np.cbrt(X)),
        ("reciprocal", POSITIVE, 1 / POSITIVE),
        ("softsign", X, X / (1 + np.abs(X))),
        ("round", np.float32([-1.5, -0.5, 0.5, 2.5]), [-2, -1, 1, 3]),
        ("rint", np.float32([-1.5, 0.4, 1.5, 2.6]), [-2, 0, 1, 3]),
        ("logical_not", np.float32([0, 2]), [1, 0]),
        ("hard_sigmoid", X, np.clip(0.2 * X + 0.5, 0, 1)),
        ("smooth_l1", X, np.where(np.abs(X) < 1, X * X / 2, np.abs(X) - 0.5)),
        ("argmax_channel", X, X.argmax(1)),
        ("shape_array", X, [2, 3, 4]),
    ],
)
def test_a_function_of_one_array(op, data, expected):
    close(run(op, data), np.asarray(expected))


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("broadcast_mod", X - np.floor(X / Y) * Y),
        ("broadcast_hypot", np.hypot(X, Y)),
        ("broadcast_lesser", (X < Y).astype("float32")),
        ("_npi_less", X < Y),
        ("broadcast_logical_and", np.ones_like(X)),
        ("_maximum", np.maximum(X, Y)),
    ],
)
def test_a_function_of_two_arrays(op, expected):
    got = run(op, X, Y)
    assert got.dtype == expected.dtype
    close(got, expected)


@pytest.mark.parametrize(
    ("op", "attrs", "expected"),
    [
        ("_rminus_scalar", {"scalar": "1.5"}, 1.5 - X),
        ("_rdiv_scalar", {"scalar": "2"}, 2 / X),
        ("_rpower_scalar", {"scalar": "2"}, 2**X),
        ("_greater_scalar", {"scalar": "0"}, (X > 0).astype("float32")),
        ("sum", {"axis": "1", "exclude": "True"}, X.sum((0, 2))),
        ("max", {"axis": "(0, -1)", "keepdims": "1"}, X.max((0, 2), keepdims=True)),
        ("mean", {}, X.mean().reshape(1)),
        ("norm", {"axis": "2"}, np.linalg.norm(X, axis=2)),
        ("argmax", {"axis": "1"}, X.argmax(1)),
        ("argmin", {}, np.reshape(X.argmin(), 1)),
        ("transpose", {}, X.T),
        ("SwapAxis", {"dim1": "0", "dim2": "2"}, X.swapaxes(0, 2)),
        ("Reshape", {"shape": "(-3, -4, 2, -1)"}, X.reshape(6, 2, 2)),
        ("Reshape", {"shape": "(0, -2)"}, X),
        ("Reshape", {"shape": "(-1, 0)", "reverse": "True"}, X.reshape(6, 4)),
        ("_npx_reshape", {"newshape": "(-5, -6, 2, -1)"}, X.reshape(6, 2, 2)),
        ("slice", {"begin": "(None, 2)", "end": "(1, None)", "step": "(1, -1)"}, X[:1, 2::-1]),
        ("slice_axis", {"axis": "-1", "begin": "-3", "end": "None"}, X[..., -3:]),
        ("tile", {"reps": "(2, 1, 1, 2)"}, np.tile(X, (2, 1, 1, 2))),
        ("repeat", {"repeats": "2"}, np.repeat(X, 2)),
        ("reverse", {"axis": "(0, 2)"}, np.flip(X, (0, 2))),
        ("broadcast_axis", {"axis": "()", "size": "()"}, X),
        ("sort", {"axis": "1", "is_ascend": "0"}, -np.sort(-X, 1)),
        ("topk", {"axis": "2", "k": "2"}, (-X).argsort(2)[..., :2]),
        ("topk", {"axis": "2", "k": "2", "ret_typ": "value"}, -np.sort(-X, 2)[..., :2]),
        ("clip", {"a_min": "-0.5", "a_max": "1"}, X.clip(-0.5, 1)),
        ("Cast", {"dtype": "int32"}, X.astype("int32")),
        ("LeakyReLU", {"act_type": "elu", "slope": "0.5"}, np.where(X > 0, X, 0.5 * np.expm1(X))),
        ("LeakyReLU", {"act_type": "gelu"}, X * (1 + erf(X / 2**0.5)) / 2),
        ("Activation", {"act_type": "softrelu"}, np.log1p(np.exp(X))),
    ],
)
def test_an_operator_with_attributes(op, attrs, expected):
    close(run(op, X, **attrs), np.asarray(expected))


def test_padding_of_every_mode():
    data, width = array(1, 2, 3, 4), "(0, 0, 0, 0, 1, 2, 2, 1)"
    pairs = ((0, 0), (0, 0), (1, 2), (2, 1))
    for mode in ("constant", "edge", "reflect"):
        close(run("Pad", data, mode=mode, pad_width=width), np.pad(data, pairs, mode))


def test_parts_and_their_union():
    for got, want in zip(
        run("SliceChannel", X, outputs=3, num_outputs=3, squeeze_axis=1), X.transpose(1, 0, 2)
    ):
        close(got, want)
    first, second = run("_split_v2", X, outputs=2, indices="(0, 1)", axis=2)
    close(first, X[..., :1])
    close(second, X[..., 1:])
    close(run("Concat", X, Y, dim=-1, num_args=2), np.concatenate([X, Y], -1))
    close(run("stack", X, Y, axis=1), np.stack([X, Y], 1))


def test_products_of_matrices():
    a, b = array(2, 3, 4), array(2, 3, 5)
    close(run("batch_dot", a, b, transpose_a="True"), a.transpose(0, 2, 1) @ b, 1e-4)
    halved = run("_linalg_gemm2", a, b, transpose_a="1", alpha="0.5")
    close(halved, a.transpose(0, 2, 1) @ b / 2, 1e-4)
    with pytest.raises(UnsupportedOperatorError, match="axis before the last"):
        run("_linalg_gemm2", a, b, axis="0")
    c = array(4, 2)
    close(run("dot", a, c), a @ c, 1e-4)


def test_indices_out_of_range_are_clipped_or_wrapped():
    table, indices = array(4, 2), np.float32([[0, 3], [7, -2]])
    close(run("Embedding", indices, table, input_dim=4, output_dim=2), table[[[0, 3], [3, 0]]])
    close(run("take", table, indices, mode="wrap"), table[[[0, 3], [3, 2]]])
    close(run("pick", X, np.float32([[0, 1, 9]] * 2)), X[:, [0, 1, 2], [0, 1, 3]])


def test_one_hot_is_off_everywhere_for_an_index_out_of_range():
    got = run("one_hot", np.float32([0, 2, 5]), depth=3, on_value=2, off_value=-1, dtype="int32")
    np.testing.assert_array_equal(got, np.int32([[2, -1, -1], [-1, -1, 2], [-1, -1, -1]]))


def test_sequences_end_at_their_lengths():
    data, lengths = array(3, 2, 2), np.float32([1, 3])
    masked = data.copy()
    masked[1:, 0] = -1
    turned = data.copy()
    turned[:, 1] = data[::-1, 1]
    close(run("SequenceMask", data, lengths, use_sequence_length=1, value=-1), masked)
    close(run("SequenceReverse", data, lengths, use_sequence_length=1), turned)
    close(run("SequenceLast", data, lengths, use_sequence_length=1), data[[0, 2], [0, 1]])


def test_normalizations():
    data, gamma, beta = array(2, 4, 3, 3), array(4), array(4)
    along = (1, 4, 1, 1)
    mean, var = data.mean((2, 3), keepdims=True), data.var((2, 3), keepdims=True)
    want = (data - mean) / np.sqrt(var + 1e-3) * gamma.reshape(along) + beta.reshape(along)
    close(run("InstanceNorm", data, gamma, beta), want, 1e-4)
    groups = data.reshape(2, 2, -1)
    normal = groups - groups.mean(2, keepdims=True)
    normal = (normal / np.sqrt(groups.var(2, keepdims=True) + 1e-5)).reshape(data.shape)
    want = normal * gamma.reshape(along) + beta.reshape(along)
    close(run("GroupNorm", data, gamma, beta, num_groups=2), want, 1e-4)
    norm = np.sqrt((data**2).sum((1, 2, 3), keepdims=True))
    close(run("L2Normalization", data), data / norm)
    padded = np.pad(data**2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    sums = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
    want = data / (2 + 0.1 / 3 * sums) ** 0.75
    close(run("LRN", data, nsize=3, alpha=0.1), want)


def test_an_incomplete_window_counts_only_what_it_covers():
    data = array(1, 1, 4, 4)
    attrs = {"kernel": "(3, 3)", "stride": "(2, 2)", "pooling_convention": "full"}
    got = run("Pooling", data, pool_type="avg", **attrs)
    want = [[data[0, 0, i : i + 3, j : j + 3].mean() for j in (0, 2)] for i in (0, 2)]
    close(got[0, 0], np.array(want))
    close(run("Pooling", data, pool_type="max", global_pool=1), data.max((2, 3), keepdims=True))


def test_a_transposed_convolution_spreads_its_input():
    data, weight, bias = array(1, 2, 3, 3), array(2, 3, 2, 2), array(3)
    want = np.zeros((1, 3, 6, 6)) + bias.reshape(1, 3, 1, 1)
    for i in range(3):
        for j in range(3):
            patch = np.einsum("c,cokl->okl", data[0, :, i, j], weight)
            want[0, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2] += patch
    attrs = {"kernel": "(2, 2)", "stride": "(2, 2)", "num_filter": 3, "no_bias": "False"}
    close(run("Deconvolution", data, weight, bias, **attrs), want, 1e-4)
    close(run("UpSampling", data, scale=2, sample_type="nearest"), data.repeat(2, 2).repeat(2, 3))


def sigmoid(value):
    return 1 / (1 + np.exp(-value))


@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_tanh"])
def test_a_recurrent_layer(mode):
    gates = {"lstm": 4, "gru": 3, "rnn_tanh": 1}[mode] * 3
    data, state, cell = array(4, 2, 5), array(1, 2, 3), array(1, 2, 3)
    wi, wh, bi, bh = array(gates, 5), array(gates, 3), array(gates), array(gates)
    flat = np.concatenate([part.reshape(-1) for part in (wi, wh, bi, bh)])
    hidden, memory, want = state[0], cell[0], []
    for step in data:
        ours, theirs = step @ wi.T + bi, hidden @ wh.T + bh
        if mode == "lstm":
            i, f, c, o = np.split(ours + theirs, 4, 1)
            memory = sigmoid(f) * memory + sigmoid(i) * np.tanh(c)
            hidden = sigmoid(o) * np.tanh(memory)
        elif mode == "gru":
            (r, z, n), (rs, zs, ns) = np.split(ours, 3, 1), np.split(theirs, 3, 1)
            update = sigmoid(z + zs)
            hidden = (1 - update) * np.tanh(n + sigmoid(r + rs) * ns) + update * hidden
        else:
            hidden = np.tanh(ours + theirs)
        want.append(hidden)
    states = [state, cell] if mode == "lstm" else [state]
    attrs = {"mode": mode, "state_size": 3, "state_outputs": 1, "num_layers": 1}
    got = run("RNN", data, flat, *states, outputs=2, **attrs)
    close(got[0], np.stack(want), 1e-4)
    close(got[1], hidden[None], 1e-4)


@pytest.mark.parametrize(
    ("op", "attrs", "error", "message"),
    [
        ("Custom", {}, UnsupportedOperatorError, r"operator Custom \(node 'node'\)"),
        ("Activation", {"act_type": "x"}, UnsupportedOperatorError, "Activation of node 'node'"),
        ("Activation", {}, FrontendError, "lacks the attribute 'act_type'"),
        ("Reshape", {"shape": "(5, -1)"}, FrontendError, "can't be shaped"),
        ("sum", {"axis": "(one)"}, FrontendError, "attribute 'axis'"),
        ("sum", {"axis": "3"}, FrontendError, "axis 3"),
        ("slice", {"begin": "0", "end": "1", "step": "0"}, FrontendError, "step is 0"),
    ],
)
def test_a_form_that_can_not_be_converted_is_named(op, attrs, error, message):
    with pytest.raises(error, match=message):
        run(op, X, **attrs)


INTEGERS = np.int32([[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("op", "data", "attrs", "expected"),
    [
        ("softmax", np.zeros((1, 2), "float16"), {"dtype": "float32"}, np.full((1, 2), 0.5)),
        ("_npi_sum", INTEGERS, {"dtype": "float32", "axis": "1"}, [3, 7]),
        ("_npi_around", np.float32([1.26, -1.24]), {"decimals": "1"}, [1.3, -1.2]),
        ("_npi_greater_scalar", INTEGERS, {"scalar": "1.5", "is_int": "0"}, INTEGERS > 1.5),
        ("_npi_concatenate", INTEGERS, {"axis": "None"}, [1, 2, 3, 4]),
        ("Dropout", X, {"p": "0.5", "mode": "training", "axes": "(1,)"}, X),
        ("relu", X, {"note": "operators without parameters carry anything"}, X.clip(0)),
        ("sum", X, {"axis": "1", "__mood__": "annotations are kept apart"}, X.sum(1)),
        ("LeakyReLU", X, {"act_type": "leaky", "lower_bound": "0.2"}, np.where(X > 0, X, X / 4)),
    ],
)
def test_what_an_attribute_changes(op, data, attrs, expected):
    close(run(op, data, **attrs), np.asarray(expected))


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("Dropout", {"mode": "always"}),
        ("mean", {"axis": "1", "dtype": "int32"}),
        ("norm", {"out_dtype": "float64"}),
        ("_npi_max", {"axis": "1", "initial": "0"}),
        ("Reshape", {"shape": "(0, -1)", "keep_highest": "True"}),
        ("_npi_reshape", {"newshape": "-1", "order": "F"}),
        ("expand_dims", {"axis": "1", "axes": "2"}),
    ],
)
def test_an_attribute_that_would_be_ignored_is_refused(op, attrs):
    with pytest.raises(UnsupportedOperatorError, match=f"operator {op} of node 'node': .*"):
        run(op, X, **attrs)


def test_a_clipped_cell_of_a_recurrent_layer_is_refused():
    attrs = {"mode": "lstm", "state_size": "2", "num_layers": "1", "lstm_state_clip_min": "-1"}
    arrays = array(3, 1, 2), array(48), array(1, 1, 2), array(1, 1, 2)
    with pytest.raises(UnsupportedOperatorError, match="lstm_state_clip_min='-1'"):
        run("RNN", *arrays, **attrs)
