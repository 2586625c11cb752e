"""`baton run`: one model on given or random inputs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from compiler.errors import InputError
from compiler.precision import DEFAULT
from compiler.runtime.metadata import listed

from .compile import BuildOptions, compile_model, load_plugins
from .console import Steps, show, table
from .files import write_whole
from .models import devices_of, random_inputs, read_inputs

if TYPE_CHECKING:
    import numpy as np

    from compiler.runtime import FactoryModule, TensorInfo

LIBRARIES = (".so", ".tar")
"""Endings of files that `export_library` writes."""


@dataclass(frozen=True)
class Ran:
    """Outputs and times of a run."""

    outputs: dict[str, np.ndarray]
    # One time per repetition, after one run that is not timed; empty without repetitions
    milliseconds: list[float]

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        median = statistics.median(self.milliseconds) if self.milliseconds else None
        return {
            "outputs": {name: _summary(value) for name, value in self.outputs.items()},
            "milliseconds": self.milliseconds,
            "median_milliseconds": median,
        }


def run_model(
    model: Path,
    inputs: Mapping[str, Path],
    *,
    fill_random: bool = False,
    seed: int = 0,
    repeat: int = 0,
    save: Path | None = None,
    options: BuildOptions | None = None,
    steps: Steps | None = None,
) -> Ran:
    """Load a library, or build a model file, and run it.

    `model`: a `.so` or `.tar` that `export_library` wrote; anything else is a model file. `inputs`:
    `.npy` files. `fill_random`: give inputs without a file seeded random values. `repeat`: how many
    timed runs follow. `save`: an `.npz` that gets the outputs. `options`: for a model file. For a
    library its extents are those of random inputs, and its plugins are loaded: subgraphs may run
    in them.
    Raises InputError: an input is missing, unknown, or of the wrong shape or dtype. Raises
    LoadError, FrontendError, BuildError, ExportError: the library, the model, its build or `save`
    is at fault.
    """
    steps = steps or Steps()
    options = options or BuildOptions()
    given = read_inputs(inputs)

    def check_inputs(infos: Sequence[TensorInfo]) -> None:
        require_inputs(infos, given, fill_random)

    library = open_library(model, options, steps, check_inputs)
    absent = [info for info in library.metadata.inputs if info.name not in given]
    outputs, milliseconds = run_library(
        library, {**random_inputs(absent, seed, options.extents), **given}, repeat, steps
    )
    ran = Ran(dict(zip((info.name for info in library.metadata.outputs), outputs)), milliseconds)
    if save is not None:
        _save(save, ran.outputs)
    return ran


def run_library(
    library: FactoryModule, inputs: Mapping[str, np.ndarray], repeat: int, steps: Steps
) -> tuple[list[np.ndarray], list[float]]:
    """Outputs of one run, and the milliseconds of `repeat` further ones."""
    from compiler.runtime import graph_executor

    devices = devices_of(library)
    module = graph_executor.GraphModule(library[library.libmod_name](devices))
    module.set_input(inputs)
    with steps.step("run"):
        module.run()
        outputs = [module.get_output(index).numpy() for index in range(module.get_num_outputs())]
    if not repeat:
        return outputs, []
    with steps.step("time", f"{repeat} runs"):
        timed = module.benchmark(devices[0], repeat=repeat, number=1)
    return outputs, [seconds * 1e3 for seconds in timed.results]


def open_library(
    model: Path,
    options: BuildOptions,
    steps: Steps,
    check_inputs: Callable[[Sequence[TensorInfo]], None] = lambda _: None,
) -> FactoryModule:
    """Load a `.so` or `.tar`; build anything else as a model file.

    `check_inputs`: gets the inputs, before anything is built. Raises InputError: a library is to
    have another precision than it was built with.
    """
    if model.suffix not in LIBRARIES:
        return compile_model(model, options, steps=steps, check_inputs=check_inputs).library
    from compiler.runtime import load_module

    if options.precision != DEFAULT:
        raise InputError(
            f"{model} is built already, so --precision {options.precision} can't change it; give "
            "the option to `baton compile`, or run the model file"
        )
    load_plugins(map(Path, options.plugins), steps)
    with steps.step("load", str(model)):
        library = load_module(model)
    check_inputs(library.metadata.inputs)
    return library


def require_inputs(
    infos: Sequence[TensorInfo], given: Mapping[str, np.ndarray], fill_random: bool
) -> None:
    """Raise InputError for a value of no input or another dtype, and an input without a value."""
    from compiler.runtime.tensors import require_dtype

    unknown = sorted(set(given) - {info.name for info in infos})
    if unknown:
        raise InputError(
            f"--input {unknown[0]}: the model has no such input; its inputs are {listed(infos)}"
        )
    for info in infos:
        require_dtype(given.get(info.name), info)
    absent = [info for info in infos if info.name not in given]
    if absent and not fill_random:
        raise InputError(f"no value for {listed(absent)}; give --input NAME=FILE.npy, or --random")


def show_ran(ran: Ran) -> None:
    """Print a line per output and the times."""
    rows = []
    for name, value in ran.outputs.items():
        found = _summary(value)
        shown = (f"{found[key]:.6g}" for key in ("min", "mean", "max"))
        rows.append((name, f"{found['dtype']}{found['shape']}", *shown))
    show(table(("output", "type", "min", "mean", "max"), rows, numbers=3))
    if ran.milliseconds:
        show(
            f"{len(ran.milliseconds)} runs: median {statistics.median(ran.milliseconds):.3f} ms, "
            f"fastest {min(ran.milliseconds):.3f} ms, slowest {max(ran.milliseconds):.3f} ms"
        )


def _summary(value: np.ndarray) -> dict[str, Any]:
    filled = value.size > 0
    return {
        "shape": list(value.shape),
        "dtype": str(value.dtype),
        "min": float(value.min()) if filled else 0.0,
        "mean": float(value.mean(dtype="float64")) if filled else 0.0,
        "max": float(value.max()) if filled else 0.0,
    }


def _save(path: Path, outputs: Mapping[str, np.ndarray]) -> None:
    import numpy as np

    def fill(file: BinaryIO) -> None:
        np.savez(file, **outputs)  # type: ignore[arg-type]

    write_whole(path, fill)
