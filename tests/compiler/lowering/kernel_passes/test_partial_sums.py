"""Long reductions are added in blocks, and give the same numbers but for rounding."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

from compiler.lowering.kernel_passes import partial_sums
from schedules.tir_visit import nodes_of
from schedules.x86.machine.sum_blocks import MARK


def sums(depth: int, mark: bool = False, reads_sum: bool = False) -> tirx.PrimFunc:
    """y[j] = sum over k of x[k] * w[k, j], eight columns, as lowering leaves it."""
    key = MARK if mark else "pragma_other"

    @T.prim_func
    def plain(x: T.Buffer((depth,), "float32"), w: T.Buffer((depth * 8,), "float32"),
              y: T.Buffer((8,), "float32")):  # fmt: skip
        y[T.Ramp(0, 1, 8)] = T.Broadcast(T.float32(0), 8)
        with T.attr(0, key, 64):
            for k in range(depth):
                y[T.Ramp(0, 1, 8)] = (
                    y[T.Ramp(0, 1, 8)] + T.Broadcast(x[k], 8) * w[T.Ramp(k * 8, 1, 8)]
                )

    @T.prim_func
    def running(x: T.Buffer((depth,), "float32"), w: T.Buffer((depth * 8,), "float32"),
                y: T.Buffer((8,), "float32")):  # fmt: skip
        y[T.Ramp(0, 1, 8)] = T.Broadcast(T.float32(0), 8)
        for k in range(depth):
            y[T.Ramp(0, 1, 8)] = y[T.Ramp(0, 1, 8)] + y[T.Ramp(0, 1, 8)] * w[T.Ramp(k * 8, 1, 8)]

    return running if reads_sum else plain


def in_blocks(func: tirx.PrimFunc) -> tirx.PrimFunc:
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    return partial_sums.add_in_blocks(mod)["main"]


def extents(func: tirx.PrimFunc) -> list[str]:
    return [str(loop.extent) for loop in nodes_of(func.body, tirx.For, "pre")]


@pytest.mark.parametrize(
    ("depth", "loops"),
    [
        (64, ["64"]),
        (512, ["512"]),
        (1024, ["2", "512"]),
        (1536, ["3", "512"]),
        (1000, ["2", "500"]),
    ],
)
def test_reductions_of_more_than_512_terms_are_split(depth, loops):
    assert extents(in_blocks(sums(depth))) == loops


@pytest.mark.parametrize(("depth", "loops"), [(64, ["64"]), (128, ["2", "64"]), (192, ["3", "64"])])
def test_marked_reductions_have_blocks_of_64(depth, loops):
    func = in_blocks(sums(depth, mark=True))
    assert extents(func) == loops
    assert not [attr for attr in nodes_of(func.body, tirx.AttrStmt) if attr.attr_key == MARK]


def test_an_extent_without_divisors_has_a_shorter_last_block():
    outer, inner = extents(in_blocks(sums(1031)))
    assert outer == "3" and "min" in inner


def test_a_loop_that_reads_its_sum_stays():
    assert extents(in_blocks(sums(4096, reads_sum=True))) == ["4096"]


@pytest.mark.parametrize("depth", [600, 1031, 4096])
def test_results_are_those_of_the_plain_sum_but_more_accurate(depth):
    rng = np.random.default_rng(0)
    x, w = (
        rng.uniform(0, 1, depth).astype("float32"),
        rng.uniform(0, 1, (depth, 8)).astype("float32"),
    )
    exact = x.astype("float64") @ w.astype("float64")
    errors = []
    for func in (sums(depth), in_blocks(sums(depth))):
        compiled = tvm.compile(func.with_attr("global_symbol", "main"), target={"kind": "llvm"})
        main = compiled["main"]
        y = tvm.runtime.tensor(np.zeros(8, "float32"))
        main(*map(tvm.runtime.tensor, (x, np.ascontiguousarray(w.reshape(-1)))), y)
        assert "AllocWorkspace" not in compiled.mod.inspect_source("ll")  # sums are in registers
        errors.append((np.abs(y.numpy() - exact) / exact).max())
    assert errors[1] <= 1e-6 and errors[1] <= errors[0]
