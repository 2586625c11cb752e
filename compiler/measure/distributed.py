"""Building and measuring on many machines, over Dask: the extra `distributed`.

    dask scheduler
    dask worker tcp://scheduler:8786 --nthreads 1 --resources "cpu-znver5=1"

Building goes to any worker. Measuring goes to a worker that has the target's device as a resource,
one measurement at a time for each unit of it. A worker that is lost costs nothing but time: Dask
gives its work to another one, or to the one that its nanny starts. The process that tunes writes
the records, from the results.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import BatonError
from ..records.measure_result import MeasureResult
from ..support.tempdir import TemporaryFolder
from .builder import LocalBuilder
from .candidate import BuildResult, Candidate
from .runner import LocalRunner, failed

_SECONDS_TO_CONNECT = 10
# Time for lost workers to be started again, when none is left.
_SECONDS_FOR_WORKERS = 60


def resource_of(target: Mapping[str, Any]) -> str:
    """Dask resource to measure for a target, such as "cpu-znver5" or "cuda-sm_90"."""
    kind = str(target["kind"])
    if kind == "llvm":
        return f"cpu-{target.get('mcpu', 'generic')}"
    return f"{kind}-{target.get('arch', target.get('model', 'any'))}"


def connect(
    address: str, builder: LocalBuilder, timing: Mapping[str, Any]
) -> tuple[DaskBuilder, DaskRunner]:
    """A builder and a runner that use the workers of a Dask scheduler.

    `address`: "tcp://host:port". `builder`: its limits hold on the workers. `timing`: arguments of
    `LocalRunner`, for the workers. Raises BatonError: Dask is not installed, or no scheduler
    answers.
    """
    if importlib.util.find_spec("distributed") is None:
        raise BatonError(
            "measuring on many machines needs Dask; install it with: "
            "pip install 'baton-tvm[distributed]'"
        )
    from distributed import Client

    try:
        client = Client(address, timeout=_SECONDS_TO_CONNECT)
    except (OSError, ValueError) as error:
        raise BatonError(f"no Dask scheduler answers at {address}: {error}") from error
    return DaskBuilder(client, builder), DaskRunner(client, timing)


class DaskBuilder:
    """Builds on any workers, within `builder`'s limits; libraries come back to this machine."""

    def __init__(self, client: Any, builder: LocalBuilder) -> None:
        self.client = client
        self.timeout, self.memory = builder.timeout, builder.memory
        self._folder = TemporaryFolder("measure")
        self._count = 0

    @property
    def n_parallel(self) -> int:
        """Builds at a time: threads of all workers."""
        return max(sum(self.client.nthreads().values()), 1)

    def build(self, candidates: Sequence[Candidate]) -> list[BuildResult]:
        """Build candidates; a failure is part of its result."""
        futures = [
            self.client.submit(_build_there, candidate, self.timeout, self.memory, pure=False)
            for candidate in candidates
        ]
        return [self._stored(*future.result()) for future in futures]

    def _stored(self, built: BuildResult, library: bytes) -> BuildResult:
        if built.error_no:
            return built
        self._count += 1
        path = Path(self._folder.name) / f"candidate{self._count}.so"
        path.write_bytes(library)
        return built._replace(path=str(path))

    def close(self) -> None:
        """Delete what was built."""
        self._folder.cleanup()
        self._folder = TemporaryFolder("measure")


class DaskRunner:
    """Runs candidates on workers with their target's device; `timing` is that of `LocalRunner`."""

    def __init__(self, client: Any, timing: Mapping[str, Any]) -> None:
        self.client = client
        self.timing = dict(timing)

    def run(self, candidates: Sequence[Any], builds: Sequence[BuildResult]) -> list[MeasureResult]:
        """Run what was built; failures are results. BatonError if no worker has the device.

        Where the scheduler has no worker at all, waits up to a minute for one.
        """
        futures: list[Any] = []
        for candidate, built in zip(candidates, builds, strict=True):
            if built.error_no:
                futures.append(None)
                continue
            resource = resource_of(candidate.target)
            self._check(resource)
            library = Path(built.path).read_bytes()
            futures.append(
                self.client.submit(
                    _run_there, candidate, built, library, self.timing,
                    resources={resource: 1}, pure=False,
                )
            )  # fmt: skip
        return [
            failed(built) if future is None else future.result()
            for future, built in zip(futures, builds)
        ]

    def _check(self, resource: str) -> None:
        workers = self._workers()
        if not any(resource in worker["resources"] for worker in workers):
            offered = sorted({name for worker in workers for name in worker["resources"]})
            raise BatonError(
                f"no Dask worker has the resource {resource!r} (there are: "
                f"{', '.join(offered) or 'none'}); start one with: "
                f'dask worker ADDRESS --nthreads 1 --resources "{resource}=1"'
            )

    def _workers(self) -> list[Mapping[str, Any]]:
        """The scheduler's workers; waits for one where all were lost or none has started."""
        deadline = time.monotonic() + _SECONDS_FOR_WORKERS
        while True:
            workers = list(self.client.scheduler_info(n_workers=-1)["workers"].values())
            if workers or time.monotonic() > deadline:
                return workers
            time.sleep(0.1)

    def close(self) -> None:
        """Nothing to end: the workers belong to whoever started them."""


# --- on the workers, each of which keeps its measuring processes warm ----------------------


@lru_cache(maxsize=4)
def _builder(timeout: float, memory: int) -> LocalBuilder:
    return LocalBuilder(timeout, n_parallel=1, memory=memory)


@lru_cache(maxsize=4)
def _runner(timing: tuple[tuple[str, Any], ...]) -> LocalRunner:
    return LocalRunner(**dict(timing))


def _build_there(candidate: Candidate, timeout: float, memory: int) -> tuple[BuildResult, bytes]:
    built = _builder(timeout, memory).build([candidate])[0]
    if built.error_no:
        return built, b""
    path = Path(built.path)
    library = path.read_bytes()
    path.unlink()
    return built, library


def _run_there(
    candidate: Candidate, built: BuildResult, library: bytes, timing: Mapping[str, Any]
) -> MeasureResult:
    with TemporaryFolder("measure") as folder:
        path = Path(folder) / "candidate.so"
        path.write_bytes(library)
        here = built._replace(path=str(path))
        return _runner(tuple(sorted(timing.items()))).run([candidate], [here])[0]
