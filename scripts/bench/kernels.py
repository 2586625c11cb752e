"""Compare each convolution and matmul of models with the peak rates of this machine.

    python -m scripts.bench.kernels resnet18_v1 mobilenetv2_1_0 --precision strict

A kernel is measured where it runs, inside an inference, with the caches as its neighbors leave
them. Its operations are those that it executes: Winograd's are fewer than the convolution's.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from compiler.cli.compile import BuildOptions
from compiler.cli.console import Steps, show, show_found, table
from compiler.cli.models import find_model
from compiler.cli.profile import KernelTime, gflops_of, profile_model
from schedules.x86.machine.instructions import FMA
from scripts.bench.machine_peak import memory_gbytes, peak_gflops, peak_of

ANCHORS = ("conv", "dense", "matmul")
"""An operator whose name holds one of these makes its kernel a workload."""


@dataclass(frozen=True)
class Workload:
    """One kernel, and how near it comes to what the machine can do."""

    models: list[str]
    """Where a kernel of these operators, shapes and schedule occurs; measured in the first."""
    kernel: KernelTime
    """Its `milliseconds` are of all calls of one inference."""
    of_peak: float | None
    """Share of the peak rate of the kernel's multiply instruction, 0 to 1, of float32's
    multiply-adds where that is not known; None where the operations are unknown."""
    of_memory: float
    """Share of the rate at which memory can be read; above 1 where caches serve the kernel."""
    bound: str
    """Which alone would take longer, "compute" or "memory"; "unknown" without operations."""


@dataclass(frozen=True)
class Distance:
    """How far one model is from what the machine can do: milliseconds of an unprofiled inference,
    and of all kernels, each at the peak rate or the memory rate, whichever takes longer. Bytes that
    come from caches may take less."""

    model: str
    milliseconds: float
    limit: float


@dataclass(frozen=True)
class KernelResults:
    """Workloads, those with the most time to win first, and the machine's rates, measured just
    before on the same number of threads."""

    threads: int
    peak_gflops: float
    memory_gbytes: float
    workloads: list[Workload]
    models: list[Distance]

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        return asdict(self)


def benchmark_kernels(
    models: Sequence[str],
    options: BuildOptions,
    threads: int,
    repeats: int,
    seed: int,
    steps: Steps,
) -> KernelResults:
    """Measure the machine, then the anchored kernels of each model.

    Raises
    ------
    BatonError
        A model can't be read or built, or the target is not a CPU of this machine.
    """
    from compiler import target as targets

    target = targets.parse(options.target)
    targets.check_buildable(target)
    with steps.step("peak", f"{threads} threads"):
        peak, memory = peak_gflops(target, threads), memory_gbytes(target, threads)
    found: dict[tuple[Any, ...], Workload] = {}
    distances = []
    peaks = {"": peak, FMA: peak}

    def best_of(instruction: str) -> float:
        if instruction not in peaks:
            with steps.step("peak", f"{instruction}, {threads} threads"):
                peaks[instruction] = peak_of(instruction, target, threads) or peak
        return peaks[instruction]

    for name in models:
        profile = profile_model(find_model(name), repeats, seed, options, steps)
        limit = 0.0
        for kernel in profile.kernels:
            workload = judge(kernel, profile.model, best_of(kernel.instruction), memory)
            limit += kernel.milliseconds * max(workload.of_peak or 0.0, workload.of_memory)
            if not _is_workload(kernel):
                continue
            key = (*kernel.operators, *kernel.shapes, kernel.implementation, kernel.source)
            known = found.setdefault(key, workload)
            if profile.model not in known.models:
                known.models.append(profile.model)
        distances.append(Distance(profile.model, profile.milliseconds, limit))
    ordered = sorted(found.values(), key=_to_win, reverse=True)
    return KernelResults(threads, peak, memory, ordered, distances)


def judge(kernel: KernelTime, model: str, peak: float, memory: float) -> Workload:
    """Hold one kernel against a peak in GFLOP/s and a memory rate in GB/s."""
    of_memory = kernel.gbytes / memory
    if kernel.gflops is None:
        return Workload([model], kernel, None, of_memory, "unknown")
    of_peak = kernel.gflops / peak
    bound = "compute" if of_peak >= of_memory else "memory"
    return Workload([model], kernel, of_peak, of_memory, bound)


def show_kernel_results(results: KernelResults) -> None:
    """Print the machine's rates, a line per workload and one per model."""
    header = (
        *("workload", "operands", "implementation", "multiplies", "schedule from", "bound"),
        *("calls", "ms"),
        *("GFLOP/s", "of peak", "GB/s"),
    )
    rows = []
    for workload in results.workloads:
        kernel = workload.kernel
        rows.append(
            (
                f"{workload.models[0]} {kernel.name}",
                " ".join(kernel.shapes),
                kernel.implementation,
                f"{kernel.operands} {kernel.instruction}".strip(),
                kernel.source,
                workload.bound,
                kernel.calls,
                f"{kernel.milliseconds:.3f}",
                gflops_of(kernel),
                "unknown" if workload.of_peak is None else f"{workload.of_peak:.1%}",
                f"{kernel.gbytes:.1f}",
            )
        )
    title = (
        f"{len(rows)} workloads on {results.threads} threads; the machine: "
        f"{results.peak_gflops:.0f} GFLOP/s, {results.memory_gbytes:.1f} GB/s read from memory"
    )
    models = [
        (each.model, f"{each.milliseconds:.3f}", f"{each.limit:.3f}", _times(each))
        for each in results.models
    ]
    show(
        table(header, rows, title=title, numbers=5),
        table(("model", "ms", "limit", "times the limit"), models, numbers=3),
    )


def _times(distance: Distance) -> str:
    return f"{distance.milliseconds / distance.limit:.2f}" if distance.limit else "unknown"


def _is_workload(kernel: KernelTime) -> bool:
    return any(anchor in operator for operator in kernel.operators for anchor in ANCHORS)


def _to_win(workload: Workload) -> float:
    """Milliseconds between the kernel and the rate that bounds it."""
    reached = min(1.0, max(workload.of_peak or 0.0, workload.of_memory))
    return workload.kernel.milliseconds * (1.0 - reached)


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", help="ONNX files, or names of bundled models")
    parser.add_argument("--repeat", type=int, default=30, help="measured inferences")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--precision", default="default")
    parser.add_argument("--log", action="append", default=[], help="an AutoTVM log")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    args = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(args.threads)  # read when TVM starts its threads
    options = BuildOptions(target=args.target, logs=tuple(args.log), precision=args.precision)
    results = benchmark_kernels(args.models, options, args.threads, args.repeat, args.seed, Steps())
    show_found(results, args.json, show_kernel_results)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
