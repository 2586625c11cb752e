"""The recurrent kernel against numpy in float64, on three instruction sets."""

import numpy as np
import pytest
import tvm
from tvm import te

from schedules import rules
from schedules.recurrent import RecurrentWorkload, Tiles, all_steps
from schedules.x86.machine import fast_math
from schedules.x86.matmul import recurrent

from .kernels import compiled
from .products import HOST, TARGETS

RNG = np.random.default_rng(0)


def operands(w):
    """Inputs, weight, state, and the cell of an LSTM or the bias of a GRU."""
    shapes = [
        (w.length, w.batch, w.gates * w.hidden),
        (w.hidden, w.gates * w.hidden),
        (w.batch, w.hidden),
    ]
    if w.has_cell:
        shapes.append((w.batch, w.hidden))
    if w.cell == "gru":
        shapes.append((w.hidden,))
    arrays = [RNG.standard_normal(shape).astype("float32") for shape in shapes]
    arrays[1] /= w.hidden**0.5
    return arrays


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def reference(w, arrays):
    inputs, weight, state, *others = (array.astype("float64") for array in arrays)
    cell = others[0] if w.has_cell else None
    sequence = np.zeros((w.length, w.batch, w.hidden))
    for step in reversed(range(w.length)) if w.backward else range(w.length):
        given = np.split(inputs[step], w.gates, 1)
        product = np.split(state @ weight, w.gates, 1)
        sums = [a + b for a, b in zip(given, product)]
        if w.cell == "lstm":
            i, o, f = (sigmoid(x) for x in sums[:3])
            cell = f * cell + i * np.tanh(sums[3])
            state = o * np.tanh(cell)
        elif w.cell == "gru":
            z, r = (sigmoid(x) for x in sums[:2])
            state = (1 - z) * np.tanh(given[2] + r * (product[2] + others[0])) + z * state
        else:
            state = np.tanh(sums[0]) if w.cell == "rnn_tanh" else np.maximum(sums[0], 0)
        sequence[step] = state
    return [sequence] if cell is None else [sequence, cell]


def run(w, made, placeholders, arrays, target):
    outputs = [made] if isinstance(made, te.Tensor) else list(made)
    func = te.create_prim_func([*placeholders, *outputs])
    scheduled = rules.schedule(func, target)
    library = compiled(fast_math.approximate(scheduled.func, target), target)
    values = [tvm.runtime.tensor(np.ascontiguousarray(array)) for array in arrays]
    results = [
        tvm.runtime.tensor(np.full([int(d) for d in out.shape], np.nan, "float32"))
        for out in outputs
    ]
    library["main"](*values, *results)
    return [each.numpy() for each in results]


def kernel(w, arrays, target):
    config = recurrent.fallback(w, target)
    packed = [arrays[0], recurrent.pack_weight(np, arrays[1], config), *arrays[2:]]
    placeholders = [te.placeholder(array.shape, "float32") for array in packed]
    return run(w, recurrent.compute(w, config, *placeholders), placeholders, packed, target)


def agree(found, wanted):
    assert len(found) == len(wanted)
    for left, right in zip(found, wanted):
        np.testing.assert_allclose(left, right, atol=2e-5)


WORKLOADS = {
    "one row": ("lstm", 3, 1, 32),
    "columns that fill no vector": ("lstm", 3, 1, 21),
    "fewer columns than a vector": ("gru", 3, 2, 3),
    "a batch of several tiles": ("gru", 2, 6, 40),
    "a prime batch": ("lstm", 2, 7, 16),
    "one gate": ("rnn_tanh", 4, 1, 64),
    "relu": ("rnn_relu", 4, 3, 20),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_kernel_agrees_with_numpy(name):
    w = RecurrentWorkload(*WORKLOADS[name])
    arrays = operands(w)
    agree(kernel(w, arrays, HOST), reference(w, arrays))


@pytest.mark.parametrize("target", TARGETS[1:], ids=lambda target: str(target.attrs["mcpu"]))
def test_every_x86_level_agrees_with_numpy(target):
    w = RecurrentWorkload(*WORKLOADS["columns that fill no vector"])
    arrays = operands(w)
    agree(kernel(w, arrays, target), reference(w, arrays))


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn_tanh"])
def test_a_backward_layer_begins_at_the_end(cell):
    w = RecurrentWorkload(cell, 4, 2, 16, backward=True)
    arrays = operands(w)
    agree(kernel(w, arrays, HOST), reference(w, arrays))


def test_threads_share_a_step_of_much_work():
    machine_of_four = tvm.target.Target({**dict(HOST.export()), "num-cores": 4})
    w = RecurrentWorkload("lstm", 3, 1, 256)
    assert recurrent.fallback(w, machine_of_four).val("parallel") == 1
    assert (
        recurrent.fallback(RecurrentWorkload("lstm", 3, 1, 32), machine_of_four).val("parallel")
        == 0
    )
    arrays = operands(w)
    agree(kernel(w, arrays, machine_of_four), reference(w, arrays))


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn_relu"])
def test_the_loops_without_tiles_agree(cell):
    w = RecurrentWorkload(cell, 3, 2, 5)
    arrays = operands(w)
    placeholders = [te.placeholder(array.shape, "float32") for array in arrays]
    found = run(w, all_steps(w, Tiles(), *placeholders), placeholders, arrays, HOST)
    agree(found, reference(w, arrays))
