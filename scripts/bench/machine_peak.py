"""What this machine can do at best: multiply-adds from registers, bytes from memory, its clock."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

# Enough independent chains to hide the latency of a multiply-add (4 cycles, 2 a cycle), few
# enough for 16 registers.
_CHAINS = 12
_STEPS = 200_000
_TILE_STEPS = 20_000
_READ_BYTES = 1 << 28
_REPEATS, _REPEATS_OF_READING = 50, 7


def peak_gflops(target: Any, threads: int, chains: int = _CHAINS) -> float:
    """10^9 float32 operations per second of `threads` threads (TVM_NUM_THREADS at TVM's start).

    The vector width is the LLVM target's; `chains` multiply-adds do not wait for each other.
    """
    lanes = _lanes(target)
    return 2.0 * _rate(target, threads, "float32", lanes, lambda x, a, b: x * a + b, chains)


def peak_of(instruction: str, target: Any, threads: int) -> float | None:
    """10^9 operations per second of an instruction, two for each product that is added.

    None for an instruction that `schedules.x86.machine.instructions` or the target does not have.
    """
    from tvm.script import tirx as T

    from schedules.x86.machine import amx
    from schedules.x86.machine.dot_product import (
        has_bfloat16,
        narrow_lanes,
        vnni_lanes,
        widened_lanes,
    )
    from schedules.x86.machine.instructions import (
        BF16,
        FMA,
        INTRINSICS,
        MADD,
        MADD_BYTES,
        PRODUCTS,
        VNNI,
    )

    if instruction == FMA:
        return peak_gflops(target, threads)
    if instruction in amx.INSTRUCTIONS.values():
        return _tile_rate(instruction, target, threads)
    lanes = {
        VNNI: vnni_lanes(target),
        MADD: widened_lanes(target),
        MADD_BYTES: narrow_lanes(target),
        BF16: 16 if has_bfloat16(target) else 0,
    }.get(instruction, 0)
    if not lanes:
        return None
    width = {16: r"\.512", 8: r"\.256|avx2\.", 4: r"sse2\.|ssse3\."}[lanes]
    names = [each for each, known in INTRINSICS.items() if known == instruction]
    (name,) = (each for each in names if re.search(width, each))
    numbers = "float32" if instruction == BF16 else "int32"
    octets, words = f"int8x{4 * lanes}", f"int16x{2 * lanes}"
    parts = {VNNI: octets, MADD_BYTES: octets, MADD: words, BF16: f"uint16x{2 * lanes}"}
    adds = instruction in (VNNI, BF16)

    def step(sums: Any, a: Any, b: Any) -> Any:
        pairs = [T.reinterpret(each, dtype=parts[instruction]) for each in (a, b)]
        # What adds nothing has its result as an operand of the next.
        operands = (
            [sums, *pairs] if adds else [T.reinterpret(sums, dtype=parts[instruction]), pairs[1]]
        )
        number, dtype = T.llvm_lookup_intrinsic_id(name), f"{numbers}x{lanes}"
        if instruction != MADD_BYTES:
            return T.call_llvm_pure_intrin(number, *operands, dtype=dtype)
        return T.reinterpret(T.call_llvm_pure_intrin(number, *operands, dtype=words), dtype=dtype)

    return 2.0 * PRODUCTS[instruction] * _rate(target, threads, numbers, lanes, step)


def _tile_rate(instruction: str, target: Any, threads: int) -> float | None:
    """10^9 operations per second of products of tiles that come from L1: two by two of them."""
    import tvm
    from tvm import s_tir
    from tvm.script import tirx as T

    from schedules.x86.machine import amx

    (dot,) = (dot for dot, name in amx.INSTRUCTIONS.items() if name == instruction)
    if not amx.multiplies(dot, target):
        return None
    rows, columns = amx.PAIR * amx.TILE_ROWS, amx.PAIR * amx.TILE_COLUMNS
    tiles, k, size = amx.PAIR, amx.steps_of(dot) // dot.size, dot.size
    of_sums, of_data, of_weights = dot.sums, dot.data, dot.weight

    @T.prim_func(s_tir=True)
    def run(a: T.handle, b: T.handle, c: T.handle) -> None:
        T.func_attr({"global_symbol": "run"})
        data = T.match_buffer(a, (rows, k * size), of_data)
        weights = T.match_buffer(b, (tiles, k, amx.TILE_COLUMNS, size), of_weights)
        sums = T.match_buffer(c, (threads, rows, columns), of_sums)
        for thread in T.parallel(threads):
            for step, i, j, group, part in T.grid(_TILE_STEPS, rows, columns, k, size):
                with T.sblock("multiply"):
                    vt, vi, vj = T.axis.remap("SSS", [thread, i, j])
                    _, vg, vp = T.axis.remap("RRR", [step, group, part])
                    with T.init():
                        sums[vt, vi, vj] = T.cast(0, of_sums)
                    sums[vt, vi, vj] = sums[vt, vi, vj] + T.cast(
                        data[vi, vg * size + vp], of_sums
                    ) * T.cast(
                        weights[vj // amx.TILE_COLUMNS, vg, vj % amx.TILE_COLUMNS, vp], of_sums
                    )

    sch = s_tir.Schedule(run)
    block = sch.get_sblock("multiply")
    amx.by_tiles(sch, block, sch.get_loops(block)[1])
    shapes = ((rows, k * size), (tiles, k, amx.TILE_COLUMNS, size), (threads, rows, columns))
    operands = [
        tvm.runtime.empty(shape, dtype)
        for shape, dtype in zip(shapes, (of_data, of_weights, of_sums))
    ]
    products = threads * _TILE_STEPS * rows * columns * k * size
    return 2.0 * products / _seconds(sch.mod["main"], target, *operands) / 1e9


def _rate(
    target: Any,
    threads: int,
    dtype: str,
    lanes: int,
    step: Callable[[Any, Any, Any], Any],
    chains: int = _CHAINS,
) -> float:
    """10^9 lanes per second that go through `step(sums, a, b)`.

    Each thread runs `chains` of them, independent of each other, on registers alone.
    """
    import tvm
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def run(first: T.handle, second: T.handle) -> None:
        T.func_attr({"global_symbol": "run"})
        factors = T.match_buffer(first, (2, lanes), dtype)
        out = T.match_buffer(second, (threads, chains, lanes), dtype)
        for thread in T.parallel(threads):
            sums = T.alloc_buffer((chains, lanes), dtype)
            for chain in T.unroll(chains):
                for lane in T.vectorized(lanes):
                    sums[chain, lane] = factors[0, lane]
            for _ in T.serial(_STEPS):
                for chain in T.unroll(chains):
                    sums[chain, T.ramp(0, 1, lanes)] = step(
                        sums[chain, T.ramp(0, 1, lanes)],
                        factors[0, T.ramp(0, 1, lanes)],
                        factors[1, T.ramp(0, 1, lanes)],
                    )
            for chain in T.unroll(chains):
                for lane in T.vectorized(lanes):
                    out[thread, chain, lane] = sums[chain, lane]

    factors = tvm.runtime.tensor(np.full((2, lanes), 0.5).astype(dtype))
    out = tvm.runtime.tensor(np.zeros((threads, chains, lanes), dtype))
    return threads * _STEPS * chains * lanes / _seconds(run, target, factors, out) / 1e9


def gigahertz(target: Any) -> float:
    """The clock of one core while it multiplies: a multiply-add that waits for the one before.

    How many cycles it waits is what the table (`schedules.x86.machine.cpu_models`) says of the CPU.
    """
    from schedules.x86.machine.cpu import Machine

    per_second = peak_gflops(target, 1, chains=1) / (2 * _lanes(target))
    return per_second * Machine.from_target(target).core.fma_latency


def memory_gbytes(target: Any, threads: int) -> float:
    """10^9 bytes per second that `threads` threads read from memory, not from caches."""
    import tvm
    from tvm.script import tirx as T

    lanes = _lanes(target)
    rows = _READ_BYTES // 4 // lanes // _CHAINS // threads

    @T.prim_func(s_tir=True)
    def read(first: T.handle, second: T.handle) -> None:
        T.func_attr({"global_symbol": "read"})
        data = T.match_buffer(first, (threads, rows, _CHAINS, lanes), "float32")
        out = T.match_buffer(second, (threads, _CHAINS, lanes), "float32")
        for thread in T.parallel(threads):
            sums = T.alloc_buffer((_CHAINS, lanes), "float32")
            for chain in T.unroll(_CHAINS):
                for lane in T.vectorized(lanes):
                    sums[chain, lane] = T.float32(0)
            for row in T.serial(rows):
                for chain in T.unroll(_CHAINS):
                    for lane in T.vectorized(lanes):
                        sums[chain, lane] = sums[chain, lane] + data[thread, row, chain, lane]
            for chain in T.unroll(_CHAINS):
                for lane in T.vectorized(lanes):
                    out[thread, chain, lane] = sums[chain, lane]

    data = tvm.runtime.tensor(np.ones((threads, rows, _CHAINS, lanes), "float32"))
    out = tvm.runtime.tensor(np.zeros((threads, _CHAINS, lanes), "float32"))
    seconds = _seconds(read, target, data, out, repeats=_REPEATS_OF_READING)
    return 4.0 * threads * rows * _CHAINS * lanes / seconds / 1e9


def _lanes(target: Any) -> int:
    from schedules.x86.machine.cpu import Machine

    return Machine.from_target(target).vector_bits // 32


def _seconds(func: Any, target: Any, *operands: Any, repeats: int = _REPEATS) -> float:
    """The least of a kernel's times is what the machine can do; others share it."""
    import tvm

    from compiler.lowering.kernel_passes.pipeline import PIPELINE

    mod = tvm.IRModule({func.attrs["global_symbol"]: func.with_attr("target", target)})
    library = tvm.tirx.build(mod, target=target, pipeline=PIPELINE)
    kernel = library[str(func.attrs["global_symbol"])]
    timed = library.time_evaluator(str(func.attrs["global_symbol"]), tvm.cpu(), repeat=repeats)
    kernel(*operands)
    return float(min(timed(*operands).results))
