"""Tests of the functions that reductions become where vector registers are scarce."""

from __future__ import annotations

import re
from math import erf
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.target import Target
from tvm.tirx.build import codegen_build

from compiler.lowering.kernel_passes import pipeline as tir_pipeline
from schedules import rules, strategy
from schedules.matmul import DenseWorkload
from schedules.x86.machine import fast_math
from schedules.x86.machine.microkernel import MARK
from schedules.x86.matmul import dense

AVX2 = Target({"kind": "llvm", "mcpu": "x86-64-v3", "mtriple": "x86_64-linux-gnu"})
AVX512 = Target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux-gnu"})
# A prime number of rows makes the last register tile ragged.
M, N, K = 37, 48, 64


def layer(target: Target, k: int = K) -> tuple[tirx.PrimFunc, int]:
    """A dense layer (M, k) x (k, N) with bias and GELU, scheduled; and its panels' columns."""
    w = DenseWorkload((M,), N, k)
    impl = next(
        i for i in strategy.implementations("nn.dense", w, target) if i.name == dense.PACKED
    )
    config = impl.fallback(w, target)
    tile_n = config.val("tile_n")
    x = te.placeholder((M, k), name="x")
    weight = te.placeholder((-(-N // tile_n), k, tile_n), name="weight")
    bias = te.placeholder((N,), name="bias")
    product = impl.compute(w, config, x, weight)
    y = te.compute(product.shape, lambda i, j: product[i, j] + bias[j], name="biased")
    half = tirx.const(0.5, "float32")
    root = tirx.const(0.5**0.5, "float32")
    erf = te.compute(y.shape, lambda i, j: te.erf(y[i, j] * root), name="erf")
    out = te.compute(y.shape, lambda i, j: y[i, j] * (half + erf[i, j] * half), name="gelu")
    scheduled = rules.schedule(te.create_prim_func([x, weight, bias, out]), target)
    assert scheduled is not None
    func = fast_math.approximate(scheduled.func)
    return func.with_attrs({"global_symbol": "layer", "target": target}), tile_n


def compiled(func: tirx.PrimFunc, target: Target) -> tvm.runtime.Module:
    pipeline, finalize_host, _ = tirx.get_tir_pipeline(tir_pipeline.PIPELINE)
    mod = tirx.transform.BindTarget(target.with_host(target))(tvm.IRModule({"layer": func}))
    return codegen_build(finalize_host()(pipeline(mod)), target)


def functions(assembly: str) -> dict[str, list[str]]:
    """Lines of each function by its symbol."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in assembly.splitlines():
        label = re.match(r"([A-Za-z_]\w*):", line)
        if label:
            current = found.setdefault(label.group(1), [])
        current.append(line.strip())
    return found


def innermost_loop(lines: list[str]) -> list[str]:
    """The lines from the label that the first backward jump goes to, up to the jump."""
    labels: dict[str, int] = {}
    for number, line in enumerate(lines):
        label = re.match(r"(\.L\w+):", line)
        if label:
            labels[label.group(1)] = number
        jump = re.match(r"j\w+\s+(\.L\w+)", line)
        if jump and jump.group(1) in labels:
            return lines[labels[jump.group(1)] : number]
    raise AssertionError("no loop:\n" + "\n".join(lines))


def test_accumulators_stay_in_registers_beside_the_constants_of_a_gelu() -> None:
    func, _ = layer(AVX2)
    found = functions(str(compiled(func, AVX2).inspect_source("s")))
    kernels = [lines for name, lines in found.items() if "microkernel" in name]
    assert len(kernels) == 1
    loop = innermost_loop(kernels[0])
    multiply_adds = [line for line in loop if line.startswith("vfmadd")]
    assert len(multiply_adds) >= 8 * 8  # several steps, each with a tile of eight vectors or more
    stores = [line for line in loop if re.match(r"vmov\w+\s+%ymm\d+, .*\)", line)]
    assert not stores, "\n".join(loop)


def test_with_32_registers_the_loops_stay_as_they_are() -> None:
    func, _ = layer(AVX512)
    assert "microkernel" not in func.script()
    assert "microkernel" not in str(compiled(func, AVX512).inspect_source("s"))


def test_a_short_reduction_is_not_worth_a_call() -> None:
    func, _ = layer(AVX2, k=8)
    assert "microkernel" not in str(compiled(func, AVX2).inspect_source("s"))


@pytest.mark.parametrize("k", [64, 37, 90])
def test_a_layer_with_microkernels_is_right(k: int, tmp_path: Path) -> None:
    func, tile_n = layer(AVX2, k)
    path = tmp_path / "layer.o"
    compiled(func, AVX2).write_to_file(str(path), "o")
    tvm.support.cc.create_shared(str(tmp_path / "layer.so"), [str(path)])
    library = tvm.runtime.load_module(str(tmp_path / "layer.so"))
    rng = np.random.default_rng(0)
    x, matrix = rng.standard_normal((M, k)), rng.standard_normal((k, N)) / np.sqrt(k)
    bias = rng.standard_normal(N)
    missing = -N % tile_n
    columns = np.pad(matrix, ((0, 0), (0, missing)))
    panels = columns.reshape(k, (N + missing) // tile_n, tile_n).transpose(1, 0, 2)
    y = x @ matrix + bias
    expected = y * 0.5 * (1 + np.vectorize(erf)(y * 0.5**0.5))
    arrays = [np.ascontiguousarray(a, "float32") for a in (x, panels, bias)]
    result = tvm.runtime.tensor(np.full((M, N), np.nan, "float32"))
    library["layer"](*map(tvm.runtime.tensor, arrays), result)
    assert np.abs(result.numpy() - expected).max() < 1e-5 * np.abs(expected).max()


def test_a_function_may_be_the_last_statement_of_a_loop() -> None:
    x, weight = (te.placeholder((64, 64), name=name) for name in ("x", "weight"))
    k = te.reduce_axis((0, 64), "k")
    out = te.compute((64, 64), lambda i, j: te.sum(x[i, k] * weight[k, j], axis=[k]), name="out")
    sch = tvm.s_tir.Schedule(te.create_prim_func([x, weight, out]))
    column = sch.get_loops("out")[1]
    sch.vectorize(sch.split(column, [None, 8])[1])
    sch.annotate(sch.get_loops("out")[1], MARK, 1)
    func = sch.mod["main"].with_attrs({"global_symbol": "layer", "target": AVX2})
    assert any(
        "microkernel" in name for name in functions(str(compiled(func, AVX2).inspect_source("s")))
    )
