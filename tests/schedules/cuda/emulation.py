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
from tvm import tirx
from tvm.target import Target

from tests.ptx.scheduled import Launch, Scheduled

HEADER = Path(__file__).with_name("emulation.h")
COMPILER = shutil.which("g++") or shutil.which("c++")
GUARD, POISON = 64 * 1024, 0x5A
_DYNAMIC_SHARED = re.compile(r"extern __shared__ __align__\(64\) uchar (\w+)\[\];")


class Emulated:
    """One scheduled function, callable on numpy arrays: `emulated(inputs) -> outputs`.

    It runs with the threads in their order and in reverse; the results must be the same. `without`
    is text to leave out of the source where it stands for the `nth` time, for tests of tests.
    """

    def __init__(
        self, func: tirx.PrimFunc, target: Target, folder: Path, without: str = "", nth: int = 0
    ):
        scheduled = Scheduled(func, target)
        self._buffers, self._num_params = scheduled.buffers, scheduled.num_params
        self._names = [str(buffer.name) for buffer in self._buffers]
        self.source = scheduled.source
        if without:
            parts = self.source.split(without)
            before, after = parts[: nth + 1], parts[nth + 1 :]
            self.source = without.join(before) + without.join(after)
        self._library = _compile(self.source, _launchers(scheduled.launches, self._names), folder)

    def __call__(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        forward, backward = (self._run(inputs, order) for order in (0, 1))
        for name, one, other in zip(self._names[len(inputs) :], forward, backward, strict=False):
            message = f"{name} depends on the order of threads"
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4, err_msg=message)
        return backward

    def _run(self, inputs: list[np.ndarray], order: int) -> list[np.ndarray]:
        guarded = [_guarded(buffer) for buffer in self._buffers]
        arrays = [view for _, view in guarded]
        for array, value in zip(arrays, inputs, strict=False):
            array[...] = value
        pointers = (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])
        self._library.run(pointers, order)
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


def _launchers(launches: list[Launch], names: list[str]) -> str:
    """C++ of `run(pointers)`, which launches every kernel in order."""
    bodies, calls = [], []
    for launch in launches:
        positions = [names.index(buffer) for buffer in launch.buffers]
        arguments = ", ".join(f"emulation::Pointer{{p[{position}]}}" for position in positions)
        body = f"body_{launch.kernel}"
        bodies.append(f"static void {body}(void** p) {{ {launch.kernel}({arguments}); }}")
        grid, block = (", ".join(map(str, extents)) for extents in (launch.grid, launch.block))
        calls.append(f"  emulation::launch({body}, p, {{{grid}}}, {{{block}}});")
    body = "\n".join(["  emulation::reversed = order == 1;", *calls])
    return "\n".join(bodies) + f'\nextern "C" void run(void** p, int order) {{\n{body}\n}}\n'


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
