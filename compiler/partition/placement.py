"""The fastest engine for a model, by measurement: each back end alone, and the build's own kernels.

Every candidate is partitioned for one back end, built and timed end to end in worker processes, all
in turn. An engine that raises, crashes, hangs, takes too much memory or returns other results than
the build loses; the reason is in its `EngineTime`.
"""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import IRModule

from compiler.backends import get_partitioner
from compiler.errors import BatonError, PartitionError
from compiler.lowering.metadata import inputs_of
from compiler.measure.library_timing import MODULES, TimedModule, relay_operators, time_library
from compiler.measure.workers import WorkerPool
from compiler.pass_context import default_opt_level
from compiler.runtime.session import default_threads
from compiler.support.tempdir import TemporaryFolder
from compiler.target import parse, to_cli

from .candidates import Partitioning
from .explanation import BUILD

logger = logging.getLogger("baton.partition")

_SLOW = 3.0  # times the fastest: measured once only
_LARGEST_ERROR = 0.05  # of an engine's results, relative to the largest magnitude of the build's


@dataclass(frozen=True)
class Fastest:
    """Settings of `partition(..., placement=Fastest(...))`; "fastest" means the defaults."""

    target: str = "llvm"  # CPU to compile for, as `relay.build` takes it; it is this machine's
    threads: int | None = None  # of every engine; `TVM_NUM_THREADS`, else this process's CPUs
    seconds: float = 0.2  # length of one measurement of one engine
    rounds: int = 5  # measurements of each engine, taken in turn
    timeout: float = 600.0  # seconds to build and measure one engine
    memory: int = 16 << 30  # bytes that one engine may allocate


@dataclass(frozen=True)
class EngineTime:
    """Measurements of a model with one back end, which leaves the rest to the build."""

    engine: str  # "baton" is the build alone
    seconds: tuple[float, ...]  # of one inference, the median of each measurement
    error: str = ""  # why there are no seconds

    @property
    def median(self) -> float:
        """Median seconds; infinity for an engine that failed."""
        return statistics.median(self.seconds) if not self.error else math.inf

    def __str__(self) -> str:
        return f"{self.engine} {self.error or f'{self.median * 1e3:.3f} ms'}"


def fastest(
    names: Sequence[str],
    params: Mapping[str, Any],
    how: Fastest,
    partitioned: Callable[[Sequence[str]], Partitioning],
) -> Partitioning:
    """Measure a module with each back end and with none; the fastest one, with its `measured`.

    `partitioned`: the module, partitioned for some of the back ends. Raises PartitionError: the
    target is not a CPU, an input has dynamic extents, or no engine runs the model.
    """
    target = parse(how.target)
    if str(target.kind.name) != "llvm":
        raise PartitionError(f"placement is measured on the CPU; the target is {how.target!r}")
    made = {name: partitioned([name]) for name in names}
    made = {name: d for name, d in made.items() if any(each.accepted for each in d.candidates)}
    made = {BUILD: partitioned(()), **made}
    for info in inputs_of(made[BUILD].module):
        if not info.is_static and info.name not in params:
            raise PartitionError(f"{info}: placement is measured at known shapes; give --shape")
    threads = str(how.threads or default_threads())
    arrays = {
        name: value.numpy() if hasattr(value, "numpy") else value for name, value in params.items()
    }
    settings = {"TVM_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
    with TemporaryFolder("placement") as folder, WorkerPool(1, settings) as pool:
        timed = {
            name: _timed(name, made[name].module, arrays, to_cli(target), f"{folder}/{number}.so")
            for number, name in enumerate(made)
        }
        ranked = sorted(_measured(timed, how, pool), key=lambda each: each.median)
    if ranked[0].error:
        raise PartitionError(f"no engine runs the model: {'; '.join(map(str, ranked))}")
    return replace(made[ranked[0].engine], measured=tuple(ranked))


def _timed(
    name: str, mod: IRModule, params: Mapping[str, np.ndarray], target: str, path: str
) -> TimedModule:
    """A module as workers take it, built as the thread's PassContext has it."""
    with default_opt_level():
        context = tvm.transform.PassContext.current()
    engines = () if name == BUILD else (get_partitioner(name),)
    own = "compiler.backends."
    others = (e for e in engines if not str(getattr(e.compile, "__module__", "")).startswith(own))
    text, operators = tvm.ir.save_json(mod), relay_operators(mod)
    return TimedModule(text, operators, params, target, context, tuple(others), path)


def _measured(timed: Mapping[str, TimedModule], how: Fastest, pool: WorkerPool) -> list[EngineTime]:
    """Times of the engines, taken in turn; the build comes first, to compare with."""
    times: dict[str, list[float]] = {name: [] for name in timed}
    errors: dict[str, str] = {}
    expected: Sequence[np.ndarray] = ()
    limits = how.timeout, how.memory, MODULES
    for turn in range(how.rounds):
        least = min((min(each) for each in times.values() if each), default=math.inf)
        for name, module in timed.items():
            if name in errors or (turn and times[name][0] > _SLOW * least):
                continue
            try:
                kind, value = pool.submit(time_library, (module, how.seconds), *limits).result()
            except BatonError as error:  # its callbacks can't be sent
                kind, value = "raised", str(error)
            if kind != "value":
                errors[name] = f"{kind}: {value or f'after {how.timeout:g} s'}"
                logger.warning("placement: %s fails: %s", name, errors[name])
                continue
            times[name].append(statistics.median(value[0]))
            if name == BUILD and not turn:
                expected = value[1]
            elif not turn and (difference := _difference(value[1], expected)):
                errors[name] = difference
    return [EngineTime(name, tuple(times[name]), errors.get(name, "")) for name in timed]


def _difference(outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> str:
    """How an engine's results differ from the build's; "" where they agree, or it has none."""
    for number, (found, wanted) in enumerate(zip(outputs, expected)):
        if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
            return (
                f"output {number} is {found.dtype}{found.shape}, not {wanted.dtype}{wanted.shape}"
            )
        if wanted.dtype.kind != "f" or not wanted.size or not np.isfinite(wanted).all():
            continue
        scale = max(float(np.abs(wanted).max()), float(np.finfo("float32").tiny))
        error = float(np.abs(found.astype("float64") - wanted).max()) / scale
        if not error <= _LARGEST_ERROR:
            return f"output {number} differs from the build's by {error:.1e} of its magnitude"
    return ""
