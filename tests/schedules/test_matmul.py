"""Workloads of matrix products."""

import numpy as np
import pytest

from schedules.matmul import BatchMatmulWorkload, DenseWorkload, Operand, broadcast


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (0, 2, 1, 3), (0, 2, 3, 1), (3, 1, 0, 2)])
def test_an_operand_reads_what_permute_dims_would_have_made(axes):
    stored = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    permuted = stored.transpose(axes)
    operand = Operand(stored.shape, axes)
    assert operand.shape == permuted.shape
    for index in np.ndindex(permuted.shape):
        assert stored[operand.index(index[:2], *index[2:])] == permuted[index]


def test_batch_indices_are_aligned_at_the_right_and_broadcast():
    operand = Operand.plain((1, 3, 5, 7))
    assert operand.index((9, 8, 2), 4, 6) == (0, 2, 4, 6)
    assert operand.index((), 4, 6) == (0, 0, 4, 6)
    assert Operand.plain((5, 7)).index((9, 8), 4, 6) == (4, 6)


def test_contiguity_follows_the_innermost_stored_dimension():
    assert Operand.plain((4, 5, 6)).contiguous_columns
    assert Operand((4, 5, 6), (0, 2, 1)).contiguous_rows
    heads = Operand((1, 128, 12, 64), (0, 2, 1, 3))
    assert heads.contiguous_columns and not heads.contiguous_rows
    across = Operand((4, 5, 6), (2, 0, 1))
    assert not across.contiguous_columns and not across.contiguous_rows


def test_records_name_a_dense_by_rows_and_a_transposed_weight():
    w = DenseWorkload((2, 64), 768, 384)
    data, weight = ("TENSOR", (128, 384), "float32"), ("TENSOR", (768, 384), "float32")
    assert w.autotvm_args() == (data, weight, None, "float32")


def test_records_name_a_batch_matmul_by_flat_batch_and_transposed_second_operand():
    keys = Operand((1, 128, 12, 64), (0, 2, 3, 1))
    w = BatchMatmulWorkload(Operand.plain((1, 12, 128, 64)), keys)
    lhs, rhs = ("TENSOR", (12, 128, 64), "float32"), ("TENSOR", (12, 128, 64), "float32")
    assert w.autotvm_args() == (lhs, rhs, (12, 128, 128), "float32", False, True)


def test_batch_shapes_broadcast_as_in_numpy():
    for a, b in [((2, 1, 3), (4, 1)), ((), (5,)), ((1,), (1,))]:
        assert broadcast(a, b) == np.broadcast_shapes(a, b)
