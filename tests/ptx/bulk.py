"""`mbarrier`, and tensors that `cp.async.bulk.tensor` copies to shared memory (TMA).

A copy is there as soon as its barrier's phase completes: its arrivals have come, and the bytes that
were announced. A thread may read it after it has itself waited for that phase, or has met at a
barrier of the block with a thread that has. Copies are by the asynchronous proxy: what ordinary
instructions wrote in their place before needs a `fence.proxy.async`, what `wgmma` reads
afterwards needs none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tests.ptx.memory import NO_WRITER, POISON
from tests.ptx.program import Address, Instruction, PtxError

if TYPE_CHECKING:
    from tests.ptx.machine import Machine, Step, Threads

CHUNK = 16
BARRIER_BYTES = 8
SPANS = {"none": 0, "32B": 32, "64B": 64, "128B": 128}
MAPS_BASE = 1 << 54  # addresses of tensor maps, which are parameters
MAP_BYTES = 128


@dataclass(frozen=True)
class TensorMap:
    """An argument that describes a matrix of rows for `cp.async.bulk.tensor.2d`.

    Attributes
    ----------
    values : numpy.ndarray
        (rows, columns), which the kernel may only read.
    box : tuple of int
        Rows and columns that one copy takes. What lies outside of the matrix is 0.
    swizzle : str
        "none", "32B", "64B" or "128B".
    """

    values: np.ndarray
    box: tuple[int, int]
    swizzle: str = "none"

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the box."""
        return self.box[1] * self.values.itemsize

    def check(self) -> None:
        """Raise ValueError where cuTensorMapEncodeTiled would fail, or its rows have gaps."""
        rows, columns = self.box
        span = SPANS[self.swizzle]
        if not (1 <= rows <= 256 and 1 <= columns <= 256):
            raise ValueError(f"a box has 1 to 256 rows and columns, not {self.box}")
        if self.row_bytes % CHUNK or self.values.strides[0] % CHUNK:
            raise ValueError("rows of the box and of the matrix take multiples of 16 bytes")
        if span and self.row_bytes != span:
            raise ValueError(f"rows of the box take {self.row_bytes} bytes, the swizzle {span}")

    def rows(self, x: int, y: int) -> np.ndarray:
        """(rows of the box, chunks, 16) bytes of the box that begins at this column and row."""
        found = np.zeros(self.box, self.values.dtype)
        height, width = self.values.shape
        top, left = max(y, 0), max(x, 0)
        bottom, right = min(y + self.box[0], height), min(x + self.box[1], width)
        if top < bottom and left < right:
            part = self.values[top:bottom, left:right]
            found[top - y : bottom - y, left - x : right - x] = part
        return found.view(np.uint8).reshape(self.box[0], -1, CHUNK)

    def addresses(self, start: int) -> np.ndarray:
        """(rows of the box, chunks) of its copy."""
        row = np.arange(self.box[0])[:, None] * self.row_bytes
        at = start + row + np.arange(self.row_bytes // CHUNK) * CHUNK
        chunks = max(SPANS[self.swizzle] // CHUNK, 1)
        return at ^ ((at >> 7 & chunks - 1) << 4)


@dataclass
class _Barrier:
    """An `mbarrier`: the arrivals and bytes that its phase waits for."""

    count: int
    missing: int
    expected: int = 0
    phase: int = 0
    copies: list[_Copy] = field(default_factory=list)  # of this phase
    landed: list[tuple[int, int]] = field(default_factory=list)  # (phase, number of a copy)


@dataclass
class _Copy:
    number: int
    places: np.ndarray
    values: np.ndarray  # (chunks, 16)


class Barriers:
    """The barriers in shared memory, and the copies that are on their way to it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.is_used = any(i.opcode[0] == "mbarrier" for i in machine.kernel.instructions)
        self.changed = False
        self._barriers: dict[tuple[int, int], _Barrier] = {}
        self._copies = 0
        if self.is_used:
            machine.memories["shared"].follow_proxies()

    def forget(self) -> None:
        """Other blocks begin."""
        self._barriers.clear()
        self._copies, self.changed = 0, False

    def _each(self, at: np.ndarray, lanes: np.ndarray, how: str):
        """(lane, key, barrier) of threads that use a barrier; those that are none are reported."""
        machine = self._machine
        for memory, which, places in machine.locate("shared", at, BARRIER_BYTES, lanes):
            machine.check(memory, places, BARRIER_BYTES, lanes[which], how)
            for lane, address in zip(lanes[which], at[which], strict=True):
                key = (int(machine.of_block[lane]), int(address))
                barrier = self._barriers.get(key)
                if barrier is None and how != "write":
                    self._report("no mbarrier.init was there before", lane)
                    continue
                yield int(lane), key, barrier

    def _report(self, text: str, lane: int) -> None:
        self._machine.report("mbarrier", text, np.array([lane]))

    def init(self, at: np.ndarray, counts: np.ndarray, lanes: np.ndarray) -> None:
        """`mbarrier.init`, an ordinary write."""
        for lane, key, _ in self._each(at, lanes, "write"):
            self._barriers[key] = _Barrier(int(counts[lane]), int(counts[lane]))

    def fence(self, mask: np.ndarray) -> None:
        """`fence.mbarrier_init`: as `fence.proxy.async`, for barriers alone."""
        memory = self._machine.memories["shared"]
        assert memory.proxy is not None
        for block, address in self._barriers:
            at = np.array([block * memory.stride + address])
            granules = memory.granules_of(at, BARRIER_BYTES)
            writer = memory.proxy[granules]
            memory.proxy[granules] = np.where((writer >= 0) & mask[writer >> 1], writer | 1, writer)

    def arrive(self, at: np.ndarray, expected: np.ndarray | None, lanes: np.ndarray) -> None:
        """`mbarrier.arrive`, with bytes that are announced before."""
        for lane, key, barrier in self._each(at, lanes, "read"):
            barrier.expected += 0 if expected is None else int(expected[lane])
            barrier.missing -= 1
            if barrier.missing < 0:
                self._report("more arrivals than it counts", lane)
            self._settle(key, lane)

    def copy(self, at: np.ndarray, to: int, of: TensorMap, x: int, y: int, lane: int) -> None:
        """`cp.async.bulk.tensor.2d` of one thread to shared memory."""
        machine, memory = self._machine, self._machine.memories["shared"]
        assert memory.proxy is not None
        lanes = np.array([lane])
        if to % 128:
            machine.report("alignment", f"a tensor is copied to {to}, no multiple of 128", lanes)
        for _, key, barrier in self._each(at, lanes, "read"):
            for _, _, places in machine.locate("shared", at, BARRIER_BYTES, lanes):
                if (memory.proxy[memory.granules_of(places, BARRIER_BYTES)] >= 0).any():
                    self._report("no fence and barrier after mbarrier.init", lane)
            addresses = of.addresses(to).reshape(-1)
            values = of.rows(x, y).reshape(-1, CHUNK)
            of_lane = np.full(len(addresses), lane)
            for _, which, places in machine.locate("shared", addresses, CHUNK, of_lane):
                granules = memory.granules_of(places, CHUNK)
                writer = memory.proxy[granules]
                if (writer >= 0).any():
                    text = "copied over what has been written, with no fence.proxy.async between"
                    machine.report("proxy", text, lanes)
                machine.check(memory, places, CHUNK, of_lane[which], "write")
                memory.proxy[granules] = NO_WRITER
                memory.pending[granules] = True
                memory.data[places[:, None] + np.arange(CHUNK)] = POISON
                barrier.copies.append(_Copy(self._copies, places, values[which]))
            self._copies += 1
            self._settle(key, lane)

    def _settle(self, key: tuple[int, int], lane: int) -> None:
        """Complete the phase of a barrier if everything has come."""
        barrier, memory = self._barriers[key], self._machine.memories["shared"]
        arrived = sum(copy.values.size for copy in barrier.copies)
        if barrier.missing > 0:
            return
        if arrived > barrier.expected:
            self._report(f"{arrived} bytes are copied, {barrier.expected} announced", lane)
        if arrived < barrier.expected:
            return
        for copy in barrier.copies:
            granules = memory.granules_of(copy.places, CHUNK)
            memory.data[copy.places[:, None] + np.arange(CHUNK)] = copy.values
            memory.land(granules, copy.number, self._machine.lanes)
            barrier.landed.append((barrier.phase, copy.number))
        barrier.copies.clear()
        barrier.phase += 1
        barrier.missing, barrier.expected = barrier.count, 0
        self.changed = True

    def done(self, at: np.ndarray, parity: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Threads of a mask whose barrier has completed the phase of this parity."""
        found = np.zeros(self._machine.lanes, bool)
        for lane in np.flatnonzero(mask):
            barrier = self._barriers.get((int(self._machine.of_block[lane]), int(at[lane])))
            found[lane] = barrier is None or barrier.phase % 2 != parity[lane]
        return found

    def wait(self, at: np.ndarray, lanes: np.ndarray) -> None:
        """Threads have waited for the last phase, and may read what it brought."""
        memory = self._machine.memories["shared"]
        for lane, _, barrier in self._each(at, lanes, "read"):
            for _, number in barrier.landed:
                memory.observers[number][lane] = True


def is_wait(instruction: Instruction) -> bool:
    """Whether threads wait here for a phase."""
    return instruction.opcode[:2] in (("mbarrier", "try_wait"), ("mbarrier", "test_wait"))


def ready(instruction: Instruction, machine: Machine, mask: np.ndarray) -> np.ndarray:
    """Threads that need not wait (any longer)."""
    address, parity = instruction.operands[1:3]
    assert isinstance(address, Address)
    phases = machine.bits(str(parity), "u32")
    return machine.barriers.done(machine.addresses(address)(), phases, mask)


def step(instruction: Instruction, machine: Machine) -> Step:
    """Function that executes an `mbarrier` instruction."""
    opcode, operands = instruction.opcode, instruction.operands
    barriers = machine.barriers
    if "b64" not in opcode or "shared" not in opcode:
        raise PtxError("of mbarrier only those in shared memory are known")
    if is_wait(instruction):
        if "parity" not in opcode:
            raise PtxError("of waits only those for a parity are known")
        address = operands[1]
        assert isinstance(address, Address)
        addresses = machine.addresses(address)

        def wait(threads: Threads) -> None:
            barriers.wait(addresses()[threads.at], threads.at)
            machine.write_bits(str(operands[0]), np.ones(machine.lanes, bool), threads)

        return wait
    if opcode[1] == "init":
        address, count = operands
        assert isinstance(address, Address)
        of_init, counts = machine.addresses(address), machine.bits(str(count), "u32")
        return lambda threads: barriers.init(of_init()[threads.at], counts, threads.at)
    if opcode[1] == "arrive":
        address = operands[1]
        assert isinstance(address, Address)
        targets, expected = machine.addresses(address), None
        if "expect_tx" in opcode:
            expected = machine.bits(str(operands[2]), "u32")
        elif len(operands) > 2:
            raise PtxError("of arrivals only single ones are known")
        if str(operands[0]) != "_":
            raise PtxError("of arrivals only those without a state are known")
        return lambda threads: barriers.arrive(targets()[threads.at], expected, threads.at)
    raise PtxError(f"mbarrier.{opcode[1]} is not known")


_COPY = ("cp", "async", "bulk", "tensor", "2d")
_SHARED = ("shared", "shared::cluster")
_FROM_MEMORY = ("global", "mbarrier::complete_tx::bytes")


def copy_step(instruction: Instruction, machine: Machine) -> Step:
    """Function that executes `cp.async.bulk.tensor.2d` from global to shared memory."""
    opcode = instruction.opcode
    rest = tuple(part for part in opcode[6:] if part != "tile")
    if opcode[:5] != _COPY or opcode[5] not in _SHARED or rest != _FROM_MEMORY:
        raise PtxError("of bulk copies only cp.async.bulk.tensor.2d to shared memory is known")
    to, source, barrier = instruction.operands
    assert isinstance(to, Address) and isinstance(source, Address) and isinstance(barrier, Address)
    names = source.base.replace("{", "").replace("}", "").split(",")
    if len(names) != 3:
        raise PtxError("a map and two coordinates are expected")
    maps = machine.bits(names[0], "u64")
    x, y = (machine.bits(name, "u32") for name in names[1:])
    targets, barriers = machine.addresses(to), machine.addresses(barrier)

    def run(threads: Threads) -> None:
        for lane in threads.at:
            found = machine.tensor_maps.get(int(maps[lane]))
            if found is None:
                machine.report("bounds", "the address is that of no tensor map", threads.at[:1])
                continue
            at = barriers()[lane : lane + 1]
            left, top = (int(each[lane : lane + 1].view(np.int32)[0]) for each in (x, y))
            machine.barriers.copy(at, int(targets()[lane]), found, left, top, int(lane))

    return run
