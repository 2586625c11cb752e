"""Counting the operations of TE schedules."""

from __future__ import annotations

import pytest
from tvm import te

from compiler.autotvm.flop import compute_flop
from compiler.errors import ScheduleError
from compiler.legacy.te.schedule import create_schedule


@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("int8", "int32")])
def test_products_of_packed_matrices_count_two_for_each_multiplication(dtypes):
    a, b = te.placeholder((8, 16), dtypes[0]), te.placeholder((4, 16), dtypes[0])
    k = te.reduce_axis((0, 16))
    packed = te.compute((2, 16, 4), lambda i, j, n: a[i * 4 + n, j])
    out = te.compute(
        (8, 4),
        lambda i, j: te.sum(
            packed[i // 4, k, i % 4].astype(dtypes[1]) * b[j, k].astype(dtypes[1]), axis=k
        ),
    )
    sch = create_schedule(out.op)
    assert compute_flop(sch) == 2 * 8 * 4 * 16
    sch[packed].compute_inline()
    assert compute_flop(sch) == 2 * 8 * 4 * 16


def test_what_only_moves_data_has_none():
    a = te.placeholder((16,), "float32")
    with pytest.raises(ScheduleError, match="no operations"):
        compute_flop(create_schedule(te.compute((16,), lambda i: a[15 - i]).op))
