"""Instructions that threads run together: barriers, shuffles, votes, matrices, copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tests.ptx import bulk, tensor_cores, wgmma
from tests.ptx.memory import POISON
from tests.ptx.program import BYTES, Address, Instruction, PtxError

if TYPE_CHECKING:
    from tests.ptx.machine import Machine, Step, Threads

WARP = 32
_FULL = 0xFFFFFFFF
_OF_WARP = {"shfl", "vote", "redux", "mma", "ldmatrix", "wmma", "wgmma"}
ATOMIC: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, value: value,
    "cas": lambda old, expected, value: np.where(old == expected, value, old),
}


def is_barrier(instruction: Instruction) -> bool:
    """Whether all threads of a block meet here."""
    return instruction.opcode[0] in ("bar", "barrier") and "warp" not in instruction.opcode


def is_of_warp(instruction: Instruction) -> bool:
    """Whether threads of a warp meet here."""
    opcode = instruction.opcode
    return opcode[0] in _OF_WARP or opcode[:2] == ("bar", "warp")


def members(instruction: Instruction, machine: Machine) -> np.ndarray:
    """Which lanes of its warp each thread names, as bits."""
    opcode, operands = instruction.opcode, instruction.operands
    if opcode[0] in ("shfl", "vote", "redux", "bar"):
        return machine.bits(str(operands[-1]), "b32")
    return np.full(machine.lanes, _FULL, np.uint32)


def step(instruction: Instruction, machine: Machine) -> Step | None:
    """What runs the instruction; None where it is not one of these."""
    base = instruction.opcode[0]
    if is_barrier(instruction):
        if (
            instruction.opcode[1:] not in _BARRIERS
            or instruction.operands != ("0",)
            or instruction.guard
        ):
            raise PtxError("of barriers only those of a whole block are known")
        return lambda threads: None
    if base == "bar":
        return lambda threads: _meet(machine, threads)
    if instruction.opcode[:3] == ("cp", "async", "bulk"):
        return bulk.copy_step(instruction, machine)
    if base == "cp":
        return _copy(instruction, machine)
    makers = {
        "shfl": _shuffle,
        "vote": _vote,
        "activemask": _active,
        "redux": _reduce,
        "mma": _mma,
        "ldmatrix": _ldmatrix,
        "wmma": _wmma,
        "wgmma": wgmma.step,
        "mbarrier": bulk.step,
    }
    return makers[base](instruction, machine) if base in makers else None


_BARRIERS = {("sync",), ("sync", "aligned"), ("cta", "sync"), ("cta", "sync", "aligned")}


def _meet(machine: Machine, threads: Threads) -> None:
    shared = machine.memories["shared"]
    synchronized = threads.mask.reshape(-1, WARP).any(1)
    size = shared.stride // shared.granule
    for number in np.unique(machine.of_block[threads.at]):
        part = slice(number * size, (number + 1) * size)
        shared.accessors.forget_groups(part, WARP, synchronized)


def _shuffle(instruction: Instruction, machine: Machine) -> Step:
    target, a, b, c = (str(operand) for operand in instruction.operands[:4])
    first, _, second = target.partition("|")
    value, delta, clamp = (machine.source(operand, "u32") for operand in (a, b, c))
    mode = instruction.opcode[2]
    lane = np.arange(machine.lanes) % WARP
    start = np.arange(machine.lanes) - lane

    def run(threads: Threads) -> None:
        bits, by, limit = value(), (delta() & 31).astype(np.int64), clamp().astype(np.int64)
        segment = limit >> 8 & 31
        last = (lane & segment) | (limit & 31 & ~segment)
        from_lane = {
            "up": lane - by,
            "down": lane + by,
            "bfly": lane ^ by,
            "idx": (lane & segment) | (by & ~segment),
        }[mode]
        inside = from_lane >= last if mode == "up" else from_lane <= last
        source = start + np.where(inside, from_lane, lane)
        result = np.where(threads.mask[source], bits[source], np.uint32(_FULL))
        machine.write_bits(first, result, threads)
        if second:
            machine.write_bits(second, inside, threads)

    return run


def _per_warp(values: np.ndarray) -> np.ndarray:
    return np.repeat(values, WARP)


def _ballot(machine: Machine, holds: np.ndarray) -> np.ndarray:
    weights = np.uint64(1) << np.arange(WARP, dtype=np.uint64)
    bits = (holds.reshape(-1, WARP) * weights).sum(1).astype(np.uint32)
    return _per_warp(bits)


def _active(instruction: Instruction, machine: Machine) -> Step:
    target = str(instruction.operands[0])
    return lambda threads: machine.write_bits(target, _ballot(machine, threads.mask), threads)


def _vote(instruction: Instruction, machine: Machine) -> Step:
    target, source = (str(operand) for operand in instruction.operands[:2])
    mode, predicate = instruction.opcode[2], machine.source(source, "pred")

    def run(threads: Threads) -> None:
        yes = _ballot(machine, predicate() & threads.mask)
        everyone = _ballot(machine, threads.mask)
        result = {
            "ballot": yes,
            "any": yes != 0,
            "all": yes == everyone,
            "uni": (yes == 0) | (yes == everyone),
        }[mode]
        machine.write_bits(target, result, threads)

    return run


def _reduce(instruction: Instruction, machine: Machine) -> Step:
    target, source = (str(operand) for operand in instruction.operands[:2])
    kind, function = instruction.opcode[-1], ATOMIC[instruction.opcode[2]]
    value = machine.source(source, kind)

    def run(threads: Threads) -> None:
        values = value().reshape(-1, WARP)
        result = values.copy()
        for warp, mask in enumerate(threads.mask.reshape(-1, WARP)):
            if mask.any():
                result[warp] = function.reduce(values[warp][mask])  # type: ignore[attr-defined]
        machine.write(target, kind, result.reshape(-1), threads)

    return run


# Matrices


def _vectors(operands: tuple[object, ...]) -> list[tuple[str, ...]]:
    return [operand if isinstance(operand, tuple) else (str(operand),) for operand in operands]


def _gather(machine: Machine, names: tuple[str, ...], warps: np.ndarray) -> list[np.ndarray]:
    return [machine.bits(name, "b32").reshape(-1, WARP)[warps] for name in names]


def _scatter(
    machine: Machine,
    names: tuple[str, ...],
    registers: list[np.ndarray],
    warps: np.ndarray,
    threads: Threads,
) -> None:
    for name, register in zip(names, registers, strict=True):
        bits = np.zeros((machine.lanes // WARP, WARP), np.uint32)
        bits[warps] = register
        machine.write_bits(name, bits.reshape(-1), threads)


def _mma(instruction: Instruction, machine: Machine) -> Step:
    d, *sources = _vectors(instruction.operands)

    def run(threads: Threads) -> None:
        warps = _warps_of(threads)
        a, b, c = (_gather(machine, names, warps) for names in sources)
        _scatter(machine, d, tensor_cores.mma(instruction.opcode, a, b, c), warps, threads)

    return run


def _warps_of(threads: Threads) -> np.ndarray:
    """The warps that are there; matrices need all of their lanes."""
    return np.flatnonzero(threads.mask.reshape(-1, WARP).all(1))


def _ldmatrix(instruction: Instruction, machine: Machine) -> Step:
    target, address = instruction.operands
    names = target if isinstance(target, tuple) else (str(target),)
    assert isinstance(address, Address)
    if instruction.opcode[-1] != "b16" or "m8n8" not in instruction.opcode:
        raise PtxError("of ldmatrix only m8n8 with b16 is known")
    addresses, space = machine.addresses(address), machine._space(instruction)
    rows = 8 * len(names)

    def run(threads: Threads) -> None:
        warps = _warps_of(threads)
        lanes = (warps[:, None] * WARP + np.arange(rows)).reshape(-1)
        words = machine.read_memory(space, addresses()[lanes], 4, 4, lanes)
        matrices = words.reshape(len(warps), len(names), 8, 4)
        registers = tensor_cores.ldmatrix(matrices, "trans" in instruction.opcode)
        _scatter(machine, names, registers, warps, threads)

    return run


def _wmma(instruction: Instruction, machine: Machine) -> Step:
    opcode = instruction.opcode
    if opcode[1] == "mma":
        d, *sources = _vectors(instruction.operands)

        def multiply(threads: Threads) -> None:
            warps = _warps_of(threads)
            a, b, c = (_gather(machine, names, warps) for names in sources)
            _scatter(machine, d, tensor_cores.wmma(opcode, a, b, c), warps, threads)

        return multiply
    m, n, k = tensor_cores.shape(opcode)
    size = {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}[opcode[2]]
    is_load = opcode[1] == "load"
    vector, address = instruction.operands[:2] if is_load else instruction.operands[1::-1]
    names = vector if isinstance(vector, tuple) else (str(vector),)
    assert isinstance(address, Address)
    addresses, space = machine.addresses(address), machine._space(instruction)
    strides = machine.bits(str(instruction.operands[2]), "u32")
    kind = opcode[-1]
    width = BYTES[kind]
    # The lanes share the rows; each of these elements is accessed by one of them.
    row, column = np.divmod(np.arange(size[0] * size[1]), size[1])
    owner = np.arange(len(row)) * WARP // len(row)

    def run(threads: Threads) -> None:
        warps = _warps_of(threads)
        first = warps[:, None] * WARP
        stride = strides[first].astype(np.int64)
        offset = row * stride + column if "row" in opcode else column * stride + row
        at = (addresses()[first] + offset * width).reshape(-1)
        lanes = (first + owner).reshape(-1)
        if is_load:
            found = machine.read_memory(space, at, width, 1, lanes)
            elements = found.reshape(len(warps), *size)
            registers = tensor_cores.wmma_load(opcode, elements, len(names))
            _scatter(machine, names, registers, warps, threads)
        else:
            registers = _gather(machine, names, warps)
            matrix = tensor_cores.wmma_matrix(registers, kind, *size)
            machine.write_memory(space, at, width, matrix.reshape(-1, 1), lanes)

    return run


# Asynchronous copies


@dataclass
class _Flying:
    """Copies of one instruction that nobody has waited for."""

    lanes: np.ndarray
    group: np.ndarray
    places: np.ndarray
    values: np.ndarray  # (threads, bytes)


class Copies:
    """`cp.async`: what was copied is not there before its thread has waited for it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.committed = np.zeros(machine.lanes, np.int64)
        self._flying: list[_Flying] = []

    def forget(self) -> None:
        """Other blocks begin."""
        self.committed[:] = 0
        self._flying.clear()

    def start(
        self, to: np.ndarray, source: np.ndarray, size: int, kept: np.ndarray, lanes: np.ndarray
    ) -> None:
        """Copy `size` bytes for each thread, of which the first `kept` are read, the rest 0."""
        machine = self._machine
        values = np.zeros((len(lanes), size), np.uint8)
        for count in np.unique(kept):
            which = np.flatnonzero(kept == count)
            if count:
                words = (
                    machine.read_memory("global", source[which], int(count), 1, lanes[which])
                    if count in (1, 2, 4, 8)
                    else machine.read_memory(
                        "global", source[which], 4, int(count) // 4, lanes[which]
                    )
                )
                values[which, :count] = np.ascontiguousarray(words).view(np.uint8)
        for memory, which, places in machine.locate("shared", to, size, lanes):
            machine.check(memory, places, size, lanes[which], "write")
            granules = memory.granules_of(places, size)
            memory.pending[granules] = True
            for i in range(size):
                memory.store(places, 1, i, np.full(len(places), POISON, np.uint8))
            group = self.committed[lanes[which]].copy()
            self._flying.append(_Flying(lanes[which], group, places, values[which]))

    def commit(self, threads: Threads) -> None:
        """What was started since the last time is a group."""
        self.committed[threads.mask] += 1

    def wait(self, threads: Threads, allowed: int | None) -> None:
        """Threads wait until at most so many of their groups fly; None for everything."""
        still = []
        for copy in self._flying:
            done = threads.mask[copy.lanes]
            if allowed is not None:
                done = done & (copy.group < self.committed[copy.lanes] - allowed)
            self._arrive(copy, done)
            if not done.all():
                keep = ~done
                still.append(
                    _Flying(
                        copy.lanes[keep], copy.group[keep], copy.places[keep], copy.values[keep]
                    )
                )
        self._flying = still

    def _arrive(self, copy: _Flying, done: np.ndarray) -> None:
        memory, places = self._machine.memories["shared"], copy.places[done]
        size = copy.values.shape[1]
        granules = memory.granules_of(places, size)
        memory.pending[granules] = False
        for i in range(size):
            memory.store(places, 1, i, copy.values[done, i])
        memory.note_proxy(granules, copy.lanes[done])
        if not memory.races:
            return
        writers = self._machine.agents(memory, copy.lanes[done])[:, None]
        memory.accessors.writer[granules] = writers
        memory.groups.writer[granules] = writers // WARP


def _copy(instruction: Instruction, machine: Machine) -> Step:
    opcode, operands = instruction.opcode, instruction.operands
    if opcode[:3] == ("cp", "async", "commit_group"):
        return machine.copies.commit
    if opcode[:3] == ("cp", "async", "wait_group"):
        allowed = int(str(operands[0]))
        return lambda threads: machine.copies.wait(threads, allowed)
    if opcode[:3] == ("cp", "async", "wait_all"):
        return lambda threads: machine.copies.wait(threads, None)
    if opcode[:2] != ("cp", "async") or opcode[2] not in ("ca", "cg"):
        raise PtxError("of cp only cp.async is known")
    to, source = operands[:2]
    assert isinstance(to, Address) and isinstance(source, Address)
    targets, sources, size = machine.addresses(to), machine.addresses(source), int(str(operands[2]))
    kept = machine.bits(str(operands[3]), "u32") if len(operands) > 3 else None

    def run(threads: Threads) -> None:
        lanes = threads.at
        count = np.full(len(lanes), size)
        if kept is not None:
            ignored = kept.dtype == bool  # a predicate says that the source is ignored
            count = np.where(kept[lanes], 0, size) if ignored else kept[lanes].astype(np.int64)
        machine.copies.start(targets()[lanes], sources()[lanes], size, count, lanes)

    return run
