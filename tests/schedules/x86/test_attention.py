"""The attention kernel against numpy in float64, on three instruction sets."""

import math
from dataclasses import replace

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import sym, te, tirx

from schedules import rules
from schedules.attention import AttentionWorkload, Heads, Mask
from schedules.matmul import Operand
from schedules.x86.attention import attention
from schedules.x86.machine import fast_math

from .kernels import compiled
from .products import HOST, TARGETS

RNG = np.random.default_rng(0)


def masks(shape):
    return () if shape is None else (Mask(shape),)


def joined(b, s, t, h, d, c, mask=None, scale=0.3):
    """Heads split off the last axis of (B, S, H * D), as transformers have them."""
    return AttentionWorkload(
        Heads(Operand((b, s, h, d), (0, 2, 1, 3)), joined=2),
        Heads(Operand((b, t, h, d), (0, 2, 3, 1)), joined=2),
        Heads(Operand((b, t, h, c), (0, 2, 1, 3)), joined=2),
        masks(mask),
        scale,
        heads_last=True,
    )


def plain(batch, s, t, d, c, mask=None, scale=1.0):
    """Operands that lie in memory as the products read them."""
    shapes = ((*batch, s, d), (*batch, d, t), (*batch, t, c))
    return AttentionWorkload(*(Heads(Operand.plain(x)) for x in shapes), masks(mask), scale)


def inputs(w):
    arrays = [RNG.standard_normal(heads.tensor_shape) for heads in (w.q, w.k, w.v)]
    for mask in w.masks:
        hidden = RNG.random(mask.shape) < 0.3
        added = np.where(hidden, np.finfo("float32").min, 0.5)
        arrays.append(added if mask.fill is None else hidden)
    return [array.astype("bool" if array.dtype == "bool" else "float32") for array in arrays]


def reference(w, arrays):
    q, k, v = (
        array.astype("float64").reshape(heads.operand.stored).transpose(heads.operand.axes)
        for array, heads in zip(arrays, (w.q, w.k, w.v))
    )
    scores = q @ k * w.scale
    for mask, array in zip(w.masks, arrays[3:], strict=True):
        if mask.fill is None:
            scores = scores + array
        else:
            scores = np.where(array != mask.hides, scores, mask.fill)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    result = weights / weights.sum(-1, keepdims=True) @ v
    return (result.swapaxes(1, 2) if w.heads_last else result).reshape(w.out_shape)


def result(w, arrays, target=HOST, polynomials=True):
    placeholders = [te.placeholder(array.shape, str(array.dtype)) for array in arrays]
    out = attention.compute(w, attention.fallback(w, target), *placeholders)
    scheduled = rules.schedule(te.create_prim_func([*placeholders, out]), target)
    assert scheduled is not None and scheduled.rule == attention.NAME
    func = fast_math.approximate(scheduled.func) if polynomials else scheduled.func
    library = compiled(func, target)
    output = tvm.runtime.tensor(np.full(w.out_shape, np.nan, "float32"))
    library["main"](*map(tvm.runtime.tensor, arrays), output)
    return output.numpy()


def relative_error(w, target=HOST, polynomials=True):
    arrays = inputs(w)
    expected = reference(w, arrays)
    return np.abs(result(w, arrays, target, polynomials) - expected).max() / np.abs(expected).max()


WORKLOADS = [
    joined(1, 48, 48, 3, 32, 32, (1, 1, 48, 48), 1 / math.sqrt(32)),
    joined(2, 37, 41, 3, 7, 9, (2, 1, 1, 41)),
    joined(1, 33, 70, 2, 16, 48),
    plain((2, 3), 35, 21, 5, 16, (35, 21)),
    plain((4,), 32, 1, 8, 3, (1, 32, 1), -0.5),
    plain((1,), 165, 24, 16, 16),
    replace(
        joined(2, 37, 41, 3, 7, 9, (2, 1, 1, 41)),
        masks=(Mask((37, 41), -1e9, hides=True), Mask((2, 1, 1, 41)), Mask((3, 37, 1), -3.0)),
    ),
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: str(target.attrs["mcpu"]))
@pytest.mark.parametrize("w", WORKLOADS, ids=range(len(WORKLOADS)))
def test_attention_is_within_a_few_roundings_of_float64(w, target):
    assert relative_error(w, target) < 3e-6


def test_the_exact_exp_may_stay():
    assert relative_error(WORKLOADS[1], polynomials=False) < 3e-6


def test_large_scores_do_not_overflow():
    assert relative_error(plain((2,), 32, 19, 8, 8, scale=300.0)) < 1e-4


def test_keys_that_an_infinite_mask_excludes_have_no_weight():
    w = plain((1,), 40, 19, 8, 8, (40, 19))
    arrays = inputs(w)
    arrays[3] = np.where(np.tri(40, 19, dtype=bool), 0, -np.inf).astype("float32")
    expected = reference(w, arrays)
    assert np.abs(result(w, arrays) - expected).max() < 3e-6 * np.abs(expected).max()


def test_a_single_query_does_not_pay_for_panels():
    assert not attention.supports(joined(1, 1, 128, 12, 64, 64), HOST)
    assert attention.supports(joined(1, 128, 128, 12, 64, 64), HOST)


def test_few_heads_are_split_by_rows_so_that_every_core_works():
    one_head = attention.fallback(joined(1, 256, 256, 1, 64, 64), HOST)
    tiles = -(-256 // one_head.val("tile_s"))
    assert -(-tiles // one_head.val("task_tiles")) % 2 == 0


def test_rows_without_any_key_give_zeros_where_the_workload_says_so():
    w = replace(joined(1, 37, 37, 2, 8, 8, (1, 1, 37, 37)), nan_is_zero=True)
    arrays = inputs(w)
    arrays[3][0, 0, 5] = -np.inf
    arrays[3][0, 0, :, 7] = -np.inf
    found = result(w, arrays)
    assert np.all(found[0, 5] == 0)
    arrays[3][0, 0, 5] = 0
    expected = reference(w, arrays)
    others = np.arange(37) != 5
    assert np.abs(found - expected)[0, others].max() < 3e-6 * np.abs(expected).max()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_loads_of_a_mask_keep_their_bounds_beyond_the_last_key(dtype):
    w = plain((1,), 4, tirx.const(4, dtype), 8, 8, (4, 4))  # int64 if dynamic
    mask, j = tirx.decl_buffer((4,), "float32"), tirx.Var("j", "int32")
    made = w.on_keys(mask[tirx.min(j, 3)], j)
    assert "T.min(j, 3)" in str(sym.Analyzer().simplify(made))
    for column in range(8):
        value = tvm_ffi.structural_map(
            made.condition, (tirx.Var, lambda _, c=column: tirx.const(c))
        )
        assert bool(sym.Analyzer().simplify(value)) == (column > 3)
