"""Measuring AutoTVM's candidates: `measure_option` and the names that scripts use for its parts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

from ..accepted import set_cuda_target_arch
from ..errors import BatonError
from ..measure.builder import LocalBuilder
from ..measure.candidate import BuildResult, Candidate, MeasureErrorNo, MeasureResult
from ..measure.rpc import RPCRunner, check_remote, request_remote
from ..measure.runner import LocalRunner
from ..records.autotvm.record import MeasureInput

__all__ = [
    "LocalBuilder",
    "LocalRunner",
    "MeasureErrorNo",
    "MeasureInput",
    "MeasureResult",
    "RPCRunner",
    "check_remote",
    "create_measure_batch",
    "measure",
    "measure_option",
    "release",
    "request_remote",
    "set_cuda_target_arch",
]


def measure_option(builder: Any = "local", runner: Any = "local") -> dict[str, Any]:
    """Who builds and who runs candidates, as `tuner.tune` takes it.

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
            raise BatonError(f"{name} {parts[name]!r} is not known; give 'local' or an object")
    return parts


def measure(option: dict[str, Any], candidates: Sequence[Candidate]) -> list[MeasureResult]:
    """Build and run candidates, and delete what was built."""
    builds = option["builder"].build(candidates)
    try:
        return option["runner"].run(candidates, builds)
    finally:
        release(builds)


def create_measure_batch(task: Any, option: dict[str, Any]) -> Callable[..., list[MeasureResult]]:
    """A function that measures a list of `MeasureInput`s of a task, for tuners of one's own.

    Its attribute `n_parallel` is how many are built at once.
    """
    from .task import TaskCandidate

    def measure_batch(inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        return measure(option, [TaskCandidate(task, each.config) for each in inputs])

    measure_batch.n_parallel = option["builder"].n_parallel  # type: ignore[attr-defined]
    return measure_batch


def release(builds: Sequence[BuildResult]) -> None:
    """Delete libraries that are not needed any more."""
    for built in builds:
        if built.path:
            with contextlib.suppress(OSError):
                os.unlink(built.path)
