"""Whether this machine can compile for a target, and what it lacks if not."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from functools import lru_cache

import tvm
from tvm.target import Target

from compiler.errors import UnavailableTargetError

from .config import to_cli


def check_buildable(target: Target) -> None:
    """Raise unless this machine can compile for the target.

    Parameters
    ----------
    target : Target
        From `parse`, which has checked architecture and CPU already.

    Raises
    ------
    UnavailableTargetError
        Names what is missing: the code generator, the CUDA compiler or its support for the
        architecture, a C compiler, or TVM's runtime for the device.
    """
    kind = str(target.kind.name)
    shown = repr(to_cli(target))
    if tvm.get_global_func(f"target.build.{kind}", allow_missing=True) is None:
        raise UnavailableTargetError(f"{shown}: this TVM has no code generator for {kind!r}")
    if kind == "cuda":
        _check_cuda_compiler(str(target.attrs["arch"]), shown)
    elif kind == "c":
        if tvm.support.cc.get_cc() is None:
            raise UnavailableTargetError(f"{shown}: no C compiler; install gcc or set CXX")
    elif kind != "llvm":
        loader = f"ffi.Module.load_from_bytes.{kind}"
        if tvm.get_global_func(loader, allow_missing=True) is None:
            raise UnavailableTargetError(
                f"{shown}: this TVM has no runtime for {kind!r}, so that nothing compiled for it "
                "could be loaded; build for llvm or cuda"
            )
    if target.host is not None:
        check_buildable(target.host)


def _check_cuda_compiler(architecture: str, shown: str) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        if importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.bindings"):
            return  # NVRTC, which says itself what it lacks
        raise UnavailableTargetError(
            f"{shown}: no CUDA compiler; put CUDA's nvcc on PATH or install cuda-bindings"
        )
    known = _nvcc_architectures(nvcc)
    if known and architecture.rstrip("af") not in known:
        raise UnavailableTargetError(
            f"{shown}: {nvcc} makes no code for {architecture}, only for {', '.join(known)}; "
            "choose one of them or install a CUDA release that has it"
        )


@lru_cache(maxsize=4)
def _nvcc_architectures(nvcc: str) -> tuple[str, ...]:
    """Architectures that nvcc lists; none if it is too old (before CUDA 11) to list them."""
    try:
        listing = subprocess.run(
            [nvcc, "--list-gpu-code"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableTargetError(f"the CUDA compiler {nvcc} can't be run: {error}") from error
    return tuple(re.findall(r"sm_\d+", listing.stdout))
