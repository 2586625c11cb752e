"""`baton replay`: build a model with and without tuning logs and compare both."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from .compile import BuildOptions, build_module, import_model, kernel_table
from .console import Steps, show
from .models import devices_of, random_inputs, relative_error

if TYPE_CHECKING:
    from compiler.lowering.report import Kernel, Report


@dataclass(frozen=True)
class Replayed:
    """One model built with and without its logs."""

    report: Report  # of the build under the logs
    # milliseconds, milliseconds_without: one time per round, of the build under the logs and of the
    # other; taken in turn
    milliseconds: list[float]
    milliseconds_without: list[float]
    difference: float  # largest difference between both outputs, relative to their magnitude

    @property
    def recorded(self) -> list[Kernel]:
        """Kernels that a record set."""
        return [k for k in self.report.kernels if not _is_fallback(k)]

    @property
    def unrecorded(self) -> list[Kernel]:
        """Kernels with an implementation of the schedule library that no record set."""
        return [k for k in self.report.kernels if _is_fallback(k) and "." in k.implementation]

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        return {
            "recorded": [asdict(kernel) for kernel in self.recorded],
            "unrecorded": [asdict(kernel) for kernel in self.unrecorded],
            "milliseconds": self.milliseconds,
            "milliseconds_without": self.milliseconds_without,
            "difference": self.difference,
        }


def _is_fallback(kernel: Kernel) -> bool:
    return kernel.source in ("topi:fallback", "none")


def replay_model(
    model: Path, options: BuildOptions, rounds: int, steps: Steps | None = None
) -> Replayed:
    """Build a model with and without the options' logs and time both in turn.

    `rounds`: how many times each of the two libraries is measured.
    """
    steps = steps or Steps()
    mod, params = import_model(model, options, steps)
    without = build_module(mod, params, replace(options, logs=(), auto_scheduler_logs=()), steps)
    tuned = build_module(mod, params, options, steps)
    inputs = random_inputs(tuned.metadata.inputs)
    with steps.step("time", f"{rounds} rounds"):
        times, outputs = time_in_turn([tuned, without], inputs, rounds)
    report = cast("Report", tuned.report)
    return Replayed(report, times[0], times[1], relative_error(*outputs))


def time_in_turn(
    libraries: Sequence[Any], inputs: Any, rounds: int
) -> tuple[list[list[float]], list[list[Any]]]:
    """Milliseconds of each round, and the outputs, for each library."""
    from compiler.runtime import graph_executor

    modules, outputs = [], []
    for library in libraries:
        module = graph_executor.GraphModule(library[library.libmod_name](devices_of(library)))
        module.set_input(inputs)
        module.run()
        modules.append(module)
        outputs.append([module.get_output(i).numpy() for i in range(module.get_num_outputs())])
    times: list[list[float]] = [[] for _ in libraries]
    for _ in range(rounds):
        for library, module, taken in zip(libraries, modules, times):
            timed = module.benchmark(devices_of(library)[0], repeat=5, number=1)
            taken.append(statistics.median(timed.results) * 1e3)
    return times, outputs


def show_replayed(replayed: Replayed) -> None:
    """Print the kernels that records set, those that have none, and both latencies."""
    for title, kernels in (
        ("kernels from records", replayed.recorded),
        ("kernels without a record", replayed.unrecorded),
    ):
        found = kernel_table(replace(replayed.report, kernels=kernels))
        show(replace(found, title=f"{len(kernels)} {title}"))
    with_logs = statistics.median(replayed.milliseconds)
    without = statistics.median(replayed.milliseconds_without)
    show(
        f"median {with_logs:.3f} ms with the logs, {without:.3f} ms without "
        f"({with_logs / without:.2f}x); outputs differ by {replayed.difference:.1e}"
    )
