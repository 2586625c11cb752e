"""Run built candidates on this machine, each in a worker process, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ..records.measure_result import MeasureResult
from ..support.scoped_context import Closing
from .builder import DEFAULT_MEMORY
from .candidate import FAILED_COST, BuildResult, Candidate, MeasureErrorNo, RunOptions
from .workers import Outcome, WorkerPool


class LocalRunner(Closing):
    """Times candidates on this machine.

    `ref_input`: values of all the kernel's arguments, instead of random ones. `timeout`: seconds
    for all runs of one candidate. `number`, `repeat`, `min_repeat_ms`, `enable_cpu_cache_flush`,
    `constant_bytes`: see `RunOptions`. `cooldown_interval`: seconds of rest after each candidate.
    `check_correctness`: compare results with the candidate's reference; a wrong one is
    `WRONG_ANSWER`. `memory`: bytes that a candidate may allocate; 0 for no limit.
    """

    n_parallel = 1

    def __init__(
        self,
        timeout: float = 10,
        number: int = 4,
        repeat: int = 3,
        min_repeat_ms: int = 0,
        cooldown_interval: float = 0.1,
        enable_cpu_cache_flush: bool = False,
        check_correctness: bool = False,
        memory: int = DEFAULT_MEMORY,
        constant_bytes: int = 0,
    ) -> None:
        self.timeout = timeout
        self.options = RunOptions(
            number,
            repeat,
            min_repeat_ms,
            enable_cpu_cache_flush,
            check_correctness,
            constant_bytes=constant_bytes,
        )
        self.cooldown_interval = cooldown_interval
        self.memory = memory
        self.ref_input: Sequence[np.ndarray] | None = None
        self._pool: WorkerPool | None = None

    def run(
        self, candidates: Sequence[Candidate], builds: Sequence[BuildResult]
    ) -> list[MeasureResult]:
        """Run what was built; a failure, also of the build, is part of the result."""
        if self._pool is None:
            self._pool = WorkerPool(self.n_parallel)
        futures = [
            None
            if built.error_no
            else self._pool.submit(
                self._worker_function(), self._arguments(candidate, built), self.timeout,
                self.memory,
                candidate.modules,
            )
            for candidate, built in zip(candidates, builds, strict=True)
        ]  # fmt: skip
        return [
            failed(built) if future is None else self._result(future.result(), built)
            for future, built in zip(futures, builds)
        ]

    def _worker_function(self) -> Callable[..., MeasureResult]:
        return _run_here

    def _arguments(self, candidate: Candidate, built: BuildResult) -> tuple:
        return (candidate, built, self.options, self.ref_input, self.cooldown_interval)

    def _result(self, outcome: Outcome, built: BuildResult) -> MeasureResult:
        if outcome.kind == "value":
            run: MeasureResult = outcome.value
            costs = run.costs or (FAILED_COST,)
            return replace(run, costs=costs, all_cost=built.seconds + run.all_cost)
        error, message, seconds = (
            MeasureErrorNo.RUNTIME_DEVICE,
            f"running: {outcome.kind}: {outcome.value}",
            0.0,
        )
        if outcome.kind == "timeout":
            error, seconds = MeasureErrorNo.RUN_TIMEOUT, self.timeout
            message = f"running took more than {self.timeout:g} s"
        return MeasureResult((FAILED_COST,), error, built.seconds + seconds, time.time(), message)

    def close(self) -> None:
        """End the worker processes."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def failed(built: BuildResult) -> MeasureResult:
    """The measurement of a candidate that was not built."""
    return MeasureResult((FAILED_COST,), built.error_no, built.seconds, time.time(), built.message)


def _run_here(
    candidate: Candidate,
    built: BuildResult,
    options: RunOptions,
    ref_input: Sequence[np.ndarray] | None,
    cooldown: float,
) -> MeasureResult:  # runs in a worker
    import tvm

    from ..runtime import cuda_runtime
    from .timing import time_kernel

    if candidate.device == "cuda":
        cuda_runtime.prepare()
    module = tvm.runtime.load_module(built.path)
    device = tvm.device(candidate.device)
    result = time_kernel(module, device, candidate, built.args, options, ref_input)
    time.sleep(cooldown)
    return result
