"""`baton doctor`: check that this machine has what builds and runs need."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from compiler.errors import BatonError
from compiler.version import __version__, package_version

from .console import show, table

_DISTRIBUTION = "baton-tvm"
_OPTIONAL = (
    *("onnxruntime", "openvino", "onednn-cpu-gomp", "torch", "tflite", "graphviz", "xgboost"),
    *("cloudpickle", "psutil", "tornado", "distributed"),
)
_REQUIRED = ("apache-tvm", "apache-tvm-ffi", "numpy", "onnx")
_COMPARISONS: Mapping[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
}


def examine() -> dict[str, Any]:
    """All findings, as plain strings, numbers, lists and dicts.

    "problems" lists what keeps a build for this CPU from working; everything else that is absent
    says so where it is described, under "missing" or as None.
    """
    problems: list[str] = []
    return {
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "packages": {name: package_version(name) for name in (*_REQUIRED, *_OPTIONAL)},
        "versions": _versions(),
        "cpu": _cpu(problems),
        "compilers": _compilers(),
        "cuda": _cuda(),
        "cache": _cache(),
        "problems": problems,
    }


def show_findings(found: Mapping[str, Any]) -> None:
    """Print the findings as tables, the problems last."""
    for name in ("python", "versions", "packages", "cpu", "compilers", "cuda", "cache"):
        rows = [(key, _cell(value)) for key, value in found[name].items()]
        show(table(["", ""], rows, title=name))
    for problem in found["problems"]:
        show(f"PROBLEM: {problem}")
    if not found["problems"]:
        show("Builds for this CPU work.")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_cell(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "\n".join(map(_cell, value)) if value else "none"
    return str(value)


def _versions() -> dict[str, Any]:
    """Baton's version, and whether TVM and its FFI are a pair that it is tested with."""
    try:
        requirements = importlib.metadata.requires(_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        requirements = []
    wanted = [text for text in requirements if re.match(r"apache-tvm(-ffi)?\s*[=<>!]", text)]
    return {
        "baton": __version__,
        "tested with": wanted,
        "is tested": all(map(fulfils, wanted)) if wanted else None,
    }


def fulfils(requirement: str) -> bool:
    """Whether the installed package fits a requirement such as "apache-tvm-ffi>=0.1.14,<0.1.15".

    Versions are compared by their numbers, which is enough for those of TVM.
    """
    name, conditions = re.match(r"([\w.-]+?)\s*((?:[=<>!].*)?)$", requirement).groups()  # type: ignore[union-attr]
    version = package_version(name)
    if version is None:
        return False
    for sign, wanted in re.findall(r"([=<>!]=|[<>])\s*([\w.]+)", conditions):
        if not _COMPARISONS[sign](_numbers(version), _numbers(wanted)):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version))


def _cpu(problems: list[str]) -> dict[str, Any]:
    """The CPU as Baton sees it; whether a kernel can be compiled for it and gives right results."""
    found: dict[str, Any] = {"name": cpu_name(), "cores": len(os.sched_getaffinity(0))}
    try:
        import tvm

        from compiler import target as targets
        from schedules.x86.machine.cpu import Machine

        target = targets.parse("llvm")
        found["target"] = targets.to_cli(target)
        found["features"] = " ".join(sorted(targets.host_cpu_features()))
        found["machine"] = asdict(Machine.from_target(target))
        targets.check_buildable(target)
        found["trial"] = _trial(tvm, target)
    except (BatonError, ImportError, OSError) as error:
        problems.append(f"no build for this CPU: {error}")
    except Exception as error:  # whatever TVM raises is what the user must see
        problems.append(f"no build for this CPU: {type(error).__name__}: {error}")
    return found


def _trial(tvm: Any, target: Any) -> str:
    """Compile and run one small kernel."""
    import numpy as np

    x = tvm.te.placeholder((64,), "float32", name="x")
    y = tvm.te.compute((64,), lambda i: x[i] * x[i] + i, name="y")
    func = tvm.te.create_prim_func([x, y]).with_attr("global_symbol", "trial")
    library = tvm.tirx.build(tvm.IRModule({"trial": func}), target)
    values = np.linspace(-1, 1, 64, dtype="float32")
    result = tvm.runtime.tensor(np.zeros(64, "float32"))
    library["trial"](tvm.runtime.tensor(values), result)
    if not np.allclose(result.numpy(), values * values + np.arange(64)):
        raise BatonError("a kernel that was compiled for it gives wrong results")
    return "a kernel compiles and gives right results"


def cpu_name() -> str:
    """The model name of this machine's CPU."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match.group(1) if match else platform.processor() or platform.machine()


def _compilers() -> dict[str, Any]:
    """The C++ compiler that TVM links libraries with, and what it says of itself."""
    try:
        from tvm.support import cc
    except Exception as error:
        return {"c++": None, "missing": f"{type(error).__name__}: {error}"}
    path = cc.get_cc()
    if path is None:
        missing = "libraries run in memory and can't be exported: install g++, or set CXX"
        return {"c++": None, "missing": missing}
    return {"c++": path, "version": (_output([path, "--version"]).splitlines() or [""])[0]}


def _cuda() -> dict[str, Any]:
    """Each piece of CUDA, or what to install for it."""
    try:
        from compiler.errors import UnavailableTargetError
        from compiler.runtime import cuda_files, cuda_runtime, nvidia
        from compiler.target import cuda_driver, nvcc
    except Exception as error:
        return {"missing": f"{type(error).__name__}: {error}"}
    found: dict[str, Any] = {}
    driver = cuda_driver.driver()
    if isinstance(driver, str):
        found |= {"driver": None, "driver missing": driver, "devices": []}
    else:
        found |= {
            "driver": f"CUDA {driver.version}",
            "devices": [asdict(d) for d in driver.devices],
        }
    lacking = cuda_runtime.missing()
    found["runtime"] = cuda_runtime.LIBRARY if lacking is None else None
    if lacking is not None:
        found["runtime missing"] = lacking
    try:
        found["nvcc"] = nvcc.find_nvcc()
        found["nvcc version"] = _nvcc_version(found["nvcc"])
    except UnavailableTargetError as error:
        found |= {"nvcc": None, "nvcc missing": str(error)}
    for name, file in nvidia.FILES.items():
        found[name] = cuda_files.library(file)
        if found[name] is None:
            found[f"{name} missing"] = f"no {file}: pip install '{nvidia.PACKAGES[name]}'"
    return found


def _nvcc_version(path: str) -> str | None:
    match = re.search(r"release ([\d.]+)", _output([path, "--version"]))
    return match.group(1) if match else None


def _cache() -> dict[str, Any]:
    from compiler.lowering.cache.kernel_cache import user_cache

    cache = user_cache()
    if cache.folder is None:
        return {"folder": None, "missing": cache.problem}
    found: dict[str, Any] = {"folder": str(cache.folder), "limit": cache.limit}
    existing = cache.folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    found["writable"] = os.access(existing, os.W_OK | os.X_OK)
    try:
        found["bytes"] = cache.usage().bytes
    except OSError as error:
        found["missing"] = f"can't be read: {error.strerror}"
    return found


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
