"""Pooling, reductions, row-wise and elementwise functions on CUDA, at odd shapes."""

import pytest
from tvm import topi

from schedules.cuda import Checked
from schedules.cuda.stages import Stages
from tests.schedules.cuda.checking import check, tensor
from tests.schedules.cuda.emulation import COMPILER

STAGES = Checked("cuda.stages", Stages())
pytestmark = pytest.mark.skipif(COMPILER is None, reason="the emulation needs a C++ compiler")


@pytest.mark.parametrize(
    "options",
    [{"pool_type": "max", "ceil_mode": True}, {"pool_type": "avg", "count_include_pad": False}],
)
def test_pooling_takes_a_thread_for_each_output(options, tmp_path):
    x = tensor(2, 5, 13, 11)
    y = topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), **options)
    assert check([x, topi.nn.relu(y)], tmp_path) == "cuda.windows"


def test_adaptive_pooling_whose_windows_differ_in_size_is_right(tmp_path):
    x = tensor(2, 3, 7, 5)
    assert check([x, topi.nn.adaptive_pool(x, (3, 2), "avg")], tmp_path) == "cuda.stages"


@pytest.mark.parametrize(
    ("operator", "shape"), [(topi.max, (5, 300)), (topi.prod, (3, 129)), (topi.min, (1, 4097))]
)
def test_a_long_reduction_is_shared_by_a_block_of_threads(operator, shape, tmp_path):
    x = tensor(*shape)
    assert check([x, operator(x, -1)], tmp_path) == "cuda.stages"
    check([x, topi.tanh(operator(x, -1))], tmp_path, STAGES)


@pytest.mark.parametrize("shape", [(3, 37), (2, 1001)])
def test_a_row_wise_function_can_be_a_kernel_for_each_stage(shape, tmp_path):
    x = tensor(*shape)
    assert check([x, topi.nn.softmax(x)], tmp_path, STAGES) == "cuda.stages"
    gamma, beta = tensor(shape[1], name="g"), tensor(shape[1], name="b")
    check([x, gamma, beta, topi.nn.layer_norm(x, gamma, beta, [1], 1e-5)], tmp_path, STAGES)


@pytest.mark.parametrize(
    ("axis", "shape"), [(-1, (5, 300)), (0, (300, 5)), (1, (3, 17, 4)), ((0, 1, 2), (7, 5, 11))]
)
def test_sums_over_any_axis_are_right(axis, shape, tmp_path):
    x = tensor(*shape)
    check([x, topi.sum(x, axis)], tmp_path)


def test_argmax_of_rows_and_of_everything_is_right(tmp_path):
    x = tensor(5, 300)
    check([x, topi.argmax(x, -1)], tmp_path)
    x = tensor(5, 30)
    assert check([x, topi.argmax(x)], tmp_path) == "cuda.stages"


@pytest.mark.parametrize(("shape", "axis"), [((3, 5, 37), -1), ((3, 37, 5), 1), ((2, 9001), -1)])
def test_softmax_is_right_on_any_axis_and_on_long_rows(shape, axis, tmp_path):
    x = tensor(*shape)
    check([x, topi.nn.softmax(x, axis)], tmp_path)


@pytest.mark.parametrize("length", [131, 9001])
def test_layer_norm_is_right_on_short_and_long_rows(length, tmp_path):
    x, gamma, beta = tensor(3, length), tensor(length, name="g"), tensor(length, name="b")
    check([x, gamma, beta, topi.nn.layer_norm(x, gamma, beta, [1], 1e-5)], tmp_path)


@pytest.mark.parametrize(
    ("m", "n", "k", "transposed", "batch"),
    [
        (37, 41, 19, False, 0),
        (33, 65, 50, True, 3),
        (1, 1000, 130, True, 0),
        (130, 1, 77, False, 0),
    ],
)
def test_matrix_products_that_no_tile_divides_are_right(m, n, k, transposed, batch, tmp_path):
    lead = (batch,) if batch else ()
    x, w = tensor(*lead, m, k), tensor(*lead, *((n, k) if transposed else (k, n)), name="w")
    if batch:
        y = topi.nn.batch_matmul(x, w, transpose_a=False, transpose_b=transposed)
    else:
        y = topi.matmul(x, w, False, transposed)
    check([x, w, topi.tanh(y)], tmp_path)


def test_elementwise_functions_of_no_and_of_several_dimensions_are_right(tmp_path):
    x = tensor()
    check([x, topi.exp(x)], tmp_path)
    x, y = tensor(2, 3, 5), tensor(2, 4, 5, name="y")
    check([x, y, topi.concatenate([x, y], 1)], tmp_path)
