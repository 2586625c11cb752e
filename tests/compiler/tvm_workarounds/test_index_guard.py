"""Indices that FlattenBuffer may misread become opaque to it, and what does not, it reads right."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import tvm
from tvm import sym, tirx
from tvm.ir import Range
from tvm.script import tirx as T

from compiler.tvm_workarounds.index_guard import guard_indices, is_misread

EXTENTS = (1, 2, 3, 4, 6, 8, 12)


@T.prim_func(s_tir=True)
def shifted_rows(a: T.Buffer((40, 29, 58), "float32"), b: T.Buffer((40, 58, 58), "float32")):
    for fused in range(2320):
        for j in range(58):
            with T.sblock("b"):
                c = T.axis.spatial(40, fused // 58)
                h = T.axis.spatial(58, fused % 58)
                w = T.axis.spatial(58, j)
                b[c, h, w] = T.if_then_else(h >= 1, a[c, (h - 1) // 2, w], T.float32(0))


@T.prim_func(s_tir=True)
def whole_rows(a: T.Buffer((40, 29, 58), "float32"), b: T.Buffer((40, 58, 58), "float32")):
    for fused in range(2320):
        for j in range(58):
            with T.sblock("b"):
                c = T.axis.spatial(40, fused // 58)
                h = T.axis.spatial(58, fused % 58)
                w = T.axis.spatial(58, j)
                b[c, h, w] = a[c, h // 2, w]


def shifts_rows(func):
    """Whether a form of `shifted_rows` computes what it says."""
    a = np.random.default_rng(0).normal(size=(40, 29, 58)).astype("float32")
    b = tvm.runtime.tensor(np.zeros((40, 58, 58), "float32"))
    func = func.with_attr("global_symbol", "main")
    tvm.compile(func, target=tvm.target.Target({"kind": "llvm"}))["main"](tvm.runtime.tensor(a), b)
    want = np.pad(a.repeat(2, 1), [(0, 0), (1, 0), (0, 0)])[:, :58]
    return np.array_equal(b.numpy(), want)


def test_a_block_iterator_that_is_a_remainder_of_a_loop_counts_as_one():
    assert shifts_rows(guard_indices(shifted_rows))


def test_tvm_still_misreads_such_an_index():
    assert not shifts_rows(shifted_rows)


def test_a_function_without_such_an_index_is_returned_as_it_is():
    assert guard_indices(whole_rows) is whole_rows


V, W, N = (tirx.Var(name, "int32") for name in "ijn")


@pytest.mark.parametrize(
    ("index", "misread"),
    [
        ((V % 58 - 1) // 2, True),
        ((11 - V) // 2, True),
        ((V + 1) % 2 * 8 + V % 2 * 6, True),
        (V // 4 % -3, True),
        ((V * 39 + W) // (N - 1), True),
        ((V * N + W) // N, False),
        (V % 58 // 2 * 29 + W, False),
        (11 - V, False),
        ((V * 4 + W) // 8 + 3, False),
    ],
)
def test_offsets_and_falling_terms_in_a_division_are_misread(index, misread):
    assert is_misread(index) == misread


def random_index(random, variables, depth):
    """A sum of products of variables, quotients and remainders."""
    total = tirx.const(random.choice([0, 0, 1, 2, 3, 5, 8, 11, -1, -2]), "int32")
    for _ in range(random.randint(1, 2)):
        term = random.choice(variables)
        if depth and random.random() < 0.6:
            divide = random.choice([tirx.FloorDiv, tirx.FloorMod])
            divisor = tirx.const(random.choice([2, 3, 4, 6, 8, 12]), "int32")
            term = divide(random_index(random, variables, depth - 1), divisor)
        total = total + term * random.choice([1, 1, 1, 2, 3, 4, 6, 8, -1, -2])
    return total


def value(index, of):
    """An index's value, as numpy computes it, at the given values of its variables."""
    if isinstance(index, tirx.IntImm):
        return int(index)
    if isinstance(index, tirx.Var):
        return of[index.name]
    operations = {
        tirx.Add: np.add,
        tirx.Sub: np.subtract,
        tirx.Mul: np.multiply,
        tirx.FloorDiv: np.floor_divide,
        tirx.FloorMod: np.mod,
    }
    return operations[type(index)](value(index.a, of), value(index.b, of))


@pytest.mark.parametrize("seed", range(4))
def test_what_flatten_buffer_is_left_with_it_does_not_change(seed):
    random = Random(seed)
    checked = misread = 0
    while checked < 250:
        variables = [tirx.Var(name, "int32") for name in "ijk"[: random.randint(1, 3)]]
        ranges = {var: Range(0, random.choice(EXTENTS)) for var in variables}
        analyzer = sym.Analyzer()
        for var, extent in ranges.items():
            analyzer.bind(var, extent)
        index = analyzer.simplify(random_index(random, variables, 3))
        if is_misread(index):
            misread += 1
            continue
        checked += 1
        (rewritten,) = sym.iter_map_simplify([index], ranges, True, "nocheck", True, analyzer)
        axes = [np.arange(int(extent.extent)) for extent in ranges.values()]
        of = dict(zip("ijk", np.meshgrid(*axes, indexing="ij")))
        assert np.all(value(index, of) == value(rewritten, of)), (index, rewritten, ranges)
    assert misread > 0
