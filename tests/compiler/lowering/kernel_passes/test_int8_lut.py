"""What is computed of one byte alone, compared with numpy, and where it becomes a table."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from compiler import target as targets
from compiler.lowering.kernel_passes.pipeline import PIPELINE

VBMI = "llvm -mcpu=icelake-server"
COUNT = 48


def silu(x: Any) -> Any:
    """Quantized bytes of the SiLU of dequantized ones."""
    real = (x.astype("float32") - 100.0) * 0.05
    half = tirx.nearbyint(real / (1.0 + tirx.exp(-real)) / 0.04) + 7.0
    low, high = tirx.const(0.0, "float32"), tirx.const(255.0, "float32")
    return tirx.max(tirx.min(half, high), low).astype("uint8")


def costly(x: Any) -> Any:
    """More operations than a look-up takes."""
    value = silu(x).astype("float32")
    for _ in range(8):
        value = value * 0.95 + 3.0
    return value.astype("uint8")


def kernel(function: Any, lanes: int, of_two: bool = False) -> tirx.PrimFunc:
    """out = function(x), in vectors of so many lanes; `of_two` bytes if that is asked for."""
    x = te.placeholder((COUNT,), "uint8", "x")
    y = te.placeholder((COUNT,), "uint8", "y")

    def element(i: Any) -> Any:
        byte = tirx.max(x[i], y[i]) if of_two else x[i]
        return function(tirx.min(byte, tirx.const(250, "uint8")))

    sch = tvm.s_tir.Schedule(te.create_prim_func([x, y, te.compute((COUNT,), element, "out")]))
    if lanes > 1:
        block = sch.get_sblock("out")
        sch.vectorize(sch.split(sch.get_loops(block)[-1], [None, lanes])[-1])
    return sch.mod["main"]


def compiled(func: tirx.PrimFunc, target: str) -> Any:
    known = targets.parse(target)
    return tvm.compile(func.with_attr("target", known), target=known, tir_pipeline=PIPELINE)


def text(func: tirx.PrimFunc, target: str = VBMI) -> str:
    return str(compiled(func, target).mod.inspect_source("s"))


def test_vectors_are_looked_up():
    found = text(kernel(costly, 16))
    assert re.search("vperm[it]2b", found) and "vdivps" not in found


def test_other_lanes_read_the_table():
    for lanes in (1, 8):
        found = text(kernel(costly, lanes))
        assert "vdivps" not in found and "vdivss" not in found


@pytest.mark.parametrize(
    "function, of_two, target",
    [
        (lambda x: (x.astype("float32") * 0.5).astype("uint8"), False, VBMI),  # cheap
        (lambda x: costly(x).astype("int32"), False, "llvm -mcpu=skylake-avx512"),
    ],
)
def test_what_is_cheap_and_cpus_without_the_instruction_have_no_table(function, of_two, target):
    assert not re.search("vperm[it]2b", text(kernel(function, 16, of_two), target))


@pytest.mark.parametrize("lanes", [1, 8, 16])
@pytest.mark.parametrize("of_two", [False, True])
def test_results_are_those_of_the_formula(lanes, of_two):
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 256, COUNT).astype("uint8") for _ in range(2))
    results = []
    for target in ("llvm", "llvm -mcpu=x86-64-v3"):
        out = tvm.runtime.tensor(np.zeros(COUNT, "uint8"))
        run = compiled(kernel(costly, lanes, of_two), target)
        run(tvm.runtime.tensor(x), tvm.runtime.tensor(y), out)
        results.append(out.numpy())
    np.testing.assert_array_equal(*results)
    assert len(np.unique(results[0])) > 5
