"""How a search measures: the options that scripts pass to `task.tune` and `TaskScheduler.tune`."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import RecordError
from ...measure import builder as measure_builder
from ...measure import rpc, runner
from ...measure.candidate import BuildResult
from ...records.measure_pair import MeasureInput, MeasureResult
from .callbacks import PythonBasedMeasureCallback
from .candidate import Built, as_candidate, device_kind

DEFAULT_TRIALS_PER_ROUND = 64


class LocalBuilder(measure_builder.LocalBuilder):
    """Builds candidates on this machine, with Ansor's defaults; see `compiler.measure`."""

    def __init__(
        self,
        timeout: float = 15,
        n_parallel: int | None = None,
        build_func: Any = "default",
        memory: int = measure_builder.DEFAULT_MEMORY,
    ) -> None:
        super().__init__(timeout, n_parallel, build_func, memory)

    def build(self, candidates: Sequence[Any]) -> list[BuildResult]:
        """Build candidates, or `MeasureInput`s; a failure is part of its result."""
        return super().build([as_candidate(each) for each in candidates])


class _RunsInputs(runner.LocalRunner):
    """A runner that takes `MeasureInput`s too, which run on their task's own operands."""

    def run(self, candidates: Sequence[Any], builds: Sequence[BuildResult]) -> list[Any]:
        """Run what was built of candidates, or of `MeasureInput`s."""
        results: list[Any] = []
        pairs = zip(candidates, builds, strict=True)
        for task, group in itertools.groupby(pairs, lambda pair: _task_of(pair[0])):
            given, built = zip(*group)
            if task is None:
                results += super().run(given, built)
            else:
                results += self._run_inputs(task, given, built)
        return results

    def _run_inputs(
        self, task: Any, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]
    ) -> list[MeasureResult]:
        outer, self.ref_input = self.ref_input, task.operand_values
        try:
            measured = super().run([Built(device_kind(task.target))] * len(inputs), builds)
        finally:
            self.ref_input = outer
        return [
            MeasureResult(each.costs, each.error_no, each.error_msg, each.all_cost, each.timestamp)
            for each in measured
        ]


def _task_of(given: Any) -> Any:
    return given.task if isinstance(given, MeasureInput) else None


class LocalRunner(_RunsInputs):
    """Times candidates on this machine, with Ansor's defaults; see `compiler.measure`."""

    def __init__(
        self,
        timeout: float = 10,
        number: int = 3,
        repeat: int = 1,
        min_repeat_ms: int = 100,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        device: int = 0,
        memory: int = measure_builder.DEFAULT_MEMORY,
        constant_bytes: int = 0,
    ) -> None:
        _refuse_other(device)
        if enable_cpu_cache_flush:
            number, min_repeat_ms = 1, 0
        super().__init__(
            timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush,
            memory=memory, constant_bytes=constant_bytes,
        )  # fmt: skip


class RPCRunner(_RunsInputs, rpc.RPCRunner):
    """Times candidates on a tracker's devices, with Ansor's defaults; see `compiler.measure`."""

    def __init__(
        self,
        key: str,
        host: str,
        port: int,
        priority: int = 1,
        n_parallel: int | None = 1,
        timeout: float = 10,
        number: int = 3,
        repeat: int = 1,
        min_repeat_ms: int = 100,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        device: int = 0,
    ) -> None:
        _refuse_other(device)
        super().__init__(
            key, host, port, priority, timeout, n_parallel, number, repeat, min_repeat_ms,
            cooldown_interval, enable_cpu_cache_flush,
        )  # fmt: skip


class LocalRPCMeasureContext:
    """An RPC tracker and a server on this machine, and a runner that measures through them.

    Attributes
    ----------
    runner : RPCRunner
    """

    def __init__(
        self,
        priority: int = 1,
        n_parallel: int = 1,
        timeout: float = 10,
        number: int = 3,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        device: int = 0,
    ) -> None:
        _refuse_other(device)
        from tvm.rpc.server import Server
        from tvm.rpc.tracker import Tracker

        key = f"baton-{os.getpid()}-{time.monotonic_ns()}"
        self.tracker = Tracker("127.0.0.1", port=9000, port_end=10000, silent=True)
        self.server = Server(
            host="127.0.0.1",
            port=self.tracker.port,
            port_end=10000,
            key=key,
            silent=True,
            tracker_addr=("127.0.0.1", self.tracker.port),
        )
        _wait_for(key, self.tracker.port)
        self.runner = RPCRunner(
            key, "127.0.0.1", self.tracker.port, priority, n_parallel, timeout, number, repeat,
            min_repeat_ms, cooldown_interval, enable_cpu_cache_flush,
        )  # fmt: skip

    def close(self) -> None:
        """End the server, the tracker and the runner's worker processes."""
        self.runner.close()
        self.server.terminate()
        self.tracker.terminate()

    def __del__(self) -> None:
        if hasattr(self, "runner"):
            self.close()


def _refuse_other(device: int) -> None:
    """Candidates run on the first device of their kind."""
    if device != 0:
        raise RecordError(f"device={device}: candidates run on device 0 of their target")


def _wait_for(key: str, port: int, seconds: float = 10) -> None:
    from tvm import rpc

    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        known = rpc.connect_tracker("127.0.0.1", port).summary()["server_info"]
        if any(str(info["key"]) == f"server:{key}" for info in known):
            return
        time.sleep(0.05)
    raise RecordError("the RPC server on this machine did not start in 10 s")


@dataclass
class TuningOptions:
    """Budget and callbacks of a search.

    Attributes
    ----------
    num_measure_trials : int
        Candidates to measure, of all tasks together.
    early_stopping : int or None
        Stop after this many trials without an improvement.
    max_seconds : float or None
        Start no measurement round after this time.
    num_measures_per_round : int
        Candidates that are measured before the cost model learns from them.
    verbose : int
        0 is silent; 1 prints a table after each round.
    builder, runner : object or "local"
    measure_callbacks : sequence of callables
        Get lists of `Record`, as `RecordToFile` does.

    Raises
    ------
    RecordError
        A value that can't be.
    """

    num_measure_trials: int = 0
    early_stopping: int | None = None
    num_measures_per_round: int = DEFAULT_TRIALS_PER_ROUND
    verbose: int = 1
    builder: Any = "local"
    runner: Any = "local"
    measure_callbacks: Sequence[Callable[[list[Any]], None]] | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        for name, make in (("builder", LocalBuilder), ("runner", LocalRunner)):
            given = getattr(self, name)
            if given == "local":
                setattr(self, name, make())
            elif isinstance(given, str):
                raise RecordError(f"{name} {given!r} is not known; give 'local' or an object")
        if self.num_measure_trials < 0 or self.num_measures_per_round < 1:
            raise RecordError("num_measure_trials and num_measures_per_round count candidates")
        callbacks = self.measure_callbacks
        self.measure_callbacks = [callbacks] if callable(callbacks) else list(callbacks or ())

    def report(self, records: list[Any], policy: Any = None) -> None:
        """Hand records to the callbacks; a `PythonBasedMeasureCallback` is told the policy."""
        for callback in (self.measure_callbacks or ()) if records else ():
            if isinstance(callback, PythonBasedMeasureCallback):
                callback(records, policy)
            else:
                callback(records)

    def close(self) -> None:
        """End the worker processes of builder and runner; they start again when needed."""
        for part in (self.builder, self.runner):
            close = getattr(part, "close", None)
            if close is not None:
                close()
