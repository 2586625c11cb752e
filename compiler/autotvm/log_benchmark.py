"""Benchmark a record's schedule against the build without the log, in a separate program.

It reads a request of the `log_benchmark` modules of `compiler.records` and prints the outcome.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import tvm

from ..errors import RecordError
from ..lowering.build import build
from ..measure.candidate import ArgInfo
from ..measure.timing import random_values
from ..records.ab_benchmark import Outcome
from ..records.auto_scheduler.dispatcher import ApplyHistoryBest
from ..records.auto_scheduler.record import parse_line
from ..records.autotvm.dispatcher import FallbackContext
from ..records.autotvm.record import decode
from ..runtime import graph_executor
from ..target import parse
from .single_op_program import build_alone, program_of

ROUNDS = 15  # each times both libraries once


def _measure(request: Mapping[str, Any]) -> Outcome:
    """Build the operators both ways and time the libraries in turn."""
    target = parse(request["target"])
    builds = _kernel if "operators" in request else _operator
    libraries, inputs = builds(target, request)
    device = tvm.device("cuda" if str(target.kind.name) == "cuda" else "cpu")
    if not device.exist:
        raise RecordError("this machine has no device to run it")
    modules = []
    for library in libraries:
        module = graph_executor.GraphModule(library["default"](device))
        module.set_input(inputs)
        module.run()
        modules.append(module)
    seconds: list[list[float]] = [[] for _ in modules]
    for _ in range(ROUNDS):
        for module, taken in zip(modules, seconds, strict=True):
            timed = module.benchmark(device, repeat=3, number=1, min_repeat_ms=2)
            taken.append(statistics.median(timed.results))
    return Outcome(*(statistics.median(taken) for taken in seconds))


def _operator(target: Any, request: Mapping[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """Libraries with and without a record of AutoTVM, and their inputs."""
    inp, _ = decode(request["record"])
    program = program_of(inp.task, np.random.default_rng(0))
    logged, used = build_alone(inp, program, target)
    if not used:
        raise RecordError(f"no kernel of {inp.task.name} takes the record")
    with FallbackContext(), tvm.transform.PassContext(opt_level=3):
        own = build(program.mod, target)
    return (logged, own), program.inputs


def _kernel(target: Any, request: Mapping[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """Libraries with and without a record of auto_scheduler, and their inputs."""
    mod = tvm.ir.load_json(request["operators"])
    with tvm.transform.PassContext(opt_level=3):
        own = build(mod, target)
        with ApplyHistoryBest([parse_line(request["record"])]):
            logged = build(mod, target)
    used: Any = logged.report
    if not any(kernel.source.startswith("auto_scheduler:") for kernel in used.kernels):
        raise RecordError("no kernel takes the record")
    args = [ArgInfo(info.static_shape, info.dtype) for info in own.metadata.inputs]
    names = [info.name for info in own.metadata.inputs]
    return (logged, own), dict(zip(names, random_values(args), strict=True))


if __name__ == "__main__":
    print(json.dumps(asdict(_measure(json.loads(sys.stdin.read())))))
