"""`baton profile`: how long each kernel of a model takes, and what it makes of that time."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from .compile import BuildOptions
from .console import Steps, show, table
from .devices import devices_of
from .files import write_text
from .kernel_times import RUNTIME, KernelTime, Profile, gflops_of, report_of
from .models import random_inputs
from .run import open_library

if TYPE_CHECKING:
    import numpy as np

    from compiler.lowering.report import Report
    from compiler.runtime import FactoryModule

# The picture, in pixels.
_ROW, _BAR, _LEFT, _BARS, _RIGHT, _TOP = 22, 16, 300, 480, 330, 46
_KINDS = {"conv2d": ("conv2d",), "dense": ("dense", "matmul")}
"""Kinds of kernels, by what the name of one of their operators contains."""
_ColorS = {"conv2d": "#3b6ea5", "dense": "#a5623b", "other": "#6b8f5e", RUNTIME: "#999999"}


def profile_model(
    model: Path,
    repeats: int,
    seed: int,
    options: BuildOptions,
    steps: Steps,
) -> Profile:
    """Load a library or build a model file, and measure its kernels on random inputs.

    Raises
    ------
    LoadError, FrontendError, BuildError
        The library, the model or its build is at fault.
    """
    library = open_library(model, options, steps)
    inputs = random_inputs(library.metadata.inputs, seed)
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
    stopwatch = _Stopwatch(devices)
    executor.set_instrument(stopwatch)
    runs = []
    for _ in range(repeats + 1):
        stopwatch.start()
        executor.run()
        runs.append((dict(stopwatch.seconds), dict(stopwatch.calls)))
    return Profile(
        name,
        str(library.metadata.target),
        statistics.median(whole),
        repeats,
        _kernel_times(runs[1:], stopwatch.shapes, report_of(library)),
    )


def show_profile(profile: Profile) -> None:
    """Print a line per kernel and the total."""
    rows = [
        (
            kernel.name,
            kernel.implementation,
            kernel.source,
            kernel.calls,
            f"{kernel.milliseconds:.3f}",
            f"{kernel.share:.1%}",
            gflops_of(kernel),
            f"{kernel.gbytes:.1f}" if kernel.gbytes else "",
        )
        for kernel in profile.kernels
    ]
    header = (
        *("kernel", "implementation", "schedule from"),
        *("calls", "ms", "share", "GFLOP/s", "GB/s"),
    )
    title = f"{profile.model} on {profile.target}, medians of {profile.repeats} inferences"
    show(
        table(header, rows, title=title, numbers=5),
        f"one inference takes {profile.milliseconds:.3f} ms; measured kernel by kernel "
        f"{sum(kernel.milliseconds for kernel in profile.kernels):.3f} ms",
    )


def write_picture(profile: Profile, path: Path) -> None:
    """Write the profile as a bar chart, SVG.

    Raises
    ------
    ExportError
        The file can't be written.
    """
    write_text(path, picture(profile))


def picture(profile: Profile) -> str:
    """An SVG document: one bar per kernel, its length the time, its color the kind."""
    width = _LEFT + _BARS + _RIGHT
    height = _TOP + _ROW * len(profile.kernels) + 12
    longest = max((kernel.milliseconds for kernel in profile.kernels), default=0.0) or 1.0
    title = (
        f"{profile.model}: {profile.milliseconds:.3f} ms per inference, median of {profile.repeats}"
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="12" y="26" font-size="15">{escape(title)}</text>',
    ]
    for index, kernel in enumerate(profile.kernels):
        top = _TOP + index * _ROW
        length = max(1.0, _BARS * kernel.milliseconds / longest)
        base = top + _BAR - 3
        lines += [
            f"<g><title>{escape(_hover(kernel))}</title>",
            f'<text x="{_LEFT - 8}" y="{base}" text-anchor="end">{_short(kernel.name)}</text>',
            f'<rect x="{_LEFT}" y="{top}" width="{length:.1f}" height="{_BAR}" '
            f'fill="{_ColorS[_kind(kernel)]}"/>',
            f'<text x="{_LEFT + length + 6:.1f}" y="{base}">{escape(_label(kernel))}</text></g>',
        ]
    return "\n".join([*lines, "</svg>", ""])


class _Stopwatch:
    """What the virtual machine calls before and after each of its calls.

    Attributes
    ----------
    seconds, calls : dict of str
        Of each function since `start`, by symbol.
    shapes : dict of str to list of str
        Of the tensors that each function was first called with.
    """

    def __init__(self, devices: Sequence[Any]) -> None:
        self._accelerators = [device for device in devices if device.type != "cpu"]
        self.shapes: dict[str, list[str]] = {}
        self.start()

    def start(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._began: list[float] = []

    def __call__(self, _: Any, symbol: str, before: bool, __: Any, *arguments: Any) -> int:
        if before:
            if symbol not in self.shapes:
                self.shapes[symbol] = _shapes(arguments)
            self._began.append(time.perf_counter())
            return 0
        for device in self._accelerators:
            device.sync()
        self.seconds[symbol] += time.perf_counter() - self._began.pop()
        self.calls[symbol] += 1
        return 0


def _shapes(arguments: Sequence[Any]) -> list[str]:
    import tvm

    tensors = [value for value in arguments if isinstance(value, tvm.runtime.Tensor)]
    return ["x".join(map(str, value.shape)) or "scalar" for value in tensors]


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
        kernel = kernels.get(name)
        rate = calls[name] / spent / 1e9 if kernel and spent else 0.0
        times.append(
            KernelTime(
                name,
                list(kernel.operators) if kernel else [],
                kernel.implementation if kernel else "",
                kernel.source if kernel else "",
                shapes[name] if kernel else [],
                calls[name],
                spent * 1e3,
                spent / whole,
                _rate(kernel.flops, rate) if kernel else 0.0,
                kernel.bytes * rate if kernel else 0.0,
                kernel.operands if kernel else "",
                kernel.instruction if kernel else "",
            )
        )
    return times


def _rate(flops: int | None, rate: float) -> float | None:
    return None if flops is None else flops * rate


def _kind(kernel: KernelTime) -> str:
    if kernel.name == RUNTIME:
        return RUNTIME
    for kind, names in _KINDS.items():
        if any(name in operator for operator in kernel.operators for name in names):
            return kind
    return "other"


def _short(name: str) -> str:
    return escape(name if len(name) <= 40 else name[:37] + "...")


def _label(kernel: KernelTime) -> str:
    parts = [f"{kernel.milliseconds:.3f} ms", f"{kernel.share:.1%}"]
    if kernel.gflops:
        parts.append(f"{kernel.gflops:.0f} GFLOP/s")
    elif kernel.gbytes:
        parts.append(f"{kernel.gbytes:.1f} GB/s")
    return "  ".join([*parts, kernel.source])


def _hover(kernel: KernelTime) -> str:
    what = " ".join(kernel.operators)
    return f"{kernel.name}: {kernel.calls} calls, {kernel.implementation} {what}".strip()
