"""Matrix products of half and int8, which tensor cores compute."""

import re
import shutil
import subprocess

import numpy as np
import pytest
import tvm
from tvm import te, topi
from tvm.target import Target

from schedules.cuda import limits
from schedules.cuda import rules as cuda_rules
from schedules.cuda.products import Products
from tests.schedules.cuda.emulation import COMPILER, Emulated

SIZE = 256


def product(dtype, result, size=SIZE):
    a = te.placeholder((size, size), dtype, name="a")
    b = te.placeholder((size, size), dtype, name="b")
    if dtype == result:
        return te.create_prim_func([a, b, topi.matmul(a, b)])
    k = te.reduce_axis((0, size), name="k")
    c = te.compute(
        (size, size), lambda i, j: te.sum(a[i, k].astype(result) * b[k, j].astype(result), axis=k)
    )
    return te.create_prim_func([a, b, c])


def source(dtype, result, arch):
    """Rule and CUDA source of a product."""
    target = Target({"kind": "cuda", "arch": arch}, host="llvm")
    func = product(dtype, result)
    name, schedule = next(
        (rule.name, schedule)
        for rule in cuda_rules()
        if (schedule := rule.apply(func, target, False)) is not None
    )
    module = tvm.IRModule({"k": schedule.mod["main"].with_attr("global_symbol", "k")})
    return name, tvm.tirx.build(module, target).imports[0].inspect_source()


@pytest.mark.parametrize(
    ("dtype", "result", "arch"),
    [("float16", "float16", "sm_90a"), ("float16", "float32", "sm_80"), ("int8", "int32", "sm_90")],
)
def test_products_of_useful_size_run_on_tensor_cores(dtype, result, arch):
    name, text = source(dtype, result, arch)
    assert name == "dlight.matmul"
    assert "nvcuda::wmma::mma_sync" in text
    assert "extern __shared__" in text


@pytest.mark.skipif(COMPILER is None, reason="the emulation needs a C++ compiler")
def test_an_int8_product_by_its_pipeline_is_exact(tmp_path):
    target = Target({"kind": "cuda", "arch": "sm_80"}, host="llvm")
    schedule = Products().apply(product("int8", "int32", 128), target, False)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, (128, 128)).astype("int8") for _ in range(2))
    (found,) = Emulated(schedule.mod["main"], target, tmp_path)([a, b])
    np.testing.assert_array_equal(found, a.astype("int32") @ b.astype("int32"))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize(("dtype", "result"), [("float16", "float32"), ("int8", "int32")])
def test_ptxas_spills_nothing_and_a_block_fits_the_device(dtype, result, tmp_path):
    _, text = source(dtype, result, "sm_80")
    (tmp_path / "k.cu").write_text(text)
    command = ["nvcc", "-O3", "-cubin", "-arch=sm_80", "-Xptxas", "-v", "-o", "k.cubin", "k.cu"]
    said = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stderr
    assert "0 bytes spill stores, 0 bytes spill loads" in said
    registers = int(re.search(r"Used (\d+) registers", said).group(1))
    threads = int(re.search(r"__launch_bounds__\((\d+)\)", text).group(1))
    room = limits.of_arch("sm_80")
    assert room.resident_blocks(threads, registers, 73728) >= 1
