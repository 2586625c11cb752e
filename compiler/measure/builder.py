"""Builds candidates into libraries, in worker processes of this machine."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import BatonError
from ..support.scoped_context import Closing
from ..support.tempdir import TemporaryFolder
from .candidate import BuildResult, Candidate, InstantiationError, Lowered, MeasureErrorNo
from .workers import Outcome, WorkerPool

GIB = 1 << 30
DEFAULT_MEMORY = 4 * GIB


class LocalBuilder(Closing):
    """Builds on this machine, several candidates side by side.

    `timeout`: seconds for one build. `n_parallel`: builds at a time, by default this process's
    CPUs. `build_func`: "default" makes a shared library with TVM's C++ compiler; a callable gets
    (Lowered, path without suffix) in the worker process and returns the path that it wrote;
    BatonError for another string. `memory`: bytes that a build may allocate; 0 for no limit.
    `do_fork`, `runtime`: no effect.
    """

    def __init__(
        self,
        timeout: float = 10,
        n_parallel: int | None = None,
        build_func: str | Callable[[Lowered, str], str] = "default",
        memory: int = DEFAULT_MEMORY,
        do_fork: bool = True,
        runtime: Any = None,
    ) -> None:
        if isinstance(build_func, str):
            if build_func != "default":
                raise BatonError(
                    f"build_func {build_func!r} is not known; give 'default' or a function of "
                    "(Lowered, path without suffix) that returns the path it wrote"
                )
            build_func = shared_library
        self.timeout = timeout
        self.n_parallel = n_parallel or len(os.sched_getaffinity(0))
        self.build_func = build_func
        self.memory = memory
        self._pool: WorkerPool | None = None
        self._folder: TemporaryFolder | None = None
        self._count = 0

    def build(self, candidates: Sequence[Candidate]) -> list[BuildResult]:
        """Build candidates; a failure is part of its result."""
        if self._pool is None:
            self._pool = WorkerPool(self.n_parallel)
            self._folder = TemporaryFolder("measure")
        assert self._folder is not None
        futures = []
        for candidate in candidates:
            self._count += 1
            path = os.path.join(self._folder.name, f"candidate{self._count}")
            futures.append(
                self._pool.submit(
                    _build,
                    (candidate, path, self.build_func),
                    self.timeout,
                    self.memory,
                    candidate.modules,
                )
            )
        return [self._result(future.result()) for future in futures]

    def _result(self, outcome: Outcome) -> BuildResult:
        if outcome.kind == "value":
            return outcome.value
        if outcome.kind == "timeout":
            message = f"building took more than {self.timeout:g} s"
            return BuildResult("", (), MeasureErrorNo.BUILD_TIMEOUT, message, self.timeout)
        error = MeasureErrorNo.COMPILE_HOST
        if outcome.kind == "died":
            error = MeasureErrorNo.RUNTIME_DEVICE  # what TVM's logs say of a builder that died
        return BuildResult("", (), error, f"building: {outcome.kind}: {outcome.value}", 0.0)

    def close(self) -> None:
        """End the worker processes and delete what they built."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _build(
    candidate: Candidate, path: str, write: Callable[[Lowered, str], str]
) -> BuildResult:  # runs in a worker
    start = time.perf_counter()

    def failed(error_no: MeasureErrorNo, error: BaseException) -> BuildResult:
        lines = (str(error).strip() or type(error).__name__).splitlines()
        message = f"{type(error).__name__}: {lines[-1]}"
        return BuildResult("", (), error_no, message, time.perf_counter() - start)

    try:
        lowered = candidate.lower()
    except MemoryError:
        raise
    except Exception as error:  # whatever a user's template raises is its refusal of the config
        return failed(MeasureErrorNo.INSTANTIATION_ERROR, error)
    try:
        written = write(lowered, path)
    except MemoryError:
        raise
    except InstantiationError as error:
        return failed(MeasureErrorNo.INSTANTIATION_ERROR, error)
    except Exception as error:
        on_device = lowered.target.kind.name != "llvm" and "nvcc" in str(error).lower()
        kind = MeasureErrorNo.COMPILE_DEVICE if on_device else MeasureErrorNo.COMPILE_HOST
        return failed(kind, error)
    seconds = time.perf_counter() - start
    return BuildResult(written, lowered.args, MeasureErrorNo.NO_ERROR, "", seconds)


def shared_library(lowered: Lowered, path: str) -> str:
    """Generate code for a kernel and link it. Returns the path of the library, `path` + ".so"."""
    import tvm

    from ..lowering.kernel_passes.pipeline import PIPELINE
    from ..target.nvcc import device_code

    with lowered.target, device_code():
        built: Any = tvm.tirx.build(lowered.mod, lowered.target, pipeline=PIPELINE)
    os.mkdir(path)  # TVM's own choice would outlive a kill
    try:
        built.export_library(path + ".so", workspace_dir=path)
    finally:
        shutil.rmtree(path)
    return path + ".so"
