"""The mocked GPU's kernels, which the interpreter of PTX runs in the process that launches them.

For a process that `cuda_mock.run` starts, with a home whose nvcc makes PTX.
"""

from __future__ import annotations

import ctypes
import os
from collections import Counter
from dataclasses import dataclass

import numpy as np

from tests import ptx

from . import libraries

_NUMBERS = {
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
    "u32": ctypes.c_int32,
    "b32": ctypes.c_int32,
}


@dataclass(frozen=True)
class Launched:
    """A launch with its arguments, as numbers (pointers too)."""

    image: str
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared: int
    arguments: tuple[int | float, ...]


@dataclass(frozen=True)
class Called:
    """A call of cuBLASLt or cuDNN: what describes it, and pointers, the stream's last."""

    name: str
    numbers: tuple[int, ...]
    pointers: tuple[int, ...]


class Device:
    """What the mocked driver's launches do.

    Parameters
    ----------
    execute : bool
        Whether kernels run; if not, they are only noted.
    races : bool
        Whether the interpreter looks for races, which takes half of its time.

    Attributes
    ----------
    launches : list of Launched
        All that ran, of graphs too.
    calls : list of Called
        The same of cuBLASLt and cuDNN, where `cuda_mock.add_libraries` was called.
    problems : list of tests.ptx.Problem
    graphs : int
        How many times a graph was launched.
    """

    def __init__(self, execute: bool = True, races: bool = False) -> None:
        self.execute, self.races = execute, races
        self.launches: list[Launched] = []
        self.calls: list[Called] = []
        self.problems: list[ptx.Problem] = []
        self.graphs = 0
        self.errors: list[Exception] = []
        self._captured: list[list[Launched | Called]] = []
        self._capturing = False
        self._stream = 0
        folder = os.path.join(os.environ["CUDA_PATH"], "lib")
        driver = ctypes.CDLL(os.path.join(folder, "libcuda.so.1"))
        self._runtime = ctypes.CDLL(os.path.join(folder, "libcudart.so.13"))
        text, pointer = ctypes.c_char_p, ctypes.c_void_p
        unsigned = ctypes.POINTER(ctypes.c_uint)
        self._callbacks = (  # kept alive here
            ctypes.CFUNCTYPE(None, text, text, unsigned, ctypes.POINTER(pointer))(self._launch),
            ctypes.CFUNCTYPE(None, ctypes.c_size_t)(self._begin),
            ctypes.CFUNCTYPE(ctypes.c_size_t)(self._end),
            ctypes.CFUNCTYPE(None, ctypes.c_size_t)(self._replay),
        )
        driver.mock_on_launch(self._callbacks[0])
        self._runtime.mock_on_graphs(*self._callbacks[1:])
        for name, file in libraries.FILES.items():
            if os.path.exists(os.path.join(folder, file)):
                self._listen(name, ctypes.CDLL(os.path.join(folder, file)))

    def _listen(self, name: str, library: ctypes.CDLL) -> None:
        def called(numbers, pointers) -> None:  # type: ignore[no-untyped-def]
            values = tuple(pointers[i] or 0 for i in range(6))
            self._take(Called(name, tuple(numbers[: libraries.SIZES[name]]), values))

        number, pointer = ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_void_p)
        callback = ctypes.CFUNCTYPE(None, number, pointer)(called)
        library.mock_on_call(callback)
        self._callbacks += (callback,)

    def allocations(self) -> int:
        """How often memory of the GPU was allocated."""
        return int(self._runtime.mock_allocations())

    def kernels(self) -> Counter[str]:
        """How often each kernel was launched."""
        return Counter(launched.kernel for launched in self.launches)

    def _launch(self, image, name, config, arguments) -> None:  # type: ignore[no-untyped-def]
        kernel = ptx.kernels(image.decode())[name.decode()]
        values = [
            _NUMBERS.get(kind, ctypes.c_int64).from_address(arguments[i]).value
            for i, (_, kind) in enumerate(kernel.params)
        ]
        grid, block = tuple(config[0:3]), tuple(config[3:6])
        self._take(Launched(image.decode(), kernel.name, grid, block, config[6], tuple(values)))

    def _take(self, work: Launched | Called) -> None:
        """Run it, or keep it for a graph."""
        if self._capturing:
            self._captured[-1].append(work)
            if isinstance(work, Called) and work.pointers[-1] != self._stream:
                self.errors.append(RuntimeError(f"{work.name}: not on the stream of the graph"))
        else:
            self._run(work)

    def _begin(self, stream: int) -> None:
        self._capturing, self._stream = True, stream
        self._captured.append([])

    def _end(self) -> int:
        self._capturing = False
        return len(self._captured)

    def _replay(self, graph: int) -> None:
        self.graphs += 1
        for work in self._captured[graph - 1]:
            self._run(work)

    def _run(self, launched: Launched | Called) -> None:
        """Run it with the GPU's memory open."""
        self._runtime.mock_open(1)
        try:
            self._compute(launched)
        finally:
            self._runtime.mock_open(0)

    def _compute(self, launched: Launched | Called) -> None:
        if isinstance(launched, Called):
            self.calls.append(launched)
            if self.execute:
                libraries.compute(launched.name, launched.numbers, launched.pointers)
            return
        self.launches.append(launched)
        if not self.execute:
            return
        blocks: dict[int, ptx.Updated] = {}
        arguments = [self._argument(value, blocks) for value in launched.arguments]
        try:
            outcome = ptx.run(
                launched.image,
                launched.kernel,
                launched.grid,
                launched.block,
                arguments,
                launched.dynamic_shared,
                races=self.races,
            )
        except Exception as error:  # an exception does not get through C
            self.errors.append(error)
            return
        self.problems += outcome.problems
        for block, values in zip(blocks.values(), outcome.outputs, strict=True):
            block.values[:] = values

    def _argument(self, value: int | float, blocks: dict[int, ptx.Updated]) -> ptx.Argument:
        """A pointer as a place in memory that was allocated; a number as it is."""
        start, size = ctypes.c_void_p(), ctypes.c_size_t()
        if isinstance(value, float) or not self._runtime.mock_block(
            ctypes.c_void_p(value), ctypes.byref(start), ctypes.byref(size)
        ):
            return value
        at = start.value or 0
        if at not in blocks:
            memory = (ctypes.c_uint8 * size.value).from_address(at)
            blocks[at] = ptx.Updated(np.frombuffer(memory, np.uint8))
        return ptx.Place(blocks[at], value - at)
