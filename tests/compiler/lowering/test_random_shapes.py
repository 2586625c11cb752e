"""Anchors of random shapes, built as a whole and run on three kinds of CPU, against float64 numpy.

What the cost rules choose, layouts included, is part of what is tested: nothing is forced.
"""

import math

import numpy as np
import pytest
import tvm
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from tvm import relax

from compiler.lowering.build import build
from compiler.runtime import graph_executor
from schedules.x86.machine.host import host_name
from tests.sweep import examples

TARGETS = [
    tvm.target.Target({"kind": "llvm", "mcpu": mcpu, "num-cores": 2})
    for mcpu in (host_name(), "x86-64-v3", "x86-64")
]
ACTIVATIONS = {
    "none": (lambda x: x, lambda x: x),
    "relu6": (lambda x: relax.op.clip(x, 0, 6), lambda x: np.clip(x, 0, 6)),
    "silu": (relax.op.nn.silu, lambda x: x / (1 + np.exp(-x))),
    "hard_swish": (
        lambda x: relax.op.multiply(
            x,
            relax.op.divide(
                relax.op.clip(relax.op.add(x, relax.const(3, "float32")), 0, 6),
                relax.const(6, "float32"),
            ),
        ),
        lambda x: x * np.clip(x + 3, 0, 6) / 6,
    ),
    "gelu": (relax.op.nn.gelu, lambda x: x * (1 + np.vectorize(math.erf)(x / 2**0.5)) / 2),
}
some_target = st.sampled_from(TARGETS)
some_level = st.sampled_from([3, 3, 3, 2])
some_activation = st.sampled_from(sorted(ACTIVATIONS))


def values(seed, *shape):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("float32")


def largest_error(emit, inputs, expected, target, level):
    """Of `emit(*inputs)` built for a target, relative to the largest value that is expected."""
    builder = relax.BlockBuilder()
    data = [
        relax.Var(f"x{i}", relax.TensorType(value.shape, "float32"))
        for i, value in enumerate(inputs)
    ]
    with builder.function("main", data):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(emit(builder.emit, *data)))
        builder.emit_func_output(out)
    with tvm.transform.PassContext(opt_level=level):
        library = build(builder.get(), target)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(**{f"x{i}": value for i, value in enumerate(inputs)})
    result = module.get_output(0).numpy()
    assert result.shape == expected.shape
    return np.abs(result - expected).max() / max(np.abs(expected).max(), 1e-30)


def convolution(x, weight, strides, padding, dilation, groups):
    """(N, C, *size) with (O, C / groups, *kernel) in float64."""
    rank = x.ndim - 2
    pads = [(0, 0), (0, 0), *zip(padding[:rank], padding[rank:])]
    spans = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], dilation)]
    windows = sliding_window_view(np.pad(x.astype("f8"), pads), spans, tuple(range(2, 2 + rank)))
    windows = windows[(..., *(slice(None, None, s) for s in strides), *[slice(None)] * rank)]
    windows = windows[(..., *(slice(None, None, d) for d in dilation))]
    grouped = windows.reshape(x.shape[0], groups, -1, *windows.shape[2:])
    kernels = weight.astype("f8").reshape(groups, -1, *weight.shape[1:])
    size, taps = "hwd"[:rank], "ijk"[:rank]
    out = np.einsum(f"ngc{size}{taps},goc{taps}->ngo{size}", grouped, kernels, optimize=True)
    return out.reshape(x.shape[0], weight.shape[0], *out.shape[3:])


@st.composite
def convolutions(draw):
    """Shapes and attributes of a convolution along one to three axes."""
    rank = draw(st.sampled_from([2, 2, 2, 2, 1, 3]))
    most = {1: 40, 2: 17, 3: 7}[rank]

    def each(low, high, count=rank):
        return tuple(draw(st.integers(low, high)) for _ in range(count))

    groups = draw(st.sampled_from([1, 1, 2, 3, 8, 24]))
    per_group, out_per_group = draw(
        st.sampled_from([(1, 1), (1, 1), (1, 2), (3, 5), (4, 4), (16, 32), (8, 24), (2, 16)])
    )
    if groups == 24:
        per_group, out_per_group = min(per_group, 2), min(out_per_group, 2)
    size, kernel = each(1, most), each(1, 5 if rank < 3 else 3)
    strides, dilation, padding = each(1, 4), each(1, 2), each(0, 2, 2 * rank)
    for axis in range(rank):
        span = (kernel[axis] - 1) * dilation[axis] + 1
        assume(size[axis] + padding[axis] + padding[rank + axis] >= span)
    x = (draw(st.integers(1, 3)), groups * per_group, *size)
    return x, (groups * out_per_group, per_group, *kernel), strides, padding, dilation, groups


@examples(7)
@given(convolutions(), some_target, some_level, some_activation)
def test_convolutions_are_right(convolved, target, level, activation):
    shape, kernel, strides, padding, dilation, groups = convolved
    x, weight, bias = values(0, *shape), values(1, *kernel), values(2, kernel[0])
    emit_activation, expect_activation = ACTIVATIONS[activation]
    operators = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}
    operator = operators[len(strides)]
    bias = bias.reshape(1, -1, *[1] * len(strides))

    def emit(bind, data):
        conv = operator(data, relax.const(weight), strides, padding, dilation, groups)
        shifted = bind(relax.op.add(bind(conv), relax.const(bias)))
        return emit_activation(shifted)

    expected = expect_activation(
        convolution(x, weight, strides, padding, dilation, groups) + bias.astype("f8")
    )
    assert largest_error(emit, [x], expected, target, level) < 2e-5


@examples(2)
@given(
    st.integers(1, 2),
    st.sampled_from([(16, 32), (32, 32), (64, 16), (48, 80)]),
    st.tuples(st.integers(4, 30), st.integers(4, 30)),
    st.tuples(*[st.integers(0, 2)] * 4),
    some_target,
)
def test_convolutions_that_may_be_winograd_are_right(batch, channels, size, padding, target):
    x, weight = values(0, batch, channels[0], *size), values(1, channels[1], channels[0], 3, 3)

    def emit(bind, data):
        conv = relax.op.nn.conv2d(data, relax.const(weight), (1, 1), padding)
        return relax.op.nn.relu(bind(conv))

    expected = np.maximum(convolution(x, weight, (1, 1), padding, (1, 1), 1), 0)
    assert largest_error(emit, [x], expected, target, 3) < 5e-5


@examples(5)
@given(
    st.sampled_from([(1,), (1,), (7,), (2, 13), (3, 1, 5), (33,)]),
    st.integers(1, 70),
    st.integers(1, 130),
    st.booleans(),
    st.sampled_from(["constant", "input"]),
    some_target,
    some_level,
    some_activation,
)
def test_dense_layers_are_right(rows, width, features, transposed, weight, target, level, name):
    x = values(0, *rows, width)
    matrix = values(1, features, width) if transposed else values(1, width, features)
    bias = values(2, features)
    emit_activation, expect_activation = ACTIVATIONS[name]

    def emit(bind, data, *given_matrix):
        operand = given_matrix[0] if given_matrix else relax.const(matrix)
        if transposed:
            operand = bind(relax.op.permute_dims(operand, [1, 0]))
        shifted = bind(relax.op.add(bind(relax.op.matmul(data, operand)), relax.const(bias)))
        return emit_activation(shifted)

    wide = matrix.astype("f8").T if transposed else matrix.astype("f8")
    expected = expect_activation(x.astype("f8") @ wide + bias)
    inputs = [x] if weight == "constant" else [x, matrix]
    assert largest_error(emit, inputs, expected, target, level) < 2e-5


@examples(3)
@given(
    st.sampled_from([(2,), (1, 3), (2, 2)]),
    st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40)),
    st.booleans(),
    some_target,
)
def test_products_of_stacked_matrices_are_right(stack, extents, transposed, target):
    m, k, n = extents
    x, y = values(0, *stack, m, k), values(1, *stack, *((n, k) if transposed else (k, n)))
    turned = [*range(len(stack)), len(stack) + 1, len(stack)]

    def emit(bind, left, right):
        if transposed:
            right = bind(relax.op.permute_dims(right, turned))
        return relax.op.matmul(left, right)

    second = y.astype("f8").transpose(turned) if transposed else y.astype("f8")
    expected = x.astype("f8") @ second
    assert largest_error(emit, [x, y], expected, target, 3) < 2e-5


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: str(target.attrs["mcpu"]))
def test_a_batch_of_no_images_gives_no_results(target):
    weight = values(0, 16, 4, 3, 3)

    def emit(bind, data):
        return relax.op.nn.relu(bind(relax.op.nn.conv2d(data, relax.const(weight))))

    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType((0, 4, 8, 8), "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(emit(builder.emit, data)))
        builder.emit_func_output(out)
    library = build(builder.get(), target)
    assert not library.report.unscheduled
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=np.zeros((0, 4, 8, 8), "float32"))
    assert module.get_output(0).numpy().shape == (0, 16, 6, 6)
