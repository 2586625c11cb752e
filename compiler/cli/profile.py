"""`baton profile`: how long each kernel of a model takes, and what it makes of that time."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.runtime.debugger.stopwatch import RUNTIME, Stopwatch

from .compile import BuildOptions
from .console import Steps, show, table
from .models import devices_of, random_inputs
from .run import open_library

if TYPE_CHECKING:
    import numpy as np

    from compiler.lowering.report import Report
    from compiler.runtime import FactoryModule


@dataclass(frozen=True)
class KernelTime:
    """One kernel's part of an inference."""

    name: str  # name, operators, implementation, source: as in the build's report
    operators: list[str]
    implementation: str
    source: str
    shapes: list[str]  # shapes of its operands, then of its results: "1x4x56x56x16"
    calls: int  # calls in one inference
    milliseconds: float  # of all its calls in one inference; the median over the inferences
    share: float  # of the time of all kernels and the runtime, 0 to 1
    gflops: float | None  # 10^9 floating-point operations per second; None where they are unknown
    gbytes: float  # 10^9 bytes of operands and results per second; 0 where the report has no count
    # operands, instruction: what it multiplies, and with which instruction, as in the build's
    # report
    operands: str = ""
    instruction: str = ""
    nodes: list[str] = field(default_factory=list)  # of the model, as in the build's report


@dataclass(frozen=True)
class Profile:
    """Where the time of an inference goes, the slowest kernel first."""

    model: str
    target: str
    milliseconds: float  # median time of an inference without measuring its kernels
    repeats: int  # inferences whose kernels were measured
    kernels: list[KernelTime]
    # Calls of the last inference, as `Stopwatch.trace_events` has them
    events: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers; `trace` has the events."""
        return asdict(replace(self, events=[]))

    def trace(self) -> dict[str, Any]:
        """The last inference in the JSON format of Chrome's traces, which Perfetto opens."""
        named = {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": self.model}}
        return {"traceEvents": [named, *self.events], "displayTimeUnit": "ms"}


def gflops_of(kernel: KernelTime) -> str:
    """10^9 floating-point operations per second, for tables; nothing where there are none."""
    if kernel.gflops is None:
        return "unknown"
    return f"{kernel.gflops:.1f}" if kernel.gflops else ""


def profile_model(
    model: Path, repeats: int, seed: int, options: BuildOptions, steps: Steps
) -> Profile:
    """Load a library or build a model file, and measure its kernels on random inputs.

    Raises LoadError, FrontendError, BuildError: the library, the model or its build is at fault.
    """
    library = open_library(model, options, steps)
    inputs = random_inputs(library.metadata.inputs, seed, options.extents)
    with steps.step("measure", f"{repeats} inferences"):
        return profile_library(library, inputs, repeats, model.name)


def profile_library(
    library: FactoryModule, inputs: Mapping[str, np.ndarray], repeats: int, name: str
) -> Profile:
    """Measure each kernel of a library in `repeats` inferences, after one that does not count."""
    devices = devices_of(library)
    executor = library[library.libmod_name](devices)
    executor.set_input(inputs)
    whole = [_milliseconds(executor, devices) for _ in range(repeats + 1)][1:]
    stopwatch = Stopwatch(devices)
    executor.set_instrument(stopwatch)
    runs = []
    for _ in range(repeats + 1):
        stopwatch.start()
        executor.run()
        runs.append((dict(stopwatch.seconds), dict(stopwatch.calls)))
    report = _report_of(library)
    return Profile(
        name,
        str(library.metadata.target),
        statistics.median(whole),
        repeats,
        _kernel_times(runs[1:], stopwatch.shapes, report),
        stopwatch.trace_events(report.to_json()["kernels"], stopwatch.began),
    )


def show_profile(profile: Profile) -> None:
    """Print a line per kernel and the total."""
    from compiler.lowering.report import names_in_short

    rows = [
        (
            kernel.name,
            kernel.implementation,
            kernel.source,
            names_in_short(kernel.nodes),
            kernel.calls,
            f"{kernel.milliseconds:.3f}",
            f"{kernel.share:.1%}",
            gflops_of(kernel),
            f"{kernel.gbytes:.1f}" if kernel.gbytes else "",
        )
        for kernel in profile.kernels
    ]
    header = (
        *("kernel", "implementation", "schedule from", "nodes"),
        *("calls", "ms", "share", "GFLOP/s", "GB/s"),
    )
    title = f"{profile.model} on {profile.target}, medians of {profile.repeats} inferences"
    show(
        table(header, rows, title=title, numbers=5, wide=("schedule from", "GB/s")),
        f"one inference takes {profile.milliseconds:.3f} ms; measured kernel by kernel "
        f"{sum(kernel.milliseconds for kernel in profile.kernels):.3f} ms",
    )


def _milliseconds(executor: Any, devices: Sequence[Any]) -> float:
    start = time.perf_counter()
    executor.run()
    for device in devices:
        device.sync()
    return (time.perf_counter() - start) * 1e3


def _kernel_times(
    runs: Sequence[tuple[Mapping[str, float], Mapping[str, int]]],
    shapes: Mapping[str, list[str]],
    report: Report,
) -> list[KernelTime]:
    """Medians over the runs, slowest first."""
    from compiler.lowering.report import Kernel

    kernels = {kernel.name: kernel for kernel in report.kernels}
    calls: dict[str, int] = defaultdict(int)
    for symbol, count in runs[0][1].items():
        calls[symbol if symbol in kernels else RUNTIME] += count
    per_run: dict[str, list[float]] = {name: [] for name in calls}
    for seconds, _ in runs:
        totals = dict.fromkeys(calls, 0.0)
        for symbol, spent in seconds.items():
            totals[symbol if symbol in kernels else RUNTIME] += spent
        for name, total in totals.items():
            per_run[name].append(total)
    medians = {name: statistics.median(times) for name, times in per_run.items()}
    whole = sum(medians.values()) or 1.0
    times = []
    for name, spent in sorted(medians.items(), key=lambda item: -item[1]):
        kernel = kernels.get(name) or Kernel(name, [], "", "", "", flops=0)
        rate = calls[name] / spent / 1e9 if spent else 0.0
        times.append(
            KernelTime(
                *(name, list(kernel.operators), kernel.implementation, kernel.source),
                shapes[name] if name in kernels else [],
                *(calls[name], spent * 1e3, spent / whole),
                None if kernel.flops is None else kernel.flops * rate,
                kernel.bytes * rate,
                *(kernel.operands, kernel.instruction, list(kernel.nodes)),
            )
        )
    return times


def _report_of(library: FactoryModule) -> Report:
    """The report of a library's build, also of one that was loaded."""
    from compiler.lowering.report import Report

    report = library.report
    return report if isinstance(report, Report) else Report.from_json(report)
