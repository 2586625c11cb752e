"""`baton demo`: the whole way of one model, from the ONNX file to a library that others load.

import -> partition -> build -> run -> compare with onnxruntime -> export -> load and run in a
second process -> the kernels, the error, and the times of Baton and of its peers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from compiler.support.tempdir import TemporaryFolder

from . import demo_backend
from .bench import BenchOptions, Comparison, ModelResult, check_peers, result_table
from .compile import BuildOptions, build_module, import_model, kernel_table, partition_module
from .console import Steps, show
from .engines import BUILDERS
from .models import find_model, random_inputs
from .partition import subgraph_table
from .run import run_library

if TYPE_CHECKING:
    from compiler.lowering.report import Report
    from compiler.partition import SubgraphInfo
    from compiler.runtime import FactoryModule


TOLERANCE = 1e-4
"""Largest error, relative to the output's largest magnitude, that counts as right."""

PEERS = ("relax", "onnxruntime")


@dataclass(frozen=True)
class Demonstration:
    """Result of a demonstration.

    Attributes
    ----------
    report : Report
    subgraphs : list of SubgraphInfo
    skipped : str
        Why nothing was run; empty if it was.
    comparison : ModelResult, optional
        Times of all engines, and errors of the exported library in its own process.
    error : float, optional
        Largest error of the library in the process that built it.
    """

    report: Report
    subgraphs: list[SubgraphInfo]
    skipped: str = ""
    comparison: ModelResult | None = None
    error: float | None = None

    @property
    def largest_error(self) -> float | None:
        """Largest error of the runs before and after export; None if nothing was compared."""
        known = [self.error]
        if self.comparison is not None:
            known.append(self.comparison.engines["baton"].error)
        return max((error for error in known if error is not None), default=None)

    @property
    def is_right(self) -> bool:
        """Whether no error is above `TOLERANCE`."""
        return self.largest_error is None or self.largest_error <= TOLERANCE

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        return {
            "report": self.report.to_json(),
            "subgraphs": [info.name for info in self.subgraphs],
            "skipped": self.skipped,
            "comparison": self.comparison.to_json() if self.comparison else None,
            "largest_error": self.largest_error,
            "tolerance": TOLERANCE,
            "right": self.is_right,
        }


def demonstrate(
    model: str, options: BuildOptions, bench: BenchOptions, steps: Steps | None = None
) -> Demonstration:
    """Do the main job on one model.

    Parameters
    ----------
    model : str
        Path of an ONNX file, or name of a bundled model.
    options : BuildOptions
        Without backends of the user's, a small one shows how subgraphs are claimed; it takes
        the product with weights that a classifier ends in, and nothing of other networks.
    bench : BenchOptions
        How to measure; its `build` is replaced by `options`.
    steps : Steps, optional
        Shows the progress.

    Raises
    ------
    BatonError
        Any step failed; a target that can be built for but not run here is no failure.
    """
    from compiler.partition import subgraphs

    steps = steps or Steps()
    check_peers(bench.peers)
    path = find_model(model)
    if not options.backends:
        demo_backend.register()
        options = replace(options, backends=(demo_backend.NAME,))
    mod, params = import_model(path, options, steps)
    mod = partition_module(mod, params, options, steps)
    library = build_module(mod, params, options, steps)
    with TemporaryFolder("demo") as folder:
        exported = Path(folder) / f"{path.stem}.so"
        with steps.step("export", exported.name):
            library.export_library(exported)
        steps.note(f"{exported.name}: {exported.stat().st_size / 1e6:.1f} MB, weights included")
        found = Demonstration(cast("Report", library.report), subgraphs(mod), why_not_here(library))
        if found.skipped:
            return found
        build_seconds = steps.seconds["import"] + steps.seconds["build"] + steps.seconds["export"]
        inputs = random_inputs(library.metadata.inputs, bench.seed)
        outputs, _ = run_library(library, inputs, 0, steps)
        measured = replace(bench, build=replace(options, backends=(), plugins=()))
        with Comparison(path.name, path, measured, steps) as comparison:
            comparison.use_library(exported, build_seconds)
            for peer in bench.peers:
                if peer in BUILDERS:
                    comparison.build(peer)
            comparison.load(inputs)
            comparison.verify()
            error = comparison.error_of(outputs)
            comparison.measure()
    return replace(found, comparison=comparison.result, error=error)


def why_not_here(library: FactoryModule) -> str:
    """Missing requirements of this machine for running a library; empty if nothing."""
    from compiler.runtime.cpu import missing_features

    from .devices import devices_of

    lacking = missing_features(library.metadata.cpu_features)
    if lacking:
        return f"this machine's CPU has no {', '.join(lacking)}"
    absent = [str(device) for device in devices_of(library) if not device.exist]
    return f"this machine has no {', '.join(absent)}" if absent else ""


def show_demonstration(found: Demonstration, threads: int) -> None:
    """Print the subgraphs, the kernels and either the results or why there are none."""
    show(subgraph_table(found.subgraphs), kernel_table(found.report), *found.report.notes)
    if found.comparison is None:
        show(
            f"Not run: {found.skipped}. The library was built and exported for "
            f"{found.report.target}; copy it to a machine that has what it needs."
        )
        return
    show(result_table(found.comparison, threads))
    if found.largest_error is None:
        show("Not compared: onnxruntime is not installed, or refused the model.")
        return
    verdict = "within" if found.is_right else "ABOVE"
    show(
        f"Largest relative error against onnxruntime, before export and in the second process: "
        f"{found.largest_error:.2e}, {verdict} the tolerance of {TOLERANCE:.0e}"
    )
