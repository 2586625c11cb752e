"""Matrix products by TVM's rule: what `cuda.tensor_cores` does not take."""

import functools
import re
import shutil
import subprocess

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.target import Target

from schedules.cuda import limits
from schedules.cuda import rules as cuda_rules
from tests.ptx.scheduled import Scheduled
from tests.schedules.cuda.emulation import COMPILER, Emulated

SIZE = 128


@functools.lru_cache(maxsize=4)
def scheduled(dtype, result, arch):
    """The function of a product; TVM takes seconds for each."""
    a = te.placeholder((SIZE, SIZE), dtype, name="a")
    b = te.placeholder((SIZE, SIZE), dtype, name="b")
    k = te.reduce_axis((0, SIZE), name="k")
    c = te.compute(
        (SIZE, SIZE), lambda i, j: te.sum(a[i, k].astype(result) * b[k, j].astype(result), axis=k)
    )
    func = te.create_prim_func([a, b, c])
    schedule = RULE.apply(func, target(arch), False)
    assert schedule is not None
    return schedule.mod["main"]


def target(arch):
    return Target({"kind": "cuda", "arch": arch}, host="llvm")


PRODUCTS = [("float16", "float32", "sm_90a"), ("int8", "int32", "sm_80")]
RULE = next(rule for rule in cuda_rules() if rule.name == "dlight.matmul")


@pytest.mark.parametrize(("dtype", "result", "arch"), PRODUCTS)
def test_products_run_on_tensor_cores_without_spills_and_fit_the_device(
    dtype, result, arch, tmp_path
):
    func = scheduled(dtype, result, arch)
    module = tvm.IRModule({"k": func.with_attr("global_symbol", "k")})
    text = tvm.tirx.build(module, target(arch)).imports[0].inspect_source()
    assert "nvcuda::wmma::mma_sync" in text
    assert "extern __shared__" in text
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc for what ptxas says")
    (tmp_path / "k.cu").write_text(text)
    command = ["nvcc", "-O3", "-cubin", f"-arch={arch}", "-Xptxas", "-v", "-o", "k.cubin", "k.cu"]
    said = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stderr
    assert "0 bytes spill stores, 0 bytes spill loads" in said
    registers = int(re.search(r"Used (\d+) registers", said).group(1))
    threads = int(re.search(r"__launch_bounds__\((\d+)\)", text).group(1))
    assert limits.of_arch(arch).resident_blocks(threads, registers, shared=73728) >= 1


@pytest.mark.skipif(COMPILER is None, reason="the emulation needs a C++ compiler")
def test_an_int8_product_by_its_pipeline_is_exact(tmp_path):
    func = scheduled("int8", "int32", "sm_80")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, (SIZE, SIZE)).astype("int8") for _ in range(2))
    (found,) = Emulated(func, target("sm_80"), tmp_path)([a, b])
    np.testing.assert_array_equal(found, a.astype("int32") @ b.astype("int32"))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_a_half_product_does_nothing_wrong_on_tensor_cores():
    func = scheduled("float16", "float32", "sm_90a")
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, (SIZE, SIZE)).astype("float16") for _ in range(2))
    outcome = Scheduled(func, target("sm_90a")).interpret([a, b])
    assert [str(problem) for problem in outcome.problems] == []
    expected = a.astype("float64") @ b.astype("float64")
    np.testing.assert_allclose(outcome.outputs[0], expected, rtol=1e-5, atol=1e-5)
