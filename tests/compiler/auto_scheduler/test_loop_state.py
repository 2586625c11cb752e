"""Schedules that are made by hand with Ansor's primitives."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te

from compiler import auto_scheduler
from compiler.errors import RecordError
from compiler.legacy.te.driver import build

SIZE = 64


@pytest.fixture
def matmul():
    a, b = (te.placeholder((SIZE, SIZE), name=name) for name in "AB")
    k = te.reduce_axis((0, SIZE), "k")
    c = te.compute((SIZE, SIZE), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return auto_scheduler.ComputeDAG([a, b, c]), c


def extents(state, stage):
    return [each.range and each.range.extent for each in state[stage].iters]


def computes_a_product(dag, state):
    schedule, _ = dag.apply_steps_from_state(state)
    rng = np.random.default_rng(0)
    left, right = (rng.random((SIZE, SIZE), "float32") for _ in "ab")
    out = tvm.runtime.tensor(np.zeros((SIZE, SIZE), "float32"))
    build(schedule, target="llvm")(tvm.runtime.tensor(left), tvm.runtime.tensor(right), out)
    np.testing.assert_allclose(out.numpy(), left @ right, rtol=1e-4)
    return schedule


def test_loops_are_split_ordered_fused_and_annotated(matmul):
    dag, c = matmul
    state = dag.get_init_state()
    i, j, k = state[c].iters
    outer, inner = state.split(c, i, [16])
    parts = state.split(c, j, [4, 2], False)
    assert extents(state, c) == [4, 16, 4, 2, 8, 64]
    state.reorder(c, [outer, parts[0], parts[1], k, inner, parts[2]])
    fused = state.fuse(c, [outer, parts[0]])
    assert fused.range.extent == 16
    numbers = auto_scheduler.loop_state.State.ANNOTATION_TRANS_TABLE
    assert state.parallel(c, fused).annotation == numbers["parallel"]
    assert state.vectorize(c, parts[2]) == state[c].iters[-1]
    schedule = computes_a_product(dag, state)
    loops = schedule.get_loops(schedule.get_sblock("C_update"))
    assert schedule.get(loops[0]).kind == 1 and len(loops) == 5


def test_stages_are_cached_moved_and_bounded(matmul):
    dag, c = matmul
    state = dag.get_init_state()
    cache = state.cache_write(c, "global")
    i, j = state[c].iters
    parts = [*state.split(c, i, [16]), *state.split(c, j, [8])]
    state.reorder(c, [parts[0], parts[2], parts[1], parts[3]])
    state.compute_at(cache, c, state[c].iters[1])
    assert state[cache].compute_at == 2 and extents(state, cache) == [None] * 3
    bounded = dag.infer_bound_from_state(state)
    assert extents(bounded, cache) == [16, 8, 64]
    assert "    for i (0,16)\n" in str(bounded)
    computes_a_product(dag, state)
    state.compute_root(cache)
    assert extents(dag.infer_bound_from_state(state), cache) == [64, 64, 64]


def test_a_copy_goes_its_own_way(matmul):
    dag, c = matmul
    state = dag.get_init_state()
    outer, _ = state.split(c, state[c].iters[2], [16])
    other = state.copy()
    partial = other.rfactor(c, outer, 2)
    assert extents(other, partial) == [64, 64, 4, 16] and extents(other, c) == [64, 64, 4]
    assert len(state.stages) == 3 and len(other.stages) == 4
    followed = state.copy()
    cache = followed.cache_read(0, "global", [c])
    followed.follow_split(cache, followed[cache].iters[0], 0, 1)
    assert extents(followed, cache) == [4, 16, 64]
    computes_a_product(dag, other)


def test_what_does_not_fit_is_refused_and_leaves_the_state_as_it_was(matmul):
    dag, c = matmul
    state = dag.get_init_state()
    i, j, k = state[c].iters
    with pytest.raises(RecordError, match="is not an order"):
        state.reorder(c, [j, i])
    with pytest.raises(RecordError, match="can't be inlined"):
        state.compute_inline(c)
    state.fuse(c, [i, j])
    with pytest.raises(RecordError, match="j is no loop of C any more"):
        state.parallel(c, j)
    with pytest.raises(RecordError, match="is no stage of this state"):
        state.compute_root(te.placeholder((1,), name="other"))
    with pytest.raises(RecordError, match="none of a GPU's threads"):
        state.bind(c, k, "blockIdx")
    assert len(state.transform_steps) == 1


def test_layout_options_of_a_target():
    option = auto_scheduler.LayoutRewriteOption
    assert option.get_target_default("llvm") == option.INSERT_TRANSFORM_STAGE
    assert option.get_target_default("llvm", True) == option.REWRITE_FOR_PRE_TRANSFORMED
