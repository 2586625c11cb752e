"""Libraries that pose as NVIDIA's driver and CUDA's runtime, for processes of tests."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

COMPILER = shutil.which("gcc") or shutil.which("cc")
_SOURCE = Path(__file__).with_name("mock.c")
_LIBRARIES = Path(__file__).with_name("libraries.c")
_ROOT = Path(__file__).parents[2]
# The dynamic loader takes what is loaded already instead of what it finds on this machine; what it
# would not find is left to be found under CUDA_PATH.
_MOCK_INSTEAD_OF_REAL = """
import ctypes, ctypes.util, os
for stem, name in (("cuda", "libcuda.so.1"), ("cudart", "libcudart.so.13")):
    if ctypes.util.find_library(stem):
        ctypes.CDLL(os.path.join(os.environ["CUDA_PATH"], "lib", name))
"""


_EMPTY_CODE = """#!/bin/sh
if [ "$1" = --list-gpu-arch ]; then echo compute_90; exit; fi
while [ "$1" != -o ]; do shift; done; printf 'MOCK code' > "$2"
"""
# One PTX in place of a fatbin with machine code.
_PTX = """#!/bin/sh
if [ "$1" = --list-gpu-arch ]; then exec NVCC "$@"; fi
for word do
  shift
  case "$word" in
    -fatbin) set -- "$@" -ptx -w ;;
    -gencode) ;;
    arch=compute_*) arch=${word%%,*} ;;
    *) set -- "$@" "$word" ;;
  esac
done
exec NVCC "-$arch" "$@"
"""


def make_home(folder: Path, nvcc: str | None = None) -> Path:
    """A folder for CUDA_PATH: driver, runtime, and an nvcc.

    That makes PTX with the `nvcc` that is given, for `device.Device` to run, or empty device code.
    """
    assert COMPILER is not None
    (folder / "lib").mkdir(parents=True)
    (folder / "bin").mkdir()
    versions = folder / "versions"
    versions.write_text("libcudart.so.13 { global: *; };\n")
    for name, options in (
        ("libcuda.so.1", ["-DDRIVER"]),
        ("libcudart.so.13", [f"-Wl,--version-script={versions}"]),
    ):
        command = [COMPILER, "-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", *options]
        subprocess.run([*command, "-o", str(folder / "lib" / name), str(_SOURCE)], check=True)
    program = folder / "bin" / "nvcc"
    program.write_text(_EMPTY_CODE if nvcc is None else _PTX.replace("NVCC", shlex.quote(nvcc)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder


def add_libraries(home: Path) -> None:
    """Put cuBLASLt and cuDNN into such a folder."""
    assert COMPILER is not None
    for name, options in (("libcublasLt.so.13", ["-DCUBLASLT"]), ("libcudnn.so.9", [])):
        command = [COMPILER, "-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", *options]
        subprocess.run([*command, "-o", str(home / "lib" / name), str(_LIBRARIES)], check=True)


def start(script: str, home: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start a Python script on the mocked CUDA, with pipes for what it prints.

    CUDA's libraries are found under CUDA_PATH only, as in an installation that the dynamic loader
    knows nothing of. Other compilers of CUDA are not on PATH.
    """
    search = os.pathsep.join([str(_ROOT), *filter(None, sys.path)])
    variables = {
        **{name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"},
        "PYTHONPATH": search,
        "PATH": os.pathsep.join(["/usr/bin", "/bin"]),
        "CUDA_PATH": str(home),
        "TVM_NUM_THREADS": "1",
        **environment,
    }
    command = [sys.executable, "-c", _MOCK_INSTEAD_OF_REAL + script, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=variables, text=True, **pipes)


def run(
    script: str, home: Path, *arguments: str, limit: float = 600, **environment: str
) -> list[str]:
    """As `start`; the lines that the script printed, after `limit` seconds at most."""
    with start(script, home, *arguments, **environment) as process:
        try:
            printed, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode == 0, errors[-4000:]
    return printed.splitlines()
