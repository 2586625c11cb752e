"""A worker process that does one engine's work on request.

It reads one JSON object per line from stdin and answers each with one line on stdout. Between
requests it is blocked on the read and uses no CPU.

    {"do": "build", "engine", "model", "library", "options"}   -> {"seconds", "inputs", "device"}
    {"do": "load", "engine", "path", "inputs", "threads", "device"} -> {"seconds"}
    {"do": "run", "save"}                                      -> {"outputs"}
    {"do": "measure", "seconds", "at_least"}                   -> {"milliseconds", "peak_bytes"}
    {"do": "import", "engine"}                                 -> {}
    {"do": "memory"}                                           -> {"resident", "of_files", "peak"}

A build answers with the name, shape and dtype of each input. Elsewhere `inputs` and `save` are
`.npz` files; `save` gets the outputs under "0", "1", ... A request that fails is answered by
{"error", "kind"}.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

import numpy as np

from compiler.errors import BatonError

from .engines import ENGINES, Engine, measure, memory_use


class Worker:
    """Holds the engine between requests."""

    def __init__(self) -> None:
        self._engine: Engine | None = None

    def build(self, engine: str, model: str, library: str, options: Any) -> dict[str, Any]:
        _import(ENGINES[engine].imported_to_build)
        start = time.perf_counter()
        inputs, device = ENGINES[engine].build(model, library, options)
        return {"seconds": time.perf_counter() - start, "inputs": inputs, "device": device}

    def load(
        self, engine: str, path: str, inputs: str, threads: int, device: str
    ) -> dict[str, Any]:
        with np.load(inputs, allow_pickle=False) as arrays:
            values = {name: arrays[name] for name in arrays.files}
        _import(ENGINES[engine].imported_to_load)
        start = time.perf_counter()
        self._engine = ENGINES[engine](path, values, threads, device)
        return {"seconds": time.perf_counter() - start}

    def run(self, save: str) -> dict[str, Any]:
        engine = self._loaded()
        engine.run()
        outputs = {str(index): value for index, value in enumerate(engine.outputs())}
        np.savez(save, **outputs)  # type: ignore[arg-type]
        return {"outputs": len(outputs)}

    def measure(self, seconds: float, at_least: int) -> dict[str, Any]:
        times = measure(self._loaded(), seconds, at_least)
        return {"milliseconds": times, "peak_bytes": memory_use().peak}

    def import_modules(self, engine: str) -> dict[str, Any]:
        """Import the modules that `load` would import first."""
        _import(ENGINES[engine].imported_to_load)
        return {}

    def memory(self) -> dict[str, Any]:
        return asdict(memory_use())

    def _loaded(self) -> Engine:
        if self._engine is None:
            raise BatonError("the worker was asked to run before it loaded anything")
        return self._engine


def _import(modules: Iterable[str]) -> None:
    for module in modules:
        importlib.import_module(module)


def serve() -> None:
    """Answer requests until stdin ends.

    Answers have their own file descriptor; whatever libraries print on stdout goes to
    stderr instead.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker()
    known: dict[str, Callable[..., dict[str, Any]]] = {
        "build": worker.build,
        "load": worker.load,
        "run": worker.run,
        "measure": worker.measure,
        "import": worker.import_modules,
        "memory": worker.memory,
    }
    gc.disable()  # no pause in the middle of a measurement
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = known[request.pop("do")](**request)
        except Exception as error:  # whatever an engine raises belongs to the one who asked
            answer = {"error": str(error) or type(error).__name__, "kind": type(error).__name__}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
