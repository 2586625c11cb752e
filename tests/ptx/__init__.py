"""Runs PTX on the CPU and reports what a GPU would not: races, bounds, copies not waited for.

See `run`. Known are the instructions that nvcc makes of Baton's kernels up to sm_90: arithmetic,
memory, shuffles and votes, atomics, barriers of blocks and warps, `mma`, `ldmatrix`, `wmma`,
`cp.async`, `wgmma`, `mbarrier`, and bulk copies of matrices. Others are an error that names them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tests.ptx.bulk import MAP_BYTES, MAPS_BASE, TensorMap
from tests.ptx.machine import GLOBAL_BASE, Machine, Problem
from tests.ptx.memory import Memory
from tests.ptx.program import BYTES, Array, Kernel, PtxError
from tests.ptx.program import kernels as parse
from tests.ptx.traffic import Traffic

__all__ = [
    "Outcome",
    "Output",
    "Place",
    "Problem",
    "PtxError",
    "Traffic",
    "Updated",
    "kernels",
    "run",
]

THREADS_AT_A_TIME = 8192


@dataclass(frozen=True)
class Output:
    """An argument that a kernel must write whole, and may not read before."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Updated:
    """An argument that a kernel may read and write."""

    values: np.ndarray


@dataclass(frozen=True)
class Place:
    """A pointer into memory, `offset` bytes behind its start, that other arguments may share."""

    memory: Updated
    offset: int


Argument = np.ndarray | Output | Updated | Place | TensorMap | int | float


@dataclass(frozen=True)
class Outcome:
    """What a launch did.

    Attributes
    ----------
    outputs : list of numpy.ndarray
        Of the arguments that are `Output` or `Updated`, or places in these, in the order in which
        they appear first.
    problems : list of Problem
        Empty for a kernel that does nothing wrong.
    traffic : Traffic
        How many accesses and instructions it took.
    """

    outputs: list[np.ndarray]
    problems: list[Problem]
    traffic: Traffic


@lru_cache(maxsize=16)
def kernels(ptx: str) -> dict[str, Kernel]:
    """The kernels of a PTX module by name."""
    return parse(ptx)


def run(
    ptx: str,
    kernel: str,
    grid: Sequence[int],
    block: Sequence[int],
    arguments: Sequence[Argument],
    dynamic_shared: int = 0,
    races: bool = True,
) -> Outcome:
    """Launch a kernel.

    Parameters
    ----------
    ptx : str
        A module as nvcc -ptx writes it.
    kernel : str
        The name of an entry.
    grid, block : sequence of int
        One to three extents: x, y, z.
    arguments : sequence
        For each parameter an array (which the kernel may only read), an `Output`, an `Updated`, a
        `Place`, a `TensorMap`, or a number.
    dynamic_shared : int
        Bytes of dynamic shared memory of a block.
    races : bool
        Whether to look for them.

    Raises
    ------
    PtxError
        The PTX has what the interpreter does not know, or no such kernel.
    """
    found = kernels(ptx).get(kernel)
    if found is None:
        raise PtxError(f"no kernel {kernel}; there are {', '.join(kernels(ptx))}")
    if len(arguments) != len(found.params):
        raise PtxError(f"{kernel} takes {len(found.params)} arguments, not {len(arguments)}")
    launch = _Launch(found, _three(grid), _three(block), dynamic_shared, races)
    return launch.run(_Arguments(found, arguments))


def _three(extents: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*extents, 1, 1, 1)[:3]
    return x, y, z


class _Launch:
    def __init__(
        self,
        kernel: Kernel,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        dynamic_shared: int,
        races: bool,
    ) -> None:
        self._races = races
        self._kernel, self._grid, self._block = kernel, grid, block
        self._dynamic_shared = dynamic_shared
        self._problems: list[Problem] = []
        self._machine: Machine | None = None

    def run(self, arguments: _Arguments) -> Outcome:
        """Run all blocks."""
        blocks = math.prod(self._grid)
        threads = math.prod(self._block)
        if threads > (self._kernel.threads or 1024):
            text = f"{threads} threads, and at most {self._kernel.threads or 1024} are declared"
            self._problems.append(Problem("launch", self._kernel.name, text, 0, 0))
        at_a_time = max(1, min(blocks, THREADS_AT_A_TIME // max(threads, 32)))
        memories = {
            "global": self._global(arguments),
            "shared": self._memory("shared", at_a_time),
            "local": self._memory("local", at_a_time * -(-threads // 32) * 32, gap=64),
        }
        constants = self._constants(memories, arguments)
        self._machine = Machine(
            self._kernel, self._grid, self._block, at_a_time, constants, memories, self._problems
        )
        self._machine.tensor_maps = arguments.maps
        with np.errstate(all="ignore"):
            for first in range(0, blocks, at_a_time):
                self._machine.run(np.arange(first, min(first + at_a_time, blocks)))
        outputs = self._outputs(memories["global"], arguments)
        return Outcome(outputs, self._problems, self._machine.traffic)

    def _report(self, kind: str, text: str, lanes: np.ndarray) -> None:
        assert self._machine is not None
        self._machine.report(kind, text, lanes)

    def _granule(self, space: str) -> int:
        """The least that the kernel accesses at a time."""
        widths = {4}
        for instruction in self._kernel.instructions:
            spaces = {"global", "shared", "local"} & set(instruction.opcode)
            if instruction.opcode[0] in ("ld", "st", "atom", "red", "wmma") and spaces <= {space}:
                widths.add(BYTES.get(instruction.opcode[-1], 4))
        return min(widths)

    def _arrays(self, *spaces: str) -> list[Array]:
        return [array for array in self._kernel.arrays if array.space in spaces]

    def _memory(self, space: str, copies: int, gap: int = 4096) -> Memory:
        sizes = [
            (
                array.name,
                self._dynamic_shared if array.size is None else array.size,
                *([array.align] if space == "shared" else []),
            )
            for array in self._arrays(space)
        ]
        return Memory(sizes, self._granule(space), copies, self._report, self._races, gap)

    def _global(self, arguments: _Arguments) -> Memory:
        arrays = self._arrays("global", "const")
        sizes = [(array.name, array.size or 0) for array in arrays]
        sizes += [(name, arguments.bytes_of(name)) for name in arguments.memory]
        memory = Memory(sizes, self._granule("global"), 1, self._report, self._races)
        writable = {name for name, a in arguments.memory.items() if not isinstance(a, np.ndarray)}
        memory.read_only = {name for name, _ in sizes} - writable
        for name, argument in arguments.memory.items():
            if not isinstance(argument, Output):
                memory.fill(name, argument if isinstance(argument, np.ndarray) else argument.values)
        for array in arrays:
            content = np.frombuffer(array.values.ljust(array.size or 0, b"\0"), np.uint8)
            memory.fill(array.name, content)
        return memory

    def _constants(self, memories: dict[str, Memory], arguments: _Arguments) -> dict[str, int]:
        """Values of the parameters and addresses of the arrays."""
        found = {}
        for space, memory in memories.items():
            base = GLOBAL_BASE if space == "global" else 0
            found.update({region.name: base + region.start for region in memory.regions})
        places = {name: found[region] + at for name, (region, at) in arguments.places.items()}
        return {**found, **places, **arguments.numbers}

    def _outputs(self, memory: Memory, arguments: _Arguments) -> list[np.ndarray]:
        found = []
        for name, argument in arguments.memory.items():
            if isinstance(argument, np.ndarray):
                continue
            region = memory.region(name)
            content = memory.data[region.start : region.start + region.size].copy()
            if isinstance(argument, Updated):
                found.append(content.view(argument.values.dtype).reshape(argument.values.shape))
                continue
            found.append(content.view(argument.dtype).reshape(argument.shape))
            granules = memory.valid[region.start // memory.granule :]
            missing = ~granules[: -(-region.size // memory.granule)]
            if missing.any():
                text = f"{int(missing.sum()) * memory.granule} bytes of {name} are never written"
                self._problems.append(Problem("unwritten", self._kernel.name, text, 0, 0))
        return found


class _Arguments:
    """The arguments of a launch, apart: memory by name, places in it, and numbers' bits."""

    def __init__(self, kernel: Kernel, arguments: Sequence[Argument]) -> None:
        self.memory: dict[str, np.ndarray | Output | Updated] = {}
        self.places: dict[str, tuple[str, int]] = {}
        self.numbers: dict[str, int] = {}
        self.maps: dict[int, TensorMap] = {}
        shared: dict[int, str] = {}
        for (name, kind), argument in zip(kernel.params, arguments, strict=True):
            if isinstance(argument, Place):
                region = shared.setdefault(id(argument.memory), f"memory of {name}")
                self.memory[region] = argument.memory
                self.places[name] = region, argument.offset
            elif isinstance(argument, TensorMap):
                argument.check()
                self.numbers[name] = MAPS_BASE + MAP_BYTES * len(self.maps)
                self.maps[self.numbers[name]] = argument
            elif isinstance(argument, (int, float)):
                number = np.array([argument], {"f32": "f4", "f64": "f8"}.get(kind, "i8"))
                self.numbers[name] = int(number.view(f"u{number.itemsize}")[0])
            else:
                self.memory[name] = argument

    def bytes_of(self, name: str) -> int:
        """Size of a piece of memory."""
        argument = self.memory[name]
        if isinstance(argument, Output):
            return math.prod(argument.shape) * np.dtype(argument.dtype).itemsize
        return (argument.values if isinstance(argument, Updated) else argument).nbytes
