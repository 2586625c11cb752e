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
    problems : list of tests.ptx.Problem
    graphs : int
        How many times a graph was launched.
    """

    def __init__(self, execute: bool = True, races: bool = False) -> None:
        self.execute, self.races = execute, races
        self.launches: list[Launched] = []
        self.problems: list[ptx.Problem] = []
        self.graphs = 0
        self.errors: list[Exception] = []
        self._captured: list[list[Launched]] = []
        self._capturing = False
        folder = os.path.join(os.environ["CUDA_PATH"], "lib")
        driver = ctypes.CDLL(os.path.join(folder, "libcuda.so.1"))
        self._runtime = ctypes.CDLL(os.path.join(folder, "libcudart.so.13"))
        text, pointer = ctypes.c_char_p, ctypes.c_void_p
        unsigned = ctypes.POINTER(ctypes.c_uint)
        self._callbacks = (  # kept alive here
            ctypes.CFUNCTYPE(None, text, text, unsigned, ctypes.POINTER(pointer))(self._launch),
            ctypes.CFUNCTYPE(None)(self._begin),
            ctypes.CFUNCTYPE(ctypes.c_size_t)(self._end),
            ctypes.CFUNCTYPE(None, ctypes.c_size_t)(self._replay),
        )
        driver.mock_on_launch(self._callbacks[0])
        self._runtime.mock_on_graphs(*self._callbacks[1:])

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
        launched = Launched(image.decode(), kernel.name, grid, block, config[6], tuple(values))
        if self._capturing:
            self._captured[-1].append(launched)
        else:
            self._run(launched)

    def _begin(self) -> None:
        self._capturing = True
        self._captured.append([])

    def _end(self) -> int:
        self._capturing = False
        return len(self._captured)

    def _replay(self, graph: int) -> None:
        self.graphs += 1
        for launched in self._captured[graph - 1]:
            self._run(launched)

    def _run(self, launched: Launched) -> None:
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
