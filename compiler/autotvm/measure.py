"""Measuring AutoTVM's candidates: `measure_option` and the names that scripts use for its parts."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import BatonError
from ..measure.builder import LocalBuilder
from ..measure.candidate import BuildResult, Candidate, MeasureErrorNo
from ..measure.rpc import RPCRunner as RPCRunner
from ..measure.rpc import check_remote as check_remote
from ..measure.rpc import request_remote as request_remote
from ..measure.runner import LocalRunner
from ..records.autotvm.record import MeasureInput
from ..records.measure_result import MeasureResult
from ..records.untrusted_json import mean_seconds
from ..support.noop_api import set_cuda_target_arch as set_cuda_target_arch

measure_methods = sys.modules[__name__]  # the module of TVM that defined them


class _Part:
    """Base of user-defined builders and runners.

    `timeout`: seconds for one candidate.
    `n_parallel`: candidates at a time; by default the number of CPUs available to this process.
    """

    def __init__(self, timeout: float = 10, n_parallel: int | None = None) -> None:
        self.timeout = timeout
        self.n_parallel = n_parallel or len(os.sched_getaffinity(0))
        self.task: Any = None

    def set_task(self, task: Any, *_: Any) -> None:
        """Set the task of the following candidates."""
        self.task = task


class Builder(_Part):
    """Base of a builder: `build` makes libraries of candidates."""

    def build(self, measure_inputs: Sequence[Any]) -> list[Any]:
        """One result for each candidate, which has a `task`, a `target` and a `config`."""
        raise NotImplementedError


class Runner(_Part):
    """Base of a runner: `run` measures what was built."""

    def get_build_kwargs(self) -> dict[str, Any]:
        """Options for the builder."""
        return {}

    def run(self, measure_inputs: Sequence[Any], build_results: Sequence[Any]) -> list[Any]:
        """One MeasureResult for each candidate, which has a `task`, a `target` and a `config`."""
        raise NotImplementedError


def measure_option(builder: Any = "local", runner: Any = "local") -> dict[str, Any]:
    """Choose the builder and the runner for `tuner.tune`.

    Parameters
    ----------
    builder : LocalBuilder or "local"
    runner : LocalRunner, RPCRunner or "local"

    Raises
    ------
    BatonError
        Either is a string other than "local".
    """
    parts = {"builder": builder, "runner": runner}
    for name, make in (("builder", LocalBuilder), ("runner", LocalRunner)):
        if parts[name] == "local":
            parts[name] = make()
        elif isinstance(parts[name], str):
            raise BatonError(f"unknown {name} {parts[name]!r}; give 'local' or an object")
    return parts


def measure_batch(option: dict[str, Any], candidates: Sequence[Candidate]) -> list[MeasureResult]:
    """Build and run candidates, and delete what was built."""
    builds = option["builder"].build(candidates)
    try:
        return [as_measured(each) for each in option["runner"].run(candidates, builds)]
    finally:
        release(builds)


def as_measured(result: Any) -> MeasureResult:
    """Convert a result from a log or a user-defined runner; times of 0 or less are a failure."""
    known = result.error_no in MeasureErrorNo._value2member_map_
    error = MeasureErrorNo(result.error_no) if known else MeasureErrorNo.UNKNOWN_ERROR
    if mean_seconds(result.costs, error) == math.inf and not error:
        error = MeasureErrorNo.UNKNOWN_ERROR
    message = getattr(result, "error_msg", "")
    return MeasureResult(result.costs, error, result.all_cost, result.timestamp, message)


def set_task(option: dict[str, Any], task: Any) -> None:
    """Set the task of user-defined builders and runners."""
    for part in option.values():
        if isinstance(part, _Part):
            part.set_task(task)


def create_measure_batch(task: Any, option: dict[str, Any]) -> Callable[..., list[MeasureResult]]:
    """Make a function that measures `MeasureInput`s of a task, for user-defined tuners.

    Its attribute `n_parallel` is the number of parallel builds.
    """
    from .task import TaskCandidate

    def measure_inputs(inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        return measure_batch(option, [TaskCandidate(task, each.config) for each in inputs])

    measure_inputs.n_parallel = option["builder"].n_parallel  # type: ignore[attr-defined]
    return measure_inputs


def release(builds: Sequence[BuildResult]) -> None:
    """Delete libraries that are not needed any more."""
    for built in builds:
        if getattr(built, "path", ""):  # a user-defined builder may return other objects
            with contextlib.suppress(OSError):
                os.unlink(built.path)
