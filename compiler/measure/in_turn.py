"""Time two libraries of the same operator in turn, in a child process."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import tvm

from ..errors import RecordError
from ..records.ab_benchmark import Outcome
from ..runtime import graph_executor

ROUNDS = 15  # each times both libraries once


def answer(verdict: Outcome) -> None:
    """Print a verdict as `ab_benchmark.measure_elsewhere` reads it."""
    print(json.dumps(asdict(verdict)))


def measure(libraries: Sequence[Any], inputs: Mapping[str, Any], kind: str) -> Outcome:
    """Time two libraries of the same inputs, the logged one first.

    Raises RecordError: there is no such device.
    """
    device = tvm.device("cuda" if kind == "cuda" else "cpu")
    if not device.exist:
        raise RecordError("this machine has no device to run it")
    modules, seconds = [], [[], []]  # type: ignore[var-annotated]
    for library in libraries:
        module = graph_executor.GraphModule(library["default"](device))
        module.set_input(inputs)
        module.run()
        modules.append(module)
    for _ in range(ROUNDS):
        for module, taken in zip(modules, seconds, strict=True):
            timed = module.benchmark(device, repeat=3, number=1, min_repeat_ms=2)
            taken.append(statistics.median(timed.results))
    return Outcome(*(statistics.median(taken) for taken in seconds))
