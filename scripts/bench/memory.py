#!/usr/bin/env python3
"""What a process that loads a library and infers has in memory, beside onnxruntime's process.

    python -m scripts.bench.memory resnet50.onnx vit.onnx
    python -m scripts.bench.memory yolo.onnx --disable-pass Winograd --disable-pass Strassen
    python -m scripts.bench.memory yolo.onnx --library yolo.so

Each engine has a fresh process with TVM's runtime or onnxruntime, numpy, and this package's worker
loop. Megabytes (10^6 bytes) of its resident set, pages of mapped files included: after the imports,
after loading, after inferences, and at most; the last column is the peak over onnxruntime's.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from compiler.cli.compile import BuildOptions
from compiler.cli.engines import ENGINES
from compiler.cli.models import find_model, random_inputs
from compiler.cli.processes import WorkerProcess
from compiler.runtime import TensorInfo, load_module

INFERENCES = 3
SECONDS = 0.1
"""Inferences are made for so long, and at least so many."""

STAGES = ("imported", "loaded", "steady", "peak")


def build(model: pathlib.Path, options: BuildOptions, library: pathlib.Path) -> None:
    """Compile a model in a process of its own."""
    with WorkerProcess("baton", 1) as worker:
        request = {"model": str(model), "library": str(library), "options": asdict(options)}
        worker.ask("build", engine="baton", **request)


def inputs_of(library: pathlib.Path) -> list[TensorInfo]:
    """Names, shapes and dtypes of a library's inputs."""
    return list(load_module(library).metadata.inputs)


def stages(engine: str, path: pathlib.Path, inputs: pathlib.Path, threads: int) -> dict[str, float]:
    """Megabytes of one engine's process at each of `STAGES`."""
    found = {}
    with WorkerProcess(engine, threads, ENGINES[engine].environment) as worker:

        def note(stage: str) -> dict[str, Any]:
            use = worker.ask("memory")
            found[stage] = use["resident"] / 1e6
            return use

        worker.ask("import", engine=engine)
        note("imported")
        load = {"path": str(path), "inputs": str(inputs), "threads": threads, "device": "cpu"}
        worker.ask("load", engine=engine, **load)
        note("loaded")
        worker.ask("measure", seconds=SECONDS, at_least=INFERENCES)
        found["peak"] = note("steady")["peak"] / 1e6
    return found


def compare(
    model: pathlib.Path, library: pathlib.Path, threads: int, folder: pathlib.Path
) -> dict[str, dict[str, float]]:
    """The stages of a library and of onnxruntime, on the same inputs."""
    inputs = folder / "inputs.npz"
    np.savez(inputs, **random_inputs(inputs_of(library)))  # type: ignore[arg-type]
    paths = {"baton": library, "onnxruntime": model}
    return {engine: stages(engine, path, inputs, threads) for engine, path in paths.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the models that the command line names and print a line for each engine."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("models", nargs="+", help="ONNX files, or names of bundled models")
    parser.add_argument("--library", help="of the one model, exported before")
    parser.add_argument("--disable-pass", action="append", default=[], metavar="NAME")
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    options = parser.parse_args(arguments)
    if options.library and len(options.models) > 1:
        parser.error("--library goes with one model")
    build_options = BuildOptions(target=options.target, disabled_passes=tuple(options.disable_pass))
    results = {}
    if not options.json:
        print(f"{'model':20}{'engine':14}", *(f"{stage:>9}" for stage in STAGES), "    ratio")
    with tempfile.TemporaryDirectory(prefix="baton-memory-") as name:
        folder = pathlib.Path(name)
        for each in options.models:
            model = find_model(each)
            library = pathlib.Path(options.library or folder / "library.so")
            if not options.library:
                build(model, build_options, library)
            found = results[each] = compare(model, library, options.threads, folder)
            if not options.json:
                show(model.stem, found)
    if options.json:
        print(json.dumps(results, indent=1))


def show(model: str, found: dict[str, dict[str, float]]) -> None:
    """One line for each engine."""
    for engine, sizes in found.items():
        ratio = sizes["peak"] / found["onnxruntime"]["peak"]
        cells = (f"{sizes[stage]:9.1f}" for stage in STAGES)
        print(f"{model:20}{engine:14}", *cells, f"{ratio:9.2f}", flush=True)


if __name__ == "__main__":
    main()
