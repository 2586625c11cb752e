"""Extents that are expressions, under names of their own."""

from __future__ import annotations

from tvm import te, tirx

from schedules.dynamic_rows import rows_of
from schedules.named_extents import with_named_extents

N = tirx.Var("n", "int64")


def _negated(extent: object, add: object = 0) -> tirx.PrimFunc:
    x = te.placeholder((extent, 8), "float32", name="x")
    y = te.compute(x.shape, lambda *at: -x(*at) + tirx.Cast("float32", add), name="y")
    return te.create_prim_func([x, N, y])


def test_a_minimum_of_rows_is_a_number_of_rows():
    func = _negated(tirx.min(N, 100))
    named = with_named_extents(func)
    assert isinstance(named.params[0].shape[0], tirx.Var)
    assert len(named.params) == len(func.params)
    rows = rows_of(func)
    assert rows is not None and rows.tensors == [8, 8]


def test_a_function_that_computes_with_the_symbol_keeps_it():
    assert with_named_extents(_negated(tirx.min(N, 100), add=N)) is None
    assert with_named_extents(_negated(N)) is None


def test_one_extent_that_is_spelled_in_two_ways_has_one_name():
    x = te.placeholder((2 * (N + 1), 8), "float32", name="x")
    y = te.compute((N * 2 + 2, 8), lambda *at: -x(*at), name="y")
    named = with_named_extents(te.create_prim_func([x, N, y]))
    assert named is not None
    first, _, last = named.params
    assert isinstance(first.shape[0], tirx.Var)
    assert first.shape[0].same_as(last.shape[0])
    rows = rows_of(te.create_prim_func([x, N, y]))
    assert rows is not None and rows.tensors == [8, 8]
