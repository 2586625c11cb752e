"""Runs the blocks of a kernel, all their threads at once, instruction by instruction.

A register is an array over the threads of some blocks. Threads that take different ways are run
apart and joined where they meet again: of the places where threads are, the first in the text
goes on. Instructions of a warp wait for those of its threads that they name, barriers for all
threads of a block; who waits for a thread that has left, or that waits elsewhere, is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.ptx import arithmetic, bulk, collective, wgmma
from tests.ptx.memory import NO_WRITER, Memory
from tests.ptx.numbers import decode, dtype, encode, immediate
from tests.ptx.program import BYTES, Address, Instruction, Kernel, PtxError
from tests.ptx.traffic import WARP, Traffic

GLOBAL_BASE = 1 << 40  # generic addresses: where global memory begins,
SHARED_BASE = 1 << 52  # shared memory,
LOCAL_BASE = 1 << 53  # and the local memory of a thread
_NO_EFFECT = {"membar", "fence", "prefetch", "prefetchu", "discard", "griddepcontrol", "nanosleep"}
_CACHE_MODIFIERS = {"global", "shared", "local", "const", "param"}


@dataclass(frozen=True)
class Problem:
    """What is wrong with a kernel.

    Attributes
    ----------
    kind : str
        "race", "bounds", "alignment", "uninitialized", "in flight", "fence", "proxy",
        "mbarrier", "divergence", "input", "unwritten" or "launch".
    instruction : str
        Where it was seen first.
    text : str
        What was seen.
    block, thread : int
        Of the first of the threads concerned, counted through the grid and the block.
    """

    kind: str
    instruction: str
    text: str
    block: int
    thread: int

    def __str__(self) -> str:
        at = f"block {self.block}, thread {self.thread}"
        return f"{self.kind}: {self.text} ({at}: {self.instruction})"


class Threads:
    """Those that run an instruction."""

    def __init__(self, mask: np.ndarray) -> None:
        self.mask = mask
        self.all = bool(mask.all())
        self._at: np.ndarray | None = None

    @property
    def at(self) -> np.ndarray:
        """Their numbers."""
        if self._at is None:
            self._at = np.flatnonzero(self.mask)
        return self._at

    def where(self, condition: np.ndarray) -> Threads:
        """Those of them for which a condition holds."""
        return Threads(self.mask & condition)


Step = Callable[[Threads], None]


class Machine:
    """Some blocks of one kernel.

    Parameters
    ----------
    kernel : Kernel
    grid, block : tuple of int
        Extents x, y, z of the launch.
    blocks : int
        How many run at a time.
    constants : dict of str to int
        Values of parameters, and addresses of arrays.
    global_memory, shared, local : Memory
        Shared memory has an instance for each of the blocks, local memory for each thread.
    problems : list of Problem
        Gets what is found; each kind once for each instruction.

    Attributes
    ----------
    traffic : Traffic
        Accesses and instructions of all blocks so far.
    """

    def __init__(
        self,
        kernel: Kernel,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        blocks: int,
        constants: dict[str, int],
        memories: dict[str, Memory],
        problems: list[Problem],
    ) -> None:
        self.kernel, self.grid, self.block, self.blocks = kernel, grid, block, blocks
        self.constants, self.memories, self.problems = constants, memories, problems
        self.in_block = block[0] * block[1] * block[2]
        self.padded = -(-self.in_block // WARP) * WARP
        self.lanes = blocks * self.padded
        self.of_block = np.arange(self.lanes) // self.padded
        self.block_numbers = np.zeros(blocks, np.int64)
        self.alive = np.zeros(self.lanes, bool)
        self.copies = collective.Copies(self)
        self.traffic = Traffic()
        self._used_global = False
        self._seen: set[tuple[str, str]] = set()
        self._current: Instruction = kernel.instructions[0]
        self.registers = {
            name: np.zeros(self.lanes, bool if kind == "pred" else f"u{BYTES[kind]}")
            for name, kind in kernel.registers.items()
        }
        self._special: dict[str, np.ndarray] = {}
        self._set_special()
        self.warpgroups = wgmma.Warpgroups(self)
        self.barriers = bulk.Barriers(self)
        self.tensor_maps: dict[int, bulk.TensorMap] = {}
        self._steps = [self._compile(instruction) for instruction in kernel.instructions]
        self._leaders = sorted(self._find_leaders())
        self._end = dict(zip(self._leaders, [*self._leaders[1:], len(self._steps)], strict=True))

    # What a run is made of

    def run(self, numbers: np.ndarray) -> None:
        """Run the blocks of these numbers, at most as many as there are places."""
        self.block_numbers[: len(numbers)] = numbers
        self._set_special()
        lane = np.arange(self.lanes)
        self.alive = (lane % self.padded < self.in_block) & (self.of_block < len(numbers))
        for name in ("shared", "local"):
            self.memories[name].poison()
        self.copies.forget()
        self.warpgroups.forget()
        self.barriers.forget()
        groups: dict[int, np.ndarray] = {0: self.alive.copy()}
        waiting: dict[int, np.ndarray] = {}
        stalled: set[int] = set()
        while groups:
            ready = [at for at in groups if at not in stalled]
            if not ready and self.barriers.changed:
                self.barriers.changed = False
                stalled.clear()
                continue
            if not ready:
                if waiting:
                    self._release(groups, waiting, stalled)
                    continue
                at = min(groups)
                self._note(at, "divergence", "a warp waits for threads that never come", groups[at])
                return
            self._advance(min(ready), groups, waiting, stalled)
            if not groups and waiting:
                self._release(groups, waiting, stalled)
        self.traffic.end_blocks()

    def _advance(
        self,
        at: int,
        groups: dict[int, np.ndarray],
        waiting: dict[int, np.ndarray],
        stalled: set[int],
    ) -> None:
        """Run the threads at one place up to the next branch or meeting."""
        mask = groups.pop(at)

        def go(target: int, which: np.ndarray) -> None:
            if which.any():
                groups[target] = groups[target] | which if target in groups else which
                stalled.discard(target)

        instruction = self.kernel.instructions[at]
        if collective.is_barrier(instruction) and not instruction.guard:
            waiting[at] = waiting[at] | mask if at in waiting else mask
            return
        if collective.is_of_warp(instruction) or bulk.is_wait(instruction):
            ready = self._warps_ready(instruction, mask)
            if not ready.all():
                late = mask & ~ready
                mask = mask & ready
                if late.any():
                    groups[at] = late
                    stalled.add(at)
                if not mask.any():
                    return
        threads = Threads(mask)
        end = self._end[at]
        self.traffic.instructions += (end - at) * int(mask.reshape(-1, WARP).any(1).sum())
        for position in range(at, end):
            self._current = self.kernel.instructions[position]
            base = self._current.opcode[0]
            if base in ("bra", "ret", "exit"):
                taken = self._guarded(self._current, threads)
                if base == "bra":
                    go(self._label(self._current), taken.mask)
                else:
                    self.alive &= ~taken.mask
                go(end, threads.mask & ~taken.mask)
                return
            self._steps[position](threads)
        if end == len(self._steps):
            self.alive &= ~mask
        else:
            go(end, mask)

    def _warps_ready(self, instruction: Instruction, mask: np.ndarray) -> np.ndarray:
        """Of the threads at an instruction of warps, those whose warp is there as it asks."""
        if instruction.opcode[0] == "wgmma":
            return ~self.warpgroups.absent(mask)
        if bulk.is_wait(instruction):
            return bulk.ready(instruction, self, mask)
        named = collective.members(instruction, self)
        absent = (self.alive & ~mask).reshape(-1, WARP)
        bits = (absent.astype(np.uint64) << np.arange(WARP, dtype=np.uint64)).sum(1)
        return (named & np.repeat(bits, WARP).astype(np.uint32)) == 0

    def _release(
        self, groups: dict[int, np.ndarray], waiting: dict[int, np.ndarray], stalled: set[int]
    ) -> None:
        """Let the blocks go on all of whose threads wait at a barrier."""
        at_barrier = np.zeros(self.lanes, bool)
        for mask in waiting.values():
            at_barrier |= mask
        per_block = at_barrier.reshape(self.blocks, -1)
        alive = self.alive.reshape(self.blocks, -1)
        complete = per_block.any(1) & (per_block == alive).all(1)
        places = sum(mask.reshape(self.blocks, -1).any(1).astype(int) for mask in waiting.values())
        for at, mask in list(waiting.items()):
            waits = mask.reshape(self.blocks, -1).any(1)
            for wrong, text in (
                (waits & (places > 1), "threads wait at different barriers"),
                (waits & (alive.sum(1) < self.in_block), "some threads left before a barrier"),
            ):
                if wrong.any():
                    self._note(at, "divergence", text, mask & wrong[self.of_block])
            leave = mask & complete[self.of_block]
            if not complete.any():
                self._note(at, "divergence", "threads wait at a barrier for ever", mask)
            waiting.pop(at)
            rest = mask & ~leave
            if rest.any() and complete.any():
                waiting[at] = rest
            if leave.any():
                groups[at + 1] = groups.get(at + 1, False) | leave
                stalled.discard(at + 1)
        if complete.any():
            self.synchronized(complete)
        elif not any(at not in stalled for at in groups):
            groups.clear()  # nothing can go on

    def synchronized(self, blocks: np.ndarray) -> None:
        """All threads of these blocks have met at a barrier."""
        shared = self.memories["shared"]
        size = shared.stride // shared.granule
        for number in np.flatnonzero(blocks):
            of_block = slice(number * size, (number + 1) * size)
            shared.accessors.forget(of_block)
            shared.groups.forget(of_block)
            if shared.proxy is not None:
                proxy = shared.proxy[of_block]
                proxy[proxy % 2 == 1] = NO_WRITER
                shared.met(slice(number * self.padded, (number + 1) * self.padded))
        meets = np.zeros(self.grid[0] * self.grid[1] * self.grid[2], bool)
        meets[self.block_numbers[blocks]] = True
        if self._used_global:
            memory = self.memories["global"]
            whole = slice(0, len(memory.valid))
            memory.accessors.forget_groups(whole, self.padded, meets)
            self._used_global = False

    # Problems

    def _note(self, at: int, kind: str, text: str, mask: np.ndarray) -> None:
        self._current = self.kernel.instructions[at]
        self.report(kind, text, np.flatnonzero(mask))

    def report(self, kind: str, text: str, lanes: np.ndarray) -> None:
        """Note a problem of the instruction that runs."""
        if (kind, self._current.text) in self._seen:
            return
        self._seen.add((kind, self._current.text))
        lane = int(lanes[0])
        block = int(self.block_numbers[lane // self.padded])
        problem = Problem(kind, self._current.text, text, block, lane % self.padded)
        self.problems.append(problem)

    # Operands

    def _set_special(self) -> None:
        lane = np.arange(self.lanes) % self.padded
        number = self.block_numbers[self.of_block]
        for axis, letter in enumerate("xyz"):
            before = int(np.prod(self.block[:axis]))
            blocks_before = int(np.prod(self.grid[:axis]))
            values = {
                "tid": lane // before % self.block[axis],
                "ctaid": number // blocks_before % self.grid[axis],
                "ntid": np.full(self.lanes, self.block[axis]),
                "nctaid": np.full(self.lanes, self.grid[axis]),
            }
            for name, value in values.items():
                self._keep(f"%{name}.{letter}", value)
        self._keep("%laneid", lane % WARP)
        self._keep("%warpid", lane // WARP)
        self._keep("%clock", np.zeros(self.lanes))

    def _keep(self, name: str, values: np.ndarray) -> None:
        # Steps hold views of these arrays, so that they are written, not replaced.
        kept = self._special.setdefault(name, np.zeros(self.lanes, np.uint32))
        kept[:] = values

    def source(self, operand: str, kind: str) -> Callable[[], np.ndarray]:
        """What reads an operand as values of a type."""
        negate = operand.startswith("!")
        bits = self.bits(operand.lstrip("!"), kind)
        if negate:
            return lambda: ~bits
        return lambda: decode(bits, kind)

    def bits(self, operand: str, kind: str) -> np.ndarray:
        """The array behind an operand: of a register itself, else one of equal numbers."""
        if operand in self.registers:
            return self.registers[operand]
        if operand in self._special:
            return self._special[operand]
        if kind == "pred":
            return np.full(self.lanes, bool(int(operand)))
        number = self.constants.get(operand)
        if number is None:
            found = immediate(operand)
            if found is None:
                raise PtxError(f"operand {operand} is not known")
            number = found[1]
            if found[0] == "s64" and kind in arithmetic.FLOATS:
                return np.broadcast_to(encode(np.array([float(number)]), kind), self.lanes)
        width = BYTES[kind]
        return np.full(self.lanes, number % (1 << 8 * width), f"u{width}")

    def write(self, operand: str, kind: str, values: np.ndarray, threads: Threads) -> None:
        """Put values of a type into a register."""
        self.write_bits(operand, encode(values, kind), threads, kind.startswith("s"))

    def write_bits(
        self, operand: str, bits: np.ndarray, threads: Threads, signed: bool = False
    ) -> None:
        """Put bits into a register, widened by their sign or by zeros."""
        if operand == "_":
            return
        register = self.registers[operand]
        if register.dtype != bits.dtype and register.dtype != bool:
            if signed:
                bits = bits.view(f"i{bits.dtype.itemsize}")
            bits = bits.astype(register.dtype)
        if threads.all:
            register[...] = bits
        else:
            np.copyto(register, bits, where=threads.mask)

    # Instructions

    def _label(self, instruction: Instruction) -> int:
        name = instruction.operands[0]
        assert isinstance(name, str)
        return self.kernel.labels[name]

    def _find_leaders(self) -> set[int]:
        leaders = {0, *(at for at in self.kernel.labels.values() if at < len(self._steps))}
        for position, instruction in enumerate(self.kernel.instructions):
            if instruction.opcode[0] in ("bra", "ret", "exit"):
                leaders.add(position + 1)
            elif (
                collective.is_of_warp(instruction)
                or collective.is_barrier(instruction)
                or bulk.is_wait(instruction)
            ):
                leaders |= {position, position + 1}
        return {at for at in leaders if at < len(self._steps)}

    def _guarded(self, instruction: Instruction, threads: Threads) -> Threads:
        if not instruction.guard:
            return threads
        condition = self.registers[instruction.guard.lstrip("!")]
        return threads.where(~condition if instruction.guard[0] == "!" else condition)

    def _compile(self, instruction: Instruction) -> Step:
        try:
            step = self._followed(instruction, self._step(instruction))
        except (PtxError, KeyError, ValueError, TypeError) as error:
            raise PtxError(
                f"{self.kernel.name}: can't run {instruction.text!r}: {error}"
            ) from error
        if not instruction.guard:
            return step

        def guarded(threads: Threads) -> None:
            threads = self._guarded(instruction, threads)
            if threads.mask.any():
                step(threads)

        return guarded

    def _followed(self, instruction: Instruction, step: Step) -> Step:
        """The step, which also notes that it touches registers of `wgmma`."""
        touched = self.warpgroups.touched(instruction)
        if not touched:
            return step

        def follow(threads: Threads) -> None:
            self.warpgroups.touch(touched, threads)
            step(threads)

        return follow

    def _step(self, instruction: Instruction) -> Step:
        base = instruction.opcode[0]
        if instruction.opcode[:2] == ("fence", "mbarrier_init"):
            return lambda threads: self.barriers.fence(threads.mask)
        if instruction.opcode[:3] == ("fence", "proxy", "async"):
            return lambda threads: self.memories["shared"].fence_proxy(threads.mask)
        if base in ("bra", "ret", "exit") or base in _NO_EFFECT:
            return lambda threads: None
        if base in ("ld", "ldu"):
            return self._load(instruction)
        if base == "st":
            return self._store(instruction)
        if base in ("atom", "red"):
            return self._atomic(instruction)
        if base in ("mov", "cvta"):
            return self._move(instruction)
        if base == "setp":
            return self._compare(instruction)
        step = collective.step(instruction, self)
        if step is not None:
            return step
        planned = arithmetic.plan(instruction.opcode)
        if planned is None:
            raise PtxError("the instruction is not known")
        result, kinds, function = planned
        target, *sources = instruction.operands
        assert isinstance(target, str)
        pairs = zip(sources, kinds, strict=True)
        readers = [self.source(str(operand), kind) for operand, kind in pairs]

        def compute(threads: Threads) -> None:
            self.write(target, result, function(*(read() for read in readers)), threads)

        return compute

    def _compare(self, instruction: Instruction) -> Step:
        opcode, (target, *sources) = instruction.opcode, instruction.operands
        kind = opcode[-1]
        a, b = (self.source(str(operand), kind) for operand in sources[:2])
        joined = self.source(str(sources[2]), "pred") if len(sources) > 2 else None
        first, _, second = str(target).partition("|")

        def run(threads: Threads) -> None:
            holds = arithmetic.compare(opcode[1], kind, a(), b())
            for name, value in ((first, holds), (second, ~holds)):
                if joined is not None:
                    value = _JOINED[opcode[2]](value, joined())
                if name:
                    self.write(name, "pred", value, threads)

        return run

    def _move(self, instruction: Instruction) -> Step:
        target, source = instruction.operands
        kind = instruction.opcode[-1]
        if kind not in ("pred", "b128"):
            kind = f"b{8 * BYTES[kind]}"
        if instruction.opcode[0] == "cvta":
            return self._convert_address(instruction)
        if isinstance(source, tuple):  # parts become one register
            width = BYTES[kind] // len(source)
            parts = [self.bits(name, f"b{8 * width}") for name in source]

            def pack(threads: Threads) -> None:
                words = np.stack([part.astype(f"u{width}") for part in parts], 1)
                self.write_bits(str(target), words.view(f"u{BYTES[kind]}")[:, 0], threads)

            return pack
        bits = self.bits(str(source), kind)
        if isinstance(target, tuple):
            width = BYTES[kind] // len(target)

            def unpack(threads: Threads) -> None:
                words = np.ascontiguousarray(bits).view(f"u{width}").reshape(self.lanes, -1)
                for i, name in enumerate(target):
                    self.write_bits(name, words[:, i].copy(), threads)

            return unpack
        return lambda threads: self.write_bits(str(target), bits, threads)

    def _convert_address(self, instruction: Instruction) -> Step:
        """Global addresses are generic as they are; those of other spaces lie elsewhere."""
        target, source = (str(operand) for operand in instruction.operands)
        bases = {"shared": SHARED_BASE, "local": LOCAL_BASE}
        base = next((bases[part] for part in instruction.opcode if part in bases), 0)
        change = np.uint64((-base if "to" in instruction.opcode else base) % (1 << 64))
        bits = self.bits(source, instruction.opcode[-1])
        return lambda threads: self.write_bits(target, bits.astype(np.uint64) + change, threads)

    # Memory

    def addresses(self, address: Address) -> Callable[[], np.ndarray]:
        """What computes an address of each thread as int64."""
        if address.base in self.constants:
            fixed = np.full(self.lanes, self.constants[address.base] + address.offset, np.int64)
            return lambda: fixed
        register = self.bits(address.base, "u64")
        return lambda: register.astype(np.int64) + address.offset

    def locate(
        self, space: str, at: np.ndarray, width: int, lanes: np.ndarray
    ) -> list[tuple[Memory, np.ndarray, np.ndarray]]:
        """(memory, which of the accesses, places in its data) of accesses in bounds."""
        if space == "generic":
            edges = np.array([GLOBAL_BASE, SHARED_BASE, LOCAL_BASE])
            number = np.searchsorted(edges, at, "right") - 1
            found = []
            for i, name in enumerate(("global", "shared", "local")):
                chosen = np.flatnonzero(number == i)
                if len(chosen):
                    base = edges[i] if name != "global" else 0
                    inner = self.locate(name, at[chosen] - base, width, lanes[chosen])
                    found += [(memory, chosen[which], places) for memory, which, places in inner]
            return found
        memory = self.memories["global" if space == "const" else space]
        copy = {"shared": self.of_block[lanes], "local": lanes}.get(space, 0)
        base = GLOBAL_BASE if memory is self.memories["global"] else 0
        right, places = memory.place(at - base, width, lanes, copy)
        return [(memory, np.flatnonzero(right), places)]

    def agents(self, memory: Memory, lanes: np.ndarray) -> np.ndarray:
        """By what number a memory knows the threads."""
        if memory is self.memories["global"]:
            number = self.block_numbers[self.of_block[lanes]]
            return (number * self.padded + lanes % self.padded).astype(np.int32)
        return lanes.astype(np.int32)

    def check(
        self, memory: Memory, places: np.ndarray, width: int, lanes: np.ndarray, how: str
    ) -> None:
        """Check and note accesses of `width` bytes: "read", "write" or "atomic"."""
        granules = memory.granules_of(places, width)
        if how != "write":
            memory.check_read(granules, lanes)
        if how != "read":
            memory.check_write(places, granules, lanes)
        if memory is not self.memories["local"] and memory.tracked(places):
            self.follow(memory, granules, lanes, how)

    def follow(self, memory: Memory, granules: np.ndarray, lanes: np.ndarray, how: str) -> None:
        """Note accesses of granules, (lanes, granules), and check whether they race."""
        agents = np.broadcast_to(self.agents(memory, lanes)[:, None], granules.shape)
        is_global = memory is self.memories["global"]
        self._used_global |= is_global
        groups = agents // (self.padded if is_global else WARP)
        race = np.zeros(granules.shape, bool)
        for accessors, who in ((memory.accessors, agents), (memory.groups, groups)):
            if how == "read":
                race |= accessors.read(granules, who)
            else:
                race |= accessors.write(granules, who, how == "atomic")
        if race.any():
            text = "read" if how == "read" else "written"
            self.report(
                "race", f"{text} beside another thread, no barrier between", lanes[race.any(1)]
            )

    def _count(self, memory: Memory, places: np.ndarray, width: int, lanes: np.ndarray) -> None:
        if not len(lanes) or memory is self.memories["local"]:
            return
        if memory is self.memories["global"]:
            self.traffic.note_global(places, width, lanes, self.of_block[lanes])
        else:
            self.traffic.note_shared(places, width, lanes)

    def _space(self, instruction: Instruction) -> str:
        return next((part for part in instruction.opcode if part in _CACHE_MODIFIERS), "generic")

    def read_memory(
        self, space: str, at: np.ndarray, width: int, count: int, lanes: np.ndarray
    ) -> np.ndarray:
        """(threads, count) elements of `width` bytes; poison where that is not allowed."""
        found = np.full((len(lanes), count), (1 << 8 * width) - 1, f"u{width}")
        for memory, which, places in self.locate(space, at, width * count, lanes):
            self.check(memory, places, width * count, lanes[which], "read")
            self._count(memory, places, width * count, lanes[which])
            for i in range(count):
                found[which, i] = memory.load(places, width, i)
        return found

    def write_memory(
        self, space: str, at: np.ndarray, width: int, values: np.ndarray, lanes: np.ndarray
    ) -> None:
        """The reverse."""
        count = values.shape[1]
        for memory, which, places in self.locate(space, at, width * count, lanes):
            self.check(memory, places, width * count, lanes[which], "write")
            self._count(memory, places, width * count, lanes[which])
            for i in range(count):
                memory.store(places, width, i, values[which, i])

    def _load(self, instruction: Instruction) -> Step:
        target, address = instruction.operands[:2]
        assert isinstance(address, Address)
        kind, space = instruction.opcode[-1], self._space(instruction)
        names = target if isinstance(target, tuple) else (str(target),)
        if space == "param":
            bits = self.bits(address.base, kind)
            return lambda threads: self.write_bits(names[0], bits, threads)
        addresses, width, signed = self.addresses(address), BYTES[kind], kind[0] == "s"

        def load(threads: Threads) -> None:
            lanes = threads.at
            found = self.read_memory(space, addresses()[lanes], width, len(names), lanes)
            for i, name in enumerate(names):
                bits = np.zeros(self.lanes, f"u{width}")
                bits[lanes] = found[:, i]
                self.write_bits(name, bits, threads, signed)

        return load

    def _store(self, instruction: Instruction) -> Step:
        address, source = instruction.operands[:2]
        assert isinstance(address, Address)
        kind, space = instruction.opcode[-1], self._space(instruction)
        names = source if isinstance(source, tuple) else (str(source),)
        addresses, width = self.addresses(address), BYTES[kind]
        sources = [self.bits(name, kind) for name in names]

        def store(threads: Threads) -> None:
            lanes = threads.at
            values = np.stack([bits[lanes].astype(f"u{width}") for bits in sources], 1)
            self.write_memory(space, addresses()[lanes], width, values, lanes)

        return store

    def _atomic(self, instruction: Instruction) -> Step:
        """One thread after the other, in their order."""
        opcode, operands = instruction.opcode, list(instruction.operands)
        target = str(operands.pop(0)) if opcode[0] == "atom" else "_"
        address, *sources = operands
        assert isinstance(address, Address)
        name = next(part for part in opcode[1:] if part in collective.ATOMIC)
        kind, width, space = opcode[-1], BYTES[opcode[-1]], self._space(instruction)
        addresses = self.addresses(address)
        bits = [self.bits(str(operand), kind) for operand in sources]

        def atomic(threads: Threads) -> None:
            lanes = threads.at
            before = np.zeros(self.lanes, f"u{width}")
            for memory, which, places in self.locate(space, addresses()[lanes], width, lanes):
                self.check(memory, places, width, lanes[which], "atomic")
                for lane, place in zip(lanes[which], places, strict=True):
                    at = np.array([place])
                    old = memory.load(at, width, 0)
                    values = [decode(array[lane : lane + 1], kind) for array in bits]
                    new = collective.ATOMIC[name](decode(old, kind), *values)
                    memory.store(at, width, 0, encode(new, kind))
                    before[lane] = old[0]
            self.write_bits(target, before, threads, dtype(kind).kind == "i")

        return atomic


_JOINED = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
