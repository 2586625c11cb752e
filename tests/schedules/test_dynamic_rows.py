"""Numbers for symbols in expressions and functions."""

from __future__ import annotations

import pytest
from tvm import tirx

from schedules.dynamic_rows import with_extents


def test_numbers_are_folded():
    n = tirx.Var("n", "int64")
    assert int(with_extents(tirx.floordiv(n, tirx.const(4, "int64")) * 2, [(n, 12)])) == 6


@pytest.mark.parametrize("divide", [tirx.floordiv, tirx.floormod])
def test_a_division_by_an_extent_that_is_0_is_an_error(divide):
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    quotient = divide(m, tirx.floordiv(n, tirx.const(4, "int64")))
    with pytest.raises(ZeroDivisionError):
        with_extents(quotient, [(n, 2)])
