"""Rewrites of one stage keep its meaning."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx, topi

from schedules.generic.rewrite import (
    is_simple_reduction,
    merge_axes,
    peel_reduction,
    separate_reductions,
)
from schedules.generic.stages import Stage, contiguous_group, stages


def only_stages(func: tirx.PrimFunc) -> list[Stage]:
    return stages(s_tir.Schedule(func))


def run(func: tirx.PrimFunc, *arrays: np.ndarray) -> list[np.ndarray]:
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    tvm.compile(func.with_attr("global_symbol", "main"), target="llvm")["main"](*tensors)
    return [tensor.numpy() for tensor in tensors]


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def test_axes_that_every_access_walks_flat_become_one():
    x = te.placeholder((5, 7, 3), "float32", name="x")
    func = te.create_prim_func([x, topi.nn.relu(x)])
    (stage,) = only_stages(func)
    merged = merge_axes(func, stage, contiguous_group(stage, stage.iters))
    assert [it.extent for it in only_stages(merged)[0].iters] == [105]
    data = random(5, 7, 3)
    np.testing.assert_array_equal(run(merged, data, data * 0)[1], np.maximum(data, 0))


def test_a_broadcast_operand_limits_the_group():
    x = te.placeholder((4, 7, 3), "float32", name="x")
    b = te.placeholder((4, 1, 1), "float32", name="b")
    func = te.create_prim_func([x, b, topi.add(x, b)])
    (stage,) = only_stages(func)
    merged = merge_axes(func, stage, contiguous_group(stage, stage.iters))
    assert [it.extent for it in only_stages(merged)[0].iters] == [4, 21]
    data, bias = random(4, 7, 3), random(4, 1, 1)
    np.testing.assert_array_equal(run(merged, data, bias, data * 0)[2], data + bias)


def test_a_transposed_operand_forbids_a_group():
    x = te.placeholder((4, 7), "float32", name="x")
    func = te.create_prim_func([x, topi.transpose(x)])
    (stage,) = only_stages(func)
    assert len(contiguous_group(stage, stage.iters)) == 1


def test_an_axis_whose_value_matters_is_in_no_group():
    y = te.compute((4, 7), lambda i, j: (i * 100 + j).astype("float32"), name="y")
    (stage,) = only_stages(te.create_prim_func([y]))
    assert len(contiguous_group(stage, stage.iters)) == 1


@pytest.mark.parametrize("combine", [topi.sum, topi.max, topi.prod])
def test_a_peeled_reduction_gives_the_same_result(combine):
    x = te.placeholder((3, 21), "float32", name="x")
    func = te.create_prim_func([x, combine(x, 1)])
    (stage,) = only_stages(func)
    peeled = peel_reduction(func, stage, stage.iters[1], 16)
    assert [it.extent for stage in only_stages(peeled) for it in stage.iters] == [3, 16, 3, 6]
    data, out = random(3, 21), np.zeros(3, "float32")
    np.testing.assert_allclose(run(peeled, data, out)[1], run(func, data, out)[1], rtol=1e-6)


def test_independent_sums_are_separated_and_dependent_ones_are_not():
    x = te.placeholder((3, 20), "float32", name="x")
    argmax = te.create_prim_func([x, topi.argmax(x, 1)])
    stage = only_stages(argmax)[0]
    assert not is_simple_reduction(stage)
    assert separate_reductions(argmax, stage).same_as(argmax)

    gamma = te.placeholder((3,), "float32", name="gamma")
    data = te.placeholder((2, 3, 4, 4), "float32", name="data")
    norm = topi.nn.instance_norm(data, gamma, gamma, 1, [2, 3])
    func = te.create_prim_func([data, gamma, norm])
    sums = next(stage for stage in only_stages(func) if stage.is_reduction)
    separate = separate_reductions(func, sums)
    assert sum(stage.is_reduction for stage in only_stages(separate)) == 2
    assert all(is_simple_reduction(s) for s in only_stages(separate) if s.is_reduction)
    arrays = (random(2, 3, 4, 4), random(3), np.zeros((2, 3, 4, 4), "float32"))
    np.testing.assert_allclose(run(separate, *arrays)[2], run(func, *arrays)[2], rtol=1e-5)


def test_what_stands_still_while_the_merged_axes_move_is_read_in_its_place():
    """A repeat of a repeat along axes of extent 1 reads quotients that are 0."""
    x = te.placeholder((2, 1, 1), "float32", name="x")
    func = te.create_prim_func([x, topi.repeat(topi.repeat(x, 5, 1), 6, 2)])
    schedule = s_tir.Schedule(func)
    schedule.compute_inline(schedule.get_sblock("T_repeat"))
    (stage,) = stages(schedule)
    merged = merge_axes(schedule.mod["main"], stage, contiguous_group(stage, stage.iters[1:]))
    assert [it.extent for it in only_stages(merged)[0].iters] == [2, 30]
    data, result = run(merged, random(2, 1, 1), np.zeros((2, 5, 6), "float32"))
    np.testing.assert_array_equal(result, np.broadcast_to(data, (2, 5, 6)))
