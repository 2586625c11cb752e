"""Where CUDA's libraries and programs lie on this machine: a toolkit, or pip's nvidia packages."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

DEFAULT_HOME = "/usr/local/cuda"
VARIABLES = ("CUDA_PATH", "CUDA_HOME")
# Where a driver is found that the dynamic loader does not look for: Windows' subsystem for Linux.
_DRIVER_FOLDERS = ("/usr/lib/wsl/lib",)


def homes() -> list[Path]:
    """Folders with a `bin` or `lib` of CUDA's, in the order in which they count.

    CUDA_PATH and CUDA_HOME come first, then what pip installed (`nvidia/cu13`, or a folder for
    each package of CUDA 12, such as `nvidia/cuda_runtime`), then /usr/local/cuda.
    """
    named = [Path(os.environ[name]) for name in VARIABLES if os.environ.get(name)]
    return [*named, *_pip_folders(), Path(DEFAULT_HOME)]


def program(name: str) -> str | None:
    """Path of one of CUDA's programs under the homes."""
    for home in homes():
        path = home / "bin" / name
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    return None


def library(name: str) -> str | None:
    """Path of a shared library, by the name that another one needs it by: libcudart.so.13."""
    folders = [home / folder for home in homes() for folder in ("lib64", "lib")]
    for folder in [*folders, *map(Path, _DRIVER_FOLDERS)]:
        if (folder / name).is_file():
            return str(folder / name)
    return None


def _pip_folders() -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    roots = [] if spec is None else list(spec.submodule_search_locations or [])
    return sorted((path for root in roots for path in Path(root).glob("*")), reverse=True)
