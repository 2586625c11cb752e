"""How many threads TVM's kernels have that the calling thread runs."""

from __future__ import annotations

import os

import tvm_ffi

_SHARE_CPUS = -3  # TVM's mode in which a thread may run on any of the given CPUs


def configure(num_threads: int) -> None:
    """Give the calling thread a pool of workers of its own, itself one of `num_threads`.

    All of them may run on every CPU that the thread may run on. TVM's other modes bind the first
    thread of each pool to the first CPU, which the pools of all threads and processes would share.
    """
    cpus = [str(cpu) for cpu in sorted(os.sched_getaffinity(0))]
    tvm_ffi.get_global_func("runtime.config_threadpool")(_SHARE_CPUS, num_threads, cpus)
