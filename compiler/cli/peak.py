"""What this machine can do at best: multiply-adds from registers, bytes from memory, its clock."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

# Enough independent chains to hide the latency of a multiply-add (4 cycles, 2 a cycle), few
# enough for 16 registers.
_CHAINS = 12
_STEPS = 200_000
_READ_BYTES = 1 << 28
_REPEATS = 7


def peak_gflops(target: Any, threads: int, chains: int = _CHAINS) -> float:
    """10^9 floating-point operations per second, float32, of `threads` threads.

    Each thread runs `chains` vector multiply-adds per step, on registers alone.

    Parameters
    ----------
    target : tvm.target.Target
        An LLVM target; its vector width is used.
    threads : int
        As TVM_NUM_THREADS was when TVM started its threads.
    chains : int
        Multiply-adds that do not wait for each other; with one, the latency decides.
    """
    import tvm
    from tvm.script import tirx as T

    lanes = _lanes(target)

    @T.prim_func(s_tir=True)
    def multiply_add(first: T.handle, second: T.handle) -> None:
        T.func_attr({"global_symbol": "multiply_add"})
        factors = T.match_buffer(first, (2, lanes), "float32")
        out = T.match_buffer(second, (threads, chains, lanes), "float32")
        for thread in T.parallel(threads):
            sums = T.alloc_buffer((chains, lanes), "float32")
            for chain in T.unroll(chains):
                for lane in T.vectorized(lanes):
                    sums[chain, lane] = factors[0, lane]
            for _ in T.serial(_STEPS):
                for chain in T.unroll(chains):
                    for lane in T.vectorized(lanes):
                        sums[chain, lane] = sums[chain, lane] * factors[0, lane] + factors[1, lane]
            for chain in T.unroll(chains):
                for lane in T.vectorized(lanes):
                    out[thread, chain, lane] = sums[chain, lane]

    factors = tvm.runtime.tensor(np.full((2, lanes), 0.5, "float32"))
    out = tvm.runtime.tensor(np.zeros((threads, chains, lanes), "float32"))
    seconds = _seconds(multiply_add, target, factors, out)
    return 2.0 * threads * _STEPS * chains * lanes / seconds / 1e9


def gigahertz(target: Any) -> float:
    """The clock of one core while it multiplies: a multiply-add that waits for the one before.

    How many cycles it waits is what the table (`schedules.x86.cores`) says of the CPU.
    """
    from schedules.x86.machine import Machine

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
    return 4.0 * threads * rows * _CHAINS * lanes / _seconds(read, target, data, out) / 1e9


def _lanes(target: Any) -> int:
    from schedules.x86.machine import Machine

    return Machine.from_target(target).vector_bits // 32


def _seconds(func: Any, target: Any, *operands: Any) -> float:
    """The fastest tenth of a kernel's times is what the machine can do; others share it."""
    import tvm

    library = tvm.tirx.build(tvm.IRModule({func.attrs["global_symbol"]: func}), target=target)
    kernel = library[str(func.attrs["global_symbol"])]
    timed = library.time_evaluator(str(func.attrs["global_symbol"]), tvm.cpu(), repeat=_REPEATS)
    kernel(*operands)
    return statistics.quantiles(timed(*operands).results, n=10)[0]
