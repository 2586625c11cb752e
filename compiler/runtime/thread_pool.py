"""How many threads TVM's kernels have that the calling thread runs."""

from __future__ import annotations

import os
from typing import Any

from compiler.errors import InputError
from compiler.tvm_workarounds.fast_import import tvm_ffi

MAX_THREADS = 1024
"""The largest number of threads of one request. TVM takes an int and starts each at once."""

_SHARE_CPUS = -3  # TVM's mode in which a thread may run on any of the given CPUs


def require_thread_count(name: str, value: Any, least: int = 1) -> int:
    """Return a number of threads; raise InputError unless it is an integer in range."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_THREADS:
        # Python prints no int of more than 4300 digits.
        is_long = isinstance(value, int) and value.bit_length() > 128
        shown = f"one of {value.bit_length()} bits" if is_long else f"{value!r:.60}"
        raise InputError(f"{name} must be an integer from {least} to {MAX_THREADS}, not {shown}")
    return value


def configure(num_threads: int) -> None:
    """Give the calling thread its own pool of workers, itself one of `num_threads`.

    All of them may run on every CPU that the thread may run on. TVM's other modes bind the first
    thread of each pool to the first CPU, which the pools of all threads and processes would share.
    """
    cpus = [str(cpu) for cpu in sorted(os.sched_getaffinity(0))]
    tvm_ffi.get_global_func("runtime.config_threadpool")(_SHARE_CPUS, num_threads, cpus)
