"""Tests of the vectors whose exponentials are computed side by side."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx
from tvm.script import tirx as T
from tvm.target import Target
from tvm.tirx.build import codegen_build

from compiler.lowering.kernel_passes import pipeline as tir_pipeline
from compiler.lowering.kernel_passes.interleave import interleave_vectors
from schedules.x86.machine import fast_math

V3 = Target({"kind": "llvm", "mcpu": "x86-64-v3"})
BASELINE = Target({"kind": "llvm", "mcpu": "x86-64"})
STEPS, LANES = 40, 8


def tile(function, vectors: int, *, loop: bool = True) -> tirx.PrimFunc:
    """Sums of (STEPS, vectors, LANES), the loop unrolled or not, and a function of them."""
    x = te.placeholder((STEPS, vectors, LANES), name="x")
    bias = te.placeholder((LANES,), name="bias")
    k = te.reduce_axis((0, STEPS), "k")
    sums = te.compute((vectors, LANES), lambda i, j: te.sum(x[k, i, j], axis=k), name="sums")
    out = te.compute((vectors, LANES), lambda i, j: function(sums[i, j] + bias[j]), name="out")
    sch = s_tir.Schedule(te.create_prim_func([x, bias, out]))
    for name in ("sums", "out"):
        i, j, *steps = sch.get_loops(name)
        sch.reorder(*steps, i, j)
        sch.unroll(i)
        sch.vectorize(j)
        for step in steps:
            if not loop:
                sch.unroll(step)
            sch.decompose_reduction(name, step)
    return fast_math.approximate(sch.mod["main"], V3).with_attr("global_symbol", "tile")


def lowered(func: tirx.PrimFunc, target: Target) -> tvm.IRModule:
    pipeline, _, _ = tirx.get_tir_pipeline(tir_pipeline.PIPELINE)
    mod = tirx.transform.BindTarget(target.with_host(target))(tvm.IRModule({"tile": func}))
    return pipeline(mod)


def widths(mod: tvm.IRModule) -> list[int]:
    """Lanes of the vectors that are computed side by side, in program order."""
    script = interleave_vectors(mod).script()
    return [int(lanes) for lanes in re.findall(r"together\w*: T\.let\[T\.float32x(\d+)\]", script)]


def silu(x):
    return x * tirx.sigmoid(x)


@pytest.mark.parametrize(
    "vectors, expected",
    [(1, []), (2, [16]), (3, [16]), (4, [32]), (12, [32, 32, 32]), (7, [32, 16])],
)
def test_vectors_are_taken_four_or_two_at_a_time(vectors, expected):
    assert widths(lowered(tile(silu, vectors), V3)) == expected


@pytest.mark.parametrize("function", [tirx.exp, tirx.tanh, tirx.erf, tirx.log, tirx.sigmoid])
def test_every_approximated_function_is_taken_together(function):
    assert widths(lowered(tile(function, 4), V3)) == [32]


def test_simple_functions_stay_apart():
    assert widths(lowered(tile(lambda x: tirx.max(x, tirx.const(0.0, "float32")), 4), V3)) == []


def test_sums_of_the_same_block_of_code_stay_apart():
    assert widths(lowered(tile(silu, 4, loop=False), V3)) == []


def test_a_store_that_another_vector_reads_stays_in_front_of_it():
    @T.prim_func(s_tir=True)
    def func(x: T.Buffer((4, LANES), "float32"), y: T.Buffer((5, LANES), "float32")):
        for i, j in T.grid(4, LANES):
            y[i, j] = x[i, j]
        for i in T.unroll(4):
            for j in T.vectorized(LANES):
                y[i + 1, j] = T.exp(y[i, j])

    func = fast_math.approximate(func, V3).with_attr("global_symbol", "tile")
    assert widths(lowered(func, V3)) == []


@pytest.mark.parametrize("target", [V3, BASELINE], ids=["v3", "baseline"])
@pytest.mark.parametrize("vectors", [4, 7])
def test_results_are_right(vectors, target, tmp_path: Path):
    _, finalize_host, _ = tirx.get_tir_pipeline(tir_pipeline.PIPELINE)
    mod = lowered(tile(silu, vectors), target)
    assert widths(mod)
    path = tmp_path / "tile.o"
    codegen_build(finalize_host()(mod), target).write_to_file(str(path), "o")
    tvm.support.cc.create_shared(str(tmp_path / "tile.so"), [str(path)])
    rng = np.random.default_rng(0)
    x = rng.normal(size=(STEPS, vectors, LANES)).astype("float32")
    bias = rng.normal(size=LANES).astype("float32")
    out = tvm.runtime.tensor(np.empty((vectors, LANES), "float32"))
    library = tvm.runtime.load_module(str(tmp_path / "tile.so"))
    library["tile"](tvm.runtime.tensor(x), tvm.runtime.tensor(bias), out)
    sums = x.astype("float64").sum(0) + bias
    np.testing.assert_allclose(out.numpy(), sums / (1 + np.exp(-sums)), rtol=2e-4, atol=1e-5)
