"""Transposes on CUDA: tiles in shared memory where the innermost axis moves."""

from math import prod

import numpy as np
import pytest
from tvm import topi

from tests.ptx import ptxas
from tests.ptx.scheduled import Scheduled
from tests.schedules.cuda.checking import check, tensor
from tests.schedules.cuda.emulation import COMPILER
from tests.schedules.cuda.families import Family

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="the emulation needs a C++ compiler")
needs_nvcc = pytest.mark.skipif(ptxas.NVCC is None, reason="needs nvcc")


@needs_compiler
@pytest.mark.parametrize(
    ("order", "shape"),
    [
        ((1, 0), (37, 41)),
        ((0, 2, 1), (3, 37, 41)),
        ((0, 2, 3, 1), (2, 17, 3, 19)),
        ((0, 2, 3, 1), (2, 20, 7, 7)),
    ],
)
def test_a_moved_innermost_axis_goes_through_shared_memory(order, shape, tmp_path):
    x = tensor(*shape)
    assert check([x, topi.nn.relu(topi.transpose(x, order))], tmp_path) == "cuda.transpose"


@needs_compiler
@pytest.mark.parametrize(("order", "shape"), [((0, 2, 1, 3), (2, 9, 4, 33)), ((1, 0), (5, 100))])
def test_other_transposes_are_elementwise(order, shape, tmp_path):
    x = tensor(*shape)
    assert check([x, topi.transpose(x, order)], tmp_path) == "cuda.stages"


@needs_compiler
def test_a_sum_with_a_transposed_operand_is_right(tmp_path):
    x, y = tensor(33, 40), tensor(40, 33, name="y")
    assert check([x, y, topi.add(topi.transpose(x), y)], tmp_path) == "cuda.transpose"


def proven(tensors, tolerance=0.0):
    """Run a transpose in the interpreter; what it took, after its results were compared."""
    family = Family("transpose", lambda: tensors, tolerance)
    rule, func, target = family.scheduled()
    inputs = family.inputs()
    outcome = Scheduled(func, target).interpret(inputs)
    assert [str(problem) for problem in outcome.problems[:5]] == []
    family.check(outcome.outputs[0], inputs)
    return rule, outcome.traffic


@needs_nvcc
@pytest.mark.parametrize(
    ("dtype", "itemsize"), [("float32", 4), ("float16", 2), ("bfloat16", 2), ("int8", 1)]
)
@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 3, 1, 2)])
def test_a_layout_change_moves_words_and_reads_columns_without_bank_conflicts(
    order, dtype, itemsize
):
    shape = (1, 64, 16, 14) if order == (0, 2, 3, 1) else (1, 16, 14, 64)
    x = tensor(*shape, dtype=dtype)
    rule, traffic = proven([x, topi.transpose(x, order)])
    assert rule == "cuda.transpose"
    size = prod(shape) * itemsize
    assert traffic.requests == 2 * size / 128
    assert traffic.sectors == 2 * size / 32
    # The store of a word per thread, and the loads of its elements
    assert traffic.shared_requests == (1 + 4 // itemsize) * size / 128
    # Rows that are shorter than a warp end in the banks where the next ones begin.
    assert traffic.shared_waves <= traffic.shared_requests + size / 128


@needs_nvcc
def test_elementwise_functions_before_and_after_are_in_the_same_kernel():
    x, b = tensor(2, 24, 6, 10), tensor(24, dtype="float16", name="b")
    y = topi.transpose(topi.cast(topi.tanh(x), "float16"), (0, 2, 3, 1))
    rule, _ = proven([x, b, topi.nn.relu(topi.add(y, b))], 1e-2)
    assert rule == "cuda.transpose"


@needs_nvcc
def test_permutations_of_random_shapes_are_right():
    rng = np.random.default_rng(3)
    for _ in range(12):
        rank = int(rng.integers(2, 5))
        shape = tuple(int(extent) for extent in rng.choice([1, 2, 3, 16, 20, 33, 37], rank))
        order = tuple(int(axis) for axis in rng.permutation(rank))
        x = tensor(*shape, dtype=str(rng.choice(["float32", "float16", "bfloat16", "int8"])))
        proven([x, topi.transpose(x, order)])
