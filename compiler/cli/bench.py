"""`baton bench`: Baton and its peers, measured in turn.

Every engine has its own process, started once and loaded once. In each round every engine
is measured for a while, one after the other, while the rest sleep; so a machine that drifts from
minute to minute drifts for all of them, and the ratio is taken pair by pair within a round.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.errors import BatonError, InputError
from compiler.precision import DEFAULT, PRECISIONS, check
from compiler.support.tempdir import TemporaryFolder
from compiler.version import package_version

from .compile import BuildOptions
from .completions import PEERS
from .console import Steps, table
from .doctor import cpu_name
from .engines import ENGINES
from .models import find_model, random_inputs, relative_error
from .processes import WorkerProcess
from .run import LIBRARIES

if TYPE_CHECKING:
    import numpy as np

    from compiler.runtime import TensorInfo

OWN = "baton"
"""The engine that the others are compared with; Baton's others have longer names."""

_SETTLE_SECONDS = 0.05
"""After one engine was measured its threads may spin for a moment before they sleep."""

_LEAST_RUNS = 3
"""Runs in one measurement, even if they take somewhat longer than it should."""

_ROUNDS_OF_SLOW = 2
"""Rounds of an engine of which no more than the least number of runs fits in a measurement."""


@dataclass(frozen=True)
class BenchOptions:
    """How to measure."""

    peers: tuple[str, ...] = PEERS  # of `engines.ENGINES`
    threads: int = 1  # for every engine
    rounds: int = 7
    seconds: float = 1.0  # length of one measurement of one engine
    cpus: tuple[int, ...] = ()  # CPUs to stay on; all by default
    seed: int = 0  # of the inputs
    # Of Baton; the first is what the others and the peers are compared with
    precisions: tuple[str, ...] = (DEFAULT,)
    # Of Baton; target and shapes hold for TVM's default pipeline, too
    build: BuildOptions = field(default_factory=BuildOptions)
    model: Path | None = None  # the ONNX file of a built library, for its peers

    @property
    def own_engines(self) -> dict[str, str]:
        """Precision of each of Baton's engines: "baton" is the first."""
        first, *others = self.precisions
        return {OWN: first, **{f"{OWN}-{precision}": precision for precision in others}}


@dataclass
class EngineResult:
    """One engine on one model."""

    # From the ONNX file to a library (Baton, relax) or a session (the others); imports of Python
    # modules are not counted, here and below
    build_seconds: float = 0.0
    # From the library to an executor; for the others the same as `build_seconds`
    load_seconds: float = 0.0
    rounds_ms: list[float] = field(default_factory=list)  # median of each measurement
    runs: int = 0  # how many runs were timed in all
    is_slow: bool = False  # only a few runs fit into a measurement, so fewer rounds were made
    # Largest resident set of the process that ran the model; it did not build libraries
    peak_bytes: int = 0
    # Largest difference from onnxruntime, relative to the output's largest magnitude
    error: float | None = None
    # This engine's time by Baton's: median over the rounds of the ratio within the round
    ratio: float | None = None
    failed: str = ""  # why there are no numbers; empty if there are

    @property
    def median_ms(self) -> float | None:
        """Median of the measurements."""
        return statistics.median(self.rounds_ms) if self.rounds_ms else None


@dataclass
class ModelResult:
    """All engines on one model, Baton's first."""

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
) -> Iterator[ModelResult]:
    """Measure Baton and its peers on every model; each result comes as soon as it is complete.

    `models`: paths of ONNX files or of built libraries, or names of bundled models. A library is
    measured alone unless `options.model` is given.
    Raises BatonError: a model is not found, options do not fit a library, a precision is not known,
    or a peer is not known or not installed. An engine that fails on a model has that as its
    result instead; without Baton the others are not measured.
    """
    if not options.precisions:
        raise BatonError(f"no precision is named; known: {', '.join(PRECISIONS)}")
    for precision in options.precisions:
        check(precision)
    found = [(name, find_model(name)) for name in models]
    libraries = [name for name, path in found if path.suffix in LIBRARIES]
    if libraries and options.precisions != (DEFAULT,):
        raise InputError(f"{libraries[0]} is built already, so --precision can't change it")
    if options.model is not None and (not libraries or len(found) > 1):
        raise InputError("--model is the ONNX file of one built library; give that library alone")
    alone = bool(libraries) and options.model is None
    if len(libraries) < len(found) or not alone:
        check_peers(options.peers)
    return (_measured(name, path, options, steps or Steps()) for name, path in found)


def _measured(name: str, path: Path, options: BenchOptions, steps: Steps) -> ModelResult:
    steps.note(f"{name}, threads: {options.threads}")
    if path.suffix in LIBRARIES and options.model is None and options.peers:
        steps.note("the library is measured alone; --model FILE.onnx compares it with peers")
        options = replace(options, peers=())
    with Comparison(name, path, options, steps) as comparison:
        try:
            inputs, *_ = [comparison.build(engine) for engine in options.own_engines]
            values = random_inputs(inputs, options.seed, options.build.extents)
            shapes = {name: value.shape for name, value in values.items()}
            comparison.build_options = replace(options.build, shapes=shapes, extents={})
            for peer in options.peers:
                if ENGINES[peer].imported_to_build:
                    comparison.build(peer)
            comparison.load(values)
            comparison.verify()
            comparison.measure()
        except BatonError as error:
            comparison.result.engines["baton"].failed = _one_line(error)
    return comparison.result


def check_peers(peers: Sequence[str]) -> None:
    """Raise BatonError unless every peer is known and installed."""
    for peer in peers:
        known = [name for name in ENGINES if name != OWN]
        if peer not in known:
            raise BatonError(f"there is no peer {peer!r}; known: {', '.join(known)}")
        if importlib.util.find_spec(ENGINES[peer].module) is None:
            raise BatonError(
                f"the peer {peer!r} is not installed: pip install 'baton-tvm[bench]', or leave it "
                "out of --peers"
            )


class Comparison:
    """The engines on one model; used as a context, since it has processes and files.

    `name`: what the result calls the model. `result`: filled in step by step.
    """

    def __init__(self, name: str, model: Path, options: BenchOptions, steps: Steps) -> None:
        engines = (*options.own_engines, *options.peers)
        self.result = ModelResult(name, {e: EngineResult() for e in engines})
        is_library = model.suffix in LIBRARIES
        self._library = model if is_library else None
        self._model = options.model if is_library else model
        self._options = options
        self.build_options = options.build
        self._steps = steps
        self._stack = ExitStack()
        self._workers: dict[str, WorkerProcess] = {}
        self._libraries: dict[str, Path] = {}
        self._devices: dict[str, str] = {}
        self._reference: list[np.ndarray] | None = None

    def __enter__(self) -> Comparison:
        temporary = TemporaryFolder("bench")
        self._folder = Path(self._stack.enter_context(temporary))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def build(self, engine: str) -> list[TensorInfo]:
        """Build an engine's library in a separate process; returns the model's inputs.

        A library that was built before is taken as it is.
        """
        from compiler.runtime import TensorInfo

        if self._library is not None and _kind(engine) == OWN:
            from compiler.runtime.load import check_file

            self._libraries[engine] = self._library
            return list(check_file(self._library).metadata.inputs)
        library = self._folder / f"{engine}.so"
        with self._excused(engine), self._steps.step("build", engine):
            precision = self._options.own_engines.get(engine, DEFAULT)
            with self._worker(engine, {}) as builder:
                answer = builder.ask(
                    "build",
                    engine=_kind(engine),
                    model=str(self._model),
                    library=str(library),
                    options=asdict(replace(self.build_options, precision=precision)),
                )
            self.result.engines[engine].build_seconds = answer["seconds"]
            self._libraries[engine] = library
            self._devices[engine] = answer["device"]
            return [
                TensorInfo(name, tuple(shape), dtype) for name, shape, dtype in answer["inputs"]
            ]
        return []

    def load(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Start the workers and let each load its library, or the model."""
        import numpy as np

        self._inputs = self._folder / "inputs.npz"
        np.savez(self._inputs, **inputs)  # type: ignore[arg-type]
        for engine, outcome in self.result.engines.items():
            if outcome.failed:
                continue
            with self._excused(engine), self._steps.step("load", engine):
                worker = self._worker(engine, ENGINES[_kind(engine)].environment)
                self._workers[engine] = self._stack.enter_context(worker)
                outcome.load_seconds = self._load(worker, engine)
                if not ENGINES[_kind(engine)].imported_to_build:
                    outcome.build_seconds = outcome.load_seconds

    def verify(self) -> None:
        """Run every engine once and compare it with onnxruntime, if that is installed."""
        outputs = {}
        for engine, worker in list(self._workers.items()):
            with self._excused(engine), self._steps.step("run", engine):
                outputs[engine] = self._run(worker, engine)
        self._reference = outputs.get("onnxruntime") or self._run_reference()
        for engine, values in outputs.items():
            self.result.engines[engine].error = self.error_of(values)

    def error_of(self, outputs: Sequence[np.ndarray]) -> float | None:
        """Largest relative error of outputs for the same inputs; None without onnxruntime."""
        if self._reference is None:
            return None
        return relative_error(outputs, self._reference)

    def measure(self) -> None:
        """Measure in turn, round after round."""
        with self._steps.counted(f"measuring {self.result.model}") as show_status:
            for number in range(self._options.rounds):
                for engine, worker in list(self._workers.items()):
                    outcome = self.result.engines[engine]
                    if outcome.is_slow and number >= _ROUNDS_OF_SLOW:
                        continue
                    show_status(f"round {number + 1} of {self._options.rounds}, {engine}")
                    with self._excused(engine):
                        time.sleep(_SETTLE_SECONDS)
                        answer = worker.ask(
                            "measure", seconds=self._options.seconds, at_least=_LEAST_RUNS
                        )
                        outcome.rounds_ms.append(statistics.median(answer["milliseconds"]))
                        outcome.runs += len(answer["milliseconds"])
                        outcome.peak_bytes = answer["peak_bytes"]
                        outcome.is_slow = len(answer["milliseconds"]) <= _LEAST_RUNS
        own = self.result.engines["baton"].rounds_ms
        for outcome in self.result.engines.values():
            pairs = [theirs / ours for theirs, ours in zip(outcome.rounds_ms, own)]
            outcome.ratio = statistics.median(pairs) if pairs else None

    def _worker(self, name: str, environment: Mapping[str, str]) -> WorkerProcess:
        options = self._options
        return WorkerProcess(name, options.threads, environment, options.cpus)

    def _load(self, worker: WorkerProcess, engine: str) -> float:
        path = self._libraries.get(engine, self._model)
        answer = worker.ask(
            "load",
            engine=_kind(engine),
            path=str(path),
            inputs=str(self._inputs),
            threads=self._options.threads,
            device=self._devices.get(engine, "cpu"),
        )
        return float(answer["seconds"])

    def _run(self, worker: WorkerProcess, engine: str) -> list[np.ndarray]:
        import numpy as np

        saved = self._folder / f"{engine}-outputs.npz"
        worker.ask("run", save=str(saved))
        with np.load(saved, allow_pickle=False) as arrays:
            return [arrays[str(index)] for index in range(len(arrays.files))]

    def _run_reference(self) -> list[np.ndarray] | None:
        """onnxruntime's outputs when it is no peer, or failed as one."""
        known = self.result.engines.get("onnxruntime")
        if (
            known is not None
            or self._model is None
            or importlib.util.find_spec("onnxruntime") is None
        ):
            return None
        with (
            self._steps.step("compare", "with onnxruntime"),
            self._worker("onnxruntime", {}) as worker,
        ):
            self._load(worker, "onnxruntime")
            return self._run(worker, "onnxruntime")

    @contextmanager
    def _excused(self, engine: str) -> Iterator[None]:
        """A peer that fails is left out from then on; Baton must not fail."""
        try:
            yield
        except BatonError as error:
            if _kind(engine) == OWN:
                raise
            self.result.engines[engine].failed = _one_line(error)
            self._steps.note(f"{engine} is left out: {self.result.engines[engine].failed}")
            worker = self._workers.pop(engine, None)
            if worker is not None:
                worker.close()


def _kind(engine: str) -> str:
    """What `engines` knows an engine as: those of Baton differ in their builds alone."""
    return OWN if engine.startswith(OWN) else engine


def _one_line(error: BatonError) -> str:
    return " ".join(str(error).split())


def check_results(results: Sequence[ModelResult]) -> None:
    """Raise BatonError if Baton failed on a model."""
    failed = [result for result in results if result.engines["baton"].failed]
    if failed:
        first = f"{failed[0].model}: {failed[0].engines['baton'].failed}"
        several = f"{len(failed)} of {len(results)} models failed; the first: "
        raise BatonError(several + first if len(results) > 1 else first)


def result_table(result: ModelResult, threads: int) -> Any:
    """One line per engine."""
    rows = []
    for name, outcome in result.engines.items():
        if outcome.median_ms is None:
            rows.append((name, outcome.failed or "not measured", "", "", "", "", "", ""))
            continue
        rows.append(
            (
                name,
                f"{outcome.median_ms:.2f}",
                f"{outcome.ratio:.2f}" if outcome.ratio is not None else "",
                f"{outcome.build_seconds:.2f}",
                f"{outcome.load_seconds:.2f}",
                f"{outcome.peak_bytes / 1e6:.0f}",
                "" if outcome.error is None else f"{outcome.error:.1e}",
                f"{outcome.runs}/{len(outcome.rounds_ms)}",
            )
        )
    plural = "thread" if threads == 1 else "threads"
    return table(
        ("engine", "median ms", "/ Baton", "build s", "load s", "peak MB", "error", "runs/rounds"),
        rows,
        title=f"{result.model}, {threads} {plural}",
        numbers=7,
        wide=("load s",),
    )


def to_json(results: Sequence[ModelResult], options: BenchOptions) -> dict[str, Any]:
    """Everything about a benchmark: what was measured, how, where and with which versions."""
    packages = ("baton-tvm", "apache-tvm", "onnxruntime", "openvino")
    return {
        "models": [result.to_json() for result in results],
        "options": asdict(options) | {"model": options.model and str(options.model)},
        "machine": {"cpu": cpu_name(), "cpus": os.cpu_count(), "system": platform.platform()},
        "versions": {name: version for name in packages if (version := package_version(name))},
    }
