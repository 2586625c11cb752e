"""Transposes on CUDA: tiles in shared memory where the innermost axis moves."""

import pytest
from tvm import topi

from tests.schedules.cuda.checking import check, tensor
from tests.schedules.cuda.emulation import COMPILER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="the emulation needs a C++ compiler")


@pytest.mark.parametrize(
    ("order", "shape"),
    [((1, 0), (37, 41)), ((0, 2, 1), (3, 37, 41)), ((0, 2, 3, 1), (2, 17, 3, 19))],
)
def test_a_moved_innermost_axis_goes_through_shared_memory(order, shape, tmp_path):
    x = tensor(*shape)
    assert check([x, topi.nn.relu(topi.transpose(x, order))], tmp_path) == "cuda.transpose"


@pytest.mark.parametrize(("order", "shape"), [((0, 2, 1, 3), (2, 9, 4, 33)), ((1, 0), (5, 100))])
def test_other_transposes_are_elementwise(order, shape, tmp_path):
    x = tensor(*shape)
    assert check([x, topi.transpose(x, order)], tmp_path) == "cuda.stages"


def test_a_sum_with_a_transposed_operand_is_right(tmp_path):
    x, y = tensor(33, 40), tensor(40, 33, name="y")
    assert check([x, y, topi.add(topi.transpose(x), y)], tmp_path) == "cuda.transpose"
