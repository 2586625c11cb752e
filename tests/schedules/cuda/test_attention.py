"""Attention as one CUDA kernel, in the interpreter of PTX."""

import dataclasses

import numpy as np
import pytest
from tvm import te
from tvm.target import Target

from schedules import rules
from schedules.attention import AttentionWorkload, Entry, Heads, Mask
from schedules.cuda.attention import attention
from schedules.cuda.attention.attention_cores import AttentionTile
from schedules.matmul import Operand
from tests.ptx import ptxas
from tests.ptx.scheduled import Scheduled
from tests.schedules.cuda.families import attended, attention_tensors, attention_workload

TARGET = Target({"kind": "cuda", "arch": "sm_90"}, host="llvm")
needs_nvcc = pytest.mark.skipif(ptxas.NVCC is None, reason="needs nvcc")


def interpreted(w, inputs, tile=None):
    """The result of the kernel, which has no problems."""
    func = te.create_prim_func(attention_tensors(w, tile))
    scheduled = rules.schedule(func, TARGET)
    assert scheduled.rule == attention.NAME
    outcome = Scheduled(scheduled.func, TARGET).interpret(inputs)
    assert [str(problem) for problem in outcome.problems[:5]] == []
    return outcome.outputs[0].astype("float64")


def values(w, seed=0):
    rng = np.random.default_rng(seed)
    tensors = [rng.standard_normal(x.tensor_shape).astype(w.dtype) for x in (w.q, w.k, w.v)]
    for mask in w.masks:
        tensors.append(
            rng.standard_normal(mask.shape).astype(w.dtype)
            if mask.fill is None
            else rng.random(mask.shape) < 0.7
        )
    return tensors


@needs_nvcc
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 5e-3)])
def test_heads_of_a_stacked_tensor_go_back_to_rows(dtype, tolerance):
    """(B, S, 3, H, D) with its last axes joined, 2 heads of 40, and a mask that hides keys."""
    stored, joined = (1, 18, 2, 40), 3
    heads = [
        Heads(Operand(stored, axes), joined, Entry(2, at, 3))
        for at, axes in enumerate([(0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)])
    ]
    masks = (Mask((1, 1, 1, 18), -np.inf), Mask((18, 18)))
    w = AttentionWorkload(*heads, masks, 0.2, heads_last=True, dtype=dtype)
    stack, *others = values(w)
    found = interpreted(w, [stack, stack, stack, *others[2:]])
    parts = stack.reshape(1, 18, 3, 2, 40)
    plain = AttentionWorkload(
        *(Heads(each.operand) for each in heads), masks, 0.2, heads_last=True, dtype=dtype
    )
    expected = attended(plain, [*(parts[:, :, at] for at in range(3)), *others[2:]])
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@needs_nvcc
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_keys_and_values_lie_in_memory_the_other_way(dtype):
    """Keys as (d, t), values as (c, t): what is contiguous is the number of the key."""
    heads = [((1, 9, 16), (0, 1, 2)), ((1, 16, 35), (0, 1, 2)), ((1, 8, 35), (0, 2, 1))]
    w = AttentionWorkload(*(Heads(Operand(*each)) for each in heads), dtype=dtype)
    inputs = values(w)
    tolerance = {"float32": 1e-5, "bfloat16": 3e-2}[dtype]
    found = interpreted(w, inputs, AttentionTile(1, 16, 32))
    np.testing.assert_allclose(found, attended(w, inputs), rtol=tolerance, atol=tolerance)


@needs_nvcc
def test_rows_without_a_key_and_tiles_without_one():
    """The first row sees no key, the second one only some of the last tile."""
    w = attention_workload(masks=(Mask((20, 72), -np.inf),), nan_is_zero=True)
    *inputs, seen = values(w)
    seen[0], seen[1] = False, np.arange(72) > 66
    found = interpreted(w, [*inputs, seen], AttentionTile(2, 16, 32))
    assert (found[0, 0] == 0).all()
    np.testing.assert_allclose(found, attended(w, [*inputs, seen]), rtol=1e-5, atol=1e-5)


@needs_nvcc
def test_infinite_scores_make_a_row_nan_and_no_other():
    w = attention_workload(masks=(Mask((20, 72)),))
    *inputs, mask = values(w)
    mask[3, 5], mask[4, 40], mask[6] = np.inf, np.nan, -np.inf
    found = interpreted(w, [*inputs, mask], AttentionTile(2, 16, 32))
    assert np.isnan(found[0]).all(axis=1).nonzero()[0].tolist() == [3, 4, 6]


@needs_nvcc
@pytest.mark.parametrize(("dtype", "tile"), [("float32", (2, 32, 32)), ("float16", (1, 16, 32))])
@pytest.mark.parametrize("diagonal", [0, 45])
def test_tiles_after_a_causal_diagonal_are_not_read(dtype, tile, diagonal):
    """NaN in all keys and values of which the first block has no tile."""
    shapes = [((2, 70, 32), (0, 1, 2)), ((2, 100, 32), (0, 2, 1)), ((2, 100, 32), (0, 1, 2))]
    heads = [Heads(Operand(*each)) for each in shapes]
    w = AttentionWorkload(*heads, (Mask((70, 100), -np.inf),), 0.3, dtype=dtype, diagonal=diagonal)
    q, k, v, _ = values(w)
    seen = np.arange(100) <= np.arange(70)[:, None] + diagonal
    expected = attended(w, [q, k, v, seen])
    tiled = AttentionTile(*tile)
    rows = tiled.queries
    unread = -(-(rows + diagonal) // tiled.keys) * tiled.keys
    k[:, unread:], v[:, unread:] = np.nan, np.nan
    found = interpreted(w, [q, k, v, seen], tiled)
    tolerance = 1e-5 if dtype == "float32" else 5e-3
    np.testing.assert_allclose(found[:, :rows], expected[:, :rows], rtol=tolerance, atol=tolerance)
    assert unread >= 100 or np.isnan(found[:, rows:]).any()


def test_a_causal_mask_lowers_the_predicted_time():
    heads = [((1, 2048, 64), axes) for axes in ((0, 1, 2), (0, 2, 1), (0, 1, 2))]
    w = AttentionWorkload(*(Heads(Operand(*each)) for each in heads), (Mask((2048, 2048)),))
    causal = attention.predicted(dataclasses.replace(w, diagonal=0), TARGET)
    assert causal < 0.7 * attention.predicted(w, TARGET)


def test_few_queries_and_many_keys_stay_apart():
    """One block for a head would read all keys of it."""

    def over(keys):
        axes = ((0, 2, 1), (0, 1, 2))
        k, v = (Heads(Operand((1, keys, 64), each)) for each in axes)
        return AttentionWorkload(Heads(Operand.plain((1, 1, 64))), k, v)

    assert attention.supports(over(64), TARGET)
    assert not attention.supports(over(1 << 16), TARGET)


def test_an_older_device_has_no_such_kernel():
    w = attention_workload()
    assert attention.supports(w, TARGET)
    assert not attention.supports(w, Target({"kind": "cuda", "arch": "sm_75"}))
