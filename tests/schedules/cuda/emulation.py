"""Run scheduled CUDA functions without a GPU: their generated CUDA C, compiled for the host.

Every thread of a block is a fibre, `__syncthreads` and warp shuffles are real barriers, so that
a schedule with a missing barrier, a wrong shared-memory region or a divergent barrier fails.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm.target import Target
from tvm.tirx.build import codegen_build, split_host_device_mods

HEADER = Path(__file__).with_name("emulation.h")
COMPILER = shutil.which("g++") or shutil.which("c++")
GUARD, POISON = 64 * 1024, 0x5A
_DYNAMIC_SHARED = re.compile(r"extern __shared__ __align__\(64\) uchar (\w+)\[\];")
TAGS = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")


class Emulated:
    """One scheduled function, callable on numpy arrays: `emulated(inputs) -> outputs`."""

    def __init__(self, func: tirx.PrimFunc, target: Target, folder: Path):
        func, self._buffers, self._num_params = _expose_workspaces(func)
        self._names = [str(buffer.name) for buffer in self._buffers]
        pipeline, _, finalize_device = tvm.tirx.get_tir_pipeline("default")
        module = tirx.transform.BindTarget(target)(tvm.IRModule({"kernel": func}))
        host, devices = split_host_device_mods(pipeline(module))
        ((device_target, device),) = devices.items()
        device = finalize_device()(device)
        self.source = codegen_build(device, device_target).inspect_source()
        self._library = _compile(self.source, _launchers(host, device, self._names), folder)

    def __call__(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        guarded = [_guarded(buffer) for buffer in self._buffers]
        arrays = [view for _, view in guarded]
        for array, value in zip(arrays, inputs, strict=False):
            array[...] = value
        pointers = (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])
        self._library.run(pointers)
        for name, (memory, _) in zip(self._names, guarded, strict=True):
            guards = np.concatenate([memory[:GUARD], memory[-GUARD:]])
            assert (guards == POISON).all(), f"a kernel wrote out of the bounds of {name}"
        return arrays[len(inputs) : self._num_params]


def _guarded(buffer: tvm.ir.Var) -> tuple[np.ndarray, np.ndarray]:
    """Memory full of poison, and the array of the buffer in its middle."""
    shape = tuple(int(extent) for extent in buffer.shape)
    dtype = np.dtype(str(buffer.dtype))
    count = int(np.prod(shape)) * dtype.itemsize
    memory = np.full(count + 2 * GUARD, POISON, dtype=np.uint8)
    return memory, memory[GUARD : GUARD + count].view(dtype).reshape(shape)


def _expose_workspaces(func: tirx.PrimFunc) -> tuple[tirx.PrimFunc, list, int]:
    """Make the global workspaces parameters, so that each kernel's arguments are parameters."""
    root = func.body.block
    workspaces = [buffer for buffer in root.alloc_buffers if buffer.scope() == "global"]
    kept = [buffer for buffer in root.alloc_buffers if buffer.scope() != "global"]
    block = SBlock([], root.reads, root.writes, root.name_hint, root.body, None, kept)
    params = [*func.params, *workspaces]
    names = [param.name for param in params]
    assert len(set(names)) == len(names), f"parameter names are not unique: {names}"
    exposed = tirx.PrimFunc(params, SBlockRealize([], True, block), func.ret_type, func.attrs)
    return exposed.with_attr("global_symbol", "kernel"), params, len(func.params)


def _launches(host: tvm.IRModule) -> list[tuple[str, dict[str, int]]]:
    """Kernel names in the order of their launches, each with its extents by thread tag."""
    found: list[tuple[str, dict[str, int]]] = []

    def visit(call: tvm.ir.Call) -> None:
        if getattr(call.op, "name", "") != "tirx.call_ffi_kernel":
            return
        tags = [str(tag) for tag in call.attrs["launch_params"]]
        extents = [int(extent) for extent in call.args[-len(tags) :]]
        found.append((str(call.args[0].value), dict(zip(tags, extents, strict=True))))

    for func in host.functions.values():
        tvm_ffi.structural_walk(func.body, (tvm.ir.Call, visit), order="pre")
    return found


def _launchers(host: tvm.IRModule, device: tvm.IRModule, names: list[str]) -> str:
    """C++ of `run(pointers)`, which launches every kernel in order."""
    params = {gvar.name_hint: func.params for gvar, func in device.functions.items()}
    bodies, launches = [], []
    for kernel, extents in _launches(host):
        positions = [names.index(param.name.removesuffix("_ptr")) for param in params[kernel]]
        arguments = ", ".join(f"emulation::Pointer{{p[{position}]}}" for position in positions)
        bodies.append(f"static void body_{kernel}(void** p) {{ {kernel}({arguments}); }}")
        grid, block = (
            ", ".join(str(extents.get(tag, 1)) for tag in tags) for tags in (TAGS[:3], TAGS[3:])
        )
        launches.append(f"  emulation::launch(body_{kernel}, p, {{{grid}}}, {{{block}}});")
    body = "\n".join(launches)
    return "\n".join(bodies) + f'\nextern "C" void run(void** p) {{\n{body}\n}}\n'


def _compile(source: str, launchers: str, folder: Path) -> ctypes.CDLL:
    """Compile the kernels, which begin at the first declaration, behind the header."""
    kernels = source[source.index('extern "C" __global__') :]
    kernels = _DYNAMIC_SHARED.sub(r"uchar* \1 = emulation::dynamic_shared;", kernels)
    barriers = int("__syncthreads" in kernels or "__shfl" in kernels)
    text = f"#define EMULATION_BARRIERS {barriers}\n" + HEADER.read_text() + kernels + launchers
    stem = folder / f"kernel_{hashlib.sha1(text.encode()).hexdigest()[:16]}"
    stem.with_suffix(".cc").write_text(text)
    library = stem.with_suffix(".so")
    assert COMPILER is not None, "the emulation needs a C++ compiler"
    command = [COMPILER, "-O0", "-w", "-std=gnu++14", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", str(library), f"{stem}.cc"], check=True)
    return ctypes.CDLL(str(library))
