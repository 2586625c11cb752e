"""Loads TVM's CUDA runtime where CUDA is asked for, and says what it lacks.

TVM's wheel has the runtime as a separate library next to `libtvm_runtime.so`. `import tvm` loads
it where the dynamic loader finds CUDA's libraries, is silent where not, and does not try at all
with TVM's runtime alone (`TVM_USE_RUNTIME_LIB=1`).
"""

from __future__ import annotations

import ctypes
import functools
import re
from pathlib import Path
from typing import Any

from compiler.runtime import cuda_code, cuda_files

LIBRARY = "libtvm_runtime_cuda.so"
_REGISTERS = "device_api.cuda"
_ON_HOST = ("relax.run.nonzero",)
"""Functions of TVM's that compute with numpy and return a tensor of the host."""
_NOT_FOUND = re.compile(r"([\w.+-]+): cannot open shared object file")
_CUDART = re.compile(r"libcudart\.so\.(\d+)")


def prepare() -> str | None:
    """`missing`, and Baton's device code is known to TVM: call it before CUDA code is loaded."""
    lacking = missing()
    cuda_code.register()
    return lacking


def missing() -> str | None:
    """Load TVM's CUDA runtime unless it is; what is missing for that, in a sentence.

    Libraries of CUDA's that the dynamic loader does not find are taken from `cuda_files.homes`.

    Returns None when the runtime is loaded. There may still be no GPU.
    """
    import tvm
    import tvm_ffi

    for name in _ON_HOST:
        _keep_device(name)
    if tvm_ffi.get_global_func(_REGISTERS, allow_missing=True) is not None:
        return None
    path = _path()
    if path is None:
        return f"this TVM has no {LIBRARY}: install the wheel apache-tvm from PyPI for this system"
    lacking = _load(path, tvm.base._LOADED_LIBS)
    if lacking is None and tvm_ffi.get_global_func(_REGISTERS, allow_missing=True) is None:
        return f"{path} is not a CUDA runtime of TVM's"
    return lacking


@functools.cache
def _keep_device(name: str) -> None:
    """Have a function that TVM runs on the host leave its result where its operand is."""
    import tvm_ffi

    run = tvm_ffi.get_global_func(name, allow_missing=True)
    if run is not None:
        place = lambda x, *others: run(x, *others).copyto(x.device)  # noqa: E731
        tvm_ffi.register_global_func(name, place, override=True)


def _path() -> str | None:
    import tvm

    for folder in tvm.libinfo.package_lib_paths():
        if (Path(folder) / LIBRARY).is_file():
            return str(Path(folder) / LIBRARY)
    return None


def _load(path: str, loaded: dict[str, Any]) -> str | None:
    """Load a library after those that it needs; what is missing, in a sentence."""
    tried: set[str] = set()
    while True:
        try:
            # Kept, since TVM looks there for what is loaded.
            loaded[Path(path).name.removeprefix("lib").partition(".")[0]] = ctypes.CDLL(path)
            return None
        except OSError as error:
            match = _NOT_FOUND.search(str(error))
            if match is None or match.group(1) in tried:
                return f"{path} can't be loaded: {error}"
            name = match.group(1)
        tried.add(name)
        found = cuda_files.library(name)
        if found is None:
            return _advice(name)
        lacking = _load(found, loaded)
        if lacking is not None:
            return lacking


def _advice(name: str) -> str:
    """Which file is missing, and what brings it."""
    if name.startswith("libcuda.so"):
        return (
            f"{name}, the library of NVIDIA's driver, is missing: install the driver; in a "
            "container, start it with NVIDIA's container toolkit (docker run --gpus all)"
        )
    cudart = _CUDART.fullmatch(name)
    if cudart is not None:
        major = int(cudart.group(1))
        package = f"nvidia-cuda-runtime=={major}.*" if major >= 13 else "nvidia-cuda-runtime-cu12"
        return (
            f"{name}, the runtime library of CUDA {major}, is missing: pip install '{package}', or "
            f"install the CUDA toolkit {major} and set CUDA_PATH to it"
        )
    return f"{name}, which {LIBRARY} needs, is missing: install what brings it, or set CUDA_PATH"
