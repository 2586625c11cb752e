"""Runs the kit on the mocked GPU of the tests, in an environment as bare as a rented machine's.

    python -m scripts.gpu_kit.dry_run build/gpu-kit --python bare/bin/python results
    python -m scripts.gpu_kit.dry_run build/gpu-kit-small results --compute

No variable of this environment is set for the kit, its home is empty, and Python is one that has
numpy alone. With `--compute` the interpreter of PTX runs all kernels, which takes minutes for
small models (`scripts.gpu_kit.prebuild --small`) and days for those of real size: without it
kernels are launched, and compute nothing, so that every result is wrong and every step must say so.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from tests import cuda_mock
from tests.ptx import ptxas

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Loaded by every Python that starts with this folder on its path.
_SITE = """
import atexit, os, sys
if "scripts.gpu_kit.on_device.worker" in sys.orig_argv:
    from tests.cuda_mock.device import Device
    device = Device(execute=os.environ["MOCK_COMPUTES"] == "1")
    def say():
        for problem in [*device.problems, *device.errors]:
            print("mocked GPU:", problem)
    atexit.register(say)
"""


def environment(folder: pathlib.Path, python: str, compute: bool) -> dict[str, str]:
    """Variables of the bare environment; the mocked GPU is made in `folder`."""
    home = cuda_mock.make_home(folder / "cuda", ptxas.NVCC)
    cuda_mock.add_libraries(home)
    mock = folder / "mock"
    for package in ("ptx", "cuda_mock"):
        shutil.copytree(ROOT / "tests" / package, mock / "tests" / package)
    (mock / "sitecustomize.py").write_text(_SITE)
    (folder / "home").mkdir()
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder / "home"),
        "CUDA_PATH": str(home),
        "PYTHONPATH": str(mock),
        "BATON_KIT_PYTHON": python,
        "MOCK_COMPUTES": str(int(compute)),
    }


def run(
    kit: pathlib.Path, results: pathlib.Path, python: str, compute: bool, options: list[str]
) -> int:
    """Run a copy of the kit; the status of `run.sh`."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        shutil.copytree(kit, folder / "gpu-kit", ignore=shutil.ignore_patterns("unpacked"))
        command = [str(folder / "gpu-kit" / "run.sh"), str(results.resolve()), *options]
        variables = environment(folder, python, compute)
        done = subprocess.run(command, env=variables, cwd=folder / "home", check=False)
        if os.listdir(folder / "home"):
            print(f"the kit wrote into its home: {os.listdir(folder / 'home')}")
            return 1
        return done.returncode


def main() -> int:
    """Run the kit; its status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kit", type=pathlib.Path)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--compute", action="store_true")
    options, others = parser.parse_known_args()  # the others are for run.sh
    return run(options.kit, options.results, options.python, options.compute, others)


if __name__ == "__main__":
    sys.exit(main())
