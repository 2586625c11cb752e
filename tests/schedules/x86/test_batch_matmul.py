"""Products of stacks of matrices against numpy in float64."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedules.matmul import BatchMatmulWorkload, Operand
from schedules.x86.matmul import batch_matmul
from tests.sweep import examples

from .products import HOST, TARGETS, implementation, relative_error

small = st.integers(1, 40)


def heads(tokens, heads, width, axes):
    return Operand((2, tokens, heads, width), axes)


@examples(4)
@given(st.integers(2, 40), small, small, st.booleans(), st.booleans())
def test_stacks_of_any_shape_are_right(m, n, k, transpose_lhs, transpose_rhs):
    lhs = Operand((3, k, m), (0, 2, 1)) if transpose_lhs else Operand.plain((3, m, k))
    rhs = Operand((3, n, k), (0, 2, 1)) if transpose_rhs else Operand.plain((3, k, n))
    assert relative_error(BatchMatmulWorkload(lhs, rhs), batch_matmul.TILED) < 1e-5


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: str(t.attrs["mcpu"]))
def test_attention_scores_read_the_split_heads_in_place(target):
    query, key = heads(19, 3, 8, (0, 2, 1, 3)), heads(21, 3, 8, (0, 2, 3, 1))
    w = BatchMatmulWorkload(query, key)
    assert (w.batch, w.m, w.n, w.k) == ((2, 3), 19, 21, 8)
    assert relative_error(w, batch_matmul.TILED, target) < 1e-5


def test_attention_values_read_the_split_heads_in_place():
    scores, value = Operand.plain((2, 3, 19, 21)), heads(21, 3, 16, (0, 2, 1, 3))
    assert relative_error(BatchMatmulWorkload(scores, value), batch_matmul.TILED) < 1e-5


def test_batch_dimensions_broadcast():
    w = BatchMatmulWorkload(Operand.plain((4, 1, 6, 7)), Operand.plain((3, 7, 9)))
    assert relative_error(w, batch_matmul.TILED) < 1e-5


def test_a_large_stack_runs_in_parallel_and_is_right():
    w = BatchMatmulWorkload(Operand.plain((4, 65, 70)), Operand((4, 67, 70), (0, 2, 1)))
    assert relative_error(w, batch_matmul.TILED) < 1e-5


def test_one_row_against_transposed_matrices_is_left_to_dot_products():
    w = BatchMatmulWorkload(Operand.plain((4, 1, 64)), Operand((4, 100, 64), (0, 2, 1)))
    assert not implementation(w, batch_matmul.TILED, HOST).supports(w, HOST)
    assert relative_error(w, "batch_matmul.x86") < 1e-5
