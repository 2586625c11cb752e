"""CUDA source to device code with the machine's nvcc."""

import os
import stat

import pytest
import tvm
from tvm import s_tir, te, topi
from tvm.target import Target

from compiler.errors import BuildError, TargetError, UnavailableTargetError
from compiler.runtime import cuda_files
from compiler.runtime.cuda_code import extract
from compiler.target import nvcc

SOURCE = 'extern "C" __global__ void kernel(float* x) { x[threadIdx.x] = tanhf(x[0]); }\n'


@pytest.fixture
def fake_nvcc(monkeypatch, tmp_path):
    """A CUDA_PATH whose nvcc knows sm_90 and keeps the flags it was called with."""
    program = tmp_path / "bin" / "nvcc"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = --list-gpu-arch ]; then echo compute_90; else echo "$@" > {tmp_path}/flags\n'
        'while [ "$1" != -o ]; do shift; done; echo code > "$2"; fi\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "empty"), "/bin", "/usr/bin"]))
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    return tmp_path


def _has_nvcc():
    try:
        nvcc.require("sm_90")
    except UnavailableTargetError:
        return False
    return True


needs_nvcc = pytest.mark.skipif(not _has_nvcc(), reason="needs an nvcc that knows sm_90")


def kernel():
    x = te.placeholder((64,), "float32", name="x")
    schedule = s_tir.Schedule(te.create_prim_func([x, topi.exp(x)]))
    (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
    schedule.bind(schedule.get_loops(block)[0], "threadIdx.x")
    return tvm.IRModule({"exp": schedule.mod["main"].with_attr("global_symbol", "exp")})


def target(arch):
    return Target({"kind": "cuda", "arch": arch, "host": {"kind": "llvm"}})


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a"])
def test_source_becomes_a_fatbin_with_the_kernel(arch):
    code = nvcc.compile_source(SOURCE, arch)
    assert code.startswith(b"\x50\xed\x55\xba")
    assert b"kernel" in code


def test_fast_math_is_off_so_that_tanh_keeps_its_digits(fake_nvcc):
    nvcc.compile_source(SOURCE, "sm_90")
    flags = (fake_nvcc / "flags").read_text().split()
    assert "arch=compute_90,code=sm_90" in flags
    assert "arch=compute_90,code=compute_90" in flags
    assert not any("fast" in flag for flag in flags)


@needs_nvcc
def test_a_build_inside_the_block_carries_device_code():
    with nvcc.device_code():
        library = tvm.tirx.build(kernel(), target("sm_90"))
    assert extract(library.imports[0].inspect_source()).startswith(b"\x50\xed\x55\xba")


def test_a_build_outside_the_block_does_not():
    with nvcc.device_code():
        pass
    library = tvm.tirx.build(kernel(), target("sm_90"))
    assert extract(library.imports[0].inspect_source()) is None


@needs_nvcc
def test_an_architecture_that_nvcc_dropped_is_unavailable_and_the_others_are_named():
    with pytest.raises(UnavailableTargetError, match=r"can't compile for sm_35; it knows .*sm_90"):
        nvcc.require("sm_35")


@needs_nvcc
def test_the_error_class_survives_tvms_build():
    with pytest.raises(UnavailableTargetError, match="sm_35"), nvcc.device_code():
        tvm.tirx.build(kernel(), target("sm_35"))


@pytest.mark.parametrize("arch", ["", "90", "compute_90", "sm_", "gfx90a", "sm_90; rm"])
def test_what_is_no_architecture_is_a_target_error(arch):
    with pytest.raises(TargetError, match="is not a CUDA architecture"):
        nvcc.require(arch)


@needs_nvcc
def test_source_that_nvcc_rejects_is_a_build_error_with_its_message():
    with pytest.raises(BuildError, match="not_declared"):
        nvcc.compile_source('extern "C" __global__ void k() { not_declared(); }', "sm_90")


def test_without_nvcc_the_error_says_where_it_was_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setattr(cuda_files, "DEFAULT_HOME", str(tmp_path))
    with pytest.raises(UnavailableTargetError, match="set CUDA_PATH"):
        nvcc.require("sm_90")


def test_nvcc_is_found_under_cuda_path(fake_nvcc):
    assert nvcc.find_nvcc() == str(fake_nvcc / "bin" / "nvcc")
    nvcc.require("sm_90")
