"""`baton bench`: Baton and its peers, measured in turn.

Every engine has a process of its own, started once and loaded once. In each round every engine
is measured for a while, one after the other, while the rest sleep; so a machine that drifts from
minute to minute drifts for all of them, and the ratio is taken pair by pair within a round.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.errors import BatonError

from .compile import BuildOptions
from .console import Steps, show, table
from .engines import BUILDERS, ENVIRONMENT, MODULE_OF
from .models import find_model, random_inputs, relative_error
from .processes import WorkerProcess

if TYPE_CHECKING:
    import numpy as np

PEERS = tuple(MODULE_OF)

_SETTLE_SECONDS = 0.05
"""After one engine was measured its threads may spin for a moment before they sleep."""

_ROUNDS_OF_SLOW = 2
"""Rounds of an engine of which not even a few runs fit into a measurement."""

_RUNS_OF_FAST = 3


@dataclass(frozen=True)
class BenchOptions:
    """How to measure.

    Attributes
    ----------
    peers : tuple of str
        Some of `PEERS`.
    threads : int
        For every engine.
    rounds : int
    seconds : float
        Length of one measurement of one engine.
    cpus : tuple of int
        CPUs to stay on; all by default.
    seed : int
        Of the inputs.
    build : BuildOptions
        Of Baton; target and shapes hold for TVM's default pipeline, too.
    """

    peers: tuple[str, ...] = PEERS
    threads: int = 1
    rounds: int = 7
    seconds: float = 1.0
    cpus: tuple[int, ...] = ()
    seed: int = 0
    build: BuildOptions = field(default_factory=BuildOptions)


@dataclass
class EngineResult:
    """One engine on one model.

    Attributes
    ----------
    build_seconds : float
        From the ONNX file to a library (Baton, relax) or a session (the others).
    load_seconds : float
        From the library to an executor; for the others the same as `build_seconds`.
    rounds_ms : list of float
        Median of each measurement.
    peak_bytes : int
        Largest resident set of the process that ran the model; it did not build libraries.
    error : float, optional
        Largest difference from onnxruntime, relative to the output's largest magnitude.
    ratio : float, optional
        This engine's time by Baton's: median over the rounds of the ratio within the round.
    failed : str
        Why there are no numbers; empty if there are.
    """

    build_seconds: float = 0.0
    load_seconds: float = 0.0
    rounds_ms: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    error: float | None = None
    ratio: float | None = None
    failed: str = ""

    @property
    def median_ms(self) -> float | None:
        """Median of the measurements."""
        return statistics.median(self.rounds_ms) if self.rounds_ms else None


@dataclass
class ModelResult:
    """All engines on one model, Baton first."""

    model: str
    engines: dict[str, EngineResult] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        return {
            "model": self.model,
            "engines": {
                name: {**asdict(result), "median_ms": result.median_ms}
                for name, result in self.engines.items()
            },
        }


def benchmark(
    models: Sequence[str], options: BenchOptions, steps: Steps | None = None
) -> list[ModelResult]:
    """Measure Baton and its peers on every model.

    Parameters
    ----------
    models : sequence of str
        Paths of ONNX files, or names of bundled models.
    options : BenchOptions
    steps : Steps, optional
        Shows the progress.

    Raises
    ------
    BatonError
        A model is not found, a peer is not known or not installed, or Baton itself fails. A
        peer that fails on a model has that as its result instead.
    """
    _check_peers(options.peers)
    return [bench_model(name, find_model(name), options, steps or Steps()) for name in models]


def bench_model(
    name: str, model: Path, options: BenchOptions, steps: Steps, library: Path | None = None
) -> ModelResult:
    """Build where there is something to build, load, compare and measure one model.

    Parameters
    ----------
    name : str
        What the result calls the model.
    model : Path
    options : BenchOptions
    steps : Steps
    library : Path, optional
        Baton's library, if it exists already.
    """
    steps.note(f"{name}, {options.threads} threads")
    result = ModelResult(name, {each: EngineResult() for each in ("baton", *options.peers)})
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="baton-bench-")))
        paths = dict.fromkeys(result.engines, model)
        for engine in BUILDERS.keys() & result.engines.keys():
            paths[engine] = folder / f"{engine}.so"
        if library is not None:
            paths["baton"] = library
        for engine in sorted(BUILDERS.keys() & result.engines.keys()):
            if not paths[engine].exists():
                _try(result, engine, lambda e=engine: _build(e, model, paths[e], options, steps, result))
        inputs = folder / "inputs.npz"
        _write_inputs(paths["baton"], inputs, options.seed)
        workers: dict[str, WorkerProcess] = {}
        for engine, outcome in result.engines.items():
            if not outcome.failed:
                worker = WorkerProcess(
                    engine, options.threads, ENVIRONMENT.get(engine), options.cpus
                )
                workers[engine] = stack.enter_context(worker)
        ...
    return result
