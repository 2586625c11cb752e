"""`wgmma`: a warpgroup multiplies matrices in shared memory while its threads go on.

Where the descriptors' matrices lie is written in the section "Matrix Descriptor" and "Canonical
Layouts" of NVIDIA's "Parallel Thread Execution ISA", and again in comments of CUTLASS's
mma_traits_sm90_gmma.hpp. Results are in the registers at once; what the asynchronous execution
forbids until a wait covers it is looked after here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tests.ptx import tensor_cores
from tests.ptx.memory import Memory
from tests.ptx.numbers import decode, encode
from tests.ptx.program import BYTES, Instruction, PtxError

if TYPE_CHECKING:
    from tests.ptx.machine import Machine, Step, Threads

WARP, WARPGROUP = 32, 128
ROWS = 64
K_BYTES = 32
CHUNK = 16
_SPANS = (0, 128, 64, 32)
"""Bytes within which chunks are swizzled, by the two bits of a descriptor."""
_UNKNOWN_BITS = 3 << 14 | 3 << 30 | 7 << 46 | 1023 << 52
Vector = tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """A matrix in shared memory, for some warpgroups: arrays of a descriptor's fields in bytes."""

    start: np.ndarray
    leading: np.ndarray
    stride: np.ndarray
    base: np.ndarray
    mode: np.ndarray
    unknown: np.ndarray

    @classmethod
    def of(cls, descriptors: np.ndarray) -> Layout:
        """Take apart 64-bit descriptors."""
        d = descriptors.astype(np.uint64)

        def field(first: int, bits: int) -> np.ndarray:
            return (d >> np.uint64(first) & np.uint64((1 << bits) - 1)).astype(np.int64)

        unknown = (d & np.uint64(_UNKNOWN_BITS)) != 0
        parts = (field(0, 14) << 4, field(16, 14) << 4, field(32, 14) << 4)
        return cls(*parts, field(49, 3), field(62, 2), unknown)

    def chunks(self, rows: int, is_k_major: bool) -> np.ndarray:
        """Addresses of all 16-byte chunks of 32 bytes of k (16 lines of k where not K-major).

        (warpgroups, rows, 2) where chunks lie along k, else (warpgroups, 16, rows / 8).
        """
        span = np.array(_SPANS)[self.mode][:, None, None]
        start, leading, stride = (
            each[:, None, None] for each in (self.start, self.leading, self.stride)
        )
        if is_k_major:
            row, chunk = np.arange(rows)[:, None], np.arange(2)
            in_row = np.where(span == 0, chunk * leading, chunk * CHUNK)
            at = row // 8 * stride + row % 8 * np.where(span == 0, CHUNK, span) + in_row
        else:
            line, chunk = np.arange(K_BYTES // 2)[:, None], np.arange(rows // 8)
            per_span = np.maximum(span // CHUNK, 1)
            plain = chunk * stride + line // 8 * leading + line % 8 * CHUNK
            swizzled = chunk // per_span * leading + chunk % per_span * CHUNK
            swizzled = swizzled + line // 8 * stride + line % 8 * span
            at = np.where(span == 0, plain, swizzled)
        address = start + at
        # Bits 4 to 6 of an address are changed by bits 7 to 9, as many as the span has.
        return address ^ ((address >> 7 & np.maximum(span // CHUNK, 1) - 1) << 4)

    def misplaced(self, is_k_major: bool) -> np.ndarray:
        """Which of the descriptors do not begin, or go on, where their swizzle allows it."""
        span = np.array(_SPANS)[self.mode]
        pattern = np.maximum(8 * span, 1)
        within = self.start % pattern
        room = span - K_BYTES if is_k_major else 0
        wrong = (within > room) | (self.stride % pattern != 0)
        if not is_k_major:
            wrong |= self.leading % pattern != 0
        return self.unknown | (span > 0) & wrong


@dataclass(frozen=True)
class _Flying:
    """Products that one instruction has started, for some warpgroups."""

    shape: str
    sums: Vector
    a: Vector
    first: np.ndarray  # of each warpgroup the first lane
    group: np.ndarray
    granules: np.ndarray  # (warpgroups, granules): of shared memory


class Warpgroups:
    """Products in flight, and registers that need a `wgmma.fence` before their next use."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        names = [i for i in machine.kernel.instructions if i.opcode[:2] == ("wgmma", "mma_async")]
        self.is_used = bool(names)
        vectors = {each for i in names for each in i.operands[:2] if isinstance(each, tuple)}
        self._unfenced = {each: np.ones(machine.lanes, bool) for each in vectors}
        self._in_flight = {each: np.zeros(machine.lanes, bool) for each in vectors}
        self._of: dict[str, list[Vector]] = {}
        for vector in vectors:
            for name in vector:
                self._of.setdefault(name, []).append(vector)
        self._committed = np.zeros(machine.lanes, np.int64)
        self._flying: list[_Flying] = []
        lane = np.arange(machine.lanes)
        self.number = lane // machine.padded * -(-machine.padded // WARPGROUP)
        self.number += lane % machine.padded // WARPGROUP
        if self.is_used:
            machine.memories["shared"].follow_proxies()

    def forget(self) -> None:
        """Other blocks begin."""
        self._committed[:] = 0
        self._flying.clear()
        for vector in self._unfenced:
            self._unfenced[vector][:] = True
            self._in_flight[vector][:] = False

    def touched(self, instruction: Instruction) -> list[Vector]:
        """Sums and fragments of `wgmma` that another instruction reads or writes."""
        if instruction.opcode[0] == "wgmma" or not self.is_used:
            return []
        found: set[Vector] = set()
        for operand in instruction.operands:
            names = operand if isinstance(operand, tuple) else (getattr(operand, "base", operand),)
            found.update(vector for name in names for vector in self._of.get(str(name), ()))
        return sorted(found)

    def touch(self, vectors: Sequence[Vector], threads: Threads) -> None:
        """Threads read or write registers: not while `wgmma` does, and a fence must follow."""
        for vector in vectors:
            early = self._in_flight[vector] & threads.mask
            if early.any():
                text = "a register of wgmma is touched before wgmma.wait_group covers it"
                self._machine.report("in flight", text, np.flatnonzero(early))
            self._unfenced[vector] |= threads.mask

    def absent(self, mask: np.ndarray) -> np.ndarray:
        """Threads whose warpgroup is not complete in a mask, apart from those that have left."""
        late = np.zeros(int(self.number[-1]) + 1, bool)
        late[self.number[self._machine.alive & ~mask]] = True
        return late[self.number]

    def _whole(self, threads: Threads) -> np.ndarray:
        """First lanes of the warpgroups that are there with all of their threads."""
        counts = np.bincount(self.number[threads.at], minlength=int(self.number[-1]) + 1)
        partial = threads.mask & (counts[self.number] < WARPGROUP)
        if partial.any():
            text = "not all 128 threads of a warpgroup run it together"
            self._machine.report("divergence", text, np.flatnonzero(partial))
        first = np.searchsorted(self.number, np.flatnonzero(counts == WARPGROUP))
        return first.astype(np.int64)

    def fence(self, threads: Threads) -> None:
        """`wgmma.fence`: registers that were touched before may be used."""
        self._whole(threads)
        for mask in self._unfenced.values():
            mask &= ~threads.mask

    def commit(self, threads: Threads) -> None:
        """Make a group of the products started since the last commit."""
        self._whole(threads)
        self._committed[threads.mask] += 1

    def wait(self, threads: Threads, allowed: int) -> None:
        """Wait until each warpgroup has at most this many groups in flight."""
        self._whole(threads)
        still = []
        for each in self._flying:
            done = threads.mask[each.first]
            done = done & (each.group < self._committed[each.first] - allowed)
            if done.any():
                self._finish(each, done)
            if not done.all():
                still.append(_some(each, ~done))
        self._flying = still
        for vector in self._in_flight:
            self._in_flight[vector][:] = False
        for each in still:
            self._mark(each)

    def _mark(self, each: _Flying) -> None:
        lanes = (each.first[:, None] + np.arange(WARPGROUP)).reshape(-1)
        for vector in (each.sums, each.a):
            if vector:
                self._in_flight[vector][lanes] = True

    def _finish(self, each: _Flying, done: np.ndarray) -> None:
        memory = self._machine.memories["shared"]
        assert memory.reading is not None
        np.subtract.at(memory.reading, each.granules[done].reshape(-1), 1)
        self._note_reads(memory, each.granules[done], each.first[done])

    def _note_reads(self, memory: Memory, granules: np.ndarray, first: np.ndarray) -> None:
        """Record reads by all threads of the warpgroups; the first and last stand for them."""
        for lanes in (first, first + WARPGROUP - 1):
            memory.check_read(granules, lanes)
            if memory.races:
                self._machine.follow(memory, granules, lanes, "read")

    def multiply(self, instruction: Instruction, sums: Vector, a: Vector, threads: Threads):
        """Begin an instruction: check its registers; the warpgroups, by their first lanes."""
        machine = self._machine
        first = self._whole(threads)
        lanes = np.zeros(machine.lanes, bool)
        lanes[(first[:, None] + np.arange(WARPGROUP)).reshape(-1)] = True
        for vector in (sums, a):
            if vector and (self._unfenced[vector] & lanes).any():
                text = "no wgmma.fence since its registers were touched"
                machine.report("fence", text, np.flatnonzero(self._unfenced[vector] & lanes))
        shape = instruction.opcode[4]
        for each in self._flying:
            same = np.isin(each.first, first)
            if not same.any() or (each.sums == sums and each.shape == shape):
                continue
            if set(each.sums) & {*sums, *a} or set(each.a) & set(sums):
                text = "a register of another wgmma in flight"
                machine.report("in flight", text, each.first[same])
        return first

    def start(
        self, shape: str, sums: Vector, a: Vector, first: np.ndarray, granules: np.ndarray
    ) -> None:
        """Have shared memory and registers in flight."""
        memory = self._machine.memories["shared"]
        assert memory.reading is not None
        each = _Flying(shape, sums, a, first, self._committed[first].copy(), granules)
        np.add.at(memory.reading, granules.reshape(-1), 1)
        self._flying.append(each)
        self._mark(each)

    def read(self, descriptors: np.ndarray, first: np.ndarray, rows: int, is_k_major: bool):
        """The matrix of each warpgroup as bytes, and its granules of shared memory."""
        machine, memory = self._machine, self._machine.memories["shared"]
        at = descriptors[first[:, None] + np.arange(WARPGROUP)]
        different = (at != at[:, :1]).any(1)
        if different.any():
            text = "threads of a warpgroup have different descriptors"
            machine.report("divergence", text, first[different])
        layout = Layout.of(at[:, 0])
        if layout.base.any():
            raise PtxError("of descriptors only those with base offset 0 are known")
        wrong = layout.misplaced(is_k_major)
        if wrong.any():
            text = "the descriptor's addresses or offsets do not fit its swizzle"
            machine.report("alignment", text, first[wrong])
        addresses = layout.chunks(rows, is_k_major)
        lines, chunks = addresses.shape[1:]
        lanes = np.repeat(first, lines * chunks)
        found = np.full((len(lanes), CHUNK), 0xFF, np.uint8)
        granules = np.zeros((len(lanes), CHUNK // memory.granule), np.int64)
        for _, which, places in machine.locate("shared", addresses.reshape(-1), CHUNK, lanes):
            granules[which] = memory.granules_of(places, CHUNK)
            found[which] = memory.data[places[:, None] + np.arange(CHUNK)]
        granules = granules.reshape(len(first), -1)
        self._note_reads(memory, granules, first)
        self._check_proxy(memory, granules, first)
        return found.reshape(len(first), lines, chunks * CHUNK), granules

    def _check_proxy(self, memory: Memory, granules: np.ndarray, first: np.ndarray) -> None:
        assert memory.proxy is not None
        writer = memory.proxy[granules]
        unfenced = ((writer >= 0) & (writer % 2 == 0)).any(1)
        if unfenced.any():
            text = "read by wgmma, and no fence.proxy.async by the thread that wrote it"
            self._machine.report("proxy", text, first[unfenced])
        early = ((writer >= 0) & (writer % 2 == 1)).any(1)
        if early.any():
            text = "read by wgmma, and no barrier after the writer's fence.proxy.async"
            self._machine.report("proxy", text, first[early])


def _some(each: _Flying, which: np.ndarray) -> _Flying:
    return replace(
        each, first=each.first[which], group=each.group[which], granules=each.granules[which]
    )


def step(instruction: Instruction, machine: Machine) -> Step:
    """Function that executes a `wgmma` instruction."""
    kind = instruction.opcode[1]
    if instruction.opcode[2:4] != ("sync", "aligned"):
        raise PtxError("wgmma must be .sync.aligned")
    if kind == "fence":
        return machine.warpgroups.fence
    if kind == "commit_group":
        return machine.warpgroups.commit
    if kind == "wait_group":
        allowed = int(str(instruction.operands[0]))
        return lambda threads: machine.warpgroups.wait(threads, allowed)
    if kind == "mma_async":
        return _multiply(instruction, machine)
    raise PtxError(f"wgmma.{kind} is not known")


_KNOWN = {
    ("f32", "f16", "f16"): 16,
    ("f32", "bf16", "bf16"): 16,
    ("f32", "tf32", "tf32"): 8,
    **{("s32", a, b): 32 for a in ("s8", "u8") for b in ("s8", "u8")},
}


def _multiply(instruction: Instruction, machine: Machine) -> Step:
    opcode, operands = instruction.opcode, list(instruction.operands)
    kinds = opcode[5:]
    rows, columns, k = tensor_cores.shape(opcode)
    steps = 8 if kinds[0] == "f32" or columns <= 32 else 16
    if _KNOWN.get(kinds) != k or rows != ROWS or not 8 <= columns <= 256 or columns % steps:
        raise PtxError("the shape, or the types, are not known")
    sums, left, right, scale = operands[:4]
    assert isinstance(sums, tuple)
    if len(sums) != columns // 2:
        raise PtxError(f"m64n{columns} has {columns // 2} sums in a thread, not {len(sums)}")
    numbers = [int(str(each)) for each in operands[4:]]
    fragments = left if isinstance(left, tuple) else ()
    transposes = [0, 0]
    if BYTES[kinds[1]] == 2:
        count = 1 if fragments else 2
        transposes = [0, *numbers[2:]][-2:]
        numbers, found = numbers[:2], len(numbers) - 2
        if found != count:
            raise PtxError(f"{count} of its operands say which matrices are transposed")
    signs = numbers if kinds[0] == "f32" else [1, 1]
    if len(numbers) != (2 if kinds[0] == "f32" else 0) or {abs(sign) for sign in signs} != {1}:
        raise PtxError("operands are missing, or not 1 or -1")
    keeps = machine.source(str(scale), "pred")
    descriptors = [None if fragments else machine.bits(str(left), "b64")]
    descriptors.append(machine.bits(str(right), "b64"))
    row, column = _places(columns)
    groups = machine.warpgroups
    shape = opcode[4]

    def matrix(which: int, first: np.ndarray, granules: list[np.ndarray]) -> np.ndarray:
        """(warpgroups, rows or columns, k)."""
        is_k_major = not transposes[which]
        bits = descriptors[which]
        assert bits is not None
        found, read = groups.read(bits, first, (rows, columns)[which], is_k_major)
        granules.append(read)
        values = _values(found, kinds[1 + which])
        return values if is_k_major else values.swapaxes(1, 2)

    def run(threads: Threads) -> None:
        first = groups.multiply(instruction, sums, fragments, threads)
        if not len(first):
            return
        lanes = first[:, None] + np.arange(WARPGROUP)
        granules: list[np.ndarray] = []
        if fragments:
            words = [machine.bits(name, "b32")[lanes].reshape(-1, WARP) for name in fragments]
            a = tensor_cores.fragment_of_a(words, kinds[1], k).reshape(len(first), ROWS, k)
        else:
            a = matrix(0, first, granules)
        b = matrix(1, first, granules)
        total = signs[0] * signs[1] * (a @ b.swapaxes(1, 2))
        kept = keeps()[lanes]
        if (kept != kept[:, :1]).any():
            machine.report("divergence", "threads of a warpgroup have different scale-d", first)
        for at, name in enumerate(sums):
            register = machine.bits(name, "b32")
            before = np.where(
                kept, decode(register[lanes].reshape(-1), kinds[0]).reshape(lanes.shape), 0
            )
            value = total[:, row[at], column[at]] + before
            register[lanes] = encode(value.reshape(-1), kinds[0]).reshape(lanes.shape)
        groups.start(shape, sums, fragments, first, np.concatenate(granules, 1))

    return run


def _values(found: np.ndarray, kind: str) -> np.ndarray:
    bits = np.ascontiguousarray(found).view(f"u{BYTES[kind]}")
    wide = np.float64 if kind[0] in "fbt" else np.int64
    return decode(bits.reshape(-1), kind).astype(wide).reshape(bits.shape)


def _places(columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each sum, (sums of a thread, 128 threads)."""
    register, thread = np.arange(columns // 2)[:, None], np.arange(WARPGROUP)
    row = thread // WARP * 16 + thread % WARP // 4 + register // 2 % 2 * 8
    column = register // 4 * 8 + thread % 4 * 2 + register % 2
    return row, column
