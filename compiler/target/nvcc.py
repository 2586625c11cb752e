"""Compiles the CUDA source of a build to device code with the machine's nvcc.

While `device_code()` is active, every CUDA module that TVM generates is compiled at once and
carries its fatbin along (see `compiler.runtime.cuda_code`), whether there is a GPU or none. What is
needed: nvcc, found on PATH, under CUDA_PATH or CUDA_HOME, among pip's packages, or under
/usr/local/cuda, and a C++ compiler that this nvcc accepts.
"""

from __future__ import annotations

import functools
import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from compiler.errors import BatonError, BuildError, TargetError, UnavailableTargetError
from compiler.runtime import cuda_code, cuda_files
from compiler.runtime.cuda_code import attach
from compiler.support.tempdir import TemporaryFolder

PACKAGES = "nvidia-cuda-nvcc nvidia-cuda-crt nvidia-cuda-runtime nvidia-cuda-cccl nvidia-nvvm"
_HOOK = "tvm_callback_cuda_postproc"
_ARCH = re.compile(r"sm_(\d+)([af]?)")
# The code generator writes half and bfloat16 arithmetic with operators, which CUDA's headers
# leave out when PyTorch-style builds define these macros.
_HALF_FLAGS = tuple(
    f"-U__CUDA_NO_{name}__"
    for name in (
        "HALF_OPERATORS",
        "HALF_CONVERSIONS",
        "BFLOAT16_OPERATORS",
        "BFLOAT16_CONVERSIONS",
        "BFLOAT162_OPERATORS",
        "BFLOAT162_CONVERSIONS",
    )
)


class CodeCache(Protocol):
    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, code: bytes) -> None: ...


class _Active(NamedTuple):
    """A `device_code` block: its errors, which lose their class on their way through TVM."""

    errors: list[BatonError]
    cache: CodeCache | None


_active: ContextVar[_Active | None] = ContextVar("cuda_device_code", default=None)


@contextmanager
def device_code(cache: CodeCache | None = None) -> Iterator[None]:
    """Compile the CUDA modules that are built in this block, in this thread, to device code.

    `cache` keeps the code of each source. Raises UnavailableTargetError: no nvcc knows the target's
    architecture. Raises BuildError, with nvcc's output: nvcc rejects the source.
    """
    _install_hook()
    cuda_code.register()
    errors: list[BatonError] = []
    token = _active.set(_Active(errors, cache))
    try:
        yield
    except Exception:
        if errors:
            raise errors[0] from None
        raise
    finally:
        _active.reset(token)


def require(arch: str) -> None:
    """Check that device code for `arch`, e.g. "sm_90", can be made on this machine.

    Raises TargetError: no CUDA architecture. Raises UnavailableTargetError: no nvcc that knows it.
    """
    match = _ARCH.fullmatch(arch)
    if match is None:
        raise TargetError(f"arch {arch!r} is not a CUDA architecture: write it as sm_90 or sm_90a")
    known = _architectures(find_nvcc())
    if match.group(1) not in known:
        raise UnavailableTargetError(
            f"{find_nvcc()} can't compile for {arch}; it knows "
            f"{', '.join('sm_' + number for number in known)}. Choose one of them with "
            "-arch, or install a CUDA toolkit that still (or already) has it"
        )


def find_nvcc() -> str:
    """Path of nvcc. Raises UnavailableTargetError: it is nowhere to be found."""
    found = shutil.which("nvcc")
    if found is not None:
        return found
    found = cuda_files.program("nvcc")
    if found is not None:
        return found
    raise UnavailableTargetError(
        "CUDA targets need nvcc, and it is neither on PATH nor under CUDA_PATH, CUDA_HOME, pip's "
        f"nvidia packages or {cuda_files.DEFAULT_HOME}: pip install {PACKAGES}, or install the "
        "CUDA toolkit and set CUDA_PATH to it"
    )


def compile_source(source: str, arch: str) -> bytes:
    """Compile CUDA source to a fatbin with machine code for `arch` and PTX, also for later ones.

    The PTX of sm_90a and the like is for that architecture alone.

    Raises BuildError with nvcc's output if nvcc rejects the source; other errors as `require`.
    """
    virtual = arch.replace("sm_", "compute_")
    codes = [("-gencode", f"arch={virtual},code={code}") for code in (arch, virtual)]
    return _compile(source, arch, ["-fatbin", *codes[0], *codes[1]])


def _kept(source: str, arch: str, cache: CodeCache | None) -> bytes:
    """`compile_source`, or what this nvcc made of the same source before."""
    if cache is None:
        return compile_source(source, arch)
    require(arch)
    parts = (source, arch, find_nvcc(), _version(find_nvcc()), *_HALF_FLAGS)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    code = cache.get(key)
    if code is None:
        code = compile_source(source, arch)
        cache.put(key, code)
    return code


@functools.lru_cache(maxsize=4)
def _version(nvcc: str) -> str:
    return subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout


def compile_to_ptx(source: str, arch: str) -> str:
    """The PTX that `compile_source` makes machine code of; the same errors."""
    options = ["-ptx", "-w", f"-arch=compute_{arch.removeprefix('sm_')}"]
    return _compile(source, arch, options).decode("ascii")


def _compile(source: str, arch: str, options: list[str]) -> bytes:
    require(arch)
    command = [find_nvcc(), "-O3", "--expt-relaxed-constexpr", *_HALF_FLAGS, *options]
    with TemporaryFolder("nvcc") as folder:
        input_path, output_path = Path(folder) / "kernels.cu", Path(folder) / "kernels.out"
        input_path.write_text(source)
        done = subprocess.run(
            [*command, "-o", str(output_path), str(input_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        if done.returncode != 0:
            raise BuildError(f"nvcc fails on the kernels for {arch}:\n{done.stdout[-4000:]}")
        return output_path.read_bytes()


@functools.lru_cache(maxsize=4)
def _architectures(nvcc: str) -> tuple[str, ...]:
    listed = subprocess.run([nvcc, "--list-gpu-arch"], capture_output=True, text=True)
    return tuple(re.findall(r"compute_(\d+)", listed.stdout))


@functools.lru_cache(maxsize=1)
def _install_hook() -> None:
    """Register the callback once; other builds go on to the callback that was there before."""
    import tvm_ffi

    before = tvm_ffi.get_global_func(_HOOK, allow_missing=True)

    def compile_when_active(source: str, target: Any) -> str:
        if before is not None:
            source = before(source, target)
        active = _active.get()
        if active is None:
            return source
        try:
            return attach(source, _kept(source, str(target.attrs.get("arch", "")), active.cache))
        except BatonError as error:
            active.errors.append(error)
            raise

    tvm_ffi.register_global_func(_HOOK, compile_when_active, override=True)
